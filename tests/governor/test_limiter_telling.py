"""What calls tell the limiter, what time opens, and what it says of itself."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

import pytest

from flyball import Limiter, Signal, SignalKind, Throttled
from flyball.errors import AtCapacityError, PoolClosedError, UsageError, WaitTimeoutError
from flyball.testing import ManualClock
from tests.governor.limiting import empty, limiter_of, line_of, run

# -- what calls tell ----------------------------------------------------------------------------------


def article(**more: Any) -> Limiter:
    return Limiter(controller="article", clock=ManualClock(), **more)


def test_the_articles_controller_starts_at_2_and_climbs_to_12() -> None:
    clock = ManualClock()
    limiter = Limiter(controller="article", clock=clock)
    assert (limiter.stats().cap, limiter.stats().cap_ceiling) == (2, 12)
    for _ in range(100):
        slots = [limiter.acquire_nowait() for _ in range(limiter.stats().cap)]
        clock.advance(1)
        for slot in slots:
            slot.release()
    assert limiter.stats().cap == 12


def test_calls_that_become_slow_hold_the_limit_until_they_are_quick_again() -> None:
    clock = ManualClock()
    limiter = Limiter(controller="article", cap_ceiling=500, clock=clock)

    def round_of(took_s: float) -> int:
        slots = [limiter.acquire_nowait() for _ in range(limiter.stats().cap)]
        clock.advance(took_s)
        for slot in slots:
            slot.release()
        return limiter.stats().cap

    while round_of(1.0) < 20:
        pass
    slow = [round_of(4.0) for _ in range(5)]
    assert slow[1:] == slow[1:2] * 4
    assert max(round_of(1.0) for _ in range(30)) > slow[-1]


def test_run_returns_the_answer_and_cuts_on_a_429() -> None:
    limiter = article(cap=8)

    async def call() -> tuple[int, dict[str, str], str]:
        return 429, {}, "slow down"

    async def story() -> None:
        assert await limiter.run_async(call) == (429, {}, "slow down")

    run(story())
    assert limiter.stats().cap == 4
    assert limiter.stats().throttles == 1
    assert any(fact.kind == "cut" for fact in limiter.facts)


def test_run_takes_nothing_but_the_contract() -> None:
    limiter = limiter_of(1)
    with pytest.raises(UsageError, match="status, headers, body"):
        limiter.run(lambda: "hello")  # type: ignore[arg-type, return-value]
    assert empty(limiter)


@pytest.mark.parametrize("error", [Throttled(), TimeoutError(), TimeoutError("read"), ConnectionResetError()])
def test_a_throttle_or_a_timeout_that_is_raised_cuts_and_goes_on_up(error: Exception) -> None:
    limiter = article(cap=8)

    def call() -> tuple[int, dict[str, str], str]:
        raise error

    with pytest.raises(type(error)):
        limiter.run(call)
    assert limiter.stats().cap == 4
    assert empty(limiter)


@pytest.mark.parametrize("error", [ValueError("bug"), asyncio.CancelledError(), KeyboardInterrupt()])
def test_other_errors_say_nothing_about_load(error: BaseException) -> None:
    limiter = article(cap=8)
    with pytest.raises(type(error)), limiter.slot():
        raise error
    assert limiter.stats().cap == 8
    assert limiter.stats().successes == 0
    assert empty(limiter)


def test_another_limiters_refusal_is_not_a_timeout_of_the_provider() -> None:
    limiter, other = article(cap=8), limiter_of(1)
    with other.slot(), pytest.raises(WaitTimeoutError), limiter.slot():
        other.acquire(timeout=0)
    assert limiter.stats().cap == 8


def test_a_throttle_takes_effect_while_the_call_goes_on() -> None:
    limiter = article(cap=8)
    with limiter.slot() as slot:
        slot.report(429, {"Retry-After": "7"})
        assert limiter.stats().cap == 4
        assert limiter.stats().closed_for_s == 7
        with pytest.raises(PoolClosedError):
            limiter.acquire_nowait()
    assert empty(limiter)


def test_the_retries_of_one_call_cut_only_once() -> None:
    limiter = article(cap=8, settle_s=0.0)
    with limiter.slot() as slot:
        for _ in range(3):
            slot.report(429)
        slot.report(200)
    assert limiter.stats().cap == 4
    assert limiter.stats().throttles == 1


def test_a_throttle_after_a_success_in_the_same_slot_counts() -> None:
    limiter = article(cap=8)
    with limiter.slot() as slot:
        slot.report(200)
        slot.report(500)
        slot.report(429)
    assert limiter.stats().cap == 4


def test_a_timeout_after_a_first_answer_cuts() -> None:
    limiter = article(cap=8)
    with suppress(TimeoutError), limiter.slot() as slot:
        slot.report(200)
        raise TimeoutError
    assert limiter.stats().cap == 4


def test_a_ready_signal_is_taken_as_it_is() -> None:
    limiter = article(cap=8)
    with limiter.slot() as slot:
        slot.report(Signal(SignalKind.THROTTLED, retry_after_s=3))
    assert limiter.stats().closed_for_s == 3


def test_near_the_limit_the_cap_stays() -> None:
    limiter = article(cap=8)
    with limiter.slot() as slot:
        assert slot.report(200, {"x-quota-remaining": "3"}).kind is SignalKind.NEAR_LIMIT
    assert limiter.stats().cap == 8
    assert limiter.stats().successes == 1


def test_timeouts_spend_the_retry_budget_and_calls_earn_it() -> None:
    limiter = limiter_of(4)
    for _ in range(11):
        assert limiter.may_retry()
        with pytest.raises(TimeoutError), limiter.slot():
            raise TimeoutError
    assert not limiter.may_retry()
    for _ in range(25):
        with limiter.slot():
            pass
    assert limiter.stats().retries_left == 2
    with pytest.raises(Throttled), limiter.slot():
        raise Throttled
    assert limiter.stats().retries_left == 2


def test_a_decorated_function_is_bounded_and_learned_from() -> None:
    limiter = article(cap=8)

    @limiter
    async def ask(question: str) -> str:
        """Ask."""
        assert limiter.stats().in_use == 1
        return question.upper()

    @limiter
    def ask_sync(question: str) -> str:
        raise Throttled(question, retry_after_s=2)

    async def story() -> None:
        assert await ask("why") == "WHY"

    run(story())
    assert (ask.__name__, ask.__doc__) == ("ask", "Ask.")
    with pytest.raises(Throttled, match="why"):
        ask_sync("why")
    assert limiter.stats().closed_for_s == 2


# -- time ---------------------------------------------------------------------------------------------


def test_a_retry_after_lets_no_call_in_until_it_is_over() -> None:
    clock = ManualClock()
    limiter = Limiter(cap=4, clock=clock)

    async def story() -> None:
        with limiter.slot() as slot:
            slot.report(429, {"Retry-After": "5"})
        task = asyncio.create_task(limiter.acquire_async())
        await line_of(limiter, 1)
        clock.advance(4.9)
        limiter._look()
        await asyncio.sleep(0)
        assert not task.done()
        clock.advance(0.2)
        limiter._look()
        (await task).release()

    run(story())
    assert empty(limiter)


def test_time_alone_opens_the_gate() -> None:
    """No slot is held that could be released: only the watcher's timer helps."""
    limiter = Limiter(cap=4)

    async def story() -> None:
        with limiter.slot() as slot:
            slot.report(Signal(SignalKind.THROTTLED, retry_after_s=0.03))
        waiting = [asyncio.create_task(limiter.acquire_async()) for _ in range(3)]
        await line_of(limiter, 3)
        waiting.pop().cancel()
        for task in waiting:
            (await task).release()

    run(story())
    assert empty(limiter)


