"""One HTTP answer, one signal: statuses, waits and quotas. The bodies are in test_answer_bodies.py."""

from __future__ import annotations

import pytest

from flyball.core.durations import LONGEST_WAIT_S
from flyball.core.provider.http_response import from_http
from flyball.core.provider.rate_limit_headers import HeaderLines
from flyball.core.signals import Bucket, Certainty, Signal, SignalKind
from tests.cases import every

DATE = "Wed, 21 Oct 2015 07:28:00 GMT"
DATE_S = 1445412480.0
YEAR_S = "31536000"


@every(
    "status, kind",
    [
        (-1, "unknown"),
        (0, "unknown"),
        (100, "unknown"),
        (600, "unknown"),
        (True, "unknown"),
        (400, "client error"),
        (401, "auth"),
        (402, "credit gone"),
        (403, "auth"),
        (404, "client error"),
        (408, "timeout"),
        (418, "client error"),
        (429, "throttled"),
        (500, "server error"),
        (502, "server error"),
        (503, "overloaded"),
        (504, "timeout"),
        (529, "overloaded"),
        (599, "server error"),
        (200, "ok"),
        (304, "ok"),
    ],
)
def test_a_status_has_one_meaning(status: int, kind: str) -> None:
    assert from_http(status).kind.value == kind


def test_a_number_too_long_to_print_is_not_a_status() -> None:
    assert from_http(10**5000).detail == "no HTTP status"


def test_what_is_not_a_status_is_a_guess_and_everything_else_is_stated() -> None:
    assert [from_http(status).certainty for status in (0, 418)] == [Certainty.GUESSED, Certainty.STATED]


def test_no_headers_and_no_body_are_fine() -> None:
    assert from_http(429) == Signal(SignalKind.THROTTLED, None, "HTTP 429")


# -- when to come back ------------------------------------------------------------------------------


@every(
    "value, seconds",
    [
        ("", None),
        ("0", None),
        ("-3", None),
        ("nan", None),
        ("inf", None),
        ("tomorrow", None),
        ("1; 2", None),
        (YEAR_S, LONGEST_WAIT_S),
        ("Wed, 21 Oct 2015 07:27:59 GMT", None),
        ("Fri, 21 Oct 2016 07:28:00 GMT", LONGEST_WAIT_S),
        ("999999999999", None),
        ("Wed, 99 Oct 2015 99:99:99 GMT", None),
        ("7", 7.0),
        (" 1.5 ", 1.5),
        ("30s", 30.0),
        ("Wed, 21 Oct 2015 07:28:37 GMT", 37.0),
        ("Wednesday, 21-Oct-15 07:28:37 GMT", 37.0),
        ("Wed Oct 21 07:28:37 2015", 37.0),
        ("21 Oct 2015 07:28:37 GMT", 37.0),
        ("2015-10-21T07:28:37Z", 37.0),
        ("2015-10-21T07:28:37", 37.0),
        (str(int(DATE_S) + 37), 37.0),
    ],
)
def test_retry_after_is_a_sensible_wait_at_most_a_month_or_nothing(value: str, seconds: float | None) -> None:
    assert from_http(429, {"Retry-After": value, "Date": DATE}).retry_after_s == seconds


@every(
    "value, seconds",
    [("2, 9", 9.0), ("9,2", 9.0), (f"2, {YEAR_S}", 2.0), ("soon, 2", 2.0), (f"{DATE}, 2", 2.0)],
)
def test_of_two_waits_the_longest_sensible_one_counts(value: str, seconds: float) -> None:
    assert from_http(429, {"retry-after": value, "date": DATE}).retry_after_s == seconds


def test_a_header_may_come_twice() -> None:
    assert from_http(429, [("Retry-After", "2"), ("retry-after", "5")]).retry_after_s == 5.0


@every(
    "millis, seconds",
    [("soon", 9.0), ("0", 9.0), ("-1", 9.0), ("250", 0.25), ("1500.5", 1.5005), ("250, 500", 0.5)],
)
def test_milliseconds_are_the_finer_word_for_the_same_wait(millis: str, seconds: float) -> None:
    assert from_http(429, {"RETRY-AFTER-MS": millis, "retry-after": "9"}).retry_after_s == seconds


@every(
    "date, wall_s, seconds",
    [
        (None, None, None),
        (None, float("nan"), None),
        ("once upon a time", None, None),
        ("once upon a time", DATE_S + 30, 7.0),
        (None, DATE_S + 30, 7.0),
        (DATE, None, 37.0),
        (DATE, DATE_S + 30, 37.0),
        (f"{DATE}, {DATE}", None, 37.0),
    ],
)
def test_a_moment_counts_from_the_answers_own_date(
    date: str | None, wall_s: float | None, seconds: float | None
) -> None:
    headers = {"retry-after": "Wed, 21 Oct 2015 07:28:37 GMT"} | ({"Date": date} if date else {})
    assert from_http(429, headers, wall_s=wall_s).retry_after_s == seconds


def test_an_answer_that_is_not_a_refusal_asks_for_no_wait() -> None:
    assert from_http(200, {"retry-after": "7"}) == Signal(SignalKind.OK, None, "HTTP 200")


# -- the shapes of headers --------------------------------------------------------------------------


@every(
    "headers",
    [
        {"Retry-After": "7"},
        {b"retry-after": b"7"},
        [("RETRY-AFTER", "7")],
        [[b"Retry-After", b"7"]],
        (pair for pair in [("retry-after", "7")]),
        [("retry-after", 7), ("retry-after", "7"), (None, "9"), ("retry-after",), "retry-after", None],
        {"retry-after": "7", 5: "9", "retry-after-ms": None},
    ],
)
def test_headers_come_in_many_shapes(headers: HeaderLines) -> None:
    assert from_http(429, headers).retry_after_s == 7.0


