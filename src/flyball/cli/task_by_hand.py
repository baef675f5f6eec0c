"""``flyball task close ID`` and ``flyball task reject ID``: a person decides what becomes of a task's work.

Closing is done where the task is kept, as the person would do it by hand; what is under way for it is ended
by the run that is going on, or here. Sending back is an entry in the ledger: the run that is going on starts
its agent again, or the next one does.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from flyball.cli.asking import NOT_YET
from flyball.cli.nudge import message_of
from flyball.cli.render import print_json, say
from flyball.cli.units import command
from flyball.core.recovery import may_let_go, may_send_back
from flyball.core.slotrun import SlotRun, State
from flyball.core.task import TaskStatus
from flyball.errors import UsageError
from flyball.factory.by_hand import ByHand
from flyball.factory.conduct import ask, conduct, running
from flyball.factory.looking import Known, Project, known_task, project_at, slot_of
from flyball.factory.report import Terms, Wish
from flyball.factory.request_answer import RequestAnswer, done

# -- close ------------------------------------------------------------------------------------------------


def close(args: argparse.Namespace) -> int:
    project = project_at(Path.cwd())
    known = known_task(project, args.id)
    _check_closable(known)
    was_closed = known.task is not None and known.task.status is TaskStatus.CLOSED
    if not was_closed:
        project.source.drop(known.id, reason=args.reason)
    answer = _let_go(project, known)
    slot = slot_of(project.state, known.id)
    notes = [NOT_YET] if answer is None else [] if answer.accepted else [answer.words]
    notes += [] if was_closed else _consequences(project, known, slot)
    code = 0 if answer is not None and answer.accepted else 1
    if args.json:
        outcome = answer.outcome.value if answer is not None else None
        told = {"task": known.id, "closed": True, "outcome": outcome, "branch": _kept(slot)}
        print_json({**told, "notes": notes, "exit": code})
        return code
    where = f" in {known.task.where}" if known.task is not None and known.task.where else ""
    say(f"{known.id} was closed already" if was_closed else f"closed {known.id}{where}")
    for note in notes:
        say(note)
    return code


def _check_closable(known: Known) -> None:
    if known.task is None and known.problem is not None:
        where = known.problem.where
        raise UsageError(f"{known.id} cannot be read as it is written in {where}: {known.problem.words}")
    if known.task is None:
        raise UsageError(f"the task {known.id} is gone, so there is nothing to close")
    slot = known.slot
    if slot is not None and not slot.final and not may_let_go(slot):
        reviewed = "its pull request is being reviewed" if slot.state is State.CHECKING else "it is landing"
        raise UsageError(f"{known.id} cannot be closed now: {reviewed}; flyball board shows how that goes on")


def _let_go(project: Project, known: Known) -> RequestAnswer | None:
    """End what is under way for it; what came of that, None if the run has not answered yet."""
    if running(project.root) is not None:
        return ask(project.root, "close", known.id)
    if known.slot is not None and not known.slot.final:
        by_hand = ByHand(task=known.id, how="close")
        conduct(project.root, project.config, Wish(), Terms(), by_hand=by_hand)
    return done(f"{known.id} is let go")


def _kept(slot: SlotRun | None) -> str:
    """The branch that its work is kept on."""
    return slot.branch if slot is not None and slot.state is not State.MERGED else ""


def _consequences(project: Project, known: Known, slot: SlotRun | None) -> list[str]:
    notes = []
    if project.source.name == "files":
        notes.append("commit that file with your own work")
    if branch := _kept(slot):
        notes.append(f"its work is kept on {branch}; {command('merge', known.id)} lands it all the same")
    if slot is not None and slot.pr_number and slot.state is not State.MERGED:
        notes.append(f"pull request #{slot.pr_number} stays open; close it there: {slot.pr_url}")
    return [*notes, *_freed(project, known)]


def _freed(project: Project, known: Known) -> Iterator[str]:
    """Whoever needed it waits no longer, which may not be what was meant."""
    if known.slot is not None and known.slot.state is State.MERGED:
        return
    tasks = project.source.load().tasks
    needing = [each.id for each in tasks if known.id in each.needs and each.status is not TaskStatus.CLOSED]
    if needing:
        yield f"{', '.join(needing)} needed it, and may start without it now"


# -- reject -----------------------------------------------------------------------------------------------


def reject(args: argparse.Namespace) -> int:
    project = project_at(Path.cwd())
    known = known_task(project, args.id)
    slot = _rejectable(known)
    words = message_of(args.reason)
    by_hand = ByHand(task=known.id, how="reject", words=words)
    going_on = running(project.root) is not None
    if going_on:
        answer = ask(project.root, "reject", known.id, words=words)
        if answer is not None and not answer.accepted:
            raise UsageError(answer.words)
    else:
        conduct(project.root, project.config, Wish(), Terms(), by_hand=by_hand)
        answer = done(f"{known.id} is sent back")
    sent_back = answer is not None
    code = 0 if sent_back else 1
    notes = list(_what_follows(known, slot, going_on=going_on)) if sent_back else [NOT_YET]
    if args.json:
        print_json({"task": known.id, "sent_back": sent_back, "notes": notes, "exit": code})
        return code
    if sent_back:
        say(f"{known.id} is sent back")
    for note in notes:
        say(note)
    return code


def _rejectable(known: Known) -> SlotRun:
    """Its trip, where there is something to send back; says what to do instead."""
    name, slot = known.id, known.slot
    if known.task is not None and known.task.status is TaskStatus.CLOSED:
        raise UsageError(f"{name} is closed; open it again where it is kept, or write a new task")
    if known.task is None:
        raise UsageError(f"the task {name} is gone, so no agent can go on with it")
    if slot is None:
        way_out = f"say it in the task, or {command('nudge', name, '...')}"
        raise UsageError(f"no work was done on {name} yet, so there is nothing to send back; {way_out}")
    if slot.state is State.MERGED:
        raise UsageError(f"{name} has landed in {slot.new[:12]}; flyball task add writes a new task")
    if not may_send_back(slot):
        at_once = f"{command('nudge', name, '...', '--now')} gives its agent a message"
        raise UsageError(f"{name} is {slot.state.value}, so it does not wait for you; {at_once}")
    return slot


def _what_follows(known: Known, slot: SlotRun, *, going_on: bool) -> Iterator[str]:
    when = "the run that is going on" if going_on else "the next flyball run"
    yield f"{when} starts its agent again, with its branch, its session and your words"
    if slot.pr_number:
        again = f"{command('pr', 'open', known.id)} brings it up to date, where a run does not"
        yield f"pull request #{slot.pr_number} stays open; {again}: {slot.pr_url}"
