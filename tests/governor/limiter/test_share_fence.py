"""A share's slot that is handed to a sleeping waiter: one that wakes after the fence does not start."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from flyball import RefusedError, WaitTimeoutError
from flyball.core.pool.local_pool import LocalPool
from flyball.core.pool.setting_table import resolve_pool
from flyball.governor.limiter.call_slot import SlotMethods
from flyball.governor.share.share import ShareLimiter
from tests.governor.people import Person
from tests.waiting import until

FENCE = 10.0
BEFORE, AFTER = 9.0, 11.0


class Held(SlotMethods):
    """A share of one slot until the fence, without a store, and with a clock of the test's."""

    def __init__(self, clock: Callable[[], float]) -> None:
        gate = LocalPool(resolve_pool({"adaptive": False, "cap": 9}), BEFORE, name="p")
        self._queue: ShareLimiter = ShareLimiter(gate, clock)
        self.renewed(FENCE)

    def renewed(self, until: float) -> None:
        with self._queue.lock:
            self._queue.allow(1, until=until, why="test")

    def close(self) -> None:
        with self._queue.lock:
            self._queue.end_all_waits()

    @property
    def seen(self) -> tuple[int, int]:
        """How many run, and how many wait."""
        with self._queue.lock:
            return self._queue.in_hands, self._queue.line.length


class Time:
    def __init__(self) -> None:
        self.now = BEFORE

    def __call__(self) -> float:
        return self.now


async def handed_over(time: Time, *, timeout: float | None) -> tuple[Held, asyncio.Task[None], asyncio.Event]:
    """A task was given the slot before the fence; its loop comes to run it after."""
    held, over = Held(time), asyncio.Event()

    async def work() -> None:
        async with held.slot(timeout=timeout):
            await over.wait()

    first = held.slot(1)._enter_nowait()
    task = asyncio.create_task(work())
    while held.seen != (1, 1):
        await asyncio.sleep(0)
    first.release()
    assert held.seen == (1, 0)
    time.now = AFTER
    return held, task, over


def test_a_task_that_its_loop_wakes_too_late_waits_on() -> None:
    async def story() -> None:
        time = Time()
        held, task, over = await handed_over(time, timeout=None)
        await asyncio.sleep(0.01)
        assert held.seen == (0, 1)
        held.renewed(AFTER + 1.0)
        await asyncio.sleep(0.01)
        assert held.seen == (1, 0)
        over.set()
        await task
        assert held.seen == (0, 0)

    asyncio.run(story())


def test_its_time_runs_out_all_the_same() -> None:
    async def story() -> None:
        held, task, _ = await handed_over(Time(), timeout=0.05)
        with pytest.raises(WaitTimeoutError):
            await task
        assert held.seen == (0, 0)

    asyncio.run(story())


def test_a_loop_that_stood_still_for_longer_than_the_wait_starts_nothing() -> None:
    async def story() -> None:
        time = Time()
        held, task, _ = await handed_over(time, timeout=0.0)
        with pytest.raises(WaitTimeoutError):
            await task
        assert held.seen == (0, 0)

    asyncio.run(story())


def test_a_task_that_is_cancelled_then_leaves_nothing_behind() -> None:
    async def story() -> None:
        held, task, _ = await handed_over(Time(), timeout=None)
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert held.seen == (0, 0)

    asyncio.run(story())


@pytest.mark.parametrize("first", [True, False])
def test_a_share_that_is_closed_lets_go_of_it(first: bool) -> None:
    async def story() -> None:
        held, task, _ = await handed_over(Time(), timeout=None)
        if not first:
            await asyncio.sleep(0.01)
        held.close()
        with pytest.raises(RefusedError):
            await task
        assert held.seen == (0, 0)

    asyncio.run(story())


def test_a_thread_that_wakes_too_late_waits_on() -> None:
    late = set[int]()
    held = Held(lambda: AFTER if threading.get_ident() in late else BEFORE)
    ran: list[tuple[int, int]] = []

    def work() -> None:
        with held.slot(timeout=60.0):
            ran.append(held.seen)

    first = held.slot(1)._enter_nowait()
    person = Person(work)
    until(lambda: held.seen == (1, 1), "it to wait")
    late.add(person.ident or 0)
    first.release()
    until(lambda: held.seen == (0, 1), "it to stand in line again")
    assert ran == []
    held.renewed(AFTER + 1.0)
    person.outcome()
    assert ran == [(1, 0)]
    assert held.seen == (0, 0)
