"""Midnight in California: when Google gives out a new day's quota.

The rule of the zone stands here, because the files of zones are I/O and may be missing: UTC-8, and UTC-7
from the second Sunday of March to the first Sunday of November. Clocks change at two in the morning, so the
midnight of the day on which they change is still by the old one.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

_STANDARD, _SUMMER = timedelta(hours=8), timedelta(hours=7)
_SUNDAY = 6


def until_midnight_s(now_s: float) -> float | None:
    """From ``now_s``, seconds since 1970, to the next midnight there. None where that is no date.

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
