"""``flyball stop [TASK]``: pause a run, or one task of it. Nothing is lost."""

from __future__ import annotations

import argparse
from pathlib import Path

from flyball.cli.shared.run_requests import NOT_DONE, ask_run, tell
from flyball.factory.project_view import find_task, open_project_at
from flyball.factory.run.options import RunVerb
from flyball.factory.state.ledger import RequestOutcome

SUMMARY = """Pause the project's run: its agents are ended, their workspaces, branches and sessions are kept,
and the next flyball run goes on from there. With a task, only that one: the run goes on with the others, and
ends with 75 because something is left."""
EXAMPLE = """flyball stop
flyball stop t-14
exit status: 0 it stops; 1 it did not answer, or the task was not under way; 2 no run is going on"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", nargs="?", default="", metavar="TASK", help="only this one (default: all)")
    parser.add_argument("--json", action="store_true", help="the answer as JSON")


def run(args: argparse.Namespace) -> int:
    project = open_project_at(Path.cwd())
    if args.task:
        find_task(project, args.task)
    answer = ask_run(project, RunVerb.STOP, args.task)
    stopped = answer is not None and answer.outcome is RequestOutcome.DONE
    tell(answer, as_json=args.json, task=args.task, stopped=stopped)
    return 0 if stopped else NOT_DONE
