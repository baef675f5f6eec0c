"""The limiter in an event loop: order, bounds, and no waiter left behind."""

from __future__ import annotations

import asyncio

import pytest

from flyball import Limiter
from flyball.errors import AtCapacityError, UsageError, WaitTimeoutError
from flyball.governor.limiter.call_slot import CallSlot
from flyball.testing import ManualClock
from tests.governor.limiting import empty, limiter_of, line_of, run

# -- bounds -------------------------------------------------------------------------------------------


def test_no_more_run_at_once_than_the_cap() -> None:
    limiter, running, most = limiter_of(3), 0, 0

    async def work() -> None:
        nonlocal running, most
        async with limiter.slot():
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1

    async def story() -> None:
        await asyncio.gather(*(work() for _ in range(50)))

    run(story())
    assert most == 3
    assert empty(limiter)
    assert limiter.stats().successes == 50


def test_ten_thousand_waiters_are_all_served_in_order() -> None:
    limiter = limiter_of(10)
    order: list[int] = []

    async def work(number: int) -> None:
        async with limiter.slot():
            order.append(number)
            await asyncio.sleep(0)

    async def story() -> None:
        await asyncio.gather(*(work(number) for number in range(10_000)))

    run(story())
    assert order == list(range(10_000))
    assert empty(limiter)


def test_a_freed_slot_goes_to_the_line_and_not_to_a_newcomer() -> None:
    limiter = limiter_of(1)

    async def story() -> None:
        slot = await limiter.acquire_async()
        waiting = asyncio.create_task(limiter.acquire_async())
        await line_of(limiter, 1)
        slot.release()
        with pytest.raises(AtCapacityError):
            limiter.acquire_nowait()
        (await waiting).release()

    run(story())


def test_higher_priority_first_and_first_come_first_served_within_one() -> None:
    limiter = limiter_of(1)
    order: list[tuple[int, str]] = []

    async def work(priority: int, name: str) -> None:
        async with limiter.slot(priority=priority):
            order.append((priority, name))

    async def story() -> None:
        async with limiter.slot():
            tasks = [
                asyncio.create_task(work(p, n))
                for p, n in ((0, "a"), (5, "b"), (-1, "c"), (5, "d"), (0, "e"))
            ]
            await line_of(limiter, 5)
        await asyncio.gather(*tasks)

    run(story())
    assert order == [(5, "b"), (5, "d"), (0, "a"), (0, "e"), (-1, "c")]


def test_a_higher_cap_serves_the_waiters_at_once() -> None:
    limiter = limiter_of(1)

    async def story() -> None:
        tasks = [asyncio.create_task(limiter.acquire_async()) for _ in range(4)]
        await line_of(limiter, 3)
        limiter.set(cap=3, cap_ceiling=3)
        await asyncio.sleep(0)
        assert (limiter.stats().in_use, limiter.stats().waiting) == (3, 1)
        (await tasks[0]).release()
        for task in tasks[1:]:
            (await task).release()

    run(story())
    assert empty(limiter)


def test_a_cap_that_opens_wide_serves_every_waiter_in_a_few_steps() -> None:
    limiter = limiter_of(1)

    async def story() -> None:
        async with limiter.slot():
            tasks = [asyncio.create_task(limiter.acquire_async()) for _ in range(450)]
            await line_of(limiter, 450)
            limiter.set(cap=1000, cap_ceiling=1000)
            assert 300 < limiter.stats().waiting < 450, "one step must not serve so many that the loop waits"
            for slot in await asyncio.gather(*tasks):
                slot.release()

    run(story())
    assert empty(limiter)


def test_a_lower_cap_waits_for_running_calls() -> None:
    limiter = limiter_of(4)

    async def story() -> None:
        slots = [await limiter.acquire_async() for _ in range(4)]
        limiter.set(cap=2)
        waiting = asyncio.create_task(limiter.acquire_async())
        await line_of(limiter, 1)
        slots[0].release()
        slots[1].release()
        await asyncio.sleep(0)
        assert not waiting.done()
        slots[2].release()
        (await waiting).release()
        slots[3].release()

    run(story())
    assert empty(limiter)


def test_the_maximum_holds_whatever_the_cap_is() -> None:
    limiter = limiter_of(10, maximum=2)
    limiter.acquire_nowait()
    limiter.acquire_nowait()
    with pytest.raises(AtCapacityError, match="hard maximum"):
        limiter.acquire_nowait()
    limiter.set(cap=1000, cap_ceiling=1000)
    with pytest.raises(AtCapacityError):
        limiter.acquire_nowait()
    limiter.set(maximum=3)
    limiter.acquire_nowait()
    assert limiter.stats().cap == 3


