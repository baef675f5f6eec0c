"""Numbers, durations and moments as providers write them, and which of them to believe.

Providers write the same wait as ``7``, ``1.5``, ``6m0s``, ``20ms``, ``86400 seconds``, an HTTP date, an
RFC 3339 date or seconds since 1970. Each is read here once. What cannot be read is None, never a guess, and
nothing raises: all of this comes from outside.

No clock is read: a moment becomes a wait only against a moment that the caller brings along.

Google gives out a new day's quota at midnight in California. The rule of the zone stands here, because the
files of zones are I/O and may be missing: UTC-8, and UTC-7 from the second Sunday of March to the first
Sunday of November. Clocks change at two in the morning, so the midnight of the day on which they change is
still by the old one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache

LONGEST_WAIT_S = 31 * 86400.0
"""The longest window that a provider names is a month. A longer wait counts as a month."""

_TEXT_CHARS = 200
"""No number or date is longer; it also bounds the work that a hostile header can cause."""

_UNITS_S = {
    unit: seconds
    for seconds, units in (
        (0.001, "ms millisecond milliseconds"),
        (1.0, "s sec secs second seconds"),
        (60.0, "m min mins minute minutes"),
        (3600.0, "h hr hrs hour hours"),
        (86400.0, "d day days"),
    )
    for unit in units.split()
}
_PART = r"[0-9]+(?:\.[0-9]+)?\s?[a-z]+"
_DURATION = re.compile(rf"{_PART}(?:[\s,]{{0,2}}{_PART}){{0,4}}")
_PARTS = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s?([a-z]+)")
_WORDED = re.compile(rf"(?:try again|retry) (?:in|after) ({_DURATION.pattern})", re.IGNORECASE)

_EPOCH_FROM_S, _EPOCH_TO_S = 1e9, 1e11
"""Numbers in this range are seconds since 1970: below they are spans, above milliseconds or noise."""


def number(text: object) -> float | None:
    """A finite number from a header or a JSON field.

    >>> [number(text) for text in (" 1.5 ", 7, "soon", "nan", True, None)]
    [1.5, 7.0, None, None, None, None]
    """
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        return None
    try:
        value = float(text[:_TEXT_CHARS] if isinstance(text, str) else text)
    except (ValueError, OverflowError):
        return None
    return value if abs(value) < 1e12 else None


def sensible_s(seconds: float | None) -> float | None:
    """A wait that means something: later than now, and not absurd."""
    return seconds if seconds is not None and 0 < seconds <= LONGEST_WAIT_S else None


def clamped_s(seconds: float | None) -> float | None:
    """A wait that is later than now, and a month if it is longer; None for what is not a number.

    >>> clamped_s(-1), clamped_s(7), clamped_s(366 * 86400) == LONGEST_WAIT_S
    (None, 7, True)
    """
    if not isinstance(seconds, int | float) or not seconds > 0:
        return None
    return min(seconds, LONGEST_WAIT_S)


def first_s(waits: Iterable[float | None]) -> float | None:
    """Of several waits, best known first, the first sensible one; where all are absurd, a month."""
    given = list(waits)
    found = (wait for keep in (sensible_s, clamped_s) for wait in map(keep, given) if wait is not None)
    return next(found, None)


def longest_s(waits: Iterable[float | None]) -> float | None:
    """Of several waits for the same thing, the longest sensible one; where all are absurd, a month.

    Who comes early is refused again and may be punished for it; who comes late loses seconds.
    """
    given = list(waits)
    return max((wait for wait in map(sensible_s, given) if wait is not None), default=first_s(given))


def duration_s(text: str) -> float | None:
    """Seconds from a bare number or from parts with units.

    >>> [duration_s(text) for text in ("6m0s", "20ms", "1h2m3.5s", "86400 seconds", "37", "2 moons")]
    [360.0, 0.02, 3723.5, 86400.0, 37.0, None]
    """
    plain = number(text)
    lowered = text[:_TEXT_CHARS].strip().lower()
    if plain is not None or _DURATION.fullmatch(lowered) is None:
        return plain
    parts = [(float(count), _UNITS_S.get(unit)) for count, unit in _PARTS.findall(lowered)]
    total = sum(count * unit_s for count, unit_s in parts if unit_s is not None)
    return number(total) if all(unit_s is not None for _, unit_s in parts) else None


def worded_s(message: str) -> float | None:
    """The wait in a sentence such as "Please try again in 6m0s." """
    found = _WORDED.search(message)
    return None if found is None else duration_s(found[1])


def moment_s(text: str) -> float | None:
    """Seconds since 1970 from such a number, an RFC 3339 date or an HTTP date.

    >>> moment_s("2015-10-21T07:28:00Z") == moment_s("Wed, 21 Oct 2015 07:28:00 GMT") == 1445412480
    True
    """
    text = text[:_TEXT_CHARS].strip()
    epoch_s = number(text)
    if epoch_s is not None:
        return epoch_s if _EPOCH_FROM_S <= epoch_s < _EPOCH_TO_S else None
    try:
        found = datetime.fromisoformat(text) if text[4:5] == "-" else _http_date(text)
        # A date without a zone is UTC here; ``timestamp`` would take the zone of this machine.
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


@lru_cache(maxsize=8)  # slow to read, and all answers of one second carry the same one
def _http_date(text: str) -> datetime:
    from email.utils import parsedate_to_datetime  # tens of milliseconds that most processes never need

    return parsedate_to_datetime(text)


def until_s(text: str, now_s: float | None) -> float | None:
    """How long until then: a duration as it stands, a moment counted from ``now_s``. Negative: it is past."""
    span_s = duration_s(text)
    if span_s is not None and span_s <= LONGEST_WAIT_S:
        return span_s
    then_s = None if now_s is None else moment_s(text)
    if then_s is not None and now_s is not None:
        return then_s - now_s
    # Longer than is believed, but a span: a larger number would be a moment.
    return span_s if span_s is not None and span_s < _EPOCH_FROM_S else None


_STANDARD, _SUMMER = timedelta(hours=8), timedelta(hours=7)
_SUNDAY = 6


def until_midnight_s(now_s: float) -> float | None:
    """From ``now_s``, seconds since 1970, to the next midnight there. None where that is not a date.

    >>> until_midnight_s(datetime(2026, 7, 1, 6, 59, tzinfo=UTC).timestamp())
    60.0
    >>> until_midnight_s(datetime(2026, 12, 1, 6, 59, tzinfo=UTC).timestamp())
    3660.0
    """
    try:
        today = (datetime.fromtimestamp(now_s, UTC) - _STANDARD).date()
        midnights = (_midnight_s(today + timedelta(days=ahead)) for ahead in range(3))
        return next(at_s for at_s in midnights if at_s > now_s) - now_s
    except (ValueError, OverflowError, OSError):
        return None


def _midnight_s(day: date) -> float:
    behind = _SUMMER if _sunday(day.year, 3, 2) < day <= _sunday(day.year, 11, 1) else _STANDARD
    return (datetime(day.year, day.month, day.day, tzinfo=UTC) + behind).timestamp()


def _sunday(year: int, month: int, nth: int) -> date:
    first = date(year, month, 1)
    return first + timedelta(days=(_SUNDAY - first.weekday()) % 7 + 7 * (nth - 1))
