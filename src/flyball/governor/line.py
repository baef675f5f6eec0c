"""A waiting line: higher priority first, first come first served within one. Every step is O(1).

Leaving from the middle costs the same as being served, so a storm of cancellations leaves nothing behind for
a release to step over.
"""

from __future__ import annotations

from bisect import insort
from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

W = TypeVar("W")


class Line(Generic[W]):
    """
    >>> line = Line[str]()
    >>> for name, priority in (("a", 0), ("b", 0), ("c", 1)):
    ...     line.join(name, priority)
    >>> line.first(), line.last(), line.length
    ('c', 'b', 3)
    >>> line.leave("c", 1), line.first()
    (True, 'a')
    """

    __slots__ = ("_priorities", "_rows", "length")

    def __init__(self) -> None:
        self._rows: dict[int, OrderedDict[W, None]] = {}
        self._priorities: list[int] = []
        """Those that somebody waits with, the lowest first."""
        self.length = 0
        """Read only; an attribute because every start and end looks at it."""

    def __iter__(self) -> Iterator[W]:
        """In the order in which they will be served."""
        for priority in reversed(self._priorities):
            yield from self._rows[priority]

    def join(self, waiter: W, priority: int) -> None:
        row = self._rows.get(priority)
        if row is None:
            row = self._rows[priority] = OrderedDict()
            insort(self._priorities, priority)
        row[waiter] = None
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

    def first(self) -> W:
        """Who is served next; only where somebody waits."""
        return next(iter(self._rows[self._priorities[-1]]))

    def last(self) -> W:
        """Who will be served last; only where somebody waits."""
        return next(reversed(self._rows[self._priorities[0]]))
