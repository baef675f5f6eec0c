"""``flyball drain``: let a run finish what it does and start nothing more."""

from __future__ import annotations

import argparse
from pathlib import Path

from flyball.cli.shared.run_requests import ask_run, tell
from flyball.factory.project_view import open_project_at
from flyball.factory.run.options import RunVerb

SUMMARY = """Ask the project's run to start nothing more. What runs is finished and landed; then the run ends.
The next flyball run goes on."""
EXAMPLE = """flyball drain
exit status: 0 it drains; 1 it did not answer; 2 no run is going on"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the answer as JSON")


def run(args: argparse.Namespace) -> int:
    project = open_project_at(Path.cwd())
    return tell(ask_run(project, RunVerb.DRAIN), as_json=args.json, project=project.config.project.id)
