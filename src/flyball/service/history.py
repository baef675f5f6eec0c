"""The last fifteen minutes: one sample a second, kept in columns because that is how charts read them.

A second in which the store did not answer has no sample. A pool that did not exist yet has ``null`` there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice

import msgspec

from flyball.governor.status import PoolStatus
from flyball.service.looking import Look

KEPT_S = 900
POOLS_KEPT = 200


class PoolHistory(msgspec.Struct, frozen=True):
    """One pool; all columns are as long as ``time``."""

    name: str
    cap: list[int | None]
    in_use: list[int | None]
    waiting: list[int | None]
    throttles: list[int | None]
    """Reported since the sample before."""
    phase: list[str | None]
    """The breaker: closed, open, trial."""


class HistoryView(msgspec.Struct, frozen=True):
    """Samples, oldest first."""

    step_s: float
    time: list[float]
    """Unix seconds by the server's clock."""
    pools: list[PoolHistory]


Sample = tuple[int, int, int, int, str]


class History:
    """A ring of samples. Used from the event loop only."""

    def __init__(self, kept_s: int = KEPT_S) -> None:
        self._times: deque[float] = deque(maxlen=kept_s)
        self._pools: dict[str, deque[Sample | None]] = {}
        self._throttles: dict[str, int] = {}
        self._kept_s = kept_s

    def record(self, look: Look) -> None:
        """Add a sample of every pool."""
        self._times.append(look.time)
        now = {pool.name: pool for pool in look.status.pools}
        for name in now:
            if name not in self._pools and len(self._pools) < POOLS_KEPT:
                self._pools[name] = deque([None] * (len(self._times) - 1), maxlen=self._kept_s)
        for name, samples in list(self._pools.items()):
            if name in now:
                samples.append(self._sample(now[name]))
            else:  # it was removed, and its history with it
                del self._pools[name]
                self._throttles.pop(name, None)

    def _sample(self, pool: PoolStatus) -> Sample:
        before = self._throttles.get(pool.name, pool.throttle_count)
        self._throttles[pool.name] = pool.throttle_count
        # A pool that was reset counts from the beginning again.
        since = pool.throttle_count - before if pool.throttle_count >= before else pool.throttle_count
        return pool.cap, pool.in_use, pool.waiting, since, pool.breaker

    def view(self, *, seconds: int, pool: str | None) -> HistoryView:
        """The last samples, of one pool or of all."""
        newest = self._times[-1] if self._times else 0.0
        first = next((i for i, time in enumerate(self._times) if time > newest - seconds), len(self._times))
        return HistoryView(
            1.0,
            list(islice(self._times, first, None)),
            [
                _columns(name, list(islice(samples, first, None)))
                for name, samples in sorted(self._pools.items())
                if pool in (None, name)
            ],
        )


def _columns(name: str, samples: Sequence[Sample | None]) -> PoolHistory:
    return PoolHistory(
        name,
        [sample[0] if sample else None for sample in samples],
        [sample[1] if sample else None for sample in samples],
        [sample[2] if sample else None for sample in samples],
        [sample[3] if sample else None for sample in samples],
        [sample[4] if sample else None for sample in samples],
    )