# -- what is left -----------------------------------------------------------------------------------


def anthropic(**fields: str) -> dict[str, str]:
    return {f"anthropic-ratelimit-input-tokens-{field}": value for field, value in fields.items()}


@every(
    "fields, bucket",
    [
        ({}, None),
        ({"limit": "50"}, None),
        ({"limit": "50", "remaining": "many"}, None),
        ({"limit": "0", "remaining": "9"}, Bucket("input-tokens", None, 9)),
        ({"limit": "-1", "remaining": "-1"}, Bucket("input-tokens", None, 0)),
        ({"limit": "50", "remaining": "-4"}, Bucket("input-tokens", 50, 0)),
        ({"limit": "50", "remaining": "90"}, Bucket("input-tokens", 50, 50)),
        ({"limit": "50, 40", "remaining": "30, 20"}, Bucket("input-tokens", 40, 20)),
        ({"remaining": "9", "reset": "2015-10-21T07:27:00Z"}, Bucket("input-tokens", None, 9, 0)),
        ({"remaining": "9", "reset": "2016-10-21T07:28:00Z"}, Bucket("input-tokens", None, 9, None)),
        ({"remaining": "9", "reset": "never"}, Bucket("input-tokens", None, 9, None)),
        ({"remaining": "9", "reset": "2015-10-21T07:28:12Z"}, Bucket("input-tokens", None, 9, 12)),
        ({"remaining": "9", "reset": "2015-10-21T09:28:12+02:00"}, Bucket("input-tokens", None, 9, 12)),
    ],
)
def test_a_bucket_is_read_as_far_as_it_makes_sense(fields: dict[str, str], bucket: Bucket | None) -> None:
    found = from_http(200, {**anthropic(**fields), "date": DATE}).buckets
    assert found == (() if bucket is None else (bucket,))


@every(
    "reset, reset_s",
    [
        ("-1s", None),
        ("2 moons", None),
        ("9999h", None),
        ("0s", 0),
        ("-1", 0),
        ("1s", 1),
        ("20ms", 0.02),
        ("6m0s", 360),
        ("1h2m3.5s", 3723.5),
        ("12", 12),
        ("1s, 6m0s", 360),
    ],
)
def test_openai_resets_are_durations(reset: str, reset_s: float | None) -> None:
    headers = {"x-ratelimit-remaining-tokens": "9", "x-ratelimit-reset-tokens": reset}
    assert from_http(200, headers).buckets == (Bucket("tokens", None, 9, reset_s),)


def test_the_buckets_come_in_one_order_whatever_the_headers_do() -> None:
    headers = {f"x-ratelimit-remaining-{name}": "99" for name in ("tokens", "requests")}
    headers["X-Quota-Remaining"] = "99"
    assert [each.name for each in from_http(200, headers).buckets] == ["requests", "tokens", "quota"]


def test_the_providers_own_word_counts_more_than_a_gateways() -> None:
    headers = {"x-ratelimit-remaining-requests": "9", "anthropic-ratelimit-requests-remaining": "3"}
    assert from_http(200, headers).buckets == (Bucket("requests", None, 3),)


@every("status", [400, 401, 429, 500, 529])
def test_a_refusal_tells_its_buckets_too(status: int) -> None:
    headers = {"x-ratelimit-limit-requests": "500", "x-ratelimit-remaining-requests": "499"}
    assert from_http(status, headers).buckets == (Bucket("requests", 500, 499),)


def test_a_provider_that_says_there_is_room_and_refuses_has_refused() -> None:
    signal = from_http(429, {"x-ratelimit-limit-requests": "500", "x-ratelimit-remaining-requests": "499"})
    assert signal.kind is SignalKind.THROTTLED


# -- near the limit ---------------------------------------------------------------------------------


@every("remaining, kind", [("x", "ok"), ("", "ok"), ("5", "ok"), ("4", "near limit"), ("-1", "near limit")])
def test_little_quota_left_is_a_warning_not_a_throttle(remaining: str, kind: str) -> None:
    assert from_http(200, {"X-Quota-Remaining": remaining}).kind.value == kind


@pytest.mark.parametrize(("remaining", "kind"), [("10", "ok"), ("9", "near limit"), ("0", "near limit")])
def test_less_than_two_percent_of_a_bucket_is_a_warning(remaining: str, kind: str) -> None:
    assert from_http(200, anthropic(limit="500", remaining=remaining)).kind.value == kind


@pytest.mark.parametrize(
    ("headers", "scope"),
    [
        ({"x-quota-remaining": "3"}, "quota"),
        (anthropic(limit="500", remaining="3"), "input-tokens"),
        ({"anthropic-ratelimit-unified-status": "allowed_warning"}, ""),
    ],
)
def test_a_warning_names_what_runs_short(headers: dict[str, str], scope: str) -> None:
    signal = from_http(200, headers)
    assert (signal.kind, signal.scope) == (SignalKind.NEAR_LIMIT, scope)


@pytest.mark.parametrize("status", ["allowed", "rejected", "", "surprise"])
def test_a_subscription_that_served_the_call_warns_only_if_it_says_so(status: str) -> None:
    # "rejected" beside a 200: the window is used up and the call was paid for as extra usage.
    assert from_http(200, {"anthropic-ratelimit-unified-status": status}).kind is SignalKind.OK


def test_a_throttle_stays_a_throttle_whatever_the_quota_says() -> None:
    assert from_http(429, {"x-quota-remaining": "3"}).kind is SignalKind.THROTTLED
