"""Around a reset, on a clock that only the test moves."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from flyball.core.budget.limits import Asked, SlowStart, Thresholds, preflight
from flyball.core.budget.usage_windows import BUILT_IN, Spend, UsageItem, measure_window

LENGTH = 18_000.0
FIVE = replace(BUILT_IN[0], ceiling_usd=10.0, anchor=0.0)


def starts(now: float, spent: float, *, cost: float, duration_s: float) -> bool:
    spend = Spend("test", [UsageItem(1.0, 1.0, spent)])
    standing = measure_window(FIVE, None, spend, now)
    asked = Asked(cost_usd=cost, duration_s=duration_s)
    return preflight([standing], asked, Thresholds(), now) is None


def test_near_the_end_only_what_falls_before_the_reset_has_to_fit() -> None:
    # 8 of 10 dollars are gone, drain is at 9: one dollar is left.
    assert not starts(100.0, 8.0, cost=2.0, duration_s=3600.0)
    assert not starts(LENGTH - 2000, 8.0, cost=2.0, duration_s=3600.0)
    assert starts(LENGTH - 1000, 8.0, cost=2.0, duration_s=3600.0), "most of it falls after the reset"
    assert not starts(LENGTH - 1000, 8.0, cost=2.0, duration_s=600.0), "it ends before, so all of it counts"
    assert starts(LENGTH - 1000, 8.0, cost=0.5, duration_s=600.0), "it fits what is left"


def test_from_drain_on_nothing_starts_before_the_reset_and_everything_after() -> None:
    assert not starts(LENGTH - 1, 9.5, cost=0.1, duration_s=3600.0)
    assert starts(LENGTH + 1, 9.5, cost=0.1, duration_s=3600.0)


def test_after_a_reset_starts_double_with_every_step_and_keep_their_order() -> None:
    slow, now, waiting, begun = SlowStart(0.0, step_s=10.0), 0.0, list(range(12)), []
    while waiting:
        wait_s = slow.wait_s(now)
        if wait_s > 0:
            now += wait_s
            continue
        begun.append((now, waiting.pop(0)))
        slow = replace(slow, started=slow.started + 1)
    assert [task for _, task in begun] == list(range(12))
    assert [sum(at == step for at, _ in begun) for step in (0.0, 10.0, 20.0, 30.0)] == [1, 2, 4, 5]


@given(started=st.integers(0, 1000), now=st.floats(0, 1e5), step=st.floats(0.1, 100))
def test_an_agent_that_waits_as_told_may_start(started: int, now: float, step: float) -> None:
    slow = SlowStart(0.0, started, step)
    wait_s = slow.wait_s(now)
    assert wait_s >= 0
    assert started < slow.allowed_by(now + wait_s + 1e-6 * (1 + now))
