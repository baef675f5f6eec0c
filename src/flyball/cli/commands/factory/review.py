"""``flyball review TASK|PR``: a reviewer looks at a pull request as it stands, and says what it found."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flyball.cli.shared.manual_landing import land_by_hand
from flyball.cli.shared.pull_requests import named_pull, waiting_pulls
from flyball.cli.ui.render import Block, Line, Piece, Style, print_json, show
from flyball.core.tasks.task_run import RunPhase, Step, TaskRecord
from flyball.factory.project_view import last_run, open_project_at, task_history
from flyball.factory.run.options import ManualMove

SUMMARY = """Have a pull request reviewed as it stands now, by the project's reviewer (review.persona) under a
slot, and show what it says of every criterion. The pull request stays as it is."""
EXAMPLE = """flyball review t-14
flyball review 12 --json
exit status: 0 nothing stands against it; 1 something does, or no review could be had"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pull", metavar="TASK|PR", help="the task, or its pull request's number or address")
    parser.add_argument("--json", action="store_true", help="the result as JSON, and nothing else")


def run(args: argparse.Namespace) -> int:
    project = open_project_at(Path.cwd())
    record = named_pull(waiting_pulls(project), args.pull)
    last = task_history(project.state, record.task)[-1].id
    notes = land_by_hand(project, record.task, ManualMove.REVIEW, quiet=True)
    entries = task_history(project.state, record.task, after=last)
    said = next(
        (each.fields for each in entries if (each.step, each.mark) == (Step.REVIEW, RunPhase.DONE)), None
    )
    after = last_run(project.state, record.task) or record
    passed = bool(said and said["pull_passed"])
    if args.json:
        print_json(_record(record, after, said, notes, passed=passed))
    else:
        show([*_screen(record, after, said), *(Line(note, label="note", indent=2) for note in notes)])
    return 0 if passed else 1


def _record(
    record: TaskRecord, after: TaskRecord, said: Any, notes: list[str], *, passed: bool
) -> dict[str, object]:
    found = {"head": "", "criteria": [], "findings": []} if said is None else said
    return {
        "task": record.task,
        "number": record.pull.number,
        "url": record.pull.url,
        "reviewed": said is not None,
        "passed": passed,
        **{key: found[key] for key in ("head", "criteria", "findings")},
        "why": after.reason,
        "notes": notes,
        "exit": 0 if passed else 1,
    }


def _screen(record: TaskRecord, after: TaskRecord, said: Any) -> Iterator[Block]:
    name = Piece(f"{record.task} #{record.pull.number}", Style.STRONG)
    if said is None:
        yield Line([name, " ", Piece("unreviewed", Style.BAD), f": {after.reason}"])
        return
    verdict = Piece("passed", Style.GOOD) if said["pull_passed"] else Piece("blocked", Style.BAD)
    yield Line([name, " ", verdict, f" at {said['head'][:12]}: {record.pull.url}"])
    for each in said["criteria"]:
        met = Piece("met", Style.GOOD) if each["met"] else Piece("not met", Style.BAD)
        yield Line(f"{each['criterion']} ({each['evidence']})", label=met, indent=2)
    for each in said["findings"]:
        yield Line(f"{each['where']}: {each['what']}", label=each["severity"], indent=2)
