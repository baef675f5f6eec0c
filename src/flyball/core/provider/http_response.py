"""One HTTP answer becomes one ``Signal``; so does an error inside one that began well (``from_event``).

``rate_limit_headers.py`` and ``error_body.py`` read the shapes; here they get their meaning, most telling
first:

    money      a 402, an error named after billing or a spend limit       a person's turn
    a window   the provider names a window that is used up                wait for its reset
    the name   the error's own type, code or reason                       beats the status it came with
    the words  of a JSON error, where no field says it                    ``Certainty.WORDED``
    the status the rest; an unknown name or a page of HTML adds nothing

Two things follow. Room in the headers never softens a refusal: the provider that says "49 left" and answers
429 has answered 429. And words count only where providers have no field for the matter, and only where the
message begins with them: "quota", "limit" and "429" also occur in errors that have nothing to do with load,
and an error may quote what the user wrote.

Pure, and it never raises: everything here comes from outside.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from flyball.core.durations import first_s, until_midnight_s, worded_s
from flyball.core.pool.verdict import one_line
from flyball.core.provider.error_body import Body, ErrorBody, read_error
from flyball.core.provider.rate_limit_headers import HeaderLines, Headers
from flyball.core.signals import Bucket, Certainty, Signal, SignalKind

NEAR_LIMIT_REMAINING = 5
"""Fewer calls than this left of a plain ``x-quota-remaining``, whose limit is not told."""
NEAR_LIMIT_SHARE = 0.02
"""A bucket below this share of its limit. Those who pace themselves by the headers keep 10 % of a bucket in
reserve; under a fifth of that, another client draws on it too."""

_DETAIL_CHARS = 120
_LABEL_CHARS = 60
_DAILY = "dailylimitexceeded"
_ABOUT_THE_DAY_S = 3600.0
_WORDED_WAITS = frozenset({SignalKind.THROTTLED, SignalKind.WINDOW_USED_UP})

_BY_NAME: tuple[tuple[SignalKind, frozenset[str]], ...] = tuple(
    (kind, frozenset(names.split()))
    for kind, names in (
        (
            SignalKind.CREDIT_GONE,
            "insufficient_quota billing_error billing_hard_limit_reached billing_not_active payment_required "
            "credit_balance_exhausted insufficient_credits enforced_spend_limit_reached "
            "organization_spend_limit_exceeded organization_usage_limit_exceeded "
            "project_spend_limit_exceeded",
        ),
        (SignalKind.WINDOW_USED_UP, f"usage_limit_reached {_DAILY}"),
        # Before overload: OpenAI's 429 ``slow_down`` is typed rate_limit_error, its older 503 is not.
        (
            SignalKind.THROTTLED,
            "rate_limit_error rate_limit_exceeded resource_exhausted ratelimitexceeded userratelimitexceeded "
            "too_many_requests throttling_error throttlingexception",
        ),
        (
            SignalKind.OVERLOADED,
            "overloaded_error server_is_overloaded server_overloaded engine_overloaded provider_overloaded "
            "engine_overloaded_error slow_down",
        ),
        (SignalKind.TIMEOUT, "timeout_error deadline_exceeded"),
        (
            SignalKind.AUTH,
            "authentication_error permission_error invalid_api_key api_key_invalid unauthenticated "
            "permission_denied",
        ),
    )
)
_CLIENTS_OWN = frozenset(
    {"invalid_request_error", "not_found_error", "request_too_large", "invalid_prompt", "invalid_argument"}
)
"""Names that come with a status of the 400s, for where no status comes with them."""
_BY_STATUS = {
    401: SignalKind.AUTH,
    402: SignalKind.CREDIT_GONE,
    403: SignalKind.AUTH,
    408: SignalKind.TIMEOUT,
    429: SignalKind.THROTTLED,
    503: SignalKind.OVERLOADED,
    504: SignalKind.TIMEOUT,
    529: SignalKind.OVERLOADED,
}
# What the providers put into words only. The last one can never fit, however long it waits.
_BY_WORDS = tuple(
    (kind, re.compile(rf"\s*{words}", re.IGNORECASE))
    for kind, words in (
        (SignalKind.CREDIT_GONE, r"(?:your )?credit balance is too low"),
        (SignalKind.CREDIT_GONE, r"(?:your )?prepayment credits are depleted"),
        (SignalKind.CREDIT_GONE, r"model access is denied due to INVALID_PAYMENT_INSTRUMENT"),
        (SignalKind.WINDOW_USED_UP, r"too many tokens per day"),
        (SignalKind.CREDIT_GONE, r"you have reached your (?:specified )?(?:workspace )?API usage limits"),
        (SignalKind.CLIENT_ERROR, r"request too large for "),
    )
)
_SCOPE_PHRASE = re.compile(
    r"\b(input tokens|output tokens|tokens|requests) per (?:sec|min|hour|day)"
    r"|number of (concurrent connections|request tokens|requests) has exceeded"
    r"|\b(token|call) rate limit",
    re.IGNORECASE,
)
_SCOPES = {
    "input tokens": "input-tokens",
    "output tokens": "output-tokens",
    "tokens": "tokens",
    "request tokens": "tokens",
    "token": "tokens",
    "requests": "requests",
    "call": "requests",
    "concurrent connections": "concurrency",
}
_METRIC_SCOPES = (
    ("input_token", "input-tokens"),
    ("output_token", "output-tokens"),
    ("token", "tokens"),
    ("request", "requests"),
)


def from_http(
    status: int, headers: HeaderLines | None = None, body: Body = None, *, wall_s: float | None = None
) -> Signal:
    """Judge one HTTP answer.

    Headers are a mapping or pairs. The body matters only for an error: bytes, text or decoded JSON.
    ``wall_s`` is our clock, in seconds since 1970, for providers that write moments without a ``Date``.

    >>> from_http(429, {"Retry-After": "7"}).retry_after_s
    7.0
    >>> from_http(200, {"x-quota-remaining": "3"}).kind
    <SignalKind.NEAR_LIMIT: 'near limit'>
    >>> from_http(400, body='{"error": {"type": "overloaded_error", "message": "Overloaded"}}').detail
    'HTTP 400 overloaded_error: Overloaded'
    """
    # An interim answer (1xx) says nothing yet; anything else outside is not an HTTP status.
    given: object = status
    if not isinstance(given, int) or not 200 <= given < 600:
        detail = f"HTTP {given}" if isinstance(given, int) and 0 <= given < 1000 else "no HTTP status"
        return Signal(SignalKind.UNKNOWN, detail=detail, certainty=Certainty.GUESSED)
    heads = Headers(headers, wall_s=wall_s)
    if status >= 400:
        return _refusal(status, heads, read_error(body))
    return _plain_success(status) if heads.silent else _success(status, heads)


def from_event(event: Mapping[str, object]) -> Signal | None:
    """Judge one event of a stream whose status was good; None: it tells of no error.

    >>> from_event({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}).detail
    'mid-stream overloaded_error: Overloaded'
    >>> from_event({"type": "content_block_delta", "delta": {"text": "error"}})
    """
    inner = event.get("response") if event.get("type") == "response.failed" else event
    said = inner if isinstance(inner, Mapping) else {}
    if not isinstance(said.get("error"), Mapping) and said.get("type") != "error":
        return None
    error, heads = read_error(said), Headers(None)
    if error is None:
        return None
    status = error.code or (400 if error.names & _CLIENTS_OWN else 500)
    kind, scope, certainty = _classify(status, heads, error)
    return Signal(kind, _wait_s(kind, heads, error), _detail("mid-stream", heads, error), scope, certainty)


@lru_cache(maxsize=64)
def _plain_success(status: int) -> Signal:
    return Signal(SignalKind.OK, detail=f"HTTP {status}")


def _success(status: int, heads: Headers) -> Signal:
    buckets = heads.buckets()
    low = next((bucket.name for bucket in buckets if _is_low(bucket)), None)
    plan = heads.subscription()
    if low is None and plan is not None and plan.status == "allowed_warning":
        low = plan.scope
    kind = SignalKind.OK if low is None else SignalKind.NEAR_LIMIT
    return Signal(kind, detail=f"HTTP {status}", scope=low or "", buckets=buckets, windows=heads.windows())


def _is_low(bucket: Bucket) -> bool:
    if bucket.limit is None:
        return bucket.name == "quota" and bucket.remaining < NEAR_LIMIT_REMAINING
    return bucket.remaining < bucket.limit * NEAR_LIMIT_SHARE


def _refusal(status: int, heads: Headers, error: ErrorBody | None) -> Signal:
    kind, scope, certainty = _classify(status, heads, error)
    return Signal(
        kind,
        _wait_s(kind, heads, error),
        _detail(f"HTTP {status}", heads, error),
        scope,
        certainty,
        heads.buckets(),
        heads.windows(),
    )


def _classify(status: int, heads: Headers, error: ErrorBody | None) -> tuple[SignalKind, str, Certainty]:
    names = error.names if error is not None else frozenset()
    named = next((kind for kind, known in _BY_NAME if not known.isdisjoint(names)), None)
    if status == 402 or named is SignalKind.CREDIT_GONE:
        return SignalKind.CREDIT_GONE, "", Certainty.STATED
    window = _window(status, named, heads, error)
    if window is not None:
        return SignalKind.WINDOW_USED_UP, window, Certainty.STATED
    message = error.message if error is not None else ""
    worded = next((kind for kind, words in _BY_WORDS if words.match(message)), None)
    if worded is not None:
        return worded, "", Certainty.WORDED
    kind = named or _BY_STATUS.get(status)
    if kind is None:
        kind = SignalKind.CLIENT_ERROR if status < 500 else SignalKind.SERVER_ERROR
    scope = _scope(error) if kind is SignalKind.THROTTLED and error is not None else ""
    return kind, scope, Certainty.STATED


def _window(status: int, named: SignalKind | None, heads: Headers, error: ErrorBody | None) -> str | None:
    """The scope of the window that is used up, or None if none is said to be."""
    if error is not None and _is_daily(error):
        return "day"
    if named is SignalKind.WINDOW_USED_UP:
        return heads.full_window()
    plan = heads.subscription() if status == 429 else None
    return plan.scope if plan is not None and plan.status == "rejected" else None


def _is_daily(error: ErrorBody) -> bool:
    """Google's quota of a day. Where one of a minute was passed as well, the day's is the one that lasts."""
    return _DAILY in error.names or any("perday" in quota_id.lower() for quota_id in error.quota_ids)


def _scope(error: ErrorBody) -> str:
    """Which quota throttled: a field first, then Gemini's metrics, then the words."""
    for name in ("tokens", "requests"):
        if name in error.names:
            return name
    for metric in error.quota_metrics:
        for part, scope in _METRIC_SCOPES:
            if part in metric.rpartition("/")[2].lower():
                return scope
    found = _SCOPE_PHRASE.search(error.message)
    return "" if found is None else _SCOPES[next(filter(None, found.groups())).lower()]


