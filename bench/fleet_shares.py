"""A slot of a share lease: taken and given back in this process, while the store is asked once a second.

Beside it: the limiter that lives in one process and knows no store, and asyncio's own semaphore. Timed in
processor time of the thread that takes the slots. That it does no I/O is seen, not believed: every function
in C that a pair calls is noted by the interpreter, and so is everything the driver sends, by thread.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from bench.fleet_server import counted_sends
from bench.report import Figure, Progress, Target, beside
from flyball import Governor, Limiter

POOL = "shares"
LIMIT = 10
NS = 1e9
_LIMITER, _SEMAPHORE = "Limiter", "asyncio.Semaphore"
_IO_MODULES = frozenset(
    {"_socket", "socket", "select", "posix", "_io", "_ssl", "_sqlite3", "_posixsubprocess"}
)


@dataclass(frozen=True, slots=True)
class Sizes:
    rounds: int = 15
    pairs: int = 20_000
    heartbeat_s: float = 1.0


def figures(url: str, sizes: Sizes, progress: Progress) -> list[Figure]:
    governor = Governor(url)
    governor.set_pool(POOL, cap=LIMIT, adaptive=False, heartbeat_s=sizes.heartbeat_s)
    progress("fleet: a share of a pool")
    with governor.share(POOL, node="bench") as share:
        # A store that is new learns first who holds what.
        assert share.wait_ready(30.0), "the share got nothing"
        limiter = Limiter(cap=LIMIT)
        found: dict[str, list[float]] = {}
        for turn in range(sizes.rounds):
            progress(f"fleet: pairs, round {turn + 1} of {sizes.rounds}")
            for name, pair_ns in asyncio.run(_round(share, limiter, sizes.pairs)).items():
                found.setdefault(name, []).append(pair_ns)
        calls, sends = io_per_pair(share.slot, sizes.pairs)
    governor.close()
    no_more, nothing = Target("ratio", 1.5), Target("value", 0.0)
    return [
        beside(
            "share, async with", found["share"], found["limiter"], unit="ns", name=_LIMITER, target=no_more
        ),
        beside(
            "share, with",
            found["share, with"],
            found["limiter, with"],
            unit="ns",
            name=_LIMITER,
            target=no_more,
        ),
        beside("share, async with", found["share"], found[_SEMAPHORE], unit="ns", name=_SEMAPHORE),
        Figure(what="calls into I/O per share slot", ours=calls, unit="", target=nothing),
        Figure(what="commands to the store per share slot", ours=sends, unit="", target=nothing),
    ]


async def _round(share: Any, limiter: Limiter, pairs: int) -> dict[str, float]:
    return {
        _SEMAPHORE: await _peer_ns(asyncio.Semaphore(LIMIT), pairs),
        "limiter": await _async_ns(limiter.slot, pairs),
        "share": await _async_ns(share.slot, pairs),
        "limiter, with": _sync_ns(limiter.slot, pairs),
        "share, with": _sync_ns(share.slot, pairs),
    }


async def _peer_ns(peer: AbstractAsyncContextManager[Any], pairs: int) -> float:
    start = time.thread_time()
    for _ in range(pairs):
        async with peer:
            pass
    return (time.thread_time() - start) / pairs * NS


async def _async_ns(slot: Callable[[], Any], pairs: int) -> float:
    start = time.thread_time()
    for _ in range(pairs):
        async with slot():
            pass
    return (time.thread_time() - start) / pairs * NS


def _sync_ns(slot: Callable[[], Any], pairs: int) -> float:
    start = time.thread_time()
    for _ in range(pairs):
        with slot():
            pass
    return (time.thread_time() - start) / pairs * NS


def io_per_pair(slot: Callable[[], Any], pairs: int) -> tuple[float, float]:
    """What a pair calls that could be I/O, and what the driver sends meanwhile from this thread."""
    calls = 0

    def note(_: FrameType, event: str, function: object) -> None:
        nonlocal calls
        if event == "c_call":
            calls += _module(function) in _IO_MODULES

    with counted_sends() as sends:
        sys.setprofile(note)
        try:
            for _ in range(pairs):
                with slot():
                    pass
        finally:
            sys.setprofile(None)
        return calls / pairs, sends[threading.get_ident()] / pairs


def _module(function: Any) -> str:
    """Where a function in C lives: its module, or that of the object whose method it is."""
    found = getattr(function, "__module__", None) or type(getattr(function, "__self__", None)).__module__
    return str(found)
