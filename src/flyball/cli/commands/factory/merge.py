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
from flyball.core.tasks.task_run import State, Step, TaskRunState
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
    if known.slot is None or known.slot.state is not State.MERGED:
        _check_landable(project, known)
        notes = land_by_hand(project, args.task, quiet=args.json)
    slot = last_run(project.state, args.task)
    if slot is not None and slot.state is State.MERGED and slot.pr_number:
        where = f"pull request {slot.pr_number} ({slot.pr_url})"
        notes.append(f"{where} is still open: push the default branch, or close it there")
    return _tell(project, slot, notes, as_json=args.json)


def _check_landable(project: Project, known: TaskLookup) -> None:
    """Is there anything that could be landed? Says what to do instead."""
    slot = known.slot
    if slot is None or not slot.branch:
        way_out = f"{command('task', 'why', known.id)} says why"
        raise UsageError(f"no work was done on {known.id} yet, so there is nothing to land; {way_out}")
    going_on = running(project.root) is not None
    if slot.final or (slot.state is State.LANDING and not going_on):
        return
    if going_on:
        later = "once it is done it waits for you"
        if project.config.merge.policy == "auto":
            later = "it lands by itself when it is done"
        raise UsageError(f"{known.id} is {slot.state.value} in the run that is going on; {later}")
    alive = "; its agent still runs" if is_agent_alive(slot) else ""
    raise UsageError(f"{known.id} was left {slot.state.value}{alive}; flyball run goes on with it")


# -- telling --------------------------------------------------------------------------------------------


def _tell(project: Project, slot: TaskRunState | None, notes: list[str], *, as_json: bool) -> int:
    if slot is None:
        raise InvariantError("a landing left no trace in the ledger")
    merged = slot.state is State.MERGED
    code = 0 if merged else 1
    if as_json:
        fields = {"task": slot.task, "merged": merged, "state": slot.state.value, "notes": notes}
        words = {"commit": slot.new if merged else "", "why": "" if merged else slot.said or slot.reason}
        print_json({**fields, **words, "exit": code})
    else:
        show([*_result(project, slot), *(Line(note, label="note", indent=2) for note in notes)])
    return code


def _result(project: Project, slot: TaskRunState) -> Iterator[Block]:
    task = Piece(slot.task, Style.STRONG)
    if slot.state is State.MERGED:
        where = f" in {slot.new[:12]}" if slot.new else ""
        yield Line([task, " ", Piece("merged", Style.GOOD), where])
        return
    yield Line(
        [task, " ", Piece("not merged", Style.BAD), f": {slot.said or slot.reason or slot.state.value}"]
    )
    for number, words in enumerate(_next_steps(project, slot)):
        yield Line(words, label=" " if number else "next", indent=2)


def _next_steps(project: Project, slot: TaskRunState) -> Iterator[str]:
    if not slot.final:
        going_on = running(project.root) is not None
        yield "flyball board shows how it goes on" if going_on else "flyball run goes on with it"
        return
    if slot.landing is Step.GATE and not slot.landing_done:
        yield f"{command('tail', slot.task, '--gate')} shows the gate's output"
    if slot.worktree and os.path.isdir(slot.worktree):
        yield f"mend it in {slot.worktree}, commit, and {command('merge', slot.task)}"
    yield "or flyball run, which hands it to an agent again"
