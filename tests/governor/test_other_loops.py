"""Under an event loop that is not asyncio's every coroutine is refused at its first use, with the way out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import anyio
import pytest
import trio

import flyball
from flyball import Governor, Limiter, UsageError
from flyball.client import AsyncClient
from flyball.integrations.asgi import Shed

Story = Callable[[Governor], Awaitable[object]]


async def take_slot(gov: Governor) -> None:
    async with gov.slot("p"):
        raise AssertionError("a slot under trio")


async def acquire(gov: Governor) -> None:
    await gov.acquire_async("p")


async def acquire_nowait(gov: Governor) -> None:
    await gov.acquire_nowait_async("p")


async def report(gov: Governor) -> None:
    with gov.slot("p") as lease:
        await lease.report_async(429)


async def call(gov: Governor) -> None:
    async with flyball.httpx_async_client(flyball.Pool(gov, "p")) as client:
        await client.get("http://127.0.0.1:9/")


async def call_a_limiter(gov: Governor) -> None:
    async with flyball.httpx_async_client(Limiter()) as client:
        await client.get("http://127.0.0.1:9/")


async def answered() -> tuple[int, None, None]:
    return 200, None, None


async def take_a_limiters_slot(gov: Governor) -> None:
    async with Limiter().slot():
        raise AssertionError("a slot under trio")


async def take_a_limiters_slot_with_a_priority(gov: Governor) -> None:
    async with Limiter().slot(priority=1):
        raise AssertionError("a slot under trio")


async def acquire_from_a_limiter(gov: Governor) -> None:
    await Limiter().acquire_async()


async def wait_in_a_limiter(gov: Governor) -> None:
    limiter = Limiter(maximum=1)
    with limiter.slot():
        await limiter.acquire_async()


async def run_in_a_limiter(gov: Governor) -> None:
    await Limiter().run_async(answered)


async def call_a_limited_function(gov: Governor) -> None:
    await Limiter()(answered)()


async def open_a_share(gov: Governor) -> None:
    async with gov.share("p"):
        raise AssertionError("a share under trio")


async def take_a_shares_slot(gov: Governor) -> None:
    with gov.share("p") as share:
        share.wait_ready(60)
        async with share.slot():
            raise AssertionError("a slot under trio")


async def renew_a_share(gov: Governor) -> None:
    with gov.share("p") as share:
        await share.renew_async()


async def close_a_share(gov: Governor) -> None:
    with gov.share("p") as share:
        await share.close_async()


async def retry(gov: Governor) -> None:
    await flyball.retry_async(answered)


async def retry_behind_a_limiter(gov: Governor) -> None:
    await flyball.retry_async(answered, gate=Limiter())


async def call_a_retried_function(gov: Governor) -> None:
    await flyball.retried(answered)()


async def serve(gov: Governor) -> None:
    async def app(*_: object) -> None:
        raise AssertionError("a request under trio")

    async def send(_: object) -> None: ...

    await Shed(app, Limiter())({"type": "http"}, send, send)  # type: ignore[arg-type]


async def ask_a_service(gov: Governor) -> None:
    await AsyncClient("http://127.0.0.1:9").acquire("p")


async def ask_a_service_in_a_block(gov: Governor) -> None:
    async with AsyncClient("http://127.0.0.1:9") as client:
        await client.acquire("p")


STORIES = (
    *(take_slot, acquire, acquire_nowait, report, call, call_a_limiter),
    *(take_a_limiters_slot, take_a_limiters_slot_with_a_priority, acquire_from_a_limiter),
    *(wait_in_a_limiter, run_in_a_limiter, call_a_limited_function),
    *(open_a_share, take_a_shares_slot, renew_a_share, close_a_share),
    *(retry, retry_behind_a_limiter, call_a_retried_function),
    *(serve, ask_a_service, ask_a_service_in_a_block),
)


@pytest.mark.parametrize("story", STORIES)
def test_under_trio_it_is_refused_with_the_way_out(story: Story) -> None:
    gov = Governor("memory:")
    with pytest.raises(UsageError, match=r"asyncio's event loop.*trio\.to_thread\.run_sync"):
        trio.run(partial(story, gov))
    assert all(pool.in_use == 0 for pool in gov.status().pools)
    gov.close()


def test_anyio_is_refused_on_its_trio_backend_and_served_on_its_asyncio_one() -> None:
    limiter = Limiter()

    async def take() -> str:
        async with limiter.slot():
            return "served"

    with pytest.raises(UsageError, match="its asyncio backend"):
        anyio.run(take, backend="trio")
    assert anyio.run(take, backend="asyncio") == "served"


def test_threads_of_a_program_that_runs_trio_use_the_same_limiter() -> None:
    limiter = Limiter()

    def work() -> str:
        with limiter.slot():
            return "served"

    assert trio.run(trio.to_thread.run_sync, work) == "served"
