"""A waiting line: higher priority first, first come first served within one. Every step is O(1).

Leaving from the middle costs the same as being served, so a storm of cancellations leaves nothing behind for
a release to step over. Who waits long rises (``core/admit.aged``): of each priority only the oldest can be
next, so that as many are compared as there are different priorities.
"""

from __future__ import annotations

from bisect import insort
from collections import OrderedDict
from typing import Generic, TypeVar

from flyball.core.admit import aged

W = TypeVar("W")


class Line(Generic[W]):
    """
    >>> line = Line[str]()
    >>> for name, priority in (("a", 0), ("b", 0), ("c", 1)):
    ...     line.join(name, priority, now=0.0)
    >>> line.first(now=1.0, ageing_s=60.0), line.first(now=61.0, ageing_s=60.0), line.length
    ('c', 'a', 3)
    >>> line.leave("a", 0), line.first(now=61.0, ageing_s=60.0), line.last()
    (True, 'b', 'b')
    """

    __slots__ = ("_joined", "_priorities", "_rows", "length")

    def __init__(self) -> None:
        self._rows: dict[int, OrderedDict[W, tuple[int, float]]] = {}
        """Who waits, and each one's number and time of arrival."""
        self._priorities: list[int] = []
        """Those that somebody waits with, the lowest first."""
        self._joined = 0
        self.length = 0
        """Read only; an attribute because every start and end looks at it."""

    def join(self, waiter: W, priority: int, *, now: float) -> None:
        row = self._rows.get(priority)
        if row is None:
            row = self._rows[priority] = OrderedDict()
            insort(self._priorities, priority)
        self._joined += 1
        row[waiter] = (self._joined, now)
        self.length += 1

    def leave(self, waiter: W, priority: int) -> bool:
        """Whether it was in line."""
        row = self._rows.get(priority)
        if row is None or waiter not in row:
            return False
        del row[waiter]
        self.length -= 1
        if not row:
            del self._rows[priority]
            self._priorities.remove(priority)
        return True

    def first(self, *, now: float, ageing_s: float) -> W:
        """Who is served next; only where somebody waits."""
        top = self._priorities[-1]
        if len(self._priorities) == 1:
            return next(iter(self._rows[top]))

        def rank(priority: int) -> tuple[int, int]:
            number, joined_at = next(iter(self._rows[priority].values()))
            return aged(priority, now - joined_at, ageing_s=ageing_s, top=top), -number

        return next(iter(self._rows[max(self._priorities, key=rank)]))

    def last(self) -> W:
        """Who waits longest yet, if nobody ages; only where somebody waits."""
        return next(reversed(self._rows[self._priorities[0]]))
