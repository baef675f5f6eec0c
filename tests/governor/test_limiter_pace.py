"""Who is next at a limiter after a long wait, and how far starts are apart."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from flyball import Limiter
from flyball.errors import AtCapacityError, UsageError
from flyball.testing import ManualClock
from tests.governor.limiting import empty, limiter_of, line_of, run


def test_a_long_waiter_catches_up_with_a_higher_priority_and_never_overtakes_it() -> None:
    clock = ManualClock()
    limiter, order = limiter_of(1, clock=clock, ageing_s=30.0), []

    async def work(priority: int, name: str) -> None:
        async with limiter.slot(priority=priority):
            order.append(name)

    async def story() -> None:
        slot = await limiter.acquire_async()
        tasks = []
        for n, (priority, name) in enumerate([(0, "old"), (1, "first"), (1, "second"), (0, "young")]):
            tasks.append(asyncio.create_task(work(priority, name)))
            await line_of(limiter, n + 1)
            if name == "first":
                clock.advance(29)
            if name == "second":
                clock.advance(1)
        slot.release()
        await asyncio.gather(*tasks)

    run(story())
    assert order == ["old", "first", "second", "young"]


def test_without_time_priority_alone_decides() -> None:
    limiter, order = limiter_of(1, clock=ManualClock(), ageing_s=30.0), []

    async def work(priority: int) -> None:
        async with limiter.slot(priority=priority):
            order.append(priority)

    async def story() -> None:
        slot = await limiter.acquire_async()
        tasks = [asyncio.create_task(work(priority)) for priority in (0, -1, 1)]
        await line_of(limiter, 3)
        slot.release()
        await asyncio.gather(*tasks)

    run(story())
    assert order == [1, 0, -1]


# -- spacing ------------------------------------------------------------------------------------------


def test_starts_are_spaced_and_the_refusal_says_so() -> None:
    clock = ManualClock()
    limiter = Limiter(cap=4, clock=clock, spacing_s=3.0, spacing_jitter=0.0)
    limiter.acquire_nowait()
    with pytest.raises(AtCapacityError) as refused:
        limiter.acquire_nowait()
    assert (refused.value.reason, refused.value.retry_after_s) == ("spacing", 3.0)
    clock.advance(2.9)
    with pytest.raises(AtCapacityError):
        limiter.acquire_nowait()
    clock.advance(0.2)
    limiter.acquire_nowait()
    assert limiter.stats().in_use == 2


def test_a_refusal_for_spacing_does_not_move_its_clock() -> None:
    clock = ManualClock()
    limiter = Limiter(cap=4, clock=clock, spacing_s=3.0, spacing_jitter=0.0)
    limiter.acquire_nowait()
    for _ in range(29):
        clock.advance(0.1)
        with pytest.raises(AtCapacityError):
            limiter.acquire_nowait()
    clock.advance(0.2)
    limiter.acquire_nowait()


def test_a_line_is_let_in_one_by_one_as_the_spacing_allows() -> None:
    clock = ManualClock()
    limiter, started = Limiter(cap=8, clock=clock, spacing_s=3.0, spacing_jitter=0.5), []

    async def work() -> None:
        async with limiter.slot():
            started.append(clock())
            await asyncio.Event().wait()

    async def story() -> None:
        tasks = [asyncio.create_task(work()) for _ in range(5)]
        await line_of(limiter, 4)
        while len(started) < 5:
            clock.advance(0.1)
            limiter._look()
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    run(story())
    gaps = [after - before for before, after in pairwise(started)]
    assert all(1.5 <= gap <= 4.7 for gap in gaps)
    assert len({round(gap, 3) for gap in gaps}) > 1
    assert empty(limiter)


def test_spacing_can_be_turned_on_and_off_while_calls_run() -> None:
    limiter = Limiter(cap=8, clock=ManualClock())
    for _ in range(3):
        limiter.acquire_nowait()
    limiter.set(spacing_s=3.0)
    limiter.acquire_nowait()
    with pytest.raises(AtCapacityError):
        limiter.acquire_nowait()
    limiter.set(spacing_s=0.0)
    limiter.acquire_nowait()
    assert limiter.stats().in_use == 5


def test_a_cap_that_is_fixed_refuses_a_spacing_it_would_not_keep() -> None:
    with pytest.raises(UsageError, match="spacing_s is for a cap that adapts"):
        Limiter(controller="fixed", spacing_s=3.0)
