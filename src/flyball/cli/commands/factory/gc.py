"""``flyball gc``: remove workspaces, branches and run folders that are not needed any more."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from flyball.cli.ui.render import BLANK, Block, Column, Line, Piece, Style, Table, Words, print_json, show
from flyball.cli.ui.units import counted, duration, shown_path, size_words
from flyball.core.pool.verdict import span_words
from flyball.errors import FlyballError, UsageError
from flyball.factory.cleanup import Leftover, LeftoverKind, Survey
from flyball.factory.project_view import Project, open_project_at
from flyball.factory.run.session import LOCK, running
from flyball.factory.state.locks import RunLock
from flyball.factory.state.run_folders import state_folder

SUMMARY = """Remove what finished work has left behind: workspaces of merged and closed tasks, branches whose
changes are all in the default branch, old run folders. Uncommitted work and unmerged commits always stay."""
EXAMPLE = """flyball gc --dry-run
flyball gc --older-than 7d
exit status: 0 done; 1 something could not be removed; 2 a run is going on"""

OLDER_THAN = "30d"


@dataclass(frozen=True, slots=True)
class Failed:
    thing: Leftover
    words: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="show what would go and what stays, and why")
    parser.add_argument(
        "--older-than",
        type=duration,
        default=OLDER_THAN,
        metavar="AGE",
        help=f"run folders of at least this age ({OLDER_THAN})",
    )
    parser.add_argument("--json", action="store_true", help="everything as JSON")


def run(args: argparse.Namespace) -> int:
    project = open_project_at(Path.cwd())
    if args.dry_run:
        going_on = running(project.root) is not None
        survey = Survey(project, older_than_s=args.older_than, now=time.time(), going_on=going_on)
        things, failed = survey.leftovers(), list[Failed]()
    else:
        things, failed = _clear(project, args.older_than)
    if args.json:
        print_json(_record(things, failed, dry_run=args.dry_run))
    else:
        show(screen(things, failed, dry_run=args.dry_run, older_than_s=args.older_than))
    return 1 if failed else 0


def _clear(project: Project, older_than_s: float) -> tuple[list[Leftover], list[Failed]]:
    """Under the run's own lock, so that no run starts meanwhile."""
    found = running(project.root)
    lock = RunLock(state_folder(project.root) / LOCK)
    if found is not None or not lock.take(project=project.config.project.id):
        who = f" (pid {found[0]})" if found is not None else ""
        way_out = "flyball drain ends it, flyball gc --dry-run can look"
        raise UsageError(f"a run of {project.config.project.id} is going on{who}; {way_out}")
    try:
        survey = Survey(project, older_than_s=older_than_s, now=time.time(), going_on=False)
        things, failed = survey.leftovers(), list[Failed]()
        for thing in things:
            if thing.goes:
                try:
                    survey.remove(thing)
                except FlyballError as error:
                    failed.append(Failed(thing, str(error)))
        return things, failed
    finally:
        lock.release()


# -- showing --------------------------------------------------------------------------------------------


def _record(things: Sequence[Leftover], failed: Sequence[Failed], *, dry_run: bool) -> dict[str, object]:
    lost = {id(each.thing): each.words for each in failed}
    return {
        "dry_run": dry_run,
        "removed": [_fields(each) for each in things if each.goes and id(each) not in lost],
        "kept": [_fields(each) for each in things if not each.goes],
        "failed": [{**_fields(each.thing), "why": each.words} for each in failed],
    }


def _fields(thing: Leftover) -> dict[str, object]:
    where = {"path": shown_path(thing.path)} if thing.path is not None else {"tip": thing.tip}
    return {
        "kind": thing.kind.value,
        "name": thing.name,
        **where,
        "why": thing.why,
        "size_bytes": thing.size_bytes,
    }


def screen(
    things: Sequence[Leftover], failed: Sequence[Failed], *, dry_run: bool, older_than_s: float
) -> Iterator[Block]:
    lost = {id(each.thing) for each in failed}
    gone = [thing for thing in things if thing.goes and id(thing) not in lost]
    kept = [thing for thing in things if not thing.goes and not thing.young]
    yield Line(_headline(gone, dry_run=dry_run))
    if gone:
        yield _table("WOULD GO" if dry_run else "REMOVED", gone)
    for each in failed:
        words = f"{each.thing.kind.value} {each.thing.name}: {each.words}"
        yield Line(words, label=Piece("failed", Style.BAD), indent=2)
    if kept:
        yield BLANK
        yield _table("KEPT", kept)
    young = sum(thing.young for thing in things)
    if young:
        words = f"{counted(young, 'run folder')} younger than {span_words(older_than_s)}"
        yield Line(f"{words}; --older-than 7d would look at more", label="kept", indent=2)
    if gone and dry_run:
        yield BLANK
        yield Line("flyball gc removes these", label="next", indent=2)
    elif any(thing.kind is LeftoverKind.BRANCH for thing in gone):
        yield BLANK
        yield Line("git branch NAME COMMIT brings a branch back", label="undo", indent=2)


def _headline(gone: Sequence[Leftover], *, dry_run: bool) -> Words:
    if not gone:
        return "Nothing to remove."
    freed = size_words(sum(thing.size_bytes for thing in gone))
    named = []
    for kind in LeftoverKind:
        if number := sum(thing.kind is kind for thing in gone):
            branches = kind is LeftoverKind.BRANCH and number != 1
            named.append(f"{number} branches" if branches else counted(number, kind.value))
    return f"{'Would remove' if dry_run else 'Removed'} {', '.join(named)}: {freed}."


def _table(title: str, things: Sequence[Leftover]) -> Table:
    rows: list[list[Words]] = [
        [
            thing.kind.value,
            thing.name,
            thing.tip[:12] or (size_words(thing.size_bytes) if thing.size_bytes else ""),
            thing.why,
        ]
        for thing in things
    ]
    return Table([Column(title), Column(""), Column("", right=True), Column("WHY", wraps=True)], rows)