@pytest.mark.parametrize(("maximum", "most"), [(5, 5), (None, 12)])
def test_a_mad_controller_exceeds_neither_the_maximum_nor_the_ceiling(
    monkeypatch: pytest.MonkeyPatch, maximum: int | None, most: int
) -> None:
    from dataclasses import replace

    from flyball.core.pool.control.default_measured import MeasuredController

    monkeypatch.setattr(
        MeasuredController, "on_usage", lambda self, state, s, usage: replace(state, level=1e9)
    )
    monkeypatch.setattr(
        MeasuredController, "on_signal", lambda self, state, s, context: (replace(state, level=1e9), None)
    )
    clock = ManualClock()
    limiter = Limiter(maximum=maximum, clock=clock)

    async def story() -> None:
        tasks = [asyncio.create_task(limiter.acquire_async()) for _ in range(100)]
        held: list[CallSlot] = []
        for task in tasks:
            clock.advance(10)
            limiter._look()
            await asyncio.sleep(0)
            assert limiter.stats().in_use <= most
            held.append(await task)
            held[-1].report(429)
            if len(held) == most:
                held.pop(0).release()
        for slot in held:
            slot.release()

    run(story())
    assert empty(limiter)


def test_even_a_mad_plan_does_not_exceed_the_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    from flyball.core.pool import plan

    monkeypatch.setattr(plan, "cap_for", lambda state, s: 10**9)
    limiter = Limiter(maximum=7)
    for _ in range(7):
        limiter.acquire_nowait()
    with pytest.raises(AtCapacityError):
        limiter.acquire_nowait()


# -- leaving the line ---------------------------------------------------------------------------------


def test_a_timeout_says_how_long_and_leaves_nothing_in_line() -> None:
    limiter = limiter_of(1)

    async def story() -> None:
        async with limiter.slot():
            with pytest.raises(WaitTimeoutError) as caught:
                async with limiter.slot(timeout=0.01):
                    raise AssertionError
            assert caught.value.waited_s == 0.01
            assert caught.value.verdict.in_use == 1
            assert limiter.stats().waiting == 0

    run(story())


def test_a_timeout_of_nothing_takes_what_is_free_and_no_more() -> None:
    limiter = limiter_of(1)

    async def story() -> None:
        async with limiter.slot(timeout=0):
            with pytest.raises(TimeoutError):
                await limiter.acquire_async(timeout=0)

    run(story())
    assert empty(limiter)


def test_the_one_behind_a_cancelled_wait_is_served() -> None:
    limiter = limiter_of(1)

    async def story() -> None:
        slot = await limiter.acquire_async()
        first, second = (asyncio.create_task(limiter.acquire_async()) for _ in range(2))
        await line_of(limiter, 2)
        first.cancel()
        await asyncio.sleep(0)
        slot.release()
        (await second).release()
        assert first.cancelled()

    run(story())
    assert empty(limiter)


def test_a_slot_handed_to_a_task_that_is_cancelled_goes_to_the_next() -> None:
    limiter = limiter_of(1)

    async def story() -> None:
        slot = await limiter.acquire_async()
        first, second = (asyncio.create_task(limiter.acquire_async()) for _ in range(2))
        await line_of(limiter, 2)
        slot.release()
        first.cancel()
        (await second).release()
        assert first.cancelled()

    run(story())
    assert empty(limiter)


def test_an_outer_time_limit_works() -> None:
    limiter = limiter_of(1)

    async def story() -> None:
        async with limiter.slot():
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await limiter.acquire_async()
            assert limiter.stats().waiting == 0

    run(story())


def test_waiters_of_a_loop_that_was_closed_do_not_keep_the_slot() -> None:
    limiter = limiter_of(1)
    slot = limiter.acquire_nowait()
    loop = asyncio.new_event_loop()
    task = loop.create_task(limiter.acquire_async())
    loop.run_until_complete(line_of(limiter, 1))
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
    slot.release()
    assert limiter.stats().waiting == 0
    limiter.acquire_nowait().release()
    # Its frame goes with the task, long after the slot went to another waiter.
    task.get_coro().close()
    assert empty(limiter)


def test_giving_back_twice_gives_back_once() -> None:
    limiter = limiter_of(2)
    slot = limiter.acquire_nowait()
    slot.release()
    slot.release()
    with limiter.slot() as block:
        block.release()
    limiter.slot().release()
    assert empty(limiter)
    for _ in range(2):
        limiter.acquire_nowait()
    with pytest.raises(AtCapacityError):
        limiter.acquire_nowait()


def test_a_slot_is_for_one_use() -> None:
    limiter = limiter_of(2)
    slot = limiter.slot()
    with slot:
        pass
    with pytest.raises(UsageError, match="ask the limiter for another"):
        slot.__enter__()
    with pytest.raises(UsageError, match="not held"):
        slot.report(429)