def _wait_s(kind: SignalKind, heads: Headers, error: ErrorBody | None) -> float | None:
    """When to come back: the reset of the window, else the header, else the body, else its words."""
    plan = heads.subscription() if kind is SignalKind.WINDOW_USED_UP else None
    waits = [None if plan is None else plan.reset_s, heads.retry_after_s()]
    if error is not None:
        at_s, now_s = error.resets_at_s, heads.now_s
        waits[1:1] = [error.resets_in_s, None if at_s is None or now_s is None else at_s - now_s]
        waits.append(error.delay_s)
        waits.append(worded_s(error.message) if kind in _WORDED_WAITS else None)
    told_s = first_s(waits)
    daily = kind is SignalKind.WINDOW_USED_UP and error is not None and _is_daily(error)
    if not daily or (told_s is not None and told_s >= _ABOUT_THE_DAY_S):
        return told_s
    # Google's short delays are about the minute, also where the day is used up: that lasts till midnight.
    return None if heads.now_s is None else until_midnight_s(heads.now_s)


def _detail(said: str, heads: Headers, error: ErrorBody | None) -> str:
    """For people: the status, the provider's name for it, and the start of its message."""
    if error is not None:
        label, message = one_line(error.label, _LABEL_CHARS), one_line(error.message, _DETAIL_CHARS)
        said += f" {label}" * bool(label) + f": {message}" * bool(message)
    return f"{said} (x-should-retry: false)" if heads.forbids_retry else said
