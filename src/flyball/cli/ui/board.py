"""What a run looks like: what is under way, what waits and why, what to do next.

Values in, blocks out. ``flyball run`` and ``flyball board`` show the same.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from flyball.cli.ui.render import BLANK, Block, Column, Line, Piece, Style, Table, Words
from flyball.cli.ui.units import amount, command
from flyball.core.pool.verdict import span_words
from flyball.core.tasks.task_run import State
from flyball.factory.run.board import LEFT, Board, BoardRow
from flyball.factory.run.waiting import WaitKind

STYLES: Mapping[str, Style] = {
    State.RUNNING: Style.GOOD,
    State.CHECKING: Style.GOOD,
    State.LANDING: Style.GOOD,
    State.MERGED: Style.GOOD,
    State.BLOCKED: Style.BAD,
    State.PARKED: Style.WARN,
    State.READY: Style.WARN,
    LEFT: Style.WARN,
}
WORDS: Mapping[str, str] = {State.READY: "waits", State.CLAIMED: "prepares", State.PARKED: "needs you"}
_WAIT_WORDS = {
    WaitKind.WORKTREE.value: "makes its workspace",
    WaitKind.BASE_GATE.value: "waits for the gate on the base",
    WaitKind.PLACE.value: "waits for a place in this run's width",
    WaitKind.SLOT.value: "asks for a slot",
    WaitKind.COMMIT.value: "keeps what the agent did",
}
_ORDER = (
    State.RUNNING,
    State.CHECKING,
    State.LANDING,
    State.ENDED,
    State.READY,
    State.CLAIMED,
    LEFT,
    State.PARKED,
    State.BLOCKED,
)
_MERGED_NAMED = 8
_DENIALS_NAMED = 3


@dataclass(frozen=True, slots=True)
class Room:
    """So many lines for what is under way and what waits; None: for all of it."""

    lines: int | None = None

    def rows(self, there: int) -> int:
        return there if self.lines is None else min(there, max(4, self.lines * 2 // 3))

    def waiting(self, there: int, *, beside: int) -> int:
        return there if self.lines is None else min(there, max(2, self.lines - beside))


EVERYTHING = Room()


def room_for(height: int) -> Room:
    """On a terminal of so many lines. Headings take some, and some rows break into two."""
    return Room(max(6, height - 9))


def board_screen(board: Board, *, room: Room = EVERYTHING) -> Iterator[Block]:
    """The whole board, busiest first."""
    yield _heading(board)
    if board.account:
        yield Line(board.account, label="account", indent=2)
    if board.ending:
        yield Line(Piece(board.ending, Style.WARN), indent=2)
    rows = sorted(
        (row for row in board.rows if row.state != State.MERGED),
        key=lambda row: _ORDER.index(row.state) if row.state in _ORDER else 9,
    )
    shown = rows[: room.rows(len(rows))]
    if rows:
        yield _rows_table(shown, time.time())
        yield from _more(len(rows) - len(shown))
    for row in shown:
        if row.denials:
            yield Line(denied_words(row.task, row.denials), label=Piece("denied", Style.WARN), indent=2)
    yield from _waiting_table(board, room.waiting(len(board.waiting), beside=len(shown)))
    yield from _merged_tasks(board)
    for note in board.notes:
        yield Line(note, label="note", indent=2)
    yield from _next(board, rows)


def _heading(board: Board) -> Line:
    words: list[str | Piece] = [Piece(board.project, Style.STRONG)]
    running = sum(row.state == State.RUNNING for row in board.rows)
    if board.pid:
        pid = Piece(f"  pid {board.pid}", Style.QUIET)
        words += [f"  {running} of {board.width} running, {board.merged} merged", pid]
    elif board.run:
        words += ["  no run is going on; ", f"{board.merged} merged so far"]
    else:
        words += ["  nothing has been run here yet"]
    return Line(words)


def _more(number: int) -> Iterator[Line]:
    if number > 0:
        yield Line(Piece(f"and {number} more; flyball task why TASK tells of each", Style.QUIET), indent=2)


# -- what is under way --------------------------------------------------------------------------------


def _rows_table(rows: Sequence[BoardRow], at: float) -> Table:
    """Numbers that no agent reports get no column. An agent that counts its tokens has cost something,
    known or not."""
    tokens = any(row.tokens for row in rows)
    cost = tokens or any(row.cost_usd is not None for row in rows)
    columns = [Column("TASK"), Column("STATE"), Column("AGENT"), Column("AGE", right=True)]
    columns += [Column("TOKENS", right=True)] * tokens + [Column("COST", right=True)] * cost
    cells: list[list[Words]] = []
    for row in rows:
        again = f" ({row.attempt})" if row.attempt > 1 else ""
        state = Piece(WORDS.get(row.state, row.state) + again, STYLES.get(row.state, Style.PLAIN))
        age = span_words(max(0.0, at - row.since)) if row.since else ""
        price = f"${row.cost_usd:.2f}" if row.cost_usd is not None else "unknown" if row.tokens else ""
        numbers = [amount(row.tokens) if row.tokens else ""] * tokens + [price] * cost
        silent = [Piece("silent for a while; ", Style.WARN)] if row.stuck else []
        detail: Words = [*silent, wait_words(row, now=at) or row.activity or row.back or row.title]
        cells.append([row.task, state, row.agent, age, *numbers, detail])
    return Table([*columns, Column("", wraps=True)], cells)


def wait_words(row: BoardRow, *, now: float) -> str:
    """What it does or waits for beside what its state says, or why it is over; empty if that says it all."""
    words = row.why or _WAIT_WORDS.get(row.waits_for, "")
    if row.waits_for == WaitKind.PAUSE.value:
        words = f"again in {span_words(max(0.0, row.until - now))}: {row.why}"
    return ": ".join(filter(None, (row.stage, words)))


def denied_words(task: str, denials: Sequence[str]) -> str:
    """What a task's agents were not permitted to do."""
    more = f" and {len(denials) - _DENIALS_NAMED} more" if len(denials) > _DENIALS_NAMED else ""
    return f"{task}: its agent may not {'; '.join(denials[:_DENIALS_NAMED])}{more}"


