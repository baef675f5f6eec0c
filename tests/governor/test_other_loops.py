"""Under an event loop that is not asyncio's the coroutines are refused, with the way out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import pytest
import trio

import flyball
from flyball import Governor, Limiter, UsageError


async def take_slot(gov: Governor) -> None:
    async with gov.slot("p"):
        raise AssertionError("a slot under trio")


async def call(gov: Governor) -> None:
    async with flyball.httpx_async_client(flyball.Pool(gov, "p")) as client:
        await client.get("http://127.0.0.1:9/")


async def call_a_limiter(gov: Governor) -> None:
    async with flyball.httpx_async_client(Limiter()) as client:
        await client.get("http://127.0.0.1:9/")


async def wait_in_a_limiter(gov: Governor) -> None:
    limiter = Limiter(maximum=1)
    with limiter.slot():
        await limiter.acquire_async()


@pytest.mark.parametrize("story", [take_slot, call, call_a_limiter, wait_in_a_limiter])
def test_under_trio_it_is_refused_with_the_way_out(story: Callable[[Governor], Awaitable[None]]) -> None:
    gov = Governor("memory:")
    with pytest.raises(UsageError, match=r"asyncio's event loop.*trio\.to_thread\.run_sync"):
        trio.run(partial(story, gov))
    assert all(pool.in_use == 0 for pool in gov.status().pools)
    gov.close()
