"""What every verb stands on: a step is one transaction, and takes along what could not be written before."""

from __future__ import annotations

import sys
import threading
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from types import FrameType

from flyball.stores.desk import PoolDesk, World
from flyball.stores.port import After, Release
from flyball.stores.rows import Rows

IN_BETWEEN = (
    "this thread is in the middle of another call to the governor (a signal handler or a finalizer came in "
    "between); ask again outside of it"
)
"""What nothing may begin in: it would wait for itself. A release is kept and rides in the next step."""


def in_the_middle() -> bool:
    """Is a call of this thread to a store under way, below the one that asks?"""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _module(frame).startswith(("flyball.stores", "contextlib")):
        frame = frame.f_back
    while frame is not None and not _module(frame).startswith("flyball.stores"):
        frame = frame.f_back
    return frame is not None


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


class Steps(ABC):
    """What every verb needs: transactions, the desk of a pool, and releases that could not be written."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._unwritten: list[Release] = []
        self._unwritten_lock = threading.RLock()

    @abstractmethod
    def _write(self) -> AbstractContextManager[Rows]:
        """Open an exclusive transaction; commits at the end, rolls back on an exception."""

    @abstractmethod
    def _read(self) -> AbstractContextManager[Rows]:
        """Open a consistent read-only view; must never write."""

    @abstractmethod
    def _peek(self) -> AbstractContextManager[Rows]:
        """For a single read: no view that has to be opened and closed."""

    @abstractmethod
    def close(self) -> None: ...

    def now(self) -> float:
        return self._world.clock()

    def remember(self, release: Release) -> None:
        with self._unwritten_lock:
            self._unwritten.append(release)

    def _carry(self, rows: Rows) -> After:
        """Write the releases that could not be written before. They stay kept if this step fails."""
        if not self._unwritten:
            return After()
        with self._unwritten_lock:
            kept = list(self._unwritten)
        after = After()
        for release in kept:
            after = joined(after, self._end_in(rows, release))
        rows.on_commit(lambda: self._forget(kept))
        return after

    def _forget(self, kept: list[Release]) -> None:
        with self._unwritten_lock:
            self._unwritten = [release for release in self._unwritten if release not in kept]

    @abstractmethod
    def _end_in(self, rows: Rows, release: Release) -> After:
        """End a lease inside an open step."""

    def _desk(self, rows: Rows, pool: str) -> PoolDesk:
        return PoolDesk(rows, pool, self._world)


def joined(first: After, second: After) -> After:
    if not first.wakes and not first.facts and not first.notices:
        return second
    return After(first.wakes + second.wakes, first.facts + second.facts, first.notices + second.notices)
