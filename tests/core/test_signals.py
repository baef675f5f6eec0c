"""The vocabulary: which kinds ask for what."""

from __future__ import annotations

from flyball.core.signals import CONGESTION, LIMITING, Certainty, Signal, SignalKind


def test_only_throttles_overload_and_timeouts_ask_for_fewer_calls() -> None:
    assert {kind.value for kind in CONGESTION} == {"throttled", "overloaded", "timeout"}


def test_a_run_that_ends_for_want_of_quota_is_limited_and_not_failed() -> None:
    assert {kind.value for kind in LIMITING} == {"throttled", "overloaded", "window used up", "credit gone"}


def test_a_signal_is_about_the_whole_pool_and_sure_unless_it_says_otherwise() -> None:
    signal = Signal(SignalKind.THROTTLED)
    assert (signal.scope, signal.certainty, signal.retry_after_s) == ("", Certainty.STATED, None)
