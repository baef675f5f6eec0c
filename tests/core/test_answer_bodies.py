"""What error bodies say: the kind, the quota, the wait and the words for people."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flyball.core.durations import LONGEST_WAIT_S
from flyball.core.provider.error_body import BODY_CHARS
from flyball.core.provider.http_response import from_http
from flyball.core.signals import Certainty, SignalKind
from tests.cases import every
from tests.core.bodies import DAY_ID, MINUTE_ID, Body, anthropic, gemini, openai

INPUT_TOKENS = (
    "This request would exceed your organization's rate limit of 30,000 input tokens per minute (org: 0)."
)
CREDIT_LOW = "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing."
SPENT = "You have reached your specified API usage limits. You will regain access on 2026-12-01 at 00:00 UTC."
TPM = (
    "Rate limit reached for m in organization o on tokens per min (TPM): Limit 30000. Please try again in 2s."
)
QUOTA = "You exceeded your current quota, please check your plan and billing details."


# -- bodies that say nothing ------------------------------------------------------------------------


@every(
    "body",
    [
        b"",
        "",
        b"\xff\xfe\x00",
        b"\x1f\x8b\x08 rate_limit_error",
        "<html><body>429 insufficient_quota billing_error overloaded_error</body></html>",
        "insufficient_quota",
        '"insufficient_quota"',
        "[]",
        "[[{}]]",
        "null",
        "{" * 60_000,
        "[" * 60_000,
        '{"error": {"type": "insufficient_quota"',
        '{"error": {"code": ' + "9" * 5000 + "}}",
        json.dumps({"pad": "x" * BODY_CHARS, **openai("insufficient_quota", "insufficient_quota")}),
        {"error": {"type": ["insufficient_quota"], "code": 5, "details": "insufficient_quota"}},
        {"errors": 7, "error": None},
        {7: "insufficient_quota"},
    ],
)
def test_a_body_that_cannot_be_understood_adds_nothing(body: Any) -> None:
    assert from_http(429, None, body).kind is SignalKind.THROTTLED


@pytest.mark.parametrize("body", [b"<html>", "{}", {"error": {}}, {"error": {"message": 5}}])
def test_an_empty_error_leaves_only_the_status_to_tell(body: Any) -> None:
    assert from_http(502, None, body).detail == "HTTP 502"


def test_the_body_of_a_success_is_not_looked_at() -> None:
    assert from_http(200, None, anthropic("overloaded_error")).kind is SignalKind.OK


@every(
    "status, body, kind",
    [
        (400, anthropic("invalid_request_error", "prompt is too long: 429 tokens"), "client error"),
        (400, anthropic("invalid_request_error", f"Invalid value: '{CREDIT_LOW}'"), "client error"),
        (400, anthropic("invalid_request_error", "rate_limit_error: quota exceeded"), "client error"),
        (404, anthropic("not_found_error", "model: insufficient_quota"), "client error"),
        (500, openai("server_error", None, "billing_error in the rate limit service"), "server error"),
    ],
)
def test_words_about_limits_in_another_error_mean_nothing(status: int, body: Body, kind: str) -> None:
    assert from_http(status, None, body).kind.value == kind


# -- what the errors mean ---------------------------------------------------------------------------


@every(
    "status, body, kind",
    [
        (401, anthropic("authentication_error", "invalid x-api-key"), "auth"),
        (403, anthropic("permission_error", "Your API key does not have permission."), "auth"),
        (500, anthropic("api_error", "Internal server error"), "server error"),
        (504, anthropic("timeout_error"), "timeout"),
        (529, anthropic("overloaded_error", "Overloaded"), "overloaded"),
        (400, anthropic("overloaded_error", "Overloaded"), "overloaded"),
        (429, anthropic("rate_limit_error"), "throttled"),
        (500, anthropic("rate_limit_error"), "throttled"),
        (402, anthropic("billing_error"), "credit gone"),
        (
            429,
            anthropic("rate_limit_error", details={"error_code": "enforced_spend_limit_reached"}),
            "credit gone",
        ),
        (401, openai("invalid_request_error", "invalid_api_key"), "auth"),
        (403, openai("invalid_request_error", "insufficient_permissions"), "auth"),
        (400, openai("invalid_request_error", "context_length_exceeded"), "client error"),
        (429, openai("insufficient_quota", "insufficient_quota", QUOTA), "credit gone"),
        (429, openai("insufficient_quota", "credit_balance_exhausted"), "credit gone"),
        (400, openai("invalid_request_error", "billing_hard_limit_reached"), "credit gone"),
        (429, openai(None, "project_spend_limit_exceeded"), "credit gone"),
        (503, openai("server_error", "server_is_overloaded"), "overloaded"),
        (503, openai("server_error", "slow_down"), "overloaded"),
        (429, openai("rate_limit_error", "slow_down"), "throttled"),
        (429, openai("engine_overloaded_error", None), "overloaded"),
        (429, openai(None, "429", "Requests have exceeded call rate limit."), "throttled"),
        (400, gemini(400, "INVALID_ARGUMENT", reason="API_KEY_INVALID"), "auth"),
        (403, gemini(403, "PERMISSION_DENIED"), "auth"),
        (403, gemini(403, "RESOURCE_EXHAUSTED"), "throttled"),
        (403, gemini(403, "PERMISSION_DENIED", reason="rateLimitExceeded"), "throttled"),
        (403, {"error": {"code": 403, "errors": [{"reason": "userRateLimitExceeded"}]}}, "throttled"),
        (403, {"error": {"code": 403, "errors": [{"reason": "dailyLimitExceeded"}]}}, "window used up"),
        (402, gemini(402, "RESOURCE_EXHAUSTED", "Your prepayment credits are depleted."), "credit gone"),
        (429, gemini(429, "RESOURCE_EXHAUSTED", QUOTA, quota=MINUTE_ID), "throttled"),
        (429, gemini(429, "RESOURCE_EXHAUSTED", QUOTA, quota=DAY_ID), "window used up"),
        (503, gemini(503, "UNAVAILABLE", "The model is overloaded."), "overloaded"),
        (400, {"__type": "com.amazon#ThrottlingException", "message": "slow"}, "throttled"),
    ],
)
def test_the_name_of_an_error_beats_its_status(status: int, body: Body, kind: str) -> None:
    signal = from_http(status, None, body)
    assert (signal.kind.value, signal.certainty) == (kind, Certainty.STATED)


@every(
    "status, body, kind",
    [
        (400, anthropic("invalid_request_error", CREDIT_LOW), "credit gone"),
        (400, anthropic("invalid_request_error", SPENT), "credit gone"),
        (429, anthropic("rate_limit_error", SPENT.replace("specified ", "")), "credit gone"),
        (429, gemini(429, "RESOURCE_EXHAUSTED", "Your prepayment credits are depleted."), "credit gone"),
        (429, openai("tokens", "rate_limit_exceeded", "Request too large for m: Limit 9."), "client error"),
    ],
)
def test_what_only_the_message_says_is_marked_as_words(status: int, body: Body, kind: str) -> None:
    signal = from_http(status, None, body)
    assert (signal.kind.value, signal.certainty) == (kind, Certainty.WORDED)


@every("shape", ["text", "bytes", "marked", "mapping", "list"])
def test_a_body_comes_in_many_shapes(shape: str) -> None:
    given = gemini(429, "RESOURCE_EXHAUSTED", quota=DAY_ID)
    text = json.dumps(given)
    body: Any = {"text": text, "bytes": text.encode(), "marked": "\ufeff" + text, "list": f"[{text}]"}.get(
        shape, given
    )
    assert from_http(429, None, body).kind is SignalKind.WINDOW_USED_UP


# -- which quota ------------------------------------------------------------------------------------


@every(
    "body, scope",
    [
        (anthropic("rate_limit_error", "Rate limited"), ""),
        (openai("rate_limit_error", "slow_down", "Slow down"), ""),
        (anthropic("rate_limit_error", INPUT_TOKENS), "input-tokens"),
        (anthropic("rate_limit_error", "rate limit of 8,000 output tokens per minute"), "output-tokens"),
        (anthropic("rate_limit_error", "rate limit of 50 requests per minute"), "requests"),
        (
            anthropic("rate_limit_error", "Number of request tokens has exceeded your per-minute rate limit"),
            "tokens",
        ),
        (
            anthropic("rate_limit_error", "Number of concurrent connections has exceeded your limit"),
            "concurrency",
        ),
        (openai("tokens", "rate_limit_exceeded"), "tokens"),
        (openai("requests", "rate_limit_exceeded"), "requests"),
        (openai(None, "rate_limit_exceeded", TPM), "tokens"),
        (openai(None, "429", "Requests have exceeded call rate limit of your tier."), "requests"),
        (openai(None, "429", "Requests have exceeded token rate limit of your tier."), "tokens"),
        (gemini(429, "RESOURCE_EXHAUSTED", quota=MINUTE_ID), "requests"),
    ],
)
def test_a_throttle_names_its_quota_where_the_provider_does(body: Body, scope: str) -> None:
    assert from_http(429, None, body).scope == scope


# -- when to come back ------------------------------------------------------------------------------


@every(
    "body, seconds",
    [
        (gemini(429, "RESOURCE_EXHAUSTED", quota=MINUTE_ID), None),
        (gemini(429, "RESOURCE_EXHAUSTED", delay="-1s"), None),
        (gemini(429, "RESOURCE_EXHAUSTED", delay="soon"), None),
        (gemini(429, "RESOURCE_EXHAUSTED", delay="31536000s"), LONGEST_WAIT_S),
        (gemini(429, "RESOURCE_EXHAUSTED", delay="37s"), 37.0),
        (gemini(429, "RESOURCE_EXHAUSTED", "Please retry in 48.8s.", delay="48s"), 48.0),
        (gemini(429, "RESOURCE_EXHAUSTED", "Please retry in 10h17m5.5s."), 37025.5),
        (openai("tokens", "rate_limit_exceeded", TPM), 2.0),
        (openai("tokens", "rate_limit_exceeded", "Please try again in 6m0s."), 360.0),
        (openai("tokens", "rate_limit_exceeded", "Please try again in 20ms. Visit https://x"), 0.02),
        (openai(None, "429", "Please retry after 86400 seconds."), 86400.0),
        (openai("tokens", "rate_limit_exceeded", "Please try again in a while."), None),
    ],
)
def test_a_throttles_body_may_say_how_long(body: Body, seconds: float | None) -> None:
    assert from_http(429, None, body).retry_after_s == seconds


def test_the_header_counts_more_than_the_body() -> None:
    body = gemini(429, "RESOURCE_EXHAUSTED", delay="37s")
    assert from_http(429, {"retry-after": "5"}, body).retry_after_s == 5.0


@pytest.mark.parametrize(
    "body", ["Please try again in 2s.", anthropic("api_error", "Please try again in 2s.")]
)
def test_words_give_a_wait_only_in_an_error_about_rates(body: Any) -> None:
    assert from_http(500, None, body).retry_after_s is None


# -- what people read -------------------------------------------------------------------------------


@every(
    "headers, body, detail",
    [
        ({}, anthropic("rate_limit_error", "x" * 500), "HTTP 429 rate_limit_error: " + "x" * 120),
        ({}, openai("tokens", "rate_limit_exceeded", "Slow."), "HTTP 429 rate_limit_exceeded: Slow."),
        ({}, openai(None, "429", "a\n\x1b[31mb\ud800"), "HTTP 429: a [31mb"),
        ({}, {"error": "busy"}, "HTTP 429: busy"),
        ({}, {"detail": "busy"}, "HTTP 429: busy"),
        ({}, gemini(429, "RESOURCE_EXHAUSTED"), "HTTP 429 RESOURCE_EXHAUSTED"),
        ({"x-should-retry": "false"}, None, "HTTP 429 (x-should-retry: false)"),
        ({"x-should-retry": "true"}, None, "HTTP 429"),
    ],
)
def test_the_detail_is_one_line_for_people(headers: dict[str, str], body: Any, detail: str) -> None:
    assert from_http(429, headers, body).detail == detail
