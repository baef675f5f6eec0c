"""How full the usage windows of a pool's account are, and what the pool makes of it.

A subscription gives so much in five hours and so much in seven days. Answers say how full a window is and
when it opens again; the pool keeps the newest word on each window of each account. What follows is a
person's to say, each as a part of a window:

    usage_warn     from here on it is said
    usage_slow     from here on fewer at once, in a straight line down to 1 at the end
    usage_drain    from here on nothing starts; what runs goes on
    usage_keep     the last part of a window is for priority above 0: other asks wait from 1 - usage_keep on

The fullest window decides. A window of one model concerns the pool of that family alone. A figure counts
until the reset that came with it. Where none came it counts for as long as such a window can last, which is
the latest moment at which it can be over, and no more is said: when the window began is not known.

Times are on the store's clock. Nothing is worked out from one window about another.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from flyball.core.pool.settings import PRIORITY_LIMIT, PoolSettings
from flyball.core.signals import UsageCertainty, WindowReading

WINDOWS_KEPT = 16
DAY_S = 86400.0
_LENGTHS_S = {"5h": 5 * 3600.0, "7d": 7 * DAY_S}
LONGEST_S = 7 * DAY_S


@dataclass(frozen=True, slots=True)
class AccountWindow:
    """The newest word on one window of one account."""

    account: str
    name: str
    fraction: float
    at: float
    """When it was said."""
    resets_at: float | None = None
    certainty: UsageCertainty = UsageCertainty.REPORTED

    @property
    def model(self) -> str:
        """Only its calls draw on the window; empty: all do."""
        return self.name.partition(" ")[2]

    @property
    def over_at(self) -> float:
        """From then on the figure says nothing any more."""
        if self.resets_at is not None:
            return self.resets_at
        return self.at + _LENGTHS_S.get(self.name.partition(" ")[0], LONGEST_S)

    def concerns(self, pool: str) -> bool:
        return not self.model or pool.endswith(f":{self.model}")

    @property
    def words(self) -> str:
        """
        >>> AccountWindow("", "5h", 0.832, 0.0).words
        '5h window 83 % used (reported)'
        """
        return f"{self.name} window {self.fraction:.0%} used ({self.certainty.value})".replace("%", " %")


@dataclass(frozen=True, slots=True)
class UsageHold:
    """Nothing starts until then, but asks of a priority above ``open_above``."""

    until: float
    open_above: int
    window: AccountWindow
    """The fullest of those that hold."""


def fold_readings(
    known: Sequence[AccountWindow], readings: Iterable[WindowReading], now: float
) -> tuple[AccountWindow, ...]:
    """The newest word on each window, those that are over left out."""
    found = {(each.account, each.name): each for each in known}
    for reading in readings:
        at = now - max(0.0, reading.age_s)
        resets_at = at + reading.resets_in_s if reading.resets_in_s is not None else None
        window = AccountWindow(
            reading.account, reading.name, reading.fraction, at, resets_at, reading.certainty
        )
        before = found.get((window.account, window.name))
        if before is None or window.at >= before.at:
            found[window.account, window.name] = window
    newest = sorted(current_windows(found.values(), now), key=lambda each: each.at)[-WINDOWS_KEPT:]
    return tuple(sorted(newest, key=lambda each: (each.account, each.name)))


def current_windows(windows: Iterable[AccountWindow], now: float) -> list[AccountWindow]:
    return [each for each in windows if now < each.over_at]


def fullest(windows: Iterable[AccountWindow], pool: str, now: float) -> AccountWindow | None:
    """Of those that a pool's asks draw on."""
    concerned = (each for each in current_windows(windows, now) if each.concerns(pool))
    return max(concerned, key=lambda each: each.fraction, default=None)


def usage_hold(
    windows: Sequence[AccountWindow], s: PoolSettings, *, pool: str, now: float
) -> UsageHold | None:
    """What must not start now, if anything."""
    concerned = [each for each in current_windows(windows, now) if each.concerns(pool)]
    rules = [(s.usage_drain, PRIORITY_LIMIT)] if s.usage_drain else []
    rules += [(1 - s.usage_keep, 0)] if s.usage_keep else []
    for begin, open_above in rules:
        holding = [each for each in concerned if each.fraction >= begin]
        if holding:
            # All that hold must be over before anything starts.
            until = max(each.over_at for each in holding)
            return UsageHold(until, open_above, max(holding, key=lambda each: each.fraction))
    return None


def slowed_cap(cap: int, windows: Sequence[AccountWindow], s: PoolSettings, *, pool: str, now: float) -> int:
    """How many at once, with the windows as full as they are."""
    full = fullest(windows, pool, now)
    if not s.usage_slow or full is None:
        return cap
    ends = [part for part in (s.usage_drain, 1 - s.usage_keep) if s.usage_slow < part]
    return narrow_width(cap, full.fraction, begin=s.usage_slow, end=min([*ends, 1.0]))


def narrow_width(width: int, fraction: float, *, begin: float, end: float) -> int:
    """A width that shrinks in a straight line, never below 1.

    >>> [narrow_width(10, part, begin=0.8, end=0.9) for part in (0.79, 0.8, 0.85, 0.899, 0.95)]
    [10, 10, 5, 1, 1]
    """
    if fraction <= begin:
        return width
    # A hair below a whole number is that number: 0.85 lies halfway between 0.8 and 0.9.
    return min(width, max(1, math.floor(width * (end - fraction) / (end - begin) + 1e-9)))
