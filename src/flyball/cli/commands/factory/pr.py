"""``flyball pr open|sync``: pull requests of finished work, and what became of them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from flyball.cli.parser import add_action
from flyball.cli.shared.manual_landing import land_by_hand
from flyball.cli.shared.pull_requests import waiting_pulls
from flyball.cli.ui.render import Block, Column, Line, Piece, Style, Table, Words, print_json, show
from flyball.core.tasks.task_run import LandingResult, State, TaskRecord
from flyball.errors import UsageError
from flyball.factory.landing.hosts.port import Pull, PullError, PullState
from flyball.factory.landing.hosts.registry import find_host
from flyball.factory.project_view import Project, find_task, last_run, open_project_at
from flyball.factory.run.options import ManualMove
from flyball.factory.run.session import running

SUMMARY = "Open pull requests for finished work, and see what became of those that are open."
EXAMPLE = """flyball pr open t-14
flyball pr sync"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    opened = add_action(
        actions, "open", "open a pull request for a task's finished work", "flyball pr open t-14"
    )
    opened.add_argument("task", metavar="TASK", help="the task")
    synced = add_action(
        actions,
        "sync",
        "see what became of all open ones: of what was merged elsewhere, close the task and clean up",
        "flyball pr sync --json",
    )
    for action in (opened, synced):
        action.add_argument("--json", action="store_true", help="the result as JSON, and nothing else")


def run(args: argparse.Namespace) -> int:
    project = open_project_at(Path.cwd())
    return _open_pull(project, args.task, args.json) if args.action == "open" else _sync(project, args.json)


# -- open -----------------------------------------------------------------------------------------------


def _open_pull(project: Project, task_id: str, as_json: bool) -> int:
    record = find_task(project, task_id).record
    if record is None or not record.worktree.branch or record.state is State.MERGED:
        raise UsageError(f"{task_id} has no finished work that waits; flyball task why {task_id} says more")
    if not record.final and (record.state is not State.LANDING or running(project.root) is not None):
        raise UsageError(f"{task_id} is {record.state.value}; flyball board shows how it goes on")
    notes = land_by_hand(project, task_id, ManualMove.PULL_REQUEST, quiet=as_json)
    record = last_run(project.state, task_id)
    opened = record is not None and record.landing.result is LandingResult.PR_OPENED
    why = record.landing.said or record.reason if record is not None else ""
    if as_json:
        number, url = (record.pull.number, record.pull.url) if record is not None else (0, "")
        fields = {"task": task_id, "opened": opened, "number": number, "url": url}
        print_json({**fields, "why": why, "notes": notes, "exit": 0 if opened else 1})
    else:
        style = Style.GOOD if opened else Style.BAD
        word = Piece("pull request" if opened else "no pull request", style)
        show([Line([Piece(task_id, Style.STRONG), " ", word, f": {why}"])])
        show(Line(note, label="note", indent=2) for note in notes)
    return 0 if opened else 1


# -- sync -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PullReport:
    task: str
    number: int
    url: str
    state: str
    """open, approved, merged, closed, or unknown."""
    words: str
    """What was done, or the next step."""
    well: bool = True


def _sync(project: Project, as_json: bool) -> int:
    pulls = waiting_pulls(project)
    host = find_host(project.root, project.config.merge.host) if pulls else None
    found = []
    for record in pulls.values():
        try:
            pull = host.get(record.pull.number) if host is not None else None
        except PullError as error:
            found.append(_report(record, "unknown", str(error), well=False))
            continue
        if pull is not None:
            found.append(_sync_one(project, record, pull))
    code = 0 if all(each.well for each in found) else 1
    if as_json:
        print_json({"pulls": found, "exit": code})
    else:
        show(_screen(found))
    return code


def _report(record: TaskRecord, state: str, words: str, *, well: bool = True) -> PullReport:
    return PullReport(
        task=record.task, number=record.pull.number, url=record.pull.url, state=state, words=words, well=well
    )


def _sync_one(project: Project, record: TaskRecord, pull: Pull) -> PullReport:
    if pull.state is PullState.MERGED:
        return _close_merged(project, record)
    if pull.state is PullState.CLOSED:
        words = (
            f"was closed; flyball pr open {record.task} opens another, flyball merge {record.task} lands it"
        )
        return _report(record, "closed", words)
    if pull.approved:
        return _report(record, "approved", f"flyball land {record.task} lands it")
    return _report(record, "open", "waits for people")


def _close_merged(project: Project, record: TaskRecord) -> PullReport:
    notes = land_by_hand(project, record.task, ManualMove.LAND_APPROVED, quiet=True)
    after = last_run(project.state, record.task)
    if after is None or after.state is not State.MERGED:
        why = after.landing.said or after.reason if after is not None else "it is gone"
        return _report(record, "merged", f"was merged elsewhere, and not settled: {why}", well=False)
    return _report(record, "merged", "; ".join(["closed its task and cleaned up", *notes]))


_STYLES = {"merged": Style.GOOD, "approved": Style.GOOD, "closed": Style.WARN, "unknown": Style.BAD}


def _screen(found: list[PullReport]) -> Iterator[Block]:
    if not found:
        yield Line("no pull request is open")
        return
    rows: list[list[Words]] = [
        [
            each.task,
            f"#{each.number}",
            Piece(each.state, _STYLES.get(each.state, Style.PLAIN)),
            each.words,
            each.url,
        ]
        for each in found
    ]
    columns = [Column("TASK"), Column("PR"), Column("STATE"), Column("WHAT", wraps=True), Column("ADDRESS")]
    yield Table(columns, rows)
