"""One look at the store at a time, shared by all requests and streams.

    a tick each half second   a look on every second tick, on the others while a stream is open
    ``fresh()``               a look that began after it was asked for; requests that ask meanwhile share it

Every look feeds the metrics and the timeline; a whole tick's feeds the history. Streams get the state on
ticks only, and only when something happened: at most twice a second each, from one look for all. A store
that does not answer costs a sample and is reported once; the state follows when it is back.

Two looks differ in every age and every countdown; that alone is not an event. An age that grew by the time
between the looks, or a countdown that shrank by it, is unchanged: clients count on by themselves. What
follows from time in other ways (an estimate, words that name it, how full a window is, when a node or host
was last heard) is not compared at all.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any

import msgspec

from flyball.core.pool.model import Fact
from flyball.errors import StoreError
from flyball.host.off_loop import Threads
from flyball.observe import metrics
from flyball.observe.metrics import MetricRegistry
from flyball.service import metrics as seen
from flyball.service.fair_scheduling import end_turn
from flyball.service.store_reader import Looking, StoreSnapshot
from flyball.service.streams import Streams, event
from flyball.service.timeline import HistoryRecorder, Timeline, view

TOLERANCE_S = 0.5
"""Ages of one look are taken one after the other."""
_AGES = ("_s_ago", "held_s", "waiting_s", "resting_s", "since_s")
_COUNTDOWNS = ("_in_s", "_for_s")
_UNCOMPARED = frozenset(
    ["words", "why", "estimate_s", "left", "confirmed_s_ago", "heard_s_ago", "renewed_s_ago", "expires_in_s"]
)


def is_unchanged(before: Any, after: Any, *, elapsed_s: float, key: str = "") -> bool:
    """Did nothing happen between these two states, but that time passed?

    >>> is_unchanged({"cap": 8, "settle_ends_in_s": 20.0}, {"cap": 8, "settle_ends_in_s": 10.0}, elapsed_s=10)
    True
    >>> is_unchanged({"cap": 8, "settle_ends_in_s": 20.0}, {"cap": 8, "settle_ends_in_s": 20.0}, elapsed_s=10)
    False
    """
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return before.keys() == after.keys() and all(
            name in _UNCOMPARED or is_unchanged(value, after[name], elapsed_s=elapsed_s, key=name)
            for name, value in before.items()
        )
    if isinstance(before, (list, tuple)) and isinstance(after, (list, tuple)):
        return len(before) == len(after) and all(
            is_unchanged(one, other, elapsed_s=elapsed_s, key=key)
            for one, other in zip(before, after, strict=True)
        )
    expected = _later_value(key, before, elapsed_s)
    if expected is None or not isinstance(after, float):
        return bool(before == after)
    return abs(after - expected) <= TOLERANCE_S


def _later_value(key: str, value: object, elapsed_s: float) -> float | None:
    """What a moving value should have become; None for one that stays."""
    if not isinstance(value, float):
        return None
    if key.endswith(_AGES):
        return value + elapsed_s
    return value - elapsed_s if key.endswith(_COUNTDOWNS) else None


TICK_S = 0.5
STALE_S = 5.0
"""A store that said nothing for so long does not answer, even if nothing failed yet."""
_log = logging.getLogger("flyball.service")


class StoreOutage(msgspec.Struct, frozen=True):
    """The store does not answer; what is shown is old."""

    detail: str


class StreamEnd(msgspec.Struct, frozen=True):
    """The stream is over."""

    detail: str


class StoreMonitor:
    """Use from one event loop only. ``run`` is its heartbeat."""

    def __init__(self, looking: Looking, registry: MetricRegistry, *, tick_s: float = TICK_S) -> None:
        self.history, self.timeline, self.streams = HistoryRecorder(), Timeline(), Streams()
        self._looking, self._registry, self._tick_s = looking, registry, tick_s
        self._thread = Threads(1, "flyball-look")
        self._running: asyncio.Task[StoreSnapshot] | None = None
        self._queued: asyncio.Task[StoreSnapshot] | None = None
        self._last: StoreSnapshot | None = None
        self._told: StoreSnapshot | None = None
        self._facts: list[Fact] = []
        self._trouble = "the store has not been read yet"

    @property
    def trouble(self) -> str:
        """Why the store cannot be trusted to answer now; empty while it does."""
        if self._trouble or self._last is None:
            return self._trouble
        return "" if time.monotonic() - self._last.at < STALE_S else "the store does not answer"

    @property
    def last(self) -> StoreSnapshot | None:
        """How everything was at the last look: a second ago, if the store answers."""
        return self._last

    # -- looking ------------------------------------------------------------------------------------

    async def fresh(self) -> StoreSnapshot:
        """How everything is now."""
        end_turn()
        if self._queued is None:
            self._queued = asyncio.create_task(self._look_after(self._running))
            # The request that wanted it may have left before it failed.
            self._queued.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._queued)

    async def _look_after(self, running: asyncio.Task[StoreSnapshot] | None) -> StoreSnapshot:
        if running is not None:
            await asyncio.wait({running})
        self._running, self._queued = self._queued, None
        return await self._look()

    async def _look(self) -> StoreSnapshot:
        began = time.monotonic()
        try:
            look = await self._thread.begin(self._looking.look)
        except Exception as error:
            self._registry.add(metrics.LOOKS, status="failed")
            if not self._trouble or self._last is None:
                _log.error("cannot look at the store: %s", error, exc_info=not isinstance(error, StoreError))
            self._trouble = str(error) or type(error).__name__
            raise
        self._registry.observe(metrics.LOOK_SECONDS, time.monotonic() - began)
        self._registry.add(metrics.LOOKS, status="answered")
        self._take_in(look)
        return look

    def _take_in(self, look: StoreSnapshot) -> None:
        if self._trouble and self._last is not None:
            _log.info("the store answers again")
        told = self.timeline.hear(look)
        facts = [fact for _, fact in told]
        if self._last is not None:
            seen.record_changes(self._registry, self._last.status, look.status, [*self._facts, *facts])
        seen.record_facts(self._registry, facts)
        seen.record_state(self._registry, look.status)
        self._last, self._facts, self._trouble = look, facts, ""
        for fact_id, fact in told:
            self.streams.tell(_fact(look, fact_id, fact))

    # -- telling ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Look and tell until cancelled."""
        due, whole = time.monotonic(), True
        while True:
            try:
                if whole or len(self.streams):
                    await self._tick(sample=whole)
            except Exception:
                _log.exception("the watch stumbled; it goes on")
            whole = not whole
            due = max(due + self._tick_s, time.monotonic())
            await asyncio.sleep(due - time.monotonic())

    async def _tick(self, *, sample: bool) -> None:
        try:
            look = await self.fresh()
        except Exception:
            # It was counted and logged where it failed; the next tick tries again.
            if self._told is not None:
                self._told = None
                self.streams.tell(event("outage", msgspec.json.encode(StoreOutage(self._trouble))))
            return
        if sample:
            self.history.record(look)
        if len(self.streams):
            await self._tell_state(look)

    async def _tell_state(self, look: StoreSnapshot) -> None:
        told = self._told
        if told is not None:
            compare = partial(is_unchanged, told.plain, look.plain, elapsed_s=look.store_now - told.store_now)
            if await self._thread.begin(compare):
                return
        self._told = look
        self.streams.tell_state(event("state", look.body))

    async def watch(self, last_id: str) -> AsyncGenerator[bytes, None]:
        """The events for one more stream, beginning with how everything is."""
        self.streams.check_room()
        return self._chunks(await self.fresh(), last_id)

    async def _chunks(self, look: StoreSnapshot, last_id: str) -> AsyncGenerator[bytes, None]:
        # A client that leaves before the first byte never gets here, and leaves nothing behind.
        look = self._last or look
        if not len(self.streams):
            self._told = look
        missed = [_fact(look, fact_id, fact) for fact_id, fact in self.timeline.since(last_id)]
        with self.streams.open(event("state", look.body), missed) as stream:
            async with aclosing(stream.chunks()) as chunks:
                async for chunk in chunks:
                    yield chunk

    def end(self, why: str) -> None:
        """Every stream gets a last event."""
        self.streams.end(event("end", msgspec.json.encode(StreamEnd(why))))

    def close(self) -> None:
        self._thread.submit(self._looking.close)
        self._thread.close()


def _fact(look: StoreSnapshot, fact_id: str, fact: Fact) -> bytes:
    return event("fact", msgspec.json.encode(view(look, fact_id, fact)), fact_id)
