"""What every verb stands on: a step is one transaction, and takes along what could not be written before."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from threading import get_ident
from typing import Any, Concatenate, ParamSpec, TypeVar

from flyball.errors import StoreBusyError
from flyball.stores.pool_session import Environment, PoolSession
from flyball.stores.port import AfterCommit, Release
from flyball.stores.rows import RowReader, Rows

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound="Transactions")

REENTRANT = (
    "this thread is in the middle of another call to the governor (a signal handler or a finalizer came in "
    "between); ask again outside of it"
)
"""What nothing may begin in: it would wait for itself. A release is kept and rides in the next step."""


def operation(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Makes a method a verb of its store: the store knows from its first line to its end that it runs."""

    @wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._run_operation(method, *args, **kwargs)

    return call


class Transactions(ABC):
    """What every verb needs: transactions, the session of a pool, and releases that could not be written."""

    def __init__(self, world: Environment) -> None:
        self._world = world
        self._unwritten: list[Release] = []
        self._unwritten_lock = threading.RLock()

    def _run_operation(self, method: Callable[..., R], /, *args: Any, **kwargs: Any) -> R:
        """Call a verb."""
        return method(self, *args, **kwargs)

    @abstractmethod
    def _write(self) -> AbstractContextManager[Rows]:
        """Open an exclusive transaction; commits at the end, rolls back on an exception."""

    @abstractmethod
    def _read(self) -> AbstractContextManager[RowReader]:
        """Open a consistent read-only view; must never write."""

    @abstractmethod
    def _peek(self) -> AbstractContextManager[RowReader]:
        """For a single read: no view that has to be opened and closed."""

    @abstractmethod
    def close(self) -> None: ...

    def now(self) -> float:
        return self._world.clock()

    def remember(self, release: Release) -> None:
        with self._unwritten_lock:
            self._unwritten.append(release)

    def _carry(self, rows: Rows) -> AfterCommit:
        """Write the releases that could not be written before. They stay kept if this step fails."""
        if not self._unwritten:
            return AfterCommit()
        with self._unwritten_lock:
            kept = list(self._unwritten)
        after = AfterCommit()
        for release in kept:
            after = merge_effects(after, self._end_in(rows, release))
        rows.on_commit(lambda: self._forget(kept))
        return after

    def _forget(self, kept: list[Release]) -> None:
        with self._unwritten_lock:
            self._unwritten = [release for release in self._unwritten if release not in kept]

    @abstractmethod
    def _end_in(self, rows: Rows, release: Release) -> AfterCommit:
        """End a lease inside an open step."""

    def _session(self, rows: Rows, pool: str) -> PoolSession:
        return PoolSession(rows, pool, self._world)


class ExclusiveSteps(Transactions):
    """Steps of a store that only one thread is in at a time.

    ``_inside`` names the thread whose verb runs. A thread that finds its own name there comes from a signal
    handler or a finalizer that interrupted that verb, and is sent away: it would wait for itself.

    A signal handler may also raise, anywhere. So the mark is removed, and the lock let go, by the frame that
    set it: a ``finally`` that only assigns, and the lock's own ``with``. The interpreter calls no handler
    within either, as it would at the first line of an ``__exit__`` written in Python.
    """

    def __init__(self, world: Environment) -> None:
        super().__init__(world)
        self._mutex = threading.RLock()
        self._inside = 0
        """The thread that runs a verb, as ``get_ident`` names it; 0 if there is none."""
        self._cut_off = False
        """A verb ended with an exception, and what it left has not been undone yet."""

    def _run_operation(self, method: Callable[..., R], /, *args: Any, **kwargs: Any) -> R:
        me = get_ident()
        if self._inside == me:
            raise StoreBusyError(REENTRANT)
        with self._mutex:
            try:
                self._inside = me
                if self._cut_off:
                    self._undo()
                return method(self, *args, **kwargs)
            except BaseException:
                self._cut_off = True
                self._undo()
                raise
            finally:
                self._inside = 0

    def _undo(self) -> None:
        """Leave nothing of a verb open or locked, at whatever point it was stopped."""
        self._roll_back()
        self._cut_off = False

    @abstractmethod
    def _roll_back(self) -> None:
        """Undo the open step, if there is one; let go of what it has locked."""


def merge_effects(first: AfterCommit, second: AfterCommit) -> AfterCommit:
    if not first.wakes and not first.facts and not first.notices:
        return second
    return AfterCommit(first.wakes + second.wakes, first.facts + second.facts, first.notices + second.notices)
