"""``flyball init``: shows what it would write; ``--write`` writes it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from flyball.cli.ui.render import BLANK, Block, Line, Piece, Style, print_json, show
from flyball.cli.ui.units import command, shown_path, shown_words
from flyball.factory.project.init import InitPlan, plan_init, write_init
from flyball.runtimes.registry import NAMES

SUMMARY = "Make a repository a project: show every file that would be written, and with --write, write it."
EXAMPLE = """flyball init
flyball init --write"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--id", metavar="ID", help="the project's name (default: the folder's)")
    parser.add_argument("--runtime", choices=NAMES, help="the agent (default: the first one installed)")
    parser.add_argument("--write", action="store_true", help="write the files; none is ever overwritten")
    parser.add_argument("--json", action="store_true", help="the result as JSON")


def run(args: argparse.Namespace) -> int:
    plan = plan_init(Path.cwd(), project_id=args.id, runtime=args.runtime)
    written = write_init(plan) if args.write else []
    if args.json:
        files = [{"path": file.path, "content": file.content} for file in plan.files]
        record = {"root": shown_path(plan.root), "dry_run": not args.write, "files": files}
        notes = [shown_words(note) for note in plan.notes]
        print_json({**record, "written": written, "kept": plan.kept, "notes": notes})
    elif args.write:
        show(_written_files(plan, written))
    else:
        show(_proposal(plan, again=_again(args)))
    return 0


def _again(args: argparse.Namespace) -> str:
    named = [
        word
        for flag, value in (("--id", args.id), ("--runtime", args.runtime))
        if value
        for word in (flag, value)
    ]
    return command("init", *named, "--write")


def _proposal(plan: InitPlan, *, again: str) -> Iterator[Block]:
    if plan.files:
        yield Line(f"In {plan.root} these files would be written:")
    for file in plan.files:
        yield BLANK
        yield Line(Piece(file.path, Style.STRONG))
        for line in file.content.splitlines():
            yield Line(line, indent=4)
    yield BLANK
    yield from _kept_and_notes(plan)
    yield Line(f"Nothing was written. To write: {again}" if plan.files else "Nothing is missing.")


def _written_files(plan: InitPlan, written: list[str]) -> Iterator[Block]:
    for path in written:
        yield Line(f"wrote {path}")
    yield from _kept_and_notes(plan)
    if written:
        yield Line("next: look at them, commit them, add a task (flyball task add ...), then: flyball run")
    else:
        yield Line("Nothing is missing.")


def _kept_and_notes(plan: InitPlan) -> Iterator[Block]:
    for path in plan.kept:
        yield Line(f"{path} is there and stays as it is")
    for note in plan.notes:
        yield Line([Piece("note: ", Style.WARN), note])
