"""What the world told us, as one vocabulary.

A ``Signal`` is built once, at the edge, from whatever the provider said; everything behind it
speaks only of kinds. Strict in meaning: an unknown status is ``UNKNOWN``, never a throttle.
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


@dataclass(frozen=True, slots=True)
class Signal:
    """One thing the world said. ``retry_after_s`` is a duration, already cleaned of nonsense."""

    kind: SignalKind
    retry_after_s: float | None = None
    detail: str = ""


def from_http(status: int, headers: Mapping[str, str] | None = None) -> Signal:
    """Judge one HTTP answer by its status and headers.

    >>> from_http(429, {"Retry-After": "7"})
    Signal(kind=<SignalKind.THROTTLED: 'throttled'>, retry_after_s=7.0, detail='HTTP 429')
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
