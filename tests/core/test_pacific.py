"""The day of Google's quotas ends at midnight in California, whatever its clocks do that night."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.core.durations import until_midnight_s
from flyball.core.provider.http_response import from_http
from flyball.core.signals import SignalKind
from tests.cases import every
from tests.core.bodies import DAY_ID, MINUTE_ID, gemini

try:
    PACIFIC: ZoneInfo | None = ZoneInfo("America/Los_Angeles")
except ZoneInfoNotFoundError:
    PACIFIC = None
SPENT = gemini(429, "RESOURCE_EXHAUSTED", quota=DAY_ID, delay="37s")


@pytest.mark.parametrize("now_s", [float("nan"), float("inf"), -1e18, 1e18])
def test_no_date_has_no_midnight(now_s: float) -> None:
    assert until_midnight_s(now_s) is None


def test_a_spent_day_without_any_clock_says_not_when() -> None:
    signal = from_http(429, None, SPENT)
    assert (signal.kind, signal.retry_after_s) == (SignalKind.WINDOW_USED_UP, None)


@every(
    "local, hours",
    [
        ("2026-03-07T12:00-08:00", 12),
        ("2026-03-08T00:00-08:00", 23),
        ("2026-03-08T01:30-08:00", 21.5),
        ("2026-03-08T12:00-07:00", 12),
        ("2026-10-31T23:59-07:00", 1 / 60),
        ("2026-11-01T00:00-07:00", 25),
        ("2026-11-01T12:00-08:00", 12),
        ("2026-07-01T00:00-07:00", 24),
        ("2026-12-31T23:00-08:00", 1),
    ],
)
def test_the_next_midnight_is_by_the_clock_of_that_night(local: str, hours: float) -> None:
    assert until_midnight_s(datetime.fromisoformat(local).timestamp()) == pytest.approx(hours * 3600)


@given(st.datetimes(datetime(2007, 3, 12), datetime(2100, 1, 1)))
def test_it_is_the_zones_own_midnight(then: datetime) -> None:
    if PACIFIC is None:
        pytest.skip("this machine has no files of time zones to compare with")
    now = then.replace(tzinfo=UTC)
    tomorrow = now.astimezone(PACIFIC).date() + timedelta(days=1)
    midnight = datetime(tomorrow.year, tomorrow.month, tomorrow.day, tzinfo=PACIFIC)
    assert until_midnight_s(now.timestamp()) == pytest.approx((midnight - now).total_seconds(), abs=0.01)


def test_a_spent_day_is_waited_out_although_a_shorter_delay_is_named() -> None:
    wall_s = datetime.fromisoformat("2026-07-01T20:00-07:00").timestamp()
    signal = from_http(429, None, SPENT, wall_s=wall_s)
    assert (signal.kind, signal.scope, signal.retry_after_s) == (SignalKind.WINDOW_USED_UP, "day", 4 * 3600)


def test_a_delay_of_hours_is_about_the_day_itself() -> None:
    body = gemini(429, "RESOURCE_EXHAUSTED", quota=DAY_ID, delay="7200s")
    assert from_http(429, None, body, wall_s=0.0).retry_after_s == 7200


def test_the_answers_own_date_is_the_clock() -> None:
    headers = {"Date": "Wed, 01 Jul 2026 06:59:00 GMT"}
    assert from_http(429, headers, SPENT, wall_s=0.0).retry_after_s == 60


def test_a_spent_minute_is_waited_out_as_it_says() -> None:
    body = gemini(429, "RESOURCE_EXHAUSTED", quota=MINUTE_ID, delay="37s")
    assert from_http(429, None, body, wall_s=0.0).retry_after_s == 37