# -- what is not --------------------------------------------------------------------------------------


def _waiting_table(board: Board, at_most: int) -> Iterator[Block]:
    if not board.waiting:
        return
    shown = board.waiting[:at_most]
    rows: list[list[Words]] = [[each.task, each.words] for each in shown]
    yield BLANK
    yield Table([Column("WAITING"), Column("WHY", wraps=True)], rows)
    yield from _more(len(board.waiting) - len(shown) + board.more_waiting)


def _merged_tasks(board: Board) -> Iterator[Block]:
    """Those of this run, the latest first."""
    rows = sorted((row for row in board.rows if row.state == State.MERGED), key=lambda row: -row.since)
    if rows:
        rest = f" and {len(rows) - _MERGED_NAMED} more" if len(rows) > _MERGED_NAMED else ""
        named = ", ".join(row.task for row in rows[:_MERGED_NAMED])
        yield BLANK
        yield Line(f"{named}{rest}", label=Piece("merged", Style.GOOD), indent=2)


def _next(board: Board, rows: Sequence[BoardRow]) -> Iterator[Block]:
    """What a person can do now."""
    hints = list(_hints(board, rows))
    if hints:
        yield BLANK
    for number, hint in enumerate(hints):
        yield Line(hint, label=" " if number else "next", indent=2)


def _others(tasks: Sequence[str]) -> str:
    return f", and {len(tasks) - 1} more" if len(tasks) > 1 else ""


def _hints(board: Board, rows: Sequence[BoardRow]) -> Iterator[str]:
    unopened = [row.task for row in rows if row.wants_pull]
    if unopened:
        yield f"{command('pr', 'open', unopened[0])} opens its pull request{_others(unopened)}"
    parked = [row.task for row in rows if row.state == State.PARKED]
    if parked:
        yield f"{command('merge', parked[0])} lands it{_others(parked)}"
    if board.pid:
        return
    blocked = [row.task for row in rows if row.state == State.BLOCKED]
    if blocked:
        yield f"{command('tail', blocked[0])} shows what its agent said; flyball run tries again"
    elif any(row.state == LEFT for row in rows):
        yield "flyball run goes on from here"
    elif not parked:
        yield "flyball run --dry-run shows what would start"
