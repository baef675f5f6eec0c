"""What the provider said, as one vocabulary."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.core.signals import CONGESTION, Signal, SignalKind, from_http


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (200, SignalKind.OK),
        (304, SignalKind.OK),
        (400, SignalKind.CLIENT_ERROR),
        (401, SignalKind.AUTH),
        (403, SignalKind.AUTH),
        (404, SignalKind.CLIENT_ERROR),
        (408, SignalKind.TIMEOUT),
        (429, SignalKind.THROTTLED),
        (500, SignalKind.SERVER_ERROR),
        (503, SignalKind.OVERLOADED),
        (504, SignalKind.TIMEOUT),
        (529, SignalKind.OVERLOADED),
        (0, SignalKind.UNKNOWN),
        (100, SignalKind.UNKNOWN),
        (999, SignalKind.UNKNOWN),
    ],
)
def test_a_status_has_one_meaning(status: int, kind: SignalKind) -> None:
    assert from_http(status).kind is kind


def test_only_throttles_overload_and_timeouts_ask_for_fewer_calls() -> None:
    assert {kind.value for kind in CONGESTION} == {"throttled", "overloaded", "timeout"}


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"RETRY-AFTER-MS": "250"}, 0.25),
        ({"retry-after": "9", "retry-after-ms": "500"}, 0.5),
        ({"retry-after": "9", "retry-after-ms": "soon"}, 9.0),
        ({"retry-after": "0"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "tomorrow"}, None),
        ({}, None),
    ],
)
def test_retry_after_is_a_duration_or_nothing(headers: dict[str, str], seconds: float | None) -> None:
    assert from_http(429, headers).retry_after_s == seconds


@pytest.mark.parametrize(("remaining", "kind"), [("4", "near limit"), ("5", "ok"), ("x", "ok"), ("", "ok")])
def test_little_quota_left_is_a_warning_not_a_throttle(remaining: str, kind: str) -> None:
    assert from_http(200, {"X-Quota-Remaining": remaining}).kind.value == kind


def test_a_throttle_stays_a_throttle_whatever_the_quota_says() -> None:
    assert from_http(429, {"x-quota-remaining": "3"}).kind is SignalKind.THROTTLED


def test_no_headers_are_fine() -> None:
    assert from_http(429) == Signal(SignalKind.THROTTLED, None, "HTTP 429")


@given(st.integers(), st.dictionaries(st.sampled_from(["retry-after", "x-quota-remaining"]), st.text()))
def test_no_answer_is_too_odd_to_be_judged(status: int, headers: dict[str, str]) -> None:
    signal = from_http(status, headers)
    assert signal.retry_after_s is None or 0 < signal.retry_after_s < 1e12