def test_a_window_is_a_budget_over_time() -> None:
    clock = ManualClock()
    limiter = Limiter(cap=10, clock=clock, windows={"requests": "3/min", "tokens": "1k/min"})
    limiter.acquire_nowait(cost={"tokens": 900}).release()
    with pytest.raises(AtCapacityError, match="window 'tokens'") as caught:
        limiter.acquire_nowait(cost={"tokens": 200})
    assert caught.value.retry_after_s == pytest.approx(6)
    limiter.acquire_nowait().release()
    limiter.acquire_nowait().release()
    with pytest.raises(AtCapacityError, match="window 'requests'"):
        limiter.acquire_nowait()
    clock.advance(20)
    limiter.acquire_nowait().release()


def test_windows_can_be_declared_while_calls_wait() -> None:
    limiter = Limiter(cap=10, clock=ManualClock())
    limiter.acquire_nowait().release()
    limiter.set(windows={"requests": "1/min"})
    limiter.acquire_nowait().release()
    with pytest.raises(AtCapacityError, match="window 'requests'"):
        limiter.acquire_nowait()


def test_what_a_call_really_used_settles_its_window() -> None:
    clock = ManualClock()
    limiter = Limiter(cap=10, clock=clock, windows={"tokens": "1k/min"})
    with limiter.slot(cost={"tokens": 900}) as slot:
        slot.settle(tokens=300)
    assert limiter.stats().windows[0].left == pytest.approx(700)


