"""Short words for the tests of the limiter."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from flyball import Limiter
from tests.waiting import LONGEST_S


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, LONGEST_S))


def limiter_of(cap: int, **more: Any) -> Limiter:
    """A limiter that never changes its mind."""
    return Limiter(cap=cap, controller="fixed", cap_ceiling=cap, **more)


async def line_of(limiter: Limiter, length: int) -> None:
    while limiter.stats().waiting != length:
        await asyncio.sleep(0)


def empty(limiter: Limiter) -> bool:
    stats = limiter.stats()
    return (stats.in_use, stats.waiting) == (0, 0)
