"""What an error message of an agent means. Never asked of anything that is not flagged as an error.

In this order, because each is surer than the next:

    1  words for spent credit or a used-up window, unless the status speaks against it
    2  the HTTP status, from a field or from a phrase made for it ("last status: 429"), with the provider's
       own body where the message carries it: ``core/provider/http_response.py`` judges them as it judges any
       answer
    3  such a body without a status
    4  plain words

Addresses are taken out first: a link to a page about rate limits means nothing.

How long an error message of an agent says to wait. Asked only of what is flagged as an error.

Nonsense becomes None, as everywhere (``core/durations.py``): zero, negative, in the past, more than a month
ahead.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import replace

from flyball.core.durations import moment_s, sensible_s, worded_s
from flyball.core.provider.error_body import Body, read_error
from flyball.core.provider.http_response import from_http
from flyball.core.signals import Certainty, Signal, SignalKind

_DAY_S = 86400.0
_RESETS_IN = re.compile(r"\bresets in (.{1,40})", re.IGNORECASE)
_AT_DATE = re.compile(
    r"\b(\d{4}-\d\d-\d\d)(?:T| at | )(\d\d:\d\d)(?::\d\d(?:\.\d+)?)?\s*(?:UTC|Z|GMT)", re.IGNORECASE
)
_AT_TIME = re.compile(
    r"(?:try again at|resets(?: at)?)\s+(\d{1,2})(?::(\d\d))?\s*([ap])\.?m\b\.?(\s*\(?utc\)?)?", re.IGNORECASE
)


def until(epoch_s: float | None, *, wall_s: float) -> float | None:
    """From now to a moment given in seconds since 1970."""
    return sensible_s(epoch_s - wall_s) if epoch_s is not None else None


def stated_wait_s(text: str, *, wall_s: float) -> float | None:
    """The wait that a message names, as a span, a date or a time of day.

    >>> stated_wait_s("Please try again in 1m30s.", wall_s=0.0)
    90.0
    >>> stated_wait_s("You will regain access on 1970-01-02 at 00:00 UTC.", wall_s=0.0)
    86400.0
    """
    reset = _RESETS_IN.search(text)
    span_s = worded_s(text) or (worded_s(f"retry in {reset[1]}") if reset else None)
    if span_s is not None:
        return sensible_s(span_s)
    date = _AT_DATE.search(text)
    if date:
        return until(moment_s(f"{date[1]}T{date[2]}"), wall_s=wall_s)
    clock = _AT_TIME.search(text)
    return sensible_s(_to_time_of_day(clock, wall_s)) if clock else None


def _to_time_of_day(found: re.Match[str], wall_s: float) -> float | None:
    """The next time a clock shows it; the clock of this machine unless the message says UTC."""
    hour, minute = int(found[1]), int(found[2] or 0)
    if not 1 <= hour <= 12 or minute > 59 or not 0 <= wall_s < 1e11:
        return None
    hour = hour % 12 + (12 if found[3].lower() == "p" else 0)
    now = time.gmtime(wall_s) if found[4] else time.localtime(wall_s)
    ahead = (hour - now.tm_hour) * 3600.0 + (minute - now.tm_min) * 60.0 - now.tm_sec
    return ahead if ahead > 0 else ahead + _DAY_S


TEXT_LIMIT = 8192
DETAIL_LIMIT = 200

Words = Mapping[str, SignalKind]
"""Lower-case phrases of one runtime, in order; they come before those that all use."""

_SPENT = frozenset({SignalKind.CREDIT_GONE, SignalKind.WINDOW_USED_UP})
_OPEN_TO_SPENT = frozenset(
    {SignalKind.THROTTLED, SignalKind.CLIENT_ERROR, SignalKind.AUTH, SignalKind.UNKNOWN}
)
"""What providers answer when money or a window is what ran out."""
_SPENT_WORDS: Words = {
    "credit balance is too low": SignalKind.CREDIT_GONE,
    "insufficient quota": SignalKind.CREDIT_GONE,
    "out of credits": SignalKind.CREDIT_GONE,
    "credits are depleted": SignalKind.CREDIT_GONE,
    "reached your specified api usage limit": SignalKind.CREDIT_GONE,
    "usage limit": SignalKind.WINDOW_USED_UP,
    "daily quota": SignalKind.WINDOW_USED_UP,
}
_NOT_SPENT = "not your usage limit"
"""What Claude Code says of a plain throttle of a login."""
_HIT_A_LIMIT = re.compile(r"\bhit your (?:[\w-]+ ){0,3}limit\b")
_PLAIN_WORDS: Words = {
    "overloaded": SignalKind.OVERLOADED,
    "at capacity": SignalKind.OVERLOADED,
    "rate limit": SignalKind.THROTTLED,
    "too many requests": SignalKind.THROTTLED,
    "limiting requests": SignalKind.THROTTLED,
    "timed out": SignalKind.TIMEOUT,
    "timeout": SignalKind.TIMEOUT,
}
_UNNAMED = 400
"""A status under which ``from_http`` lets the names in a body decide."""

_ADDRESS = re.compile(r"https?://\S+")
_STATUS = re.compile(
    r"(?:unexpected status|last status:|failed with status|got status:|API Error:|request rejected"
    r"|status code:?|\bstatus:|\bHTTP(?:/[\d.]+)?|\"code\":)\s*\(?([45]\d\d)\b",
    re.IGNORECASE,
)
_SCOPES = (
    (re.compile(r"\b5[- ]?h(?:our)?|five[_ ]hour"), "5h"),
    (re.compile(r"\bweek|seven[_ ]day|\b7[- ]?d"), "7d"),
    (re.compile(r"\bdaily|per day|perday"), "day"),
)


def signal_of(
    text: str,
    *,
    wall_s: float,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
    body: Body = None,
    own: Words | None = None,
) -> Signal:
    """The signal in an error message, with the wait it names.

    >>> signal_of("unexpected status 401 Unauthorized: see https://x.test/rate-limits", wall_s=0.0).kind.value
    'auth'
    """
    text = text[:TEXT_LIMIT]
    bare = _ADDRESS.sub(" ", text)
    plain = bare.replace("\u2019", "'").lower().replace(_NOT_SPENT, " ")
    named = _STATUS.search(bare) if status is None else None
    code = int(named[1]) if named else status
    found = _http_signal(code, headers, body if body is not None else _body_in(text), wall_s)
    if status is None and code is not None:
        found = replace(found, certainty=Certainty.WORDED)
    worded = _kind_in(plain, own or {})
    room = _OPEN_TO_SPENT if worded in _SPENT else frozenset({SignalKind.UNKNOWN})
    if worded is not None and found.kind in room:
        found = replace(found, kind=worded, certainty=Certainty.WORDED)
    wait_s = found.retry_after_s if found.retry_after_s is not None else stated_wait_s(text, wall_s=wall_s)
    scope = found.scope
    if found.kind in _SPENT:
        scope = next((scope for pattern, scope in _SCOPES if pattern.search(plain)), "") or scope
    return replace(found, retry_after_s=wait_s, scope=scope, detail=detail(_message_in(text), code))


def detail(text: str, status: int | None) -> str:
    """A message on one line, cut short, its status named if it names none."""
    line = "".join(filter(str.isprintable, " ".join(text[:TEXT_LIMIT].split())))
    if status is not None and str(status) not in line[:DETAIL_LIMIT]:
        line = f"HTTP {status}: {line}" if line else f"HTTP {status}"
    return line if len(line) <= DETAIL_LIMIT else line[: DETAIL_LIMIT - 3] + "..."


def _http_signal(status: int | None, headers: Mapping[str, str] | None, body: Body, wall_s: float) -> Signal:
    unknown = Signal(SignalKind.UNKNOWN, certainty=Certainty.GUESSED)
    if status is not None:
        return from_http(status, headers, body, wall_s=wall_s)
    if body is None:
        return unknown
    named = from_http(_UNNAMED, headers, body, wall_s=wall_s)
    return unknown if named.kind is SignalKind.CLIENT_ERROR else named


def _body_in(text: str) -> str | None:
    """The JSON object inside a message."""
    start, end = text.find("{"), text.rfind("}")
    return text[start : end + 1] if 0 <= start < end else None


def _message_in(text: str) -> str:
    """What a message that is mostly a provider's JSON body says to people."""
    body = _body_in(text)
    error = read_error(body) if body is not None and 2 * len(body) > len(text) else None
    return error.message if error is not None and error.message else text


def _kind_in(plain: str, own: Words) -> SignalKind | None:
    for words in (own, _SPENT_WORDS):
        for phrase, kind in words.items():
            if phrase in plain:
                return kind
    if _HIT_A_LIMIT.search(plain):
        return SignalKind.WINDOW_USED_UP
    return next((kind for phrase, kind in _PLAIN_WORDS.items() if phrase in plain), None)
