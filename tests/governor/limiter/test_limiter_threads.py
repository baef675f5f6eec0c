"""Threads and event loops at one limiter, and forks: no waiter sleeps for ever, nothing is lost."""

from __future__ import annotations

import asyncio
import os
import threading
import time

import pytest

from flyball import Limiter, Signal, SignalKind
from flyball.errors import AtCapacityError, WaitTimeoutError
from flyball.governor.limiter.call_slot import CallSlot
from tests.governor.limiting import empty, limiter_of, line_of, run
from tests.governor.people import Person
from tests.governor.test_fork import in_child
from tests.waiting import LONGEST_S


def line_is(limiter: Limiter, length: int) -> None:
    give_up = time.monotonic() + LONGEST_S
    while limiter.stats().waiting != length:
        assert time.monotonic() < give_up
        time.sleep(0.001)


def test_a_thread_waits_for_a_release_by_another() -> None:
    limiter = limiter_of(1)
    slot = limiter.acquire()
    person = Person(limiter.acquire)
    line_is(limiter, 1)
    slot.release()
    person.outcome().release()
    assert empty(limiter)


def test_threads_are_served_in_order_and_by_priority() -> None:
    limiter = limiter_of(1)
    order: list[str] = []

    def work(name: str, priority: int) -> None:
        with limiter.slot(priority=priority):
            order.append(name)

    with limiter.slot():
        people = []
        for place, (name, priority) in enumerate((("a", 0), ("b", 0), ("c", 2), ("d", 0)), 1):
            people.append(Person(lambda name=name, priority=priority: work(name, priority)))  # type: ignore[misc]
            line_is(limiter, place)
    for person in people:
        person.outcome()
    assert order == ["c", "a", "b", "d"]


def test_a_thread_that_waits_too_long_gives_up() -> None:
    limiter = limiter_of(1)
    with limiter.slot():
        with pytest.raises(WaitTimeoutError):
            limiter.acquire(timeout=0.01)
        assert limiter.stats().waiting == 0


def test_time_alone_opens_the_gate_for_threads() -> None:
    limiter = Limiter(cap=4)
    with limiter.slot() as slot:
        slot.report(Signal(SignalKind.THROTTLED, retry_after_s=0.04))
    people = [Person(limiter.acquire) for _ in range(3)]
    for person in people:
        person.outcome().release()
    assert empty(limiter)


class Clock:
    """Stands still until it is moved, so that a limiter stays closed however busy the machine is."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def closed_limiter(clock: Clock) -> Limiter:
    """It looks at its clock again every 50 ms, as long as a waiter does that for it."""
    limiter = Limiter(cap=4, clock=clock)
    with limiter.slot() as slot:
        slot.report(Signal(SignalKind.THROTTLED, retry_after_s=0.05))
    return limiter


def test_the_watch_over_the_time_passes_on_when_the_watcher_gives_up() -> None:
    clock = Clock()
    limiter = closed_limiter(clock)
    patient = Person(limiter.acquire)
    line_is(limiter, 1)

    async def impatient() -> None:
        with pytest.raises(WaitTimeoutError):
            await limiter.acquire_async(priority=-1, timeout=0.01)

    with pytest.raises(WaitTimeoutError):
        limiter.acquire(priority=-1, timeout=0.01)
    run(impatient())
    clock.now += 1.0
    patient.outcome().release()
    assert empty(limiter)


def test_time_opens_the_gate_when_the_loop_that_watched_is_gone() -> None:
    clock = Clock()
    limiter = closed_limiter(clock)
    loop = asyncio.new_event_loop()
    task = loop.create_task(limiter.acquire_async())
    loop.run_until_complete(line_of(limiter, 1))
    patient = Person(limiter.acquire)
    line_is(limiter, 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    loop.close()
    clock.now += 1.0
    patient.outcome().release()
    assert empty(limiter)


def test_a_release_in_a_thread_wakes_a_task() -> None:
    limiter = limiter_of(1)

    async def story() -> None:
        slot = limiter.acquire()
        task = asyncio.create_task(limiter.acquire_async())
        await line_of(limiter, 1)
        await asyncio.to_thread(slot.release)
        (await task).release()

    run(story())
    assert empty(limiter)


def test_a_release_in_a_task_wakes_a_thread_and_another_loop() -> None:
    limiter = limiter_of(1)

    async def waits() -> CallSlot:
        return await limiter.acquire_async()

    async def story() -> None:
        slot = await limiter.acquire_async()
        thread = Person(limiter.acquire)
        await line_of(limiter, 1)
        loop = Person(lambda: asyncio.run(waits()))
        await line_of(limiter, 2)
        slot.release()
        (await asyncio.to_thread(thread.outcome)).release()
        (await asyncio.to_thread(loop.outcome)).release()

    run(story())
    assert empty(limiter)


@pytest.mark.parametrize("cap", [2, 5])
@pytest.mark.parametrize("controller", ["fixed", "measured"])
def test_threads_and_tasks_together_never_exceed_the_maximum(cap: int, controller: str) -> None:
    """Most of the ways through are taken at once: ready passes, the filling one, the line, both doors."""
    limiter = Limiter(cap=cap, cap_ceiling=9, maximum=cap, controller=controller)
    running: list[None] = []
    most = 0
    stop = time.monotonic() + 0.3

    def seen() -> None:
        nonlocal most
        running.append(None)
        most = max(most, len(running))

    def thread() -> int:
        done = 0
        while time.monotonic() < stop:
            with limiter.slot(priority=done % 2):
                seen()
                running.pop()
            done += 1
        return done

    async def task() -> int:
        done = 0
        while time.monotonic() < stop:
            async with limiter.slot():
                seen()
                await asyncio.sleep(0)
                running.pop()
            done += 1
        return done

    async def tasks() -> int:
        return sum(await asyncio.gather(*(task() for _ in range(6))))

    people = [Person(thread) for _ in range(3)] + [Person(lambda: asyncio.run(tasks())) for _ in range(2)]
    done = sum(person.outcome() for person in people)
    assert 0 < most <= cap
    assert empty(limiter)
    assert limiter.stats().successes == done


def test_a_child_starts_with_an_empty_line_and_free_slots() -> None:
    limiter = limiter_of(2)
    held = limiter.acquire()
    limiter.acquire()
    person = Person(limiter.acquire)
    line_is(limiter, 1)

    def child() -> None:
        assert empty(limiter)
        held.release()
        assert empty(limiter)
        limiter.acquire_nowait()
        limiter.acquire_nowait()
        with pytest.raises(AtCapacityError):
            limiter.acquire_nowait()

    in_child(child)
    assert (limiter.stats().in_use, limiter.stats().waiting) == (2, 1)
    held.release()
    person.outcome().release()


def test_a_child_knows_what_its_parent_learned() -> None:
    limiter = Limiter(cap=8, controller="article")
    with limiter.slot() as slot:
        slot.report(429, {"Retry-After": "30"})

    def child() -> None:
        assert limiter.stats().cap == 4
        assert limiter.stats().closed_for_s is not None

    in_child(child)


def test_a_fork_while_another_thread_is_inside_does_not_deadlock() -> None:
    limiter = limiter_of(1)
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            with limiter.slot():
                pass

    person = Person(busy)
    try:
        for _ in range(10):
            in_child(lambda: limiter.acquire(timeout=5).release())
    finally:
        stop.set()
        person.outcome()
    assert os.getpid()
    assert empty(limiter)
