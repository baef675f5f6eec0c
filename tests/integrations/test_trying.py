"""Any function through the attempts: the slot is free while it waits, and trouble is told once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest

from flyball import (
    Governor,
    Pool,
    RetryBudget,
    RetryPolicy,
    Throttled,
    UsageError,
    retried,
    retry,
    retry_async,
)
from flyball.core.signals import SignalKind
from flyball.errors import StoreFullError, WaitTimeoutError
from flyball.governor.internals import internals
from flyball.integrations.outcome import judge
from tests.integrations.kit import Listener, Night, pool_of

POLICY = RetryPolicy(budget=RetryBudget(least=1000))


@dataclass
class Reply:
    status_code: int
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes = b""


class RateLimitError(Exception):
    """Shaped as the SDKs' errors are."""

    def __init__(self, response: Reply) -> None:
        super().__init__("429")
        self.response = response


def script(*said: int | Exception) -> Callable[[], Reply]:
    left = list(said)

    def call() -> Reply:
        word = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(word, Exception):
            raise word
        return Reply(word)

    return call


def test_a_throttled_call_is_tried_again_with_its_slot_free_and_told_once(gov: Governor) -> None:
    gate = Listener(Pool(gov, "p"))
    in_use: list[int] = []
    night = Night(lambda _: in_use.append(pool_of(gov).in_use))
    answer = retry(script(429, 429, 429, 200), gate=gate, policy=POLICY, environment=night.world)
    assert answer.status_code == 200
    assert gate.kinds == [SignalKind.THROTTLED, SignalKind.OK]
    assert (in_use, night.slept) == ([0, 0, 0], [0.25, 0.5, 1.0])
    assert (pool_of(gov).in_use, pool_of(gov).throttle_count) == (0, 1)


def test_on_an_event_loop_too(gov: Governor) -> None:
    gate = Listener(Pool(gov, "p"))
    in_use: list[int] = []
    night = Night(lambda _: in_use.append(pool_of(gov).in_use))
    call = script(429, 529, 200)

    async def ask() -> Reply:
        return call()

    answer = asyncio.run(retry_async(ask, gate=gate, policy=POLICY, environment=night.world_async))
    assert answer.status_code == 200
    assert gate.kinds == [SignalKind.THROTTLED, SignalKind.OVERLOADED, SignalKind.OK]
    assert (in_use, pool_of(gov).in_use) == ([0, 0], 0)


def test_errors_that_carry_a_response_are_judged_by_it(night: Night) -> None:
    gate = Listener()
    error = RateLimitError(Reply(429, {"retry-after": "7"}))
    retry(script(error, 200), gate=gate, policy=POLICY, environment=night.world)
    assert night.slept == [7.25]
    assert gate.kinds == [SignalKind.THROTTLED, SignalKind.OK]


def test_the_last_answer_is_handed_over_as_it_came(night: Night) -> None:
    gate = Listener()
    assert retry(script(503), gate=gate, policy=POLICY, environment=night.world).status_code == 503
    assert (len(night.slept), gate.kinds) == (4, [SignalKind.OVERLOADED])
    with pytest.raises(RateLimitError):
        retry(script(RateLimitError(Reply(429))), gate=gate, policy=POLICY, environment=night.world)
    assert gate.in_use == 0


def test_an_error_of_ones_own_is_raised_at_once_and_tells_nothing(night: Night) -> None:
    gate = Listener()
    with pytest.raises(KeyError):
        retry(script(KeyError("mine")), gate=gate, policy=POLICY, environment=night.world)
    assert (gate.told, gate.ends, night.slept) == ([], ["KeyError"], [])


def test_repeats_end_their_slots_as_neither_success_nor_failure(night: Night) -> None:
    gate = Listener()
    retry(script(429, 429, 200), gate=gate, policy=POLICY, environment=night.world)
    assert gate.ends == ["", "RepeatedRelease", ""]


def test_an_error_that_is_repeated_is_not_heard_again_when_its_slot_ends(night: Night) -> None:
    gate = Listener()
    with pytest.raises(TimeoutError):
        retry(script(TimeoutError()), gate=gate, policy=POLICY, environment=night.world)
    assert gate.kinds == [SignalKind.TIMEOUT]
    assert gate.ends == ["", *["RepeatedRelease"] * 4]


