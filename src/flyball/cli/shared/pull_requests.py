"""Tasks whose pull requests are open, and how to name one: by its task, its number or its address."""

from __future__ import annotations

import re
from collections.abc import Mapping

from flyball.core.tasks.task_run import State, TaskRunState
from flyball.errors import UsageError
from flyball.factory.project_view import Project, open_ledger


def waiting_pulls(project: Project) -> dict[str, TaskRunState]:
    """Those that wait for people."""
    with open_ledger(project.state) as ledger:
        parked = ledger.runs_in(State.PARKED) if ledger is not None else {}
    return {task: slot for task, slot in parked.items() if slot.pr_number}


def named_pull(pulls: Mapping[str, TaskRunState], word: str) -> TaskRunState:
    """The one that a person means; UsageError names the others.

    >>> named_pull({"t-1": TaskRunState(task="t-1", state=State.PARKED, pr_number=12)}, "#12").task
    't-1'
    """
    if word in pulls:
        return pulls[word]
    number = re.search(r"(\d+)/?$", word)
    for slot in pulls.values():
        is_named = word.lstrip("#!") == str(slot.pr_number) or word.rstrip("/") == slot.pr_url
        if number is not None and slot.pr_number == int(number[1]) and is_named:
            return slot
    known = ", ".join(f"{slot.task} (#{slot.pr_number})" for slot in pulls.values())
    way_out = f"open are {known}" if known else "none is open; flyball pr open TASK opens one"
    raise UsageError(f"there is no pull request {word!r} of this project's tasks; {way_out}")
