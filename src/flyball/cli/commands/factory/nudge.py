"""``flyball nudge TASK MESSAGE``: a message that a task's agent gets with its next prompt.

An agent that runs cannot be spoken to. So a message goes out when the agent is started next, or at once by
ending the agent and starting it again with its session. When that will be is said in words.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from flyball.cli.shared.run_requests import read_message
from flyball.cli.ui.render import print_json, say
from flyball.cli.ui.units import command
from flyball.core.tasks.task import TaskStatus
from flyball.core.tasks.task_run import State, TaskRecord
from flyball.errors import UsageError
from flyball.factory.project_view import TaskLookup, find_task, is_agent_alive, open_project_at
from flyball.factory.run.options import RunVerb
from flyball.factory.run.session import ask, running

SUMMARY = """Give a task's agent a message. It gets it when it is started or resumed next; --now ends the
agent and resumes its session with the message at once. Without a run the message is kept for the next one."""
EXAMPLE = """flyball nudge t-14 "use the old endpoint"
flyball nudge t-14 --now - < message.md"""

_AT_NEXT_START = "it goes out with the prompt when its agent starts"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", metavar="TASK", help="the task")
    parser.add_argument("message", metavar="MESSAGE", help="the words; - reads them from stdin")
    parser.add_argument(
        "--now", action="store_true", help="interrupt the agent and resume it with the message"
    )
    parser.add_argument("--json", action="store_true", help="what happens to it as JSON")


def run(args: argparse.Namespace) -> int:
    project = open_project_at(Path.cwd())
    known = find_task(project, args.task)
    _check_alive(known)
    message = read_message(args.message)
    going_on = running(project.root) is not None
    runs = known.record is not None and is_agent_alive(known.record)
    words = delivery(known, going_on=going_on, runs=runs, now=args.now)
    # The answer comes when the message goes out, which may take long: it is not waited for.
    ask(project.root, RunVerb.NUDGE, args.task, wait_s=0.0, message=message, now=args.now)
    if args.json:
        print_json({"task": args.task, "interrupts": args.now and going_on and runs, "words": words})
    else:
        say(words)
    return 0


def _check_alive(known: TaskLookup) -> None:
    """A message that no agent will ever read is refused."""
    if known.problem is not None and known.record is None:
        where = known.problem.where
        raise UsageError(f"{known.id} cannot be used as it is written in {where}: {known.problem.words}")
    if known.task is not None and known.task.status is TaskStatus.CLOSED:
        raise UsageError(f"{known.id} is closed: no agent will read a message")
    if known.task is None and known.record is not None and known.record.final:
        raise UsageError(f"the task {known.id} is gone: no agent will read a message")


# -- when it goes out -------------------------------------------------------------------------------------


def delivery(known: TaskLookup, *, going_on: bool, runs: bool, now: bool) -> str:
    """When the agent gets the message, in words. ``runs``: its agent does."""
    name, record = known.id, known.record
    none_to_interrupt = "; no agent runs that --now could interrupt" if now else ""
    if not going_on:
        return f"kept for {name}: {_without_a_run(known, runs=runs)}{none_to_interrupt}"
    if runs and now:
        return f"the agent of {name} is interrupted and goes on with the message"
    if runs:
        at_once = f"{command('nudge', name, '...', '--now')} would interrupt it"
        return f"the agent of {name} gets it when it is started again (limit, red gate, stop); {at_once}"
    return f"sent to {name}: {_in_a_run(record)}{none_to_interrupt}"


def _in_a_run(record: TaskRecord | None) -> str:
    if record is not None and record.state is State.CHECKING:
        return "its agent is done and its work is being checked; it gets the message only if it is sent back"
    if record is not None and record.state in (State.ENDED, State.LANDING):
        return "its agent is done and its work is landing; it gets the message only if it is sent back"
    if record is not None and record.state in (State.PARKED, State.BLOCKED):
        return f"it is {_STANDS[record.state]}, so the message goes out if a later run starts it again"
    return _AT_NEXT_START


def _without_a_run(known: TaskLookup, *, runs: bool) -> str:
    record = known.record
    if runs:
        return "its agent runs on by itself; flyball run takes it up again and hands it the message next"
    if record is not None and record.state is State.PARKED:
        by_hand = command("merge", known.id)
        return f"it is {_STANDS[record.state]} ({by_hand}), and gets it only if it starts again"
    return "the next flyball run hands it over when its agent starts"


_STANDS = {State.PARKED: "finished and waits for you", State.BLOCKED: "blocked"}
