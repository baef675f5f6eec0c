"""``flyball board``: what a project's run is doing, or how the last one left things. Looks, never touches."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from flyball.cli.ui.board import EVERYTHING, Room, board_screen, room_for
from flyball.cli.ui.render import BLANK, Block, Line, Piece, Style, print_json, show
from flyball.cli.ui.units import duration, shown_path
from flyball.errors import FlyballError, UsageError
from flyball.factory.project.registry import ProjectRegistry
from flyball.factory.project_view import Project, current_board, open_project, open_project_at
from flyball.factory.run.board import Board
from flyball.governor.state_url import home

SUMMARY = """Show what the project's run is doing: every task under way, every task that waits and why. Where
no run is going on, show how the last one left things. Changes nothing."""
EXAMPLE = """flyball board
flyball board --watch
flyball board --all"""

WATCH_S = 1.0
_SHORTEST_S = 0.1
_SCREENFULS = Room(200)
"""Lines that a terminal shows; more would only scroll away."""


@dataclass(frozen=True, slots=True)
class Unseen:
    """A registered project whose board cannot be shown."""

    project: str
    path: str
    words: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="every registered project of this machine")
    parser.add_argument(
        "--watch",
        nargs="?",
        const=WATCH_S,
        type=duration,
        metavar="SECONDS",
        help=f"show it again and again until Ctrl-C (every {WATCH_S:g} s)",
    )
    parser.add_argument("--json", action="store_true", help="the whole record as JSON")


def run(args: argparse.Namespace) -> int:
    look = _Everywhere() if args.all else _Here()
    if args.watch is None:
        look.see()
        if args.json:
            print_json(look.record())
        else:
            show(_screen(look, _SCREENFULS if sys.stdout.isatty() else EVERYTHING))
        return 1 if look.unseen else 0
    if args.watch < _SHORTEST_S:
        raise UsageError(f"--watch looks every {_SHORTEST_S:g} s at most, not every {args.watch:g} s")
    try:
        _watch(look, args.watch, as_json=args.json)
    except KeyboardInterrupt:
        return 0
    return 0


# -- looking ------------------------------------------------------------------------------------------


class _Here:
    """The project of this folder."""

    def __init__(self) -> None:
        self._project = open_project_at(Path.cwd())
        self.boards: list[Board] = []
        self.unseen: list[Unseen] = []

    def see(self) -> None:
        self.boards = [current_board(self._project)]

    def record(self) -> object:
        return self.boards[0]


class _Everywhere:
    """Every registered project. One that cannot be read does not hide the others."""

    def __init__(self) -> None:
        self._registry = ProjectRegistry(home())
        self._projects: dict[Path, Project] = {}
        self.boards: list[Board] = []
        self.unseen: list[Unseen] = []

    def see(self) -> None:
        listing = self._registry.list()
        self.boards = []
        self.unseen = [Unseen(each.id, shown_path(each.file), each.words) for each in listing.broken]
        for entry in listing.entries:
            try:
                # Opened once: a task source remembers what it has read.
                if entry.path not in self._projects:
                    self._projects[entry.path] = open_project(entry.path)
                self.boards.append(current_board(self._projects[entry.path]))
            except FlyballError as error:
                gone = f"its folder is gone; flyball project remove {entry.id} forgets it"
                words = str(error) if os.path.isdir(entry.path) else gone
                self.unseen.append(Unseen(entry.id, shown_path(entry.path), words))

    def record(self) -> object:
        return {"projects": self.boards, "unseen": self.unseen}


_Look = _Here | _Everywhere


# -- showing ------------------------------------------------------------------------------------------


def _screen(look: _Look, room: Room) -> Iterator[Block]:
    for number, board in enumerate(look.boards):
        if number:
            yield BLANK
        yield from board_screen(board, room=room)
    for unseen in look.unseen:
        yield Line([Piece(unseen.project, Style.STRONG), "  ", Piece(unseen.words, Style.BAD)])
    if not look.boards and not look.unseen:
        yield Line("no project is registered; flyball run, or flyball project add, registers one")


def _watch(look: _Look, every_s: float, *, as_json: bool) -> None:
    if sys.stdout.isatty() and not as_json:
        _watch_on_terminal(look, every_s)
    while True:
        look.see()
        if as_json:
            import msgspec

            print(msgspec.json.encode(look.record()).decode(), flush=True)
        else:
            show(_screen(look, EVERYTHING))
            print(flush=True)
        time.sleep(every_s)


def _watch_on_terminal(look: _Look, every_s: float) -> None:
    from rich.live import Live

    from flyball.cli.ui.render import allow_any_name, console, renderable

    allow_any_name(sys.stdout)
    terminal = console(sys.stdout)
    with Live(console=terminal, screen=True, auto_refresh=False) as live:
        while True:
            look.see()
            room = room_for(terminal.height // max(1, len(look.boards)))
            live.update(renderable(_screen(look, room), width=terminal.width), refresh=True)
            time.sleep(every_s)
