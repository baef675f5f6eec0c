"""What the world told us, as one vocabulary.

A ``Signal`` is built once, at the edge, from whatever the provider or an agent's stream said; everything
behind it speaks only of kinds. Strict in meaning: what cannot be told is ``UNKNOWN``, never a throttle.

    slow down          throttled, overloaded, timeout      the cap or the breaker answers
    hold still         near limit, slow                    no growth for a while
    wait for the reset window used up                      retry_after_s says when, scope says which
    a person's turn    credit gone, auth                   trying again changes nothing
    not about load     client error, server error, unknown

Who builds them: ``answer.py`` from an HTTP answer, ``runtimes/`` from the stream of an agent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

NEAR_LIMIT_REMAINING = 5


class SignalKind(Enum):
    OK = "ok"
    THROTTLED = "throttled"
    OVERLOADED = "overloaded"
    NEAR_LIMIT = "near limit"
    SLOW = "slow"
    TIMEOUT = "timeout"
    WINDOW_USED_UP = "window used up"
    CREDIT_GONE = "credit gone"
    AUTH = "auth"
    CLIENT_ERROR = "client error"
    SERVER_ERROR = "server error"
    UNKNOWN = "unknown"


CONGESTION = frozenset({SignalKind.THROTTLED, SignalKind.OVERLOADED, SignalKind.TIMEOUT})
"""Kinds that ask for fewer calls. Everything else leaves the cap alone."""

LIMITING = frozenset(
    {SignalKind.THROTTLED, SignalKind.OVERLOADED, SignalKind.WINDOW_USED_UP, SignalKind.CREDIT_GONE}
)
"""Kinds that end a run as *limited*: nothing was wrong with the work itself."""


class Certainty(Enum):
    """How we know. Compare by meaning, not by order."""

    STATED = "stated"
    """A field made for it said so: a status, a header, an error type."""
    WORDED = "worded"
    """Only the words of a message that is flagged as an error said so."""
    GUESSED = "guessed"
    """Only an exit status, or the absence of anything better, suggests it."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """One quota as the provider reported it with an answer.

    ``reset_s`` is how long until it is full again, counted from the answer.
    """

    name: str
    """``requests``, ``tokens``, ``input-tokens`` or ``output-tokens``."""
    limit: float | None
    remaining: float
    reset_s: float | None = None


@dataclass(frozen=True, slots=True)
class Signal:
    """One thing the world said. ``retry_after_s`` is a duration, already cleaned of nonsense."""

    kind: SignalKind
    retry_after_s: float | None = None
    detail: str = ""
    scope: str = ""
    """Which window or quota it is about (``5h``, ``7d``, ``tokens``, ``concurrency``); empty: the whole pool."""
    certainty: Certainty = Certainty.STATED
    buckets: tuple[Bucket, ...] = ()
    """What the answer's headers said about quotas, whatever its kind."""


def from_http(status: int, headers: Mapping[str, str] | None = None) -> Signal:
    """Judge one HTTP answer by its status and headers.

    >>> from_http(429, {"Retry-After": "7"}).retry_after_s
    7.0
    >>> from_http(200, {"x-quota-remaining": "3"}).kind
    <SignalKind.NEAR_LIMIT: 'near limit'>
    """
    lowered = {key.lower(): value for key, value in (headers or {}).items()}
    return Signal(_kind(status, lowered), _retry_after_s(lowered), f"HTTP {status}")


def _kind(status: int, headers: Mapping[str, str]) -> SignalKind:
    if status == 429:
        return SignalKind.THROTTLED
    if status in (503, 529):
        return SignalKind.OVERLOADED
    if status in (401, 403):
        return SignalKind.AUTH
    if status in (408, 504):
        return SignalKind.TIMEOUT
    if 200 <= status < 400:
        remaining = _number(headers.get("x-quota-remaining"))
        low = remaining is not None and remaining < NEAR_LIMIT_REMAINING
        return SignalKind.NEAR_LIMIT if low else SignalKind.OK
    if 400 <= status < 500:
        return SignalKind.CLIENT_ERROR
    if 500 <= status < 600:
        return SignalKind.SERVER_ERROR
    return SignalKind.UNKNOWN


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds from ``retry-after-ms`` or ``retry-after``. Zero, negative or unreadable means None."""
    millis = _number(headers.get("retry-after-ms"))
    if millis is not None and millis > 0:
        return millis / 1000
    seconds = _number(headers.get("retry-after"))
    return seconds if seconds is not None and seconds > 0 else None


def _number(text: str | None) -> float | None:
    try:
        value = float(text.strip()) if text is not None else None
    except ValueError:
        return None
    return value if value is None or abs(value) < 1e12 else None
