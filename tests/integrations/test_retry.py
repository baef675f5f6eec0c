"""The pure decision: whether to try again, how long to wait, and what the budget allows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball import RetryBudget, RetryPolicy, UsageError
from flyball.core.signals import CONGESTION, Signal, SignalKind
from flyball.integrations.retry import BACKED_OFF, FINE, Episode, RetryReason, backoff_s, decide
from tests.cases import every

POLICY = RetryPolicy()
kinds = st.sampled_from(SignalKind)
waits = st.none() | st.floats(0.001, 1e6)
signals = st.builds(Signal, kind=kinds, retry_after_s=waits)
policies = st.builds(
    RetryPolicy,
    attempts=st.integers(1, 10),
    base_s=st.just(0.0) | st.floats(0.001, 5),
    cap_s=st.floats(5, 100),
    max_wait_s=st.floats(0, 500),
)


@given(policies, st.integers(1, 2000), signals, st.floats(0, 1), st.booleans())
def test_a_retry_waits_at_least_what_was_asked_and_never_forever(
    policy: RetryPolicy, attempt: int, signal: Signal, chance: float, forbidden: bool
) -> None:
    decision = decide(policy, attempt, signal, chance=chance, forbidden=forbidden)
    assert (decision.wait_s is None) == (decision.why is not RetryReason.AGAIN)
    if decision.wait_s is not None:
        assert not forbidden
        assert attempt < policy.attempts
        assert signal.kind in BACKED_OFF | {SignalKind.WINDOW_USED_UP}
        asked_s = signal.retry_after_s or 0.0
        assert asked_s <= decision.wait_s <= policy.max_wait_s + policy.cap_s


@given(policies, st.integers(1, 2000))
def test_the_backoff_doubles_up_to_its_cap(policy: RetryPolicy, attempt: int) -> None:
    here, next_one = backoff_s(policy, attempt), backoff_s(policy, attempt + 1)
    assert here <= next_one <= policy.cap_s
    assert next_one in (policy.cap_s, pytest.approx(here * 2))


@given(st.sampled_from(sorted(set(SignalKind) - BACKED_OFF - FINE, key=str)), st.integers(1, 9))
def test_what_trying_again_cannot_change_is_not_tried_again(kind: SignalKind, attempt: int) -> None:
    assert decide(POLICY, attempt, Signal(kind), chance=0.5).why is RetryReason.HOPELESS


@pytest.mark.parametrize("kind", [SignalKind.CREDIT_GONE, SignalKind.AUTH, SignalKind.CLIENT_ERROR])
def test_a_retry_after_does_not_make_it_hopeful(kind: SignalKind) -> None:
    assert decide(POLICY, 1, Signal(kind, retry_after_s=1.0), chance=0.5).wait_s is None


def test_a_used_up_window_is_waited_for_only_if_it_opens_soon() -> None:
    def wait_s(after_s: float | None) -> float | None:
        return decide(POLICY, 1, Signal(SignalKind.WINDOW_USED_UP, after_s), chance=0).wait_s

    assert (wait_s(None), wait_s(60.0), wait_s(5 * 3600.0)) == (None, 60.0, None)


def test_a_wait_longer_than_allowed_is_not_waited_out() -> None:
    decision = decide(POLICY, 1, Signal(SignalKind.THROTTLED, retry_after_s=121), chance=0.5)
    assert decision.why is RetryReason.TOO_LONG


def test_the_provider_can_forbid_it() -> None:
    decision = decide(POLICY, 1, Signal(SignalKind.OVERLOADED), chance=0.5, forbidden=True)
    assert decision.why is RetryReason.FORBIDDEN


def test_a_budget_allows_a_tenth_of_the_calls_and_a_few() -> None:
    budget = RetryBudget(ratio=0.1, least=3)
    for _ in range(50):
        budget.call(100.0)
    assert [budget.take(100.0) for _ in range(10)] == [True] * 8 + [False] * 2


def test_a_budget_comes_back_with_time() -> None:
    budget = RetryBudget(ratio=0.0, least=1, window_s=60.0)
    assert [budget.take(t) for t in (0.0, 30.0, 59.0, 61.5)] == [True, False, False, True]


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 20)), max_size=200))
def test_over_any_window_retries_stay_within_the_budget(steps: list[tuple[bool, float]]) -> None:
    budget, now = RetryBudget(ratio=0.1, least=2, window_s=60.0), 0.0
    calls: list[float] = []
    retries: list[float] = []
    for is_call, later_s in steps:
        now += later_s
        if is_call:
            budget.call(now)
            calls.append(now)
        elif budget.take(now):
            retries.append(now)
            # A slice of the window is a second, so a call may count for that much longer.
            earned = sum(then > now - 61.0 for then in calls)
            assert sum(then > now - 59.0 for then in retries) <= 2 + 0.1 * earned


def test_calls_that_are_told_late_earn_only_what_falls_into_the_window() -> None:
    budget = RetryBudget(ratio=0.1, least=0, window_s=60.0)
    budget.call(3600.0, count=3600, since=0.0)
    assert budget.left(3600.0) == 6
    budget.call(3600.0, count=40, since=3590.0)
    assert budget.left(3600.0) == 10


def test_a_clock_that_goes_back_breaks_nothing() -> None:
    budget = RetryBudget(least=1)
    assert budget.take(100.0)
    assert not budget.take(50.0)


def test_each_kind_of_trouble_is_news_once_in_an_episode() -> None:
    episode = Episode()
    throttled, late = Signal(SignalKind.THROTTLED), Signal(SignalKind.TIMEOUT)
    assert [episode.is_news(said) for said in (throttled, throttled, late, throttled)] == [
        True,
        False,
        True,
        False,
    ]


def test_a_good_answer_ends_the_episode() -> None:
    episode = Episode()
    said = [Signal(SignalKind.THROTTLED), Signal(SignalKind.OK), Signal(SignalKind.THROTTLED)]
    assert [episode.is_news(signal) for signal in said] == [True, True, True]


def test_what_an_outer_caller_repeats_was_told_before() -> None:
    episode = Episode(repeats=True)
    assert not any(episode.is_news(Signal(kind)) for kind in CONGESTION)
    assert episode.is_news(Signal(SignalKind.AUTH))


@every(
    "make",
    [
        lambda: RetryPolicy(attempts=0),
        lambda: RetryPolicy(base_s=5, cap_s=1),
        lambda: RetryPolicy(max_wait_s=-1),
        lambda: RetryBudget(ratio=-1),
        lambda: RetryBudget(window_s=0),
    ],
)
def test_nonsense_is_refused(make: object) -> None:
    with pytest.raises(UsageError):
        make()  # type: ignore[operator]