def test_a_cancelled_wait_gives_its_window_back() -> None:
    limiter = Limiter(cap=1, controller="fixed", clock=ManualClock(), windows={"tokens": "1k/min"})

    async def story() -> None:
        slot = await limiter.acquire_async()
        task = asyncio.create_task(limiter.acquire_async(cost={"tokens": 800}))
        await line_of(limiter, 1)
        slot.release()
        task.cancel()
        await asyncio.wait({task})
        assert limiter.stats().windows[0].left == 1000

    run(story())
    assert empty(limiter)


def test_a_trial_that_was_never_sent_leaves_the_trial_to_the_next() -> None:
    clock = ManualClock()
    limiter = Limiter(cap=1, controller="article", clock=clock)

    async def story() -> None:
        (await limiter.acquire_async()).release()
        with limiter.slot() as slot:
            slot.report(429)
        assert limiter.stats().phase == "open"
        first, second = (asyncio.create_task(limiter.acquire_async()) for _ in range(2))
        await line_of(limiter, 2)
        clock.advance(3600)
        limiter._look()
        assert limiter.stats().phase == "trial"
        first.cancel()
        slot = await second
        assert limiter.stats().phase == "trial"
        slot.release()
        assert limiter.stats().phase == "closed"

    run(story())
    assert empty(limiter)


# -- words --------------------------------------------------------------------------------------------


def test_stats_are_json() -> None:
    limiter = Limiter(maximum=4, windows={"requests": "60/min"}, name="openai")
    record = json.loads(json.dumps(limiter.stats().record(), allow_nan=False))
    assert record["name"] == "openai"
    assert record["windows"][0]["limit"] == 60
    assert "openai" in repr(limiter)


@pytest.mark.parametrize(
    "wrong",
    [
        {"maximum": 0},
        {"maximum": True},
        {"windows": {"requests": "sixty"}},
        {"windows": {"requests": "0/min"}},
        {"controller": "magic"},
        {"weights": {"blog": 2.0}},
        {"name": ""},
    ],
)
def test_nonsense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Limiter(**wrong)


def test_a_timeout_must_be_a_time() -> None:
    with pytest.raises(UsageError, match="timeout"):
        limiter_of(1).slot(timeout=-1)


def test_a_maximum_is_what_the_cap_may_climb_to() -> None:
    assert Limiter(maximum=32).stats().cap_ceiling == 32
    assert Limiter(maximum=1).stats().maximum == 1
    assert Limiter(maximum=32, cap_ceiling=8).stats().cap_ceiling == 8
