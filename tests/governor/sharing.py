"""Pools that are ready to be divided, and work that counts itself from outside."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from flyball import Governor, RefusedError
from flyball.core.pool.settings import PoolChanges
from flyball.governor.internals import internals
from flyball.governor.share.share import Share
from tests.waiting import until

POOL = "p"
QUICK_S = 0.05
"""A heartbeat with which a new store has learned in a moment."""
STEADY_S = 0.5
"""One that a busy machine does not miss."""


def divided(gov: Governor, cap: int, *, heartbeat_s: float = STEADY_S, **changes: object) -> Governor:
    """A pool of a fixed cap whose store knows that no process holds anything."""
    fixed: PoolChanges = {"cap": cap, "adaptive": False}
    gov.set_pool(POOL, **{**fixed, "heartbeat_s": QUICK_S, **changes})  # type: ignore[arg-type]
    with gov.share(POOL, node="first") as first:
        until(lambda: first.stats().limit > 0, "the store to have learned")
    gov.set_pool(POOL, heartbeat_s=heartbeat_s)
    return gov


def in_use(gov: Governor, pool: str = POOL) -> int:
    return next(seen.in_use for seen in internals(gov).store.snapshot().pools if seen.name == pool)


class Counter:
    """An outside count of what is in flight, over all holders."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.now = self.most = self.pieces = 0

    @contextmanager
    def piece(self) -> Iterator[None]:
        with self._lock:
            self.now += 1
            self.pieces += 1
            self.most = max(self.most, self.now)
        try:
            yield
        finally:
            with self._lock:
                self.now -= 1


class Crowd:
    """Threads that work under a share until they are told to stop."""

    def __init__(self, share: Share, counter: Counter, *, workers: int, piece_s: float = 0.002) -> None:
        self._share, self._counter, self._piece_s = share, counter, piece_s
        self._stop = threading.Event()
        self.pieces = 0
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(workers)]
        for thread in self._threads:
            thread.start()

    def _work(self) -> None:
        while not self._stop.is_set():
            try:
                with self._share.slot(timeout=0.2), self._counter.piece():
                    self.pieces += 1
                    time.sleep(self._piece_s)
            except RefusedError:
                continue

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(10.0)
