"""``flyball resize N``: change how many agents a run has at once, while it goes on."""

from __future__ import annotations

import argparse
from pathlib import Path

from flyball.cli.shared.run_requests import ask_run, tell
from flyball.cli.ui.units import whole
from flyball.errors import UsageError
from flyball.factory.project_view import open_project_at
from flyball.factory.run.options import RunVerb

SUMMARY = """Change how many agents the project's run has at once. Fewer: none is interrupted, none is started
until there is room. The pool may leave it less. For every run: run.width in flyball.toml."""
EXAMPLE = """flyball resize 2
exit status: 0 done; 1 it did not answer; 2 no run is going on"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("width", type=whole, metavar="N", help="agents at once, 1 or more")
    parser.add_argument("--json", action="store_true", help="the answer as JSON")


def run(args: argparse.Namespace) -> int:
    if args.width < 1:
        raise UsageError(f"a run cannot be {args.width} wide; flyball drain starts nothing more")
    project = open_project_at(Path.cwd())
    return tell(ask_run(project, RunVerb.RESIZE, width=args.width), as_json=args.json, width=args.width)
