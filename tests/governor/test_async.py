"""The async door: the same flow, and cancellation that leaves nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from flyball import Governor
from flyball.errors import AtCapacityError, TooLargeError, UsageError, WaitTimeoutError
from tests.governor.people import Person, in_use, nothing_left, pool, wait_for_line
from tests.waiting import LONGEST_S


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, LONGEST_S))


async def work(gov: Governor, started: asyncio.Event | None = None) -> None:
    """Get a slot and keep it until cancelled."""
    async with gov.slot("p"):
        if started is not None:
            started.set()
        await asyncio.Event().wait()


async def line_of(gov: Governor, length: int) -> None:
    """Until so many asks wait. Status reads only, so it may run on the loop."""
    while pool(gov).waiting != length:
        await asyncio.sleep(0.001)


async def cancelled(task: asyncio.Task[Any]) -> None:
    """Cancel it once; that must be enough."""
    task.cancel()
    await asyncio.wait({task}, timeout=2)
    assert task.done(), "the cancellation was lost"
    assert task.cancelled()


def test_a_slot_is_held_for_the_length_of_the_block(gov: Governor) -> None:
    async def story() -> None:
        async with gov.slot("p", project="blog") as lease:
            assert [shown.id for shown in pool(gov).leases] == [lease.id]

    run(story())
    assert nothing_left(gov)


def test_an_error_in_the_block_comes_out(gov: Governor) -> None:
    async def story() -> None:
        async with gov.slot("p"):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(story())
    assert nothing_left(gov)


def test_an_ask_that_does_not_wait_is_refused_at_once_and_leaves_nothing(gov: Governor) -> None:
    async def story() -> None:
        held = await gov.acquire_nowait_async("p", project="blog", name="t-1")
        with pytest.raises(AtCapacityError) as refused:
            await gov.acquire_nowait_async("p", project="shop")
        assert refused.value.verdict.blocker is not None
        assert refused.value.verdict.blocker.name == "t-1"
        assert pool(gov).waiting == 0
        await gov.release_async(held)

    run(story())
    assert nothing_left(gov)


def test_a_cancelled_ask_that_does_not_wait_leaves_no_lease(gov: Governor) -> None:
    async def story() -> None:
        task = asyncio.create_task(gov.acquire_nowait_async("p"))
        await asyncio.sleep(0)
        await cancelled(task)

    run(story())
    assert nothing_left(gov)


async def hand_over(gov: Governor) -> None:
    """One task gives its slot to another that waits for it."""
    lease = await gov.acquire_async("p")
    waiting = asyncio.create_task(gov.acquire_async("p"))
    await line_of(gov, 1)
    await gov.release_async(lease)
    await gov.release_async(await waiting)


def test_a_waiting_task_is_woken_by_a_release(gov: Governor) -> None:
    run(hand_over(gov))
    assert nothing_left(gov)


def test_a_thread_and_a_task_share_one_line(gov: Governor) -> None:
    async def story() -> None:
        lease = await gov.acquire_async("p")
        waiting = Person(lambda: gov.acquire("p"))
        await line_of(gov, 1)
        await gov.release_async(lease)
        (await asyncio.to_thread(waiting.outcome)).release()

    run(story())
    assert nothing_left(gov)


def test_a_timeout_leaves_nothing_in_line(gov: Governor) -> None:
    async def story() -> None:
        async with gov.slot("p"):
            with pytest.raises(WaitTimeoutError):
                async with gov.slot("p", timeout=0.01):
                    pass
            assert pool(gov).waiting == 0

    run(story())


def test_refusals_are_the_same_as_for_threads(gov: Governor) -> None:
    async def story() -> None:
        with pytest.raises(TooLargeError):
            await gov.acquire_async("p", slots=2)
        with pytest.raises(UsageError):
            await gov.acquire_async("p", timeout=-1)

    run(story())


def test_many_tasks_never_hold_more_than_the_cap(gov: Governor) -> None:
    gov.set_pool("p", cap=3)
    running, most, served = 0, 0, 0

    async def one() -> None:
        nonlocal running, most, served
        async with gov.slot("p"):
            running += 1
            served += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1

    async def story() -> None:
        await asyncio.gather(*(one() for _ in range(60)))

    run(story())
    assert served == 60
    assert most <= 3
    assert nothing_left(gov)


def test_one_governor_serves_one_loop_after_another(gov: Governor) -> None:
    run(hand_over(gov))
    run(hand_over(gov))
    assert nothing_left(gov)


# -- cancelling -------------------------------------------------------------------------------------


def test_a_cancelled_wait_leaves_nothing_in_line(gov: Governor) -> None:
    async def story() -> None:
        async with gov.slot("p"):
            tasks = [asyncio.create_task(work(gov)) for _ in range(5)]
            await line_of(gov, 5)
            for task in tasks:
                await cancelled(task)
            assert pool(gov).waiting == 0

    run(story())
    assert nothing_left(gov)


def test_cancelling_all_at_once_leaves_nothing_in_line(gov: Governor) -> None:
    async def story() -> None:
        async with gov.slot("p"):
            tasks = [asyncio.create_task(work(gov)) for _ in range(20)]
            await line_of(gov, 20)
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert {type(result) for result in results} == {asyncio.CancelledError}

    run(story())
    assert nothing_left(gov)


def test_the_one_behind_a_cancelled_wait_is_served(gov: Governor) -> None:
    async def story() -> None:
        lease = await gov.acquire_async("p")
        first = asyncio.create_task(work(gov))
        await line_of(gov, 1)
        second = asyncio.create_task(gov.acquire_async("p"))
        await line_of(gov, 2)
        await cancelled(first)
        await gov.release_async(lease)
        await gov.release_async(await second)

    run(story())
    assert nothing_left(gov)


@pytest.mark.parametrize("turns", range(8))
def test_cancelling_while_the_grant_arrives_leaves_nothing_behind(gov: Governor, turns: int) -> None:
    """Cancelled before the mail is read, as it is read, as the task looks, and after."""

    async def story() -> None:
        lease = await gov.acquire_async("p")
        task = asyncio.create_task(work(gov))
        await line_of(gov, 1)
        await asyncio.sleep(0.02)
        lease.release()
        for _ in range(turns):
            await asyncio.sleep(0)
        await cancelled(task)
        assert nothing_left(gov)

    run(story())


@pytest.mark.parametrize("turns", range(6))
def test_cancelling_while_it_asks_leaves_nothing_behind(gov: Governor, turns: int) -> None:
    async def story() -> None:
        task = asyncio.create_task(work(gov))
        for _ in range(turns):
            await asyncio.sleep(0)
        await cancelled(task)
        assert nothing_left(gov)

    run(story())


def test_cancelling_twice_leaves_nothing_behind(gov: Governor) -> None:
    async def story() -> None:
        async with gov.slot("p"):
            task = asyncio.create_task(work(gov))
            await line_of(gov, 1)
            task.cancel()
            await asyncio.sleep(0)
            await cancelled(task)

    run(story())
    assert nothing_left(gov)


def test_work_that_is_cancelled_gives_its_slot_back(gov: Governor) -> None:
    async def story() -> None:
        started = asyncio.Event()
        task = asyncio.create_task(work(gov, started))
        await started.wait()
        assert in_use(gov) == 1
        await cancelled(task)
        assert nothing_left(gov)

    run(story())


def test_an_outer_time_limit_works(gov: Governor) -> None:
    async def story() -> None:
        async with gov.slot("p"):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await gov.acquire_async("p")
            assert pool(gov).waiting == 0

    run(story())


def test_the_loop_is_free_while_a_task_waits(gov: Governor) -> None:
    async def story() -> None:
        async with gov.slot("p"):
            task = asyncio.create_task(work(gov))
            await line_of(gov, 1)
            for _ in range(50):
                await asyncio.sleep(0)
            await cancelled(task)

    run(story())
    wait_for_line(gov, 0)
