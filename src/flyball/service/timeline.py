"""Facts as the server reports them, and the samples of the last fifteen minutes.

Each fact is reported once, in order, under a number of its own.

A store keeps its newest facts without numbers. What is new is what the last look did not show; of
equal facts as many as there are more. The numbers begin anew with every server, so they carry its mark: a
client that comes back with the number it saw last is told what it missed, and after a restart all that is
known since.

Samples are taken once a second and kept in columns, because charts read them so. A second in which the store
did not answer has no sample. A pool that did not exist yet has ``null`` there.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import islice
from secrets import token_hex

import msgspec

from flyball.core.pool.model import Fact
from flyball.service.store_reader import FACTS_SEEN, StoreSnapshot

KEPT = 500


class FactView(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened."""

    id: str
    """Grows by one with each fact; empty for one that was there before the server."""
    s_ago: float
    time: str
    """By the server's clock."""
    pool: str
    kind: str
    words: str
    project: str
    name: str
    pid: int


class Timeline:
    def __init__(self, mark: str | None = None) -> None:
        self._mark = mark if mark is not None else token_hex(4)
        self._last: tuple[Fact, ...] | None = None
        self._kept: deque[tuple[int, Fact]] = deque(maxlen=KEPT)
        self._number = 0

    def hear(self, look: StoreSnapshot) -> list[tuple[str, Fact]]:
        """What is new in a look, oldest first, each with its id. Nothing is new in the first."""
        before, self._last = self._last, look.facts
        if before is None:
            return []
        told = []
        for fact in new_facts(before, look.facts):
            self._number += 1
            self._kept.append((self._number, fact))
            told.append((self._id(self._number), fact))
        return told

    def since(self, last_id: str) -> list[tuple[str, Fact]]:
        """What came after the fact with this id, as far as it is still known."""
        mark, _, number = last_id.rpartition("-")
        if not last_id:
            return []
        after = int(number) if mark == self._mark and number.isdecimal() else 0
        return [(self._id(known), fact) for known, fact in self._kept if known > after]

    def newest(self, look: StoreSnapshot, *, limit: int) -> list[FactView]:
        """Newest first, those from before the server included."""
        ids: dict[Fact, list[str]] = {}
        for number, fact in self._kept:
            ids.setdefault(fact, []).append(self._id(number))
        views = []
        for fact in look.facts[:limit]:
            known = ids.get(fact)
            views.append(view(look, known.pop() if known else "", fact))
        return views

    def _id(self, number: int) -> str:
        return f"{self._mark}-{number}"


def new_facts(before: Sequence[Fact], after: Sequence[Fact]) -> list[Fact]:
    """Those of ``after`` that ``before`` did not show, oldest first; both are newest first."""
    # A full window may show older facts again when newer ones were forgotten; they are not new.
    since = before[-1].at if len(before) >= FACTS_SEEN else float("-inf")
    known = Counter(before)
    fresh = []
    for fact in reversed(after):
        if known[fact] > 0:
            known[fact] -= 1
        elif fact.at >= since:
            fresh.append(fact)
    return fresh


def view(look: StoreSnapshot, fact_id: str, fact: Fact) -> FactView:
    s_ago = max(0.0, look.store_now - fact.at)
    return FactView(
        id=fact_id,
        s_ago=s_ago,
        time=datetime.fromtimestamp(look.time - s_ago, UTC).isoformat(timespec="milliseconds"),
        pool=fact.pool,
        kind=fact.kind,
        words=fact.words,
        project=fact.project,
        name=fact.name,
        pid=fact.pid,
    )


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


class HistoryRecorder:
    """A ring of samples. Used from the event loop only."""

    def __init__(self, kept_s: int = KEPT_S) -> None:
        self._times: deque[float] = deque(maxlen=kept_s)
        self._pools: dict[str, deque[Sample | None]] = {}
        self._throttles: dict[str, int] = {}
        self._kept_s = kept_s

    def record(self, look: StoreSnapshot) -> None:
        """Add a sample of every pool."""
        self._times.append(look.time)
        now = {pool.name: pool for pool in look.status.pools}
        for name in now:
            if name not in self._pools and len(self._pools) < POOLS_KEPT:
                self._pools[name] = deque([None] * (len(self._times) - 1), maxlen=self._kept_s)
        for name, samples in list(self._pools.items()):
            if name in now:
                pool = now[name]
                before = self._throttles.get(name, pool.throttle_count)
                self._throttles[name] = count = pool.throttle_count
                # A pool that was reset counts from the beginning again.
                since = count - before if count >= before else count
                samples.append((pool.cap, pool.in_use, pool.waiting, since, pool.breaker))
            else:  # it was removed, and its history with it
                del self._pools[name]
                self._throttles.pop(name, None)

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
