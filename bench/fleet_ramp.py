"""How fast slots move to whoever needs them: a joiner's way to its part, and one busy node among idle ones.

Everything is as shipped: shares on a real server, each with its own renewing thread, work in an event loop.
The incumbents have more work than slots, in pieces of a fixed length. A joiner must wait until as much of it
has ended as each of them has to give up: the *drain*, known beforehand from when the pieces began. What comes
on top is ours: the store asks the incumbents, they give up, the joiner is told and asks. Two eager renewals
may take that long: each keeps its distance to the one before (a twentieth of a beat) and is a round trip.

Utilisation is the time spent in slots, of all the time that all slots were there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.report import Figure, Progress, Target
from flyball import Governor
from flyball.core.share_lease.timing import timing_for

CAP = 16
LOOK_S = 0.001
PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Sizes:
    joins: int = 5
    incumbents: tuple[int, ...] = (1, 3)
    piece_s: float = 0.2
    skews: tuple[int, ...] = (2, 4, 8)
    skew_s: float = 5.0
    skew_piece_s: float = 0.05
    heartbeat_s: float = 1.0

    @property
    def eager_s(self) -> float:
        return timing_for(self.heartbeat_s).eager_s


@dataclass(frozen=True, slots=True)
class Ramp:
    drain_s: float
    """From the joiner's start until enough of what ran then could have ended."""
    beyond_s: float
    """From then until the joiner had its part."""
    trip_s: float
    """A renewal there and back."""


class Work:
    """More than there are slots for, in pieces of one length; counts the time spent in slots."""

    def __init__(self, share: Any, piece_s: float, *, apart: bool = True) -> None:
        """``apart``: pieces that all end together would make a drain all or nothing."""
        self._share, self._piece_s, self._ended_s = share, piece_s, 0.0
        self._begun: dict[int, float] = {}
        step_s = piece_s / (2 * CAP) if apart else 0.0
        self._tasks = [asyncio.create_task(self._one(number, number * step_s)) for number in range(2 * CAP)]

    async def _one(self, number: int, after_s: float) -> None:
        await asyncio.sleep(after_s)
        while True:
            async with self._share.slot():
                self._begun[number] = time.monotonic()
                await asyncio.sleep(self._piece_s)
                self._ended_s += time.monotonic() - self._begun.pop(number)

    def spent_s(self, now: float) -> float:
        """The time in slots so far, of those that are still in one too."""
        return self._ended_s + sum(now - begun for begun in self._begun.values())

    def given_up_at(self, count: int) -> float:
        """When so many of the pieces that run now will have ended; of those between two, none runs."""
        ends = sorted(begun + self._piece_s for begun in self._begun.values())
        return ends[min(count, len(ends)) - 1] if ends else time.monotonic()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def figures(url: str, sizes: Sizes, progress: Progress) -> list[Figure]:
    found = []
    for incumbents in sizes.incumbents:
        ramps = []
        for turn in range(sizes.joins):
            progress(f"fleet: a joiner among {incumbents}, {turn + 1} of {sizes.joins}")
            ramps.append(asyncio.run(_join(url, f"ramp{incumbents}", incumbents, sizes)))
        found.append(_ramp_figure(incumbents, ramps, sizes.eager_s))
    for nodes in sizes.skews:
        progress(f"fleet: one busy node of {nodes}")
        used = asyncio.run(_skew(url, f"skew{nodes}", nodes, sizes))
        what = f"slots in use, one busy node of {nodes}"
        found.append(Figure(what=what, ours=used, unit="", target=Target("value", 0.95, at_least=True)))
    return found


def _ramp_figure(incumbents: int, ramps: Sequence[Ramp], eager_s: float) -> Figure:
    two_trips_ms = 2 * (eager_s + median(ramp.trip_s for ramp in ramps)) * 1e3
    return Figure(
        what=f"joiner beside {incumbents}: to its part, beyond the drain",
        ours=median(ramp.beyond_s for ramp in ramps) * 1e3,
        unit="ms",
        beside="two eager renewals",
        theirs=two_trips_ms,
        target=Target("ratio", 1.0),
    )


async def _join(url: str, pool: str, incumbents: int, sizes: Sizes) -> Ramp:
    governor = _pool(url, pool, sizes.heartbeat_s)
    part = CAP // (incumbents + 1)
    async with AsyncExitStack() as stack:
        old = [await _share(stack, governor, pool, f"old{number}") for number in range(incumbents)]
        work = [Work(share, sizes.piece_s) for share in old]
        await _until(lambda: sum(share.stats().in_flight for share in old) == CAP, "all slots to be in use")
        # Whoever came last has settled.
        await asyncio.sleep(2 * sizes.heartbeat_s)
        new = governor.share(pool, node="joiner")
        work.append(Work(new, sizes.piece_s, apart=False))
        # Its work stands in line before it joins.
        await _until(lambda: new.stats().waiting == 2 * CAP, "the joiner's work")
        begin = time.monotonic()
        drained = max(
            each.given_up_at(share.stats().in_flight - part) for each, share in zip(work, old, strict=False)
        )
        await stack.enter_async_context(new)
        await _until(lambda: new.stats().slots >= part, "the joiner to get its part")
        served = time.monotonic()
        trip_s = await _trip_s(new, sizes.eager_s)
        for each in work:
            await each.stop()
    governor.close()
    return Ramp(drained - begin, served - drained, trip_s)


async def _trip_s(share: Any, eager_s: float) -> float:
    took = []
    for _ in range(5):
        await asyncio.sleep(2 * eager_s)
        begin = time.monotonic()
        assert await share.renew_async(PATIENCE_S)
        took.append(time.monotonic() - begin)
    return median(took)


async def _skew(url: str, pool: str, nodes: int, sizes: Sizes) -> float:
    """One node with endless work, the others with none; how much of the cap is in use."""
    governor = _pool(url, pool, sizes.heartbeat_s)
    async with AsyncExitStack() as stack:
        idle = [await _share(stack, governor, pool, f"idle{number}") for number in range(nodes - 1)]
        hot = await _share(stack, governor, pool, "hot")
        work = Work(hot, sizes.skew_piece_s)
        await _until(lambda: hot.stats().in_flight >= CAP // nodes, "the busy node to get its part")
        await asyncio.sleep(2 * sizes.heartbeat_s)
        begin = time.monotonic()
        before = work.spent_s(begin)
        await asyncio.sleep(sizes.skew_s)
        end = time.monotonic()
        used = (work.spent_s(end) - before) / (CAP * (end - begin))
        await work.stop()
        assert not any(share.stats().in_flight for share in idle)
    governor.close()
    return used


async def _share(stack: AsyncExitStack, governor: Governor, pool: str, node: str) -> Any:
    return await stack.enter_async_context(governor.share(pool, node=node))


def _pool(url: str, pool: str, heartbeat_s: float) -> Governor:
    governor = Governor(url)
    governor.set_pool(pool, cap=CAP, adaptive=False, heartbeat_s=heartbeat_s)
    return governor


async def _until(holds: Any, what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        await asyncio.sleep(LOOK_S)
