"""Windows that are used up: whose they are and when they open again."""

from __future__ import annotations

import pytest

from flyball.core.provider.http_response import from_http
from flyball.core.signals import SignalKind
from tests.cases import every
from tests.core.bodies import DAY_ID, Body, anthropic, gemini, openai

NOW_S = 1_790_000_000.0


def unified(**fields: str) -> dict[str, str]:
    return {f"anthropic-ratelimit-unified-{name.replace('_', '-')}": value for name, value in fields.items()}


@every(
    "headers, kind, scope, seconds",
    [
        (unified(status="allowed"), "throttled", "", 9.0),
        (unified(status="allowed", reset="1790000060"), "throttled", "", 9.0),
        (
            unified(status="rejected", **{"5h_status": "rejected", "7d_status": "rejected"}),
            "window used up",
            "7d",
            9.0,
        ),
        (unified(status="rejected"), "window used up", "", 9.0),
        (unified(status="rejected", reset="1789999000"), "window used up", "", 9.0),
        (unified(status="rejected", reset="soon"), "window used up", "", 9.0),
        (unified(status="rejected, rejected", reset="1790000060"), "window used up", "", 60.0),
        (
            unified(status="rejected", representative_claim="five_hour", reset="1790010800"),
            "window used up",
            "5h",
            10800.0,
        ),
        (unified(status="rejected", representative_claim="seven_day_opus"), "window used up", "7d_opus", 9.0),
        (
            unified(status="rejected", **{"7d_status": "rejected", "7d_reset": "1790000060"}),
            "window used up",
            "7d",
            60.0,
        ),
        (
            unified(status="rejected", **{"5h_status": "rejected", "7d_status": "allowed"}),
            "window used up",
            "5h",
            9.0,
        ),
    ],
)
def test_a_rejected_subscription_has_used_up_a_window(
    headers: dict[str, str], kind: str, scope: str, seconds: float
) -> None:
    body = anthropic("rate_limit_error", "This request would exceed your account's rate limit.")
    signal = from_http(429, {**headers, "retry-after": "9"}, body, wall_s=NOW_S)
    assert (signal.kind.value, signal.scope, signal.retry_after_s) == (kind, scope, seconds)


def test_a_bad_request_says_nothing_about_the_window_beside_it() -> None:
    body = anthropic("invalid_request_error", "prompt is too long")
    assert from_http(400, unified(status="rejected"), body).kind is SignalKind.CLIENT_ERROR


@every(
    "fields, seconds",
    [
        ({}, None),
        ({"resets_at": NOW_S - 5}, None),
        ({"resets_at": "soon", "resets_in_seconds": "never"}, None),
        ({"resets_at": 10**400}, None),
        ({"resets_in_seconds": True}, None),
        ({"resets_at": NOW_S + 60}, 60.0),
        ({"resets_at": str(int(NOW_S) + 60)}, 60.0),
        ({"resets_at": NOW_S + 60, "resets_in_seconds": 50}, 50.0),
    ],
)
def test_a_used_up_plan_says_when_it_opens_again(fields: Body, seconds: float | None) -> None:
    signal = from_http(429, None, openai("usage_limit_reached", None, **fields), wall_s=NOW_S)
    assert (signal.kind, signal.retry_after_s) == (SignalKind.WINDOW_USED_UP, seconds)


@pytest.mark.parametrize(
    ("primary", "secondary", "scope"), [("40", "x", ""), ("100.0", "40.0", "5h"), ("100", "100", "7d")]
)
def test_the_window_of_a_plan_is_the_one_that_is_full(primary: str, secondary: str, scope: str) -> None:
    headers = {
        "x-codex-primary-used-percent": primary,
        "x-codex-primary-window-minutes": "300",
        "x-codex-secondary-used-percent": secondary,
        "x-codex-secondary-window-minutes": "10080",
    }
    assert from_http(429, headers, openai("usage_limit_reached", None)).scope == scope


def test_a_quota_of_a_day_has_the_scope_day() -> None:
    assert from_http(429, None, gemini(429, "RESOURCE_EXHAUSTED", quota=DAY_ID)).scope == "day"


def test_an_answer_says_how_full_the_windows_of_a_subscription_are() -> None:
    headers = unified(
        status="allowed",
        **{"5h_utilization": "0.62", "5h_reset": "1790000060", "7d_utilization": "0.4", "7d_reset": "soon"},
    ) | {"anthropic-ratelimit-unified-7d_opus-utilization": "0.91"}
    found = from_http(200, headers, wall_s=1_790_000_000.0).windows
    assert [(each.name, each.fraction, each.resets_in_s) for each in found] == [
        ("5h", 0.62, 60.0),
        ("7d", 0.4, None),
        ("7d opus", 0.91, None),
    ]


def test_an_answer_says_how_full_the_windows_of_a_chatgpt_plan_are() -> None:
    headers = {
        "x-codex-primary-used-percent": "72.5",
        "x-codex-primary-window-minutes": "300",
        "x-codex-primary-reset-after-seconds": "4200",
        "x-codex-secondary-used-percent": "18",
        "x-codex-secondary-window-minutes": "10080",
        "x-codex-secondary-reset-at": "1790000060",
    }
    found = from_http(200, headers, wall_s=1_790_000_000.0).windows
    assert [(each.name, each.fraction, each.resets_in_s) for each in found] == [
        ("5h", 0.725, 4200.0),
        ("7d", 0.18, 60.0),
    ]


@pytest.mark.parametrize(
    "headers",
    [
        unified(**{"5h_utilization": "0.93", "5h_reset": "1789999999"}),
        {
            "x-codex-primary-used-percent": "93",
            "x-codex-primary-window-minutes": "300",
            "x-codex-primary-reset-at": "1789999000",
        },
    ],
)
def test_a_window_whose_reset_is_past_is_over_and_not_one_of_unknown_end(headers: dict[str, str]) -> None:
    (found,) = from_http(200, headers, wall_s=1_790_000_000.0).windows
    assert (found.name, found.fraction, found.resets_in_s) == ("5h", 0.93, 0.0)


def test_windows_that_make_no_sense_are_not_heard() -> None:
    headers = unified(**{"5h_utilization": "-1", "7d_utilization": "much", "x_utilization": "0.5"})
    assert from_http(200, headers | {"x-codex-primary-used-percent": "50"}).windows == ()
