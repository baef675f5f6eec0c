"""Tasks whose pull requests are open, and how to name one: by its task, its number or its address."""

from __future__ import annotations

import re
from collections.abc import Mapping

from flyball.core.tasks.task_run import State, TaskRecord
from flyball.errors import UsageError
from flyball.factory.project_view import Project, open_ledger


def waiting_pulls(project: Project) -> dict[str, TaskRecord]:
    """Those that wait for people."""
    with open_ledger(project.state) as ledger:
        parked = ledger.runs_in(State.PARKED) if ledger is not None else {}
    return {task: record for task, record in parked.items() if record.pull.number}


def named_pull(pulls: Mapping[str, TaskRecord], word: str) -> TaskRecord:
    """The one that a person means; UsageError names the others.

    >>> from flyball.core.tasks.task_run import PullRecord
    >>> parked = TaskRecord(task="t-1", state=State.PARKED, pull=PullRecord(number=12))
    >>> named_pull({"t-1": parked}, "#12").task
    't-1'
    """
    if word in pulls:
        return pulls[word]
    number = re.search(r"(\d+)/?$", word)
    for record in pulls.values():
        is_named = word.lstrip("#!") == str(record.pull.number) or word.rstrip("/") == record.pull.url
        if number is not None and record.pull.number == int(number[1]) and is_named:
            return record
    known = ", ".join(f"{record.task} (#{record.pull.number})" for record in pulls.values())
    way_out = f"open are {known}" if known else "none is open; flyball pr open TASK opens one"
    raise UsageError(f"there is no pull request {word!r} of this project's tasks; {way_out}")