def test_a_dead_provider_is_not_hammered(night: Night) -> None:
    policy = RetryPolicy(budget=RetryBudget(ratio=0.1, least=2))
    calls = 0

    def dead() -> Reply:
        nonlocal calls
        calls += 1
        return Reply(503)

    for _ in range(100):
        retry(dead, policy=policy, environment=night.world)
    assert calls == 100 + 2 + 10


def test_a_throttle_that_a_gate_paces_spends_no_budget(night: Night) -> None:
    policy = RetryPolicy(budget=RetryBudget(ratio=0, least=0))
    assert retry(script(429, 200), gate=Listener(), policy=policy, environment=night.world).status_code == 200
    assert retry(script(529, 200), gate=Listener(), policy=policy, environment=night.world).status_code == 529
    assert retry(script(429, 200), policy=policy, environment=night.world).status_code == 429


def test_a_forbidden_retry_is_not_made(night: Night) -> None:
    call = script(RateLimitError(Reply(429, {"x-should-retry": "false"})))
    with pytest.raises(RateLimitError):
        retry(call, policy=POLICY, environment=night.world)
    assert night.slept == []


def test_cancelling_leaves_no_slot_behind(gov: Governor) -> None:
    async def main() -> None:
        started = asyncio.Event()

        async def hang() -> Reply:
            started.set()
            await asyncio.sleep(60)
            return Reply(200)

        task = asyncio.create_task(retry_async(hang, gate=Pool(gov, "p")))
        await started.wait()
        assert pool_of(gov).in_use == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert (pool_of(gov).in_use, pool_of(gov).waiting) == (0, 0)


def test_cancelled_while_it_sleeps_it_holds_nothing(gov: Governor) -> None:
    async def main() -> None:
        async def full() -> Reply:
            return Reply(429, {"retry-after": "30"})

        task = asyncio.create_task(retry_async(full, gate=Pool(gov, "p")))
        while not pool_of(gov).throttle_count or pool_of(gov).in_use:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert pool_of(gov).in_use == 0


def test_a_report_that_cannot_be_written_costs_no_answer(
    gov: Governor, night: Night, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise StoreFullError("disk full")

    monkeypatch.setattr(internals(gov), "report", full)
    assert (
        retry(script(429, 200), gate=Pool(gov, "p"), policy=POLICY, environment=night.world).status_code
        == 200
    )
    assert "disk full" in caplog.text
    assert pool_of(gov).in_use == 0


def test_the_decorator_knows_both_kinds_of_functions(night: Night) -> None:
    gate, call = Listener(), script(429, 200, 429, 200)

    @retried(gate=gate, environment=night.world)
    def ask(question: str) -> int:
        """Asks."""
        return call().status_code if question else 0

    assert (ask("?"), ask.__doc__) == (429, "Asks.")

    @retried(gate=gate, environment=night.world_async)
    async def ask_async() -> Reply:
        return call()

    assert asyncio.run(ask_async()).status_code == 200


def test_the_decorator_needs_no_parentheses() -> None:
    @retried
    def ask(question: str) -> str:
        """Asks."""
        return question.upper()

    assert (ask("x"), ask.__doc__) == ("X", "Asks.")


def test_a_pool_can_be_named(night: Night) -> None:
    assert retry(script(200), gate="anthropic").status_code == 200


def test_a_gate_must_be_one() -> None:
    with pytest.raises(UsageError, match="Limiter"):
        retry(script(200), gate=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="projct"):
        Pool(Governor("memory:"), "p", projct="x")  # type: ignore[call-arg]


def test_our_own_refusals_are_not_timeouts_of_the_provider(gov: Governor) -> None:
    with gov.slot("p"), pytest.raises(WaitTimeoutError) as refused:
        gov.acquire("p", timeout=0)
    assert judge(refused.value) is None


def test_what_is_shaped_like_a_lost_connection_is_a_timeout() -> None:
    for error in (TimeoutError(), ConnectionResetError(), type("APITimeoutError", (Exception,), {})()):
        judged = judge(error)
        assert judged is not None
        assert judged.signal.kind is SignalKind.TIMEOUT


def test_a_throttled_is_tried_again(night: Night) -> None:
    answers = iter([Throttled("slow", retry_after_s=0.2), None])

    def call() -> str:
        error = next(answers)
        if error is not None:
            raise error
        return "done"

    assert retry(call, environment=night.world) == "done"
