"""Bytes into lines, in bounded memory.

A line is held until its newline comes. One that grows beyond ``LINE_LIMIT`` is let go and passed over up to
its newline: events that matter are small, and what is large (a tool's output, a picture) is never judged.
Lines are bytes: a character cut in two by the end of a piece is whole again by the end of its line.
"""

from __future__ import annotations

LINE_LIMIT = 1 << 20
_STEP = 1 << 18
"""Pieces larger than this are cut, so that splitting never doubles a large one."""


class Lines:
    """Feed pieces, get whole lines without their newlines."""

    __slots__ = ("_held", "_held_size", "_limit", "_passing", "passed_over")

    def __init__(self, limit: int = LINE_LIMIT) -> None:
        self._limit = limit
        self._held: list[bytes] = []
        self._held_size = 0
        self._passing = False
        self.passed_over = 0
        """How many lines were too long to keep."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """
        >>> lines = Lines()
        >>> lines.feed(b"on"), lines.feed(b"e\\ntwo\\nth"), lines.rest()
        ([], [b'one', b'two'], [b'th'])
        """
        if len(chunk) <= _STEP:
            return self._feed(chunk)
        found = []
        for start in range(0, len(chunk), _STEP):
            found += self._feed(chunk[start : start + _STEP])
        return found

    def _feed(self, chunk: bytes) -> list[bytes]:
        whole = chunk.split(b"\n")
        tail = whole.pop()
        if whole and (self._held or self._passing):
            first = self._first(whole[0])
            whole[:1] = [] if first is None else [first]
        if tail:
            self._hold(tail)
        return whole

    def rest(self) -> list[bytes]:
        """The last line, if its newline never came."""
        last = self._first(b"")
        return [last] if last else []

    def _first(self, end: bytes) -> bytes | None:
        """The line that ends here, or None if it was too long."""
        passing, line = self._passing, b"".join([*self._held, end])
        self._held, self._held_size, self._passing = [], 0, False
        return None if passing else line

    def _hold(self, piece: bytes) -> None:
        if self._passing:
            return
        self._held.append(piece)
        self._held_size += len(piece)
        if self._held_size > self._limit:
            self._held, self._held_size, self._passing = [], 0, True
            self.passed_over += 1
        elif len(self._held) > 256:
            # Byte by byte, the list would weigh more than what is in it.
            self._held = [b"".join(self._held)]
