"""When a limited run is tried again, and after how long."""

from __future__ import annotations

import pytest

from flyball.cli.shared.agent_exec import given_up, retry_wait_s
from flyball.core.signals import End, Signal, SignalKind
from flyball.runtimes.port import Ending


def limited(kind: SignalKind, retry_after_s: float | None = None) -> Ending:
    return Ending(end=End.LIMITED, reason="x", signal=Signal(kind, retry_after_s))


@pytest.mark.parametrize("kind", [SignalKind.THROTTLED, SignalKind.OVERLOADED])
def test_a_throttle_waits_as_told_else_longer_each_time(kind: SignalKind) -> None:
    assert retry_wait_s(limited(kind, 45.0), 3) == 45.0
    assert [retry_wait_s(limited(kind), tries) for tries in (1, 2, 3)] == [15.0, 30.0, 45.0]


def test_a_used_up_window_waits_for_its_reset_and_gives_up_where_that_is_unknown() -> None:
    assert retry_wait_s(limited(SignalKind.WINDOW_USED_UP, 7200.0), 1) == 7200.0
    assert retry_wait_s(limited(SignalKind.WINDOW_USED_UP), 1) is None


def test_spent_credit_gives_up_even_with_a_date() -> None:
    assert retry_wait_s(limited(SignalKind.CREDIT_GONE, 86400.0), 1) is None


@pytest.mark.parametrize("end", [end for end in End if end is not End.LIMITED])
def test_nothing_but_a_limit_is_tried_again(end: End) -> None:
    assert retry_wait_s(Ending(end=end, reason="x", signal=Signal(SignalKind.THROTTLED)), 1) is None


def test_giving_up_on_a_retry_says_why() -> None:
    assert given_up(limited(SignalKind.CREDIT_GONE)) == "; not tried again: only a person can change that"
    window = given_up(limited(SignalKind.WINDOW_USED_UP))
    assert window == "; not tried again: it does not say when that is over"
    assert given_up(Ending(end=End.FAILED, reason="x")) == ""
