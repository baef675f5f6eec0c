"""Any order of asking, cancelling, releasing, failing and resizing leaves the limiter whole."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from flyball import Limiter
from flyball.governor.limiter.call_slot import CallSlot
from flyball.governor.limiter.waiters import WaitQueue
from flyball.testing import ManualClock
from tests.governor.limiting import empty

_STEPS = st.one_of(
    st.tuples(st.just("ask"), st.integers(-1, 1)),
    st.tuples(st.just("cancel"), st.integers(0, 30)),
    st.tuples(st.just("end"), st.integers(0, 30)),
    st.tuples(st.just("throttle"), st.integers(0, 30)),
    st.tuples(st.just("resize"), st.integers(1, 6)),
    st.tuples(st.just("pass time"), st.integers(0, 40)),
    st.tuples(st.just("turn"), st.just(0)),
)
_CONTROLLERS = st.sampled_from(["measured", "article", "koryph", "gradient2", "fixed"])


class Storm:
    """Tasks at one limiter, and what must be true of them after every step."""

    def __init__(self, controller: str, maximum: int) -> None:
        self.clock = ManualClock()
        self.limiter = Limiter(
            controller=controller, cap=2, cap_ceiling=6, maximum=maximum, clock=self.clock, name="storm"
        )
        self.maximum = maximum
        self.tasks: list[asyncio.Task[CallSlot]] = []

    async def step(self, what: str, number: int) -> None:
        if what == "ask":
            self.tasks.append(asyncio.create_task(self.limiter.acquire_async(priority=number)))
        elif what == "resize":
            self.limiter.set(cap=number, cap_ceiling=6)
        elif what == "pass time":
            self.clock.advance(number)
            self.limiter._look()
        elif what == "turn":
            await asyncio.sleep(0)
        elif self.tasks:
            self.touch(what, self.tasks[number % len(self.tasks)])
        assert self.limiter.stats().in_use <= self.maximum

    def touch(self, what: str, task: asyncio.Task[CallSlot]) -> None:
        if not task.done() and what == "cancel":
            task.cancel()
        elif task.done() and not task.cancelled():
            if what == "throttle" and task.result().held:
                task.result().report(429)
            elif what == "end":
                task.result().release()

    async def calm_down(self) -> None:
        """A task that still waits is served in the end, if those who hold give back and time passes."""
        for _ in range(1000):
            for task in self.tasks:
                if task.done() and not task.cancelled():
                    task.result().release()
            if all(task.done() for task in self.tasks):
                return
            self.clock.advance(60)
            self.limiter._look()
            await asyncio.sleep(0)
        raise AssertionError(f"a task waits for ever: {self.limiter.stats()}")


@given(st.lists(_STEPS, max_size=80), _CONTROLLERS, st.integers(1, 7))
@settings(max_examples=150, deadline=None)
def test_a_storm_leaves_nothing_behind(steps: list[tuple[str, int]], controller: str, maximum: int) -> None:
    storm = Storm(controller, maximum)

    async def story() -> None:
        for what, number in steps:
            await storm.step(what, number)
        await storm.calm_down()
        await asyncio.gather(*storm.tasks, return_exceptions=True)

    asyncio.run(story())
    assert empty(storm.limiter)
    # Passes were neither lost nor made twice: exactly as many as the limit allows can be taken again.
    storm.clock.advance(4000)
    storm.limiter.set(cap=4, controller="fixed")
    taken = 0
    while taken < 10 and _takes(storm.limiter):
        taken += 1
    assert taken == min(4, maximum)


def _takes(limiter: Limiter) -> bool:
    try:
        limiter.acquire_nowait()
    except Exception:
        return False
    return True


_LINE_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("join"), st.integers(-2, 2)),
        st.tuples(st.just("leave"), st.integers(0, 40)),
        st.tuples(st.just("wait"), st.integers(0, 150)),
    )
)


@given(_LINE_STEPS)
def test_a_line_keeps_the_order_of_a_sorted_list(steps: list[tuple[str, int]]) -> None:
    line: WaitQueue[int] = WaitQueue()
    model: list[tuple[int, int, float]] = []
    now, ageing_s = 0.0, 60.0

    def rank(waiter: tuple[int, int, float]) -> tuple[int, int]:
        priority, number, joined_at = waiter
        risen = priority + int((now - joined_at) // ageing_s)
        return -min(risen, max(each[0] for each in model)), number

    for number, (what, value) in enumerate(steps):
        if what == "wait":
            now += value
        elif what == "join":
            line.join(number, value, now=now)
            model.append((value, number, now))
        elif model:
            priority, waiter, _ = model.pop(value % len(model))
            assert line.leave(waiter, priority)
            assert not line.leave(waiter, priority)
        assert line.length == len(model)
        if model:
            assert line.first(now=now, ageing_s=ageing_s) == min(model, key=rank)[1]
            assert line.last() == max(model, key=lambda each: (-each[0], each[1]))[1]


def test_a_storm_of_ten_thousand_cancellations_leaves_the_line_empty() -> None:
    limiter = Limiter(cap=1, controller="fixed")

    async def story() -> None:
        slot = await limiter.acquire_async()
        tasks: list[asyncio.Task[Any]] = [asyncio.create_task(limiter.acquire_async()) for _ in range(10_000)]
        await asyncio.sleep(0)
        assert limiter.stats().waiting == 10_000
        for task in tasks[:-1]:
            task.cancel()
        slot.release()
        (await tasks[-1]).release()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(story())
    assert empty(limiter)
