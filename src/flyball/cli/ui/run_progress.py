"""What ``flyball run`` shows: a live board on a terminal, a line per change elsewhere, and how it ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from flyball.cli.ui.board import WORDS, board_screen, denied_words, room_for, wait_words
from flyball.cli.ui.render import (
    Block,
    Column,
    Line,
    Piece,
    Style,
    Table,
    Words,
    allow_any_name,
    console,
    renderable,
    safe,
)
from flyball.cli.ui.units import counted
from flyball.core.tasks.statistics import SpendTotals
from flyball.core.tasks.task_run import State
from flyball.factory.run.board import Board, BoardRow, board_from_run
from flyball.factory.run.waiting import WaitKind

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

    from flyball.factory.run.dry_run import DryRun
    from flyball.factory.run.options import RunReport
    from flyball.factory.run.run import Run

Watcher = Callable[["Run"], None]
_FRAME_S = 0.25
_TICK_S = 1.0
"""How often ages are drawn anew where nothing else happens."""
_IDLE_SHARE = 0.004
"""The part of a core that drawing may use while nothing happens."""


@contextlib.contextmanager
def watcher_for(*, quiet: bool) -> Iterator[Watcher]:
    """How this run is shown here."""
    if quiet:
        yield lambda _: None
    elif sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown"):
        with _live() as watcher:
            yield watcher
    else:
        yield ProgressLines().see


@contextlib.contextmanager
def _live() -> Iterator[Watcher]:
    from rich.live import Live

    screen = console(sys.stdout)
    with Live(console=screen, auto_refresh=False, transient=True) as live:
        yield _Frames(live, screen).see


class _Frames:
    """Frames at most so often. What comes too soon is drawn when it is due, so the last change is seen."""

    def __init__(self, live: Live, screen: Console) -> None:
        self._live, self._screen = live, screen
        self._drawn_at = 0.0
        self._due: asyncio.TimerHandle | None = None

    def see(self, run: Run) -> None:
        wait_s = self._drawn_at + _FRAME_S - time.monotonic()
        if wait_s > 0:
            self._draw_in(wait_s, run)
        else:
            self._draw(run)

    def _draw(self, run: Run) -> None:
        began = time.monotonic()
        blocks = board_screen(board_from_run(run), room=room_for(self._screen.height))
        self._live.update(renderable(blocks, width=self._screen.width), refresh=True)
        self._drawn_at = time.monotonic()
        self._draw_in(max(_TICK_S, (self._drawn_at - began) / _IDLE_SHARE), run)

    def _draw_in(self, wait_s: float, run: Run) -> None:
        if self._due is not None:
            self._due.cancel()
        self._due = asyncio.get_running_loop().call_later(wait_s, self._draw, run)


_MOMENTS = frozenset(each.value for each in (WaitKind.WORKTREE, WaitKind.SLOT, WaitKind.PLACE))
"""Waits that are over in a moment, or that the width of the run says already."""


class ProgressLines:
    """A line for every change of state, for logs and pipes."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[str, ...]] = {}
        self._noted: set[str] = set()
        self._denied: set[tuple[str, str]] = set()
        allow_any_name(sys.stdout)

    def see(self, run: Run) -> None:
        self.print_news(board_from_run(run))

    def print_news(self, board: Board) -> None:
        for note in [*board.notes, *([board.ending] if board.ending else [])]:
            if note not in self._noted:
                self._noted.add(note)
                self._print(f"note: {note}")
        for row in board.rows:
            now = (row.state, str(row.attempt), *_news(row))
            if self._seen.get(row.task) != now and _is_news(row):
                self._seen[row.task] = now
                self._print(progress_words(row))
            for denial in row.denials:
                if (row.task, denial) not in self._denied:
                    self._denied.add((row.task, denial))
                    self._print(f"{row.task} was denied: {denial}")

    def _print(self, words: str) -> None:
        # The reader may be gone (`flyball run | head`); the work goes on.
        with contextlib.suppress(BrokenPipeError):
            print(f"{time.strftime('%H:%M:%S')} {safe(words)}", flush=True)


def _news(row: BoardRow) -> tuple[str, ...]:
    """What makes another line."""
    if row.state == State.CHECKING:
        return (row.stage,)
    return (row.waits_for, row.why) if row.state in (State.READY, State.BLOCKED, State.PARKED) else ()


