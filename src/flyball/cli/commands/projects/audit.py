"""``flyball audit``: who changed what on this machine, and what money was let go. Looks, never touches."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from flyball.cli.ui.render import Block, Column, Line, Piece, Style, Table, Words, print_json, show
from flyball.cli.ui.units import count_or_all, shown_path
from flyball.factory.project.registry_history import AuditLine, read_audit
from flyball.governor.state_url import home

SUMMARY = """Show who changed projects, accounts and quotas on this machine, and when API keys were spent
from, oldest first. The log is a file that only grows, in a git repository of its own."""
EXAMPLE = """flyball audit
flyball audit work --lines all
flyball audit --json"""
LINES = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "about",
        nargs="?",
        default="",
        metavar="WORD",
        help="only lines that name it: a project, an account, a verb",
    )
    parser.add_argument(
        "--lines", type=count_or_all, default=LINES, metavar="N", help=f"the last N lines ({LINES}), or all"
    )
    parser.add_argument("--json", action="store_true", help="the lines as JSON")


def run(args: argparse.Namespace) -> int:
    folder = home() / "registry"
    lines, unreadable = read_audit(folder)
    named = [line for line in lines if not args.about or line.names(args.about)]
    kept = named if args.lines is None else named[max(0, len(named) - args.lines) :]
    if args.json:
        print_json(
            {
                "lines": [line.record for line in kept],
                "earlier": len(named) - len(kept),
                "unreadable": unreadable,
            }
        )
    else:
        show(_screen(kept, earlier=len(named) - len(kept), unreadable=unreadable, about=args.about))
    return 0


def _screen(lines: Sequence[AuditLine], *, earlier: int, unreadable: int, about: str) -> Iterator[Block]:
    if lines:
        columns = [Column("WHEN"), Column("WHO"), Column("WHAT"), Column("ABOUT", wraps=True)]
        rows: list[list[Words]] = [
            [Piece(line.at, Style.QUIET), line.user, Piece(line.what, Style.STRONG), line.about]
            for line in lines
        ]
        yield Table(columns, rows, indent=0)
    elif about:
        yield Line(f"Nothing in the audit log names {about}.")
    else:
        yield Line("Nothing has been changed yet: no project, account or quota was ever added.")
    if earlier:
        yield Line(f"{earlier} earlier: --lines all", label=Piece("more", Style.QUIET))
    if unreadable:
        where = shown_path(home() / "registry" / "audit.jsonl")
        yield Line(f"{unreadable} lines of {where} cannot be read", label=Piece("note", Style.WARN))
