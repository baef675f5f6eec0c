"""``flyball merge TASK``: land finished work that waits for a person, or whose landing failed.

What happens is read from the ledger and shown as it happens, the gate's output included.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

from flyball.cli.shared.manual_landing import land_by_hand
from flyball.cli.ui.render import Block, Line, Piece, Style, print_json, show
from flyball.cli.ui.units import command
from flyball.core.tasks.task_run import State, Step, TaskRecord
from flyball.errors import InvariantError, UsageError
from flyball.factory.project_view import (
    Project,
    TaskLookup,
    find_task,
    is_agent_alive,
    last_run,
    open_project_at,
)
from flyball.factory.run.session import running

SUMMARY = """Land a task's finished work: rebase it, run the gate, move the default branch, close the task.
For work that waits for a person (merge.policy = "manual"), and to try a failed landing again."""
EXAMPLE = """flyball merge t-14
exit status: 0 merged; 1 not merged, with the reason and the next step"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", metavar="TASK", help="the task")
    parser.add_argument("--json", action="store_true", help="the result as JSON, and nothing else")


def run(args: argparse.Namespace) -> int:
    project = open_project_at(Path.cwd())
    known = find_task(project, args.task)
    notes: list[str] = []
    if known.record is None or known.record.state is not State.MERGED:
        _check_landable(project, known)
        notes = land_by_hand(project, args.task, quiet=args.json)
    record = last_run(project.state, args.task)
    if record is not None and record.state is State.MERGED and record.pull.number:
        where = f"pull request {record.pull.number} ({record.pull.url})"
        notes.append(f"{where} is still open: push the default branch, or close it there")
    return _tell(project, record, notes, as_json=args.json)


def _check_landable(project: Project, known: TaskLookup) -> None:
    """Is there anything that could be landed? Says what to do instead."""
    record = known.record
    if record is None or not record.worktree.branch:
        way_out = f"{command('task', 'why', known.id)} says why"
        raise UsageError(f"no work was done on {known.id} yet, so there is nothing to land; {way_out}")
    going_on = running(project.root) is not None
    if record.final or (record.state is State.LANDING and not going_on):
        return
    if going_on:
        later = "once it is done it waits for you"
        if project.config.merge.policy == "auto":
            later = "it lands by itself when it is done"
        raise UsageError(f"{known.id} is {record.state.value} in the run that is going on; {later}")
    alive = "; its agent still runs" if is_agent_alive(record) else ""
    raise UsageError(f"{known.id} was left {record.state.value}{alive}; flyball run goes on with it")


# -- telling --------------------------------------------------------------------------------------------


def _tell(project: Project, record: TaskRecord | None, notes: list[str], *, as_json: bool) -> int:
    if record is None:
        raise InvariantError("a landing left no trace in the ledger")
    merged = record.state is State.MERGED
    code = 0 if merged else 1
    if as_json:
        fields = {"task": record.task, "merged": merged, "state": record.state.value, "notes": notes}
        words = {
            "commit": record.landing.new if merged else "",
            "why": "" if merged else record.landing.said or record.reason,
        }
        print_json({**fields, **words, "exit": code})
    else:
        show([*_result(project, record), *(Line(note, label="note", indent=2) for note in notes)])
    return code


def _result(project: Project, record: TaskRecord) -> Iterator[Block]:
    task = Piece(record.task, Style.STRONG)
    if record.state is State.MERGED:
        where = f" in {record.landing.new[:12]}" if record.landing.new else ""
        yield Line([task, " ", Piece("merged", Style.GOOD), where])
        return
    yield Line(
        [
            task,
            " ",
            Piece("not merged", Style.BAD),
            f": {record.landing.said or record.reason or record.state.value}",
        ]
    )
    for number, words in enumerate(_next_steps(project, record)):
        yield Line(words, label=" " if number else "next", indent=2)


def _next_steps(project: Project, record: TaskRecord) -> Iterator[str]:
    if not record.final:
        going_on = running(project.root) is not None
        yield "flyball board shows how it goes on" if going_on else "flyball run goes on with it"
        return
    if record.landing.step is Step.GATE and not record.landing.step_done:
        yield f"{command('tail', record.task, '--gate')} shows the gate's output"
    if record.worktree.path and os.path.isdir(record.worktree.path):
        yield f"mend it in {record.worktree.path}, commit, and {command('merge', record.task)}"
    yield "or flyball run, which hands it to an agent again"
