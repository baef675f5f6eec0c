"""How long an error message of an agent says to wait. Asked only of what is flagged as an error.

Nonsense becomes None, as everywhere (``core/spans.py``): zero, negative, in the past, more than a month
ahead.
"""

from __future__ import annotations

import re
import time

from flyball.core.spans import moment_s, sensible_s, worded_s

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


def stated(text: str, *, wall_s: float) -> float | None:
    """The wait that a message names, as a span, a date or a time of day.

    >>> stated("Please try again in 1m30s.", wall_s=0.0)
    90.0
    >>> stated("You will regain access on 1970-01-02 at 00:00 UTC.", wall_s=0.0)
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
