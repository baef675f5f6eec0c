"""Whatever comes over the wire, the judgement is a sane one and nothing raises."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from flyball.core.durations import LONGEST_WAIT_S, duration_s, moment_s, number, until_s, worded_s
from flyball.core.provider.http_response import from_http
from flyball.core.signals import Signal, SignalKind

NAMES = [
    "retry-after",
    "retry-after-ms",
    "date",
    "x-quota-remaining",
    "x-should-retry",
    *(
        f"anthropic-ratelimit-{name}-{field}"
        for name in ("requests", "input-tokens")
        for field in ("limit", "remaining", "reset")
    ),
    *(f"x-ratelimit-{field}-tokens" for field in ("limit", "remaining", "reset")),
    *(
        f"anthropic-ratelimit-unified-{field}"
        for field in ("status", "reset", "representative-claim", "5h-status")
    ),
    *(f"x-codex-primary-{field}" for field in ("used-percent", "window-minutes")),
    "content-type",
]
TELLING = [
    *("0", "-1", "1", "4", "60", "1e9", "31536000", "nan", "inf", "1790000000", "9" * 30, "1, 2", ","),
    *("6m0s", "20ms", "1h2m3.5s", "rejected", "allowed_warning", "five_hour", "seven_day", "false"),
    *("2026-09-21T12:00:00Z", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59Z", "2026-13-45"),
    *("Wed, 21 Oct 2015 07:28:00 GMT", "Wed, 21 Oct 0001 07:28:00 +9999", "Mon, 1 Jan 99999 1:1:1 GMT"),
]
ERROR_NAMES = [
    *(
        "rate_limit_error",
        "rate_limit_exceeded",
        "RESOURCE_EXHAUSTED",
        "insufficient_quota",
        "overloaded_error",
    ),
    *("usage_limit_reached", "dailyLimitExceeded", "tokens", "requests", "429", "PerDay", "slow_down"),
]

values = st.one_of(
    st.sampled_from(TELLING), st.text(max_size=40), st.floats().map(str), st.integers().map(str)
)
lines = st.lists(st.tuples(st.sampled_from(NAMES), values), max_size=12)
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=30),
    st.sampled_from(ERROR_NAMES + TELLING),
)
FIELDS = st.sampled_from(
    [
        *(
            "error",
            "errors",
            "type",
            "code",
            "status",
            "reason",
            "message",
            "detail",
            "details",
            "violations",
        ),
        *("quotaId", "quotaMetric", "retryDelay", "resets_at", "resets_in_seconds", "error_code", "__type"),
    ]
)
trees: st.SearchStrategy[Any] = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=5),
    max_leaves=12,
)
bodies = st.one_of(
    st.none(),
    st.binary(max_size=60),
    st.text(max_size=60),
    st.dictionaries(FIELDS, trees, max_size=4),
    trees.map(json.dumps),
    trees.map(lambda tree: json.dumps({"error": tree}).encode()),
)
statuses = st.one_of(
    st.sampled_from([200, 400, 402, 403, 429, 500, 503, 529]), st.integers(100, 599), st.integers()
)
walls = st.none() | st.floats() | st.just(1_790_000_000.0)


def check_sane(signal: Signal) -> None:
    wait_s = signal.retry_after_s
    assert wait_s is None or 0 < wait_s <= LONGEST_WAIT_S
    assert signal.detail.isprintable()
    assert len(signal.detail) < 260
    assert len(signal.scope) <= 40
    for bucket in signal.buckets:
        assert bucket.limit is None or bucket.limit >= 1
        assert 0 <= bucket.remaining <= (1e12 if bucket.limit is None else bucket.limit)
        assert bucket.reset_s is None or 0 <= bucket.reset_s <= LONGEST_WAIT_S
    assert len({bucket.name for bucket in signal.buckets}) == len(signal.buckets)


@given(statuses, lines, bodies, walls)
def test_no_answer_is_too_odd_to_be_judged(
    status: int, headers: list[tuple[str, str]], body: Any, wall_s: float | None
) -> None:
    check_sane(from_http(status, headers, body, wall_s=wall_s))


@given(st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=20))), st.dictionaries(leaves, leaves))
def test_no_header_is_too_odd_to_be_passed_over(
    pairs: list[tuple[bytes, bytes]], mapping: dict[Any, Any]
) -> None:
    assert from_http(429, pairs).kind is from_http(429, mapping).kind is SignalKind.THROTTLED


@given(statuses, lines, bodies, st.randoms(use_true_random=False))
def test_neither_the_order_nor_the_case_of_headers_matters(
    status: int, headers: list[tuple[str, str]], body: Any, chance: Any
) -> None:
    other = [(chance.choice([name.upper(), name.title(), name.encode()]), value) for name, value in headers]
    chance.shuffle(other)
    assert from_http(status, other, body) == from_http(status, headers, body)


@given(statuses, st.dictionaries(st.sampled_from(NAMES), values), bodies)
def test_a_mapping_and_its_pairs_are_the_same_headers(
    status: int, headers: dict[str, str], body: Any
) -> None:
    assert from_http(status, headers, body) == from_http(status, list(headers.items()), body)


@given(lines)
def test_no_header_turns_a_plain_throttle_into_anything_but_a_used_up_window(
    headers: list[tuple[str, str]],
) -> None:
    assert from_http(429, headers).kind in (SignalKind.THROTTLED, SignalKind.WINDOW_USED_UP)


@given(lines, bodies)
def test_nothing_makes_a_success_worse_than_a_warning(headers: list[tuple[str, str]], body: Any) -> None:
    assert from_http(200, headers, body).kind in (SignalKind.OK, SignalKind.NEAR_LIMIT)


@given(st.one_of(values, st.text()), walls)
@example("9" * 5000, None)
@example("1s" * 5000, None)
def test_any_text_is_a_span_or_nothing(text: str, now_s: float | None) -> None:
    for found in (number(text), duration_s(text), moment_s(text), worded_s(f"try again in {text}")):
        assert found is None or abs(found) < 1e12
    until_s(text, now_s)


@given(st.integers(0, 30), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_a_duration_reads_back_as_it_was_written(days: int, hours: int, minutes: int, seconds: int) -> None:
    written = f"{days}d{hours}h{minutes}m{seconds}s"
    assert duration_s(written) == ((days * 24 + hours) * 60 + minutes) * 60 + seconds
