"""A limiter inside one process: what a slot costs, and what ten thousand waiters do to a release.

pair       enter and leave with nobody in the way, in processor time (a busy machine would only add noise)
releases   how many slots pass on in a second while ten thousand tasks wait for ten slots
held up    from a release until the event loop comes round again, the longest of all: what everything else in
           the process waits because somebody was served

Beside it: asyncio's own semaphore, and a condition that wakes everybody at each release, as the article that
asks for a variable gate builds it. It is timed over its first releases only: all of them would take minutes.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import Any

from bench.peers.condition_gate import ConditionGate
from bench.report import Figure, Progress, Section, Target, beside
from flyball import Limiter

NAME = "limiter"
TITLE = "a limiter inside one process"

SEMAPHORE, THREAD_SEMAPHORE, CONDITION = "asyncio.Semaphore", "threading.Semaphore", "condition gate"
BARE_SEMAPHORE = "asyncio.Semaphore, not as a block"
NS, MS = 1e9, 1e3
LIMIT = 10


@dataclass(frozen=True, slots=True)
class Sizes:
    rounds: int = 15
    pairs: int = 20_000
    line_rounds: int = 3
    waiters: int = 10_000
    releases: int = 5_000
    condition_releases: int = 500


FULL = Sizes()
QUICK = Sizes(rounds=3, pairs=2_000, line_rounds=1, waiters=1_000, releases=500, condition_releases=20)


@dataclass(slots=True)
class Tally:
    pairs_ns: dict[str, list[float]] = field(default_factory=dict)
    rates: dict[str, list[float]] = field(default_factory=dict)
    held_up_ms: dict[str, list[float]] = field(default_factory=dict)


def run(sizes: Sizes, progress: Progress) -> Section:
    tally = Tally()
    for turn in range(sizes.rounds):
        progress(f"limiter: pairs, round {turn + 1} of {sizes.rounds}")
        asyncio.run(_time_pairs(sizes, tally))
    for turn in range(sizes.line_rounds):
        progress(f"limiter: {sizes.waiters:,} waiters, round {turn + 1} of {sizes.line_rounds}")
        for name, make in _LINES.items():
            releases = sizes.condition_releases if name == CONDITION else sizes.releases
            rate, held_up_s = asyncio.run(_drain(make(), sizes.waiters, releases))
            tally.rates.setdefault(name, []).append(rate)
            tally.held_up_ms.setdefault(name, []).append(held_up_s * MS)
    return Section(NAME, TITLE, (*_pair_figures(tally), *_line_figures(tally)), _notes(sizes))


# -- pairs --------------------------------------------------------------------------------------------


async def _time_pairs(sizes: Sizes, tally: Tally) -> None:
    pairs = sizes.pairs
    found = {SEMAPHORE: await _peer_ns(asyncio.Semaphore(LIMIT), pairs)}
    for name, limiter in _limiters().items():
        found[name] = await _slot_ns(limiter, pairs)
    found["acquire"] = await _acquire_ns(Limiter(cap=LIMIT), pairs)
    found[BARE_SEMAPHORE] = await _bare_ns(asyncio.Semaphore(LIMIT), pairs)
    found[f"{SEMAPHORE} of 1"] = await _peer_ns(asyncio.Semaphore(1), pairs)
    found[CONDITION] = await _peer_ns(ConditionGate(LIMIT), pairs)
    for name, peer in _installed_peers().items():
        found[name] = await _peer_ns(peer, pairs)
    found[THREAD_SEMAPHORE] = _sync_peer_ns(threading.Semaphore(LIMIT), pairs)
    found["sync slot"] = _sync_slot_ns(Limiter(cap=LIMIT), pairs)
    for name, pair_ns in found.items():
        tally.pairs_ns.setdefault(name, []).append(pair_ns)


def _limiters() -> dict[str, Limiter]:
    return {
        "slot": Limiter(cap=LIMIT),
        "slot, out of the box": Limiter(),
        "slot, fixed": Limiter(cap=LIMIT, controller="fixed"),
        "slot that fills its cap": Limiter(cap=1, cap_ceiling=1),
    }


def _installed_peers() -> dict[str, AbstractAsyncContextManager[Any]]:
    found: dict[str, AbstractAsyncContextManager[Any]] = {}
    for module, name, amount in (("anyio", "CapacityLimiter", LIMIT), ("aiolimiter", "AsyncLimiter", 1e9)):
        with suppress(ImportError):
            found[f"{module}.{name}"] = getattr(importlib.import_module(module), name)(amount)
    return found


async def _peer_ns(peer: AbstractAsyncContextManager[Any], pairs: int) -> float:
    start = time.process_time()
    for _ in range(pairs):
        async with peer:
            pass
    return (time.process_time() - start) / pairs * NS


async def _slot_ns(limiter: Limiter, pairs: int) -> float:
    start = time.process_time()
    for _ in range(pairs):
        async with limiter.slot():
            pass
    return (time.process_time() - start) / pairs * NS


def _sync_peer_ns(peer: AbstractContextManager[Any], pairs: int) -> float:
    start = time.process_time()
    for _ in range(pairs):
        with peer:
            pass
    return (time.process_time() - start) / pairs * NS


def _sync_slot_ns(limiter: Limiter, pairs: int) -> float:
    start = time.process_time()
    for _ in range(pairs):
        with limiter.slot():
            pass
    return (time.process_time() - start) / pairs * NS


async def _acquire_ns(limiter: Limiter, pairs: int) -> float:
    start = time.process_time()
    for _ in range(pairs):
        (await limiter.acquire_async()).release()
    return (time.process_time() - start) / pairs * NS


async def _bare_ns(semaphore: asyncio.Semaphore, pairs: int) -> float:
    start = time.process_time()
    for _ in range(pairs):
        await semaphore.acquire()
        semaphore.release()
    return (time.process_time() - start) / pairs * NS


# -- a long line --------------------------------------------------------------------------------------


class LimiterDoor:
    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter

    async def acquire(self) -> Callable[[], Awaitable[None] | None]:
        return (await self._limiter.acquire_async()).release


class PeerDoor:
    def __init__(self, gate: ConditionGate | asyncio.Semaphore) -> None:
        self._gate = gate

    async def acquire(self) -> Callable[[], Awaitable[None] | None]:
        await self._gate.acquire()
        return self._gate.release


_LINES: dict[str, Callable[[], LimiterDoor | PeerDoor]] = {
    "limiter": lambda: LimiterDoor(Limiter(cap=LIMIT, cap_ceiling=LIMIT)),
    SEMAPHORE: lambda: PeerDoor(asyncio.Semaphore(LIMIT)),
    CONDITION: lambda: PeerDoor(ConditionGate(LIMIT)),
}


async def _drain(door: LimiterDoor | PeerDoor, waiters: int, releases: int) -> tuple[float, float]:
    """Releases in a second while so many wait, and the longest the loop was held up by one."""
    held_up: list[float] = []
    enough = asyncio.Event()

    async def work() -> None:
        release = await door.acquire()
        await asyncio.sleep(0)
        start = time.process_time()
        answer = release()
        if answer is not None:
            await answer
        await asyncio.sleep(0)
        held_up.append(time.process_time() - start)
        if len(held_up) >= releases:
            enough.set()

    opening = [await door.acquire() for _ in range(LIMIT)]
    tasks = [asyncio.create_task(work()) for _ in range(waiters)]
    # Turns enough for everybody to stand in line, also where that takes a lock.
    for _ in range(10):
        await asyncio.sleep(0)
    # Tens of thousands of objects of the bench itself are not what a release costs.
    gc.collect()
    gc.freeze()
    try:
        start = time.process_time()
        for release in opening:
            answer = release()
            if answer is not None:
                await answer
        await enough.wait()
        took_s = time.process_time() - start
    finally:
        gc.unfreeze()
        for task in tasks:
            task.cancel()
    return releases / took_s, max(held_up[:releases])


# -- figures ------------------------------------------------------------------------------------------


def _pair_figures(tally: Tally) -> list[Figure]:
    pairs = tally.pairs_ns

    def figure(what: str, ours: str, theirs: str, target: Target | None = None) -> Figure:
        return beside(what, pairs[ours], pairs[theirs], unit="ns", name=theirs, target=target)

    no_slower = Target("ratio", 1.0)
    found = [
        figure("pair, async with", "slot", SEMAPHORE, no_slower),
        figure("pair, async with, out of the box", "slot, out of the box", SEMAPHORE, no_slower),
        figure("pair, async with, fixed cap", "slot, fixed", SEMAPHORE, no_slower),
        figure("pair, acquire and release", "acquire", SEMAPHORE, no_slower),
        figure("pair, acquire and release", "acquire", BARE_SEMAPHORE),
        figure("pair, with", "sync slot", THREAD_SEMAPHORE, no_slower),
        figure("pair that fills an adaptive cap", "slot that fills its cap", f"{SEMAPHORE} of 1"),
        figure("pair, async with", "slot", CONDITION),
    ]
    peers = [name for name in pairs if name.startswith(("anyio", "aiolimiter"))]
    return found + [figure("pair, async with", "slot", peer) for peer in peers]


def _line_figures(tally: Tally) -> list[Figure]:
    rates, held_up = tally.rates, tally.held_up_ms
    hundredfold = Target("ratio", 100.0, at_least=True)
    return [
        beside(
            "releases a second with a long line",
            rates["limiter"],
            rates[CONDITION],
            unit="/s",
            name=CONDITION,
            target=hundredfold,
        ),
        beside(
            "releases a second with a long line",
            rates["limiter"],
            rates[SEMAPHORE],
            unit="/s",
            name=SEMAPHORE,
        ),
        Figure(
            what="the loop held up by one release, longest",
            ours=max(held_up["limiter"]),
            unit="ms",
            beside=CONDITION,
            theirs=max(held_up[CONDITION]),
            target=Target("value", 1.0),
        ),
    ]


def _notes(sizes: Sizes) -> tuple[str, ...]:
    return (
        f"{sizes.rounds} rounds of {sizes.pairs:,} pairs each, in turn, in processor time",
        f"{sizes.line_rounds} rounds with {sizes.waiters:,} tasks on {LIMIT} slots; the limiter adapts, "
        f"with {LIMIT} as its ceiling",
        "fills an adaptive cap: with a cap of 1 the controller is shown every call, none takes the quick way",
    )
