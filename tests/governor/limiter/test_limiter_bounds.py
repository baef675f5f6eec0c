"""The bounds of a limiter: how many may run, how many may wait, and moving both while it runs."""

from __future__ import annotations

import asyncio
import threading

import pytest

from flyball import Limiter, RefusedError, UsageError
from tests.governor.limiting import empty, limiter_of, line_of, run


def test_a_call_that_is_one_too_many_to_wait_is_refused_at_once() -> None:
    limiter = Limiter(cap=1, controller="fixed", max_waiting=2)

    async def story() -> None:
        slot = await limiter.acquire_async()
        waiting = [asyncio.create_task(limiter.acquire_async()) for _ in range(2)]
        await line_of(limiter, 2)
        with pytest.raises(RefusedError, match="2 wait, and more may not") as caught:
            await limiter.acquire_async()
        assert (caught.value.reason, caught.value.verdict.in_use) == ("line-full", 1)
        slot.release()
        for task in waiting:
            (await task).release()

    run(story())
    assert empty(limiter)


def test_a_line_of_nothing_lets_a_thread_in_or_refuses_it() -> None:
    limiter = Limiter(cap=1, controller="fixed", max_waiting=0)
    with limiter.slot(), pytest.raises(RefusedError) as caught:
        limiter.acquire()
    assert caught.value.reason == "line-full"
    limiter.acquire().release()
    assert empty(limiter)


def test_a_timeout_does_not_get_a_call_into_a_full_line() -> None:
    limiter = Limiter(cap=1, controller="fixed", max_waiting=0)
    with limiter.slot(), pytest.raises(RefusedError) as caught:
        limiter.acquire(timeout=60)
    assert caught.value.reason == "line-full"


def test_waiters_start_when_the_maximum_grows() -> None:
    limiter = Limiter(maximum=1, cap=4, controller="fixed")

    async def story() -> None:
        held = await limiter.acquire_async()
        tasks = [asyncio.create_task(limiter.acquire_async()) for _ in range(3)]
        await line_of(limiter, 3)
        limiter.tune(maximum=3)
        await asyncio.sleep(0)
        assert (limiter.stats().in_use, limiter.stats().waiting) == (3, 1)
        held.release()
        for task in tasks:
            (await task).release()

    run(story())
    assert empty(limiter)


def test_a_thread_that_waits_starts_when_the_maximum_grows() -> None:
    limiter, started = Limiter(maximum=1, cap=4, controller="fixed"), threading.Event()

    def work() -> None:
        with limiter.slot():
            started.set()

    with limiter.slot():
        thread = threading.Thread(target=work)
        thread.start()
        while not limiter.stats().waiting:
            pass
        limiter.tune(maximum=2)
        assert started.wait(60)
    thread.join()
    assert empty(limiter)


def test_nothing_is_interrupted_when_the_maximum_shrinks() -> None:
    limiter = limiter_of(4)

    async def story() -> None:
        slots = [await limiter.acquire_async() for _ in range(4)]
        limiter.tune(maximum=2)
        assert (limiter.stats().in_use, limiter.stats().cap) == (4, 2)
        waiting = asyncio.create_task(limiter.acquire_async())
        await line_of(limiter, 1)
        for slot in slots[:2]:
            slot.release()
        await asyncio.sleep(0)
        assert not waiting.done()
        slots[2].release()
        (await waiting).release()
        slots[3].release()

    run(story())
    assert empty(limiter)


def test_a_higher_minimum_raises_the_cap_and_wakes_the_waiters() -> None:
    limiter = Limiter()

    async def story() -> None:
        held = [await limiter.acquire_async() for _ in range(limiter.stats().cap)]
        tasks = [asyncio.create_task(limiter.acquire_async()) for _ in range(3)]
        await line_of(limiter, 3)
        limiter.tune(minimum=len(held) + 3)
        for slot in [*held, *[await task for task in tasks]]:
            slot.release()

    run(story())
    assert empty(limiter)


def test_the_cap_does_not_fall_below_the_minimum() -> None:
    limiter = Limiter(maximum=20)
    limiter.tune(minimum=5)
    held = [limiter.acquire() for _ in range(5)]
    for slot in held:
        slot.report(429)
        slot.release()
    assert limiter.stats().cap == 5


def test_room_to_grow_follows_the_maximum() -> None:
    limiter = Limiter(maximum=20)
    limiter.tune(maximum=50)
    assert limiter.stats().cap_ceiling == 50


def test_a_line_made_shorter_keeps_the_waiters() -> None:
    limiter = limiter_of(1)

    async def story() -> None:
        slot = await limiter.acquire_async()
        tasks = [asyncio.create_task(limiter.acquire_async()) for _ in range(3)]
        await line_of(limiter, 3)
        limiter.tune(max_waiting=1)
        with pytest.raises(RefusedError, match="3 wait"):
            await limiter.acquire_async()
        slot.release()
        for task in tasks:
            (await task).release()

    run(story())
    assert empty(limiter)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "2"])
def test_a_wrong_maximum_changes_nothing(wrong: object) -> None:
    limiter = Limiter(maximum=3)
    with pytest.raises(UsageError, match="maximum must be a whole number"):
        limiter.tune(maximum=wrong)  # type: ignore[arg-type]
    assert limiter.stats().maximum == 3


def test_a_minimum_above_the_maximum_is_refused() -> None:
    with pytest.raises(UsageError, match="minimum 4 is above maximum 3"):
        Limiter(maximum=3).tune(minimum=4)


def test_a_fixed_limiter_says_how_its_cap_is_changed() -> None:
    with pytest.raises(UsageError, match=r"limiter\.set\(cap="):
        limiter_of(3).tune(minimum=2)


def test_the_bound_of_the_line_is_in_the_stats() -> None:
    assert Limiter(max_waiting=7).stats().record()["max_waiting"] == 7
    with pytest.raises(UsageError, match="max_waiting must be a whole number from 0 up"):
        Limiter(max_waiting=-1)
