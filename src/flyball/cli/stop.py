"""``flyball stop [TASK]``: pause a run, or one task of it. Nothing is lost."""

from __future__ import annotations

import argparse
from pathlib import Path

from flyball.cli.asking import ask_run, tell
from flyball.factory.looking import known_task, project_at

SUMMARY = """Pause the project's run: its agents are ended, their worktrees, branches and sessions are kept,
and the next flyball run goes on from there. With a task, only that one: the run goes on with the others, and
ends with 75 because something is left."""
EXAMPLE = """flyball stop
flyball stop t-14
exit status: 0 it stops; 1 it did not answer, or the task was not under way; 2 no run is going on"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", nargs="?", default="", metavar="TASK", help="only this one (default: all)")
    parser.add_argument("--json", action="store_true", help="the answer as JSON")


def run(args: argparse.Namespace) -> int:
    project = project_at(Path.cwd())
    slot = known_task(project, args.task).slot if args.task else None
    under_way = not args.task or (slot is not None and not slot.final)
    code = tell(ask_run(project, "stop", args.task), as_json=args.json, task=args.task, stopped=under_way)
    return code if under_way else 1