def _is_news(row: BoardRow) -> bool:
    """Steps that take a moment are not news; a wait that has a reason is."""
    if row.waits_for in _MOMENTS and row.state in (State.CHECKING, State.READY):
        return False
    if row.state == State.CHECKING:
        return bool(row.stage)
    return row.state not in (State.CLAIMED, State.ENDED) and (row.state != State.READY or bool(row.waits_for))


def progress_words(row: BoardRow) -> str:
    again = f", attempt {row.attempt}" if row.attempt > 1 else ""
    why = wait_words(row, now=time.time()) or (row.back if row.state == State.RUNNING else "")
    why = f": {why}" if why else ""
    return f"{row.task} {WORDS.get(row.state, row.state)}{again}{why}"


# -- before and after ---------------------------------------------------------------------------------


def dry_run_screen(plan: DryRun) -> Iterator[Block]:
    yield Line([Piece(plan.project, Style.STRONG), f"  {plan.mode}, width {plan.width}, pool {plan.pool}"])
    for task, state in plan.resumes.items():
        yield Line(f"{task}, which was {state}", label="goes on", indent=2)
    for start in plan.starts:
        yield Line(f"{start.task}  {start.title}", label=Piece("starts", Style.GOOD), indent=2)
    if not plan.starts and not plan.resumes:
        yield Line("nothing is ready", indent=2)
    if plan.waits:
        rows: list[list[Words]] = [[each.task, each.reason, each.words] for each in plan.waits]
        yield Table([Column("WAITS"), Column("REASON"), Column("WHY", wraps=True)], rows)
    for problem in plan.problems:
        yield Line(problem, label=Piece("problem", Style.BAD), indent=2)
    for note in plan.notes:
        yield Line(note, label=Piece("note", Style.WARN), indent=2)


def report_screen(report: RunReport) -> Iterator[Block]:
    """What came of it, and what to do next."""
    merged = len(report.merged)
    yield Line(f"{merged} merged" + (f": {', '.join(sorted(report.merged)[:20])}" if merged else ""))
    for task, why in report.parked.items():
        yield _task_line(task, why, "needs you", Style.WARN)
    for task, why in report.blocked.items():
        yield _task_line(task, why, "blocked", Style.BAD)
    for each in report.waiting:
        yield _task_line(each.task_id, each.words, "waits", Style.WARN)
    for problem in report.problems:
        yield _task_line(problem.where, problem.words, "problem", Style.BAD)
    for task, why in report.left.items():
        yield _task_line(task, why, "left", Style.WARN)
    if report.unstarted:
        named = ", ".join(report.unstarted[:20]) + (" ..." if len(report.unstarted) > 20 else "")
        yield Line(f"{len(report.unstarted)} not started: {named}", label="left", indent=2)
    if report.red_base is not None:
        yield Line(report.red_base.words(), label=Piece("red base", Style.BAD), indent=2)
    if report.paused:
        yield Line(f"{report.paused}; flyball run goes on", label="paused", indent=2)
    elif (report.left or report.unstarted) and report.red_base is None:
        yield Line("flyball run goes on from here", label="next", indent=2)
    for task, denials in report.denials.items():
        yield Line(denied_words(task, denials), label=Piece("denied", Style.WARN), indent=2)
    if report.denials:
        words = "agent.args in flyball.toml can permit more, such as --allowedTools of claude"
        yield Line(words, label=" ", indent=2)
    if report.spend.usd or report.spend.unpriced:
        yield Line(cost_words(report.spend), label="cost", indent=2)
    for note in report.notes:
        yield Line(note, label="note", indent=2)


def cost_words(spend: SpendTotals) -> str:
    silent = f"{counted(spend.unpriced, 'agent')} did not say"
    if spend.usd is None:
        return f"unknown: {silent}"
    usd = f"${spend.usd:.2f}"
    return f"at least {usd}; {silent}" if spend.unpriced else f"{usd} (reported by the agents)"


def _task_line(name: str, why: str, label: str, style: Style) -> Line:
    words: list[Any] = [Piece(name, Style.STRONG), f"  {why}"]
    return Line(words, label=Piece(label, style), indent=2)
