"""Budgets over time: requests per minute, tokens per minute, and other quotas that refill.

A window is a bucket that refills steadily. A call *takes* its estimate when it starts, is *reconciled* with
what it really used, and gets everything *refunded* if it was rejected: a rejected call uses nothing.

Where a window comes from:

    declared    a person said it: ``requests=60/min``
    reported    the provider's headers say limit and remaining; we keep a mirror of its bucket
    estimated   the provider says nothing but 429: the refill is what was accepted between two empty moments

The mirror is exact without a log. Each start notes the running total of work sent (``mark``); an answer says
what was left when *its* request arrived; what was sent since is the total minus the mark:

    level now = remaining then - (total - mark) + refill x time since

Only the answer to the newest request counts, and a tenth of the bucket's size is left alone: others may
draw on the same quota, and a level near zero turns every misjudged token into a rejection.

What such an answer says already contains every request sent before it, used or refused. So what an older one
gives back or used beyond its estimate no longer changes the mirror.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from flyball.core.pool.learned import NEVER
from flyball.core.signals import Bucket, Signal
from flyball.errors import UsageError

LEVEL_RESERVE = 0.10
"""The part of a reported bucket that is never spent: of its size, not of its rate, so it costs nothing
later."""
MINUTE_S = 60.0
OTHERS_S = 15.0
"""Over about this long the use of others is averaged; it comes and goes."""
LEAST_NET = 0.1
FULL_AGAIN_S = (0.5, 31 * 86400.0)
"""A reset outside this range says nothing about the refill."""
SMOOTHING = 0.2
REQUESTS = "requests"


class Source(Enum):
    DECLARED = "declared"
    REPORTED = "reported"
    ESTIMATED = "estimated"


@dataclass(frozen=True, slots=True)
class Window:
    """One budget. ``level`` is what was left at ``at``; ``spent`` only ever counts."""

    name: str
    limit: float
    refill_per_s: float
    level: float
    at: float
    source: Source = Source.DECLARED
    spent: float = 0.0
    seen_sent_at: float = NEVER
    """When the request was sent whose answer last corrected the level."""
    seen_level: float = 0.0
    seen_spent: float = 0.0
    """What that answer said was left, and our total when its request went out."""
    others_per_s: float = 0.0
    """How fast others draw on the same bucket, as far as two answers tell."""

    @property
    def net_per_s(self) -> float:
        """What the refill leaves to us. Never 0: others may stop, and only trying tells."""
        return max(self.refill_per_s * LEAST_NET, self.refill_per_s - self.others_per_s)

    def owes(self, sent_at: float, mark: Mapping[str, float]) -> bool:
        """Whether the level still lacks what a call reserved that was sent then, with these marks."""
        return self.name in mark and sent_at > self.seen_sent_at

    @property
    def reserve(self) -> float:
        return self.limit * LEVEL_RESERVE if self.source is Source.REPORTED else 0.0

    def level_at(self, now: float) -> float:
        return min(self.limit, self.level + self.net_per_s * max(0.0, now - self.at))

    def room_at(self, cost: float, now: float) -> float:
        """The earliest time at which ``cost`` fits. A cost larger than the bucket waits for a full one."""
        needed = min(cost + self.reserve, self.limit)
        missing = needed - self.level_at(now)
        if missing <= 1e-9:
            return now
        return now + missing / self.net_per_s if self.refill_per_s > 0 else float("inf")

    def after_spending(self, cost: float, now: float) -> Window:
        """After ``cost`` was spent; a negative cost gives back."""
        level = min(self.limit, self.level_at(now) - cost)
        return replace(self, level=level, at=now, spent=self.spent + cost)


Cost = Mapping[str, float]
"""What a call is expected to use of each window, by name. Requests need not be named: a call is one."""


def declared_window(name: str, amount: float, per_s: float, now: float) -> Window:
    """A window a person named: ``amount`` in every ``per_s`` seconds, full to begin with."""
    if not amount > 0 or not per_s > 0:
        raise UsageError(
            f"window {name!r} needs an amount and a period above 0, not {amount:g} per {per_s:g} s"
        )
    return Window(name, float(amount), amount / per_s, float(amount), now)


def parse_rate(text: str) -> tuple[float, float]:
    """``60/min``, ``80k/min``, ``5/s``, ``2M/5h``: how much, and in how many seconds.

    >>> parse_rate("80k/min")
    (80000.0, 60.0)
    """
    found = _RATE.fullmatch(str(text).strip())
    if found is None:
        raise UsageError(f"cannot read {text!r} as a rate; write it as 60/min, 80k/min or 2M/5h")
    number, thousands, count, unit = found.groups()
    amount = float(number) * {"": 1, "k": 1e3, "M": 1e6}[thousands or ""]
    return amount, float(count or 1) * {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}[unit]


_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kM]?)\s*/\s*([0-9]+)?\s*(s|min|h|d)")


def declare(windows: tuple[Window, ...], rates: Mapping[str, str], now: float) -> tuple[Window, ...]:
    """The windows with those a person declared, and without those declared no longer."""
    if not rates and all(window.source is not Source.DECLARED for window in windows):
        return windows
    known = {window.name: window for window in windows if window.source is Source.DECLARED}
    # What a person said replaces what headers say. An estimate was made in spite of what a person said.
    others = [
        window
        for window in windows
        if window.source is Source.ESTIMATED
        or (window.source is Source.REPORTED and window.name not in rates)
    ]
    return (*(_redeclare(known.get(name), name, rates[name], now) for name in sorted(rates)), *others)


def _redeclare(window: Window | None, name: str, text: str, now: float) -> Window:
    fresh = declared_window(name, *parse_rate(text), now)
    if window is None or (window.limit == fresh.limit and window.refill_per_s == fresh.refill_per_s):
        return window or fresh
    # What was spent stays spent; only the size and the refill are new.
    missing = window.limit - window.level_at(now)
    return replace(fresh, level=fresh.limit - missing, spent=window.spent)


def cost_in(window: Window, cost: Cost) -> float:
    return cost.get(window.name, 1.0 if window.name == REQUESTS else 0.0)


def room_at(windows: Iterable[Window], cost: Cost, now: float) -> tuple[float, str]:
    """When all windows have room at once, and which one is last; (now, "") where there is room."""
    latest, last = now, ""
    for window in windows:
        at = window.room_at(cost_in(window, cost), now)
        if at > latest:
            latest, last = at, window.name
    return latest, last


def take(windows: Sequence[Window], cost: Cost, now: float) -> tuple[Window, ...]:
    return tuple(window.after_spending(cost_in(window, cost), now) for window in windows)


def marks(windows: Iterable[Window]) -> dict[str, float]:
    """To be kept with the call: how much had been sent when it went out."""
    found: dict[str, float] = {}
    for window in windows:
        if window.source is Source.REPORTED or window.name not in found:
            found[window.name] = window.spent
    return found


def reconcile(
    windows: Sequence[Window],
    reserved: Cost,
    actual: Cost,
    *,
    sent_at: float,
    mark: Mapping[str, float],
    now: float,
) -> tuple[Window, ...]:
    """Correct what a call reserved by what it used. ``actual`` names only what is known."""
    return tuple(
        window.after_spending(actual[window.name] - cost_in(window, reserved), now)
        if window.name in actual and window.owes(sent_at, mark)
        else window
        for window in windows
    )


def refund(
    windows: Sequence[Window], reserved: Cost, *, sent_at: float, mark: Mapping[str, float], now: float
) -> tuple[Window, ...]:
    """A rejected call used nothing."""
    return tuple(
        window.after_spending(-cost_in(window, reserved), now) if window.owes(sent_at, mark) else window
        for window in windows
    )


def explains(windows: Iterable[Window], signal: Signal, cost: Cost) -> bool:
    """Whether the answer's own headers say that a quota had no room for this call. Only one that we mirror,
    and so wait for, explains a refusal."""
    mirrored = {window.name for window in windows if window.source is Source.REPORTED}
    return any(
        bucket.name in mirrored and bucket.remaining < cost.get(bucket.name, 1.0) for bucket in signal.buckets
    )


def learn(
    windows: Sequence[Window],
    buckets: Iterable[Bucket],
    *,
    sent_at: float,
    mark: Mapping[str, float],
    now: float,
) -> tuple[Window, ...]:
    """Mirror what an answer's headers say. Declared windows stay as the person wrote them."""
    fixed = {window.name for window in windows if window.source is Source.DECLARED}
    known = {window.name: window for window in windows if window.source is Source.REPORTED}
    for bucket in buckets:
        window = known.get(bucket.name)
        found = _mirror(window, bucket, sent_at, mark.get(bucket.name), now)
        if found is not None and bucket.name not in fixed:
            known[bucket.name] = found
    return (*(window for window in windows if window.source is not Source.REPORTED), *known.values())


def _mirror(
    window: Window | None, bucket: Bucket, sent_at: float, mark: float | None, now: float
) -> Window | None:
    limit = bucket.limit or (window.limit if window else None)
    if limit is None or limit <= 0 or (window is not None and sent_at < window.seen_sent_at):
        return None
    refill = _refill_per_s(window, bucket, limit)
    spent = window.spent if window is not None else 0.0
    sent_since = max(0.0, spent - (mark if mark is not None else spent))
    left = bucket.remaining
    if left <= 0 and bucket.reset_s is not None:
        # Nothing left may mean less than nothing: the time until it is full again says how much less.
        left = min(left, limit - bucket.reset_s * refill)
    others = _others_per_s(window, left, sent_at, mark, refill)
    since_s = max(0.0, now - sent_at)
    level = min(limit, left - sent_since + max(refill * LEAST_NET, refill - others) * since_s)
    return Window(
        bucket.name,
        limit,
        refill,
        level,
        now,
        Source.REPORTED,
        spent,
        sent_at,
        seen_level=left,
        seen_spent=mark if mark is not None else spent,
        others_per_s=others,
    )


def _others_per_s(
    window: Window | None, left: float, sent_at: float, mark: float | None, refill: float
) -> float:
    """Between two answers the level should have moved by the refill and our own use; the rest was others."""
    if window is None or window.seen_sent_at <= NEVER or mark is None:
        return 0.0
    span_s = sent_at - window.seen_sent_at
    if span_s <= 0:
        return window.others_per_s
    ours = mark - window.seen_spent
    expected = min(window.limit, window.seen_level + refill * span_s) - ours
    drawn_per_s = max(0.0, expected - left) / span_s
    return window.others_per_s + (drawn_per_s - window.others_per_s) * min(1.0, span_s / OTHERS_S)


def _refill_per_s(window: Window | None, bucket: Bucket, limit: float) -> float:
    """As the provider says; from the time until it is full again, where that is long enough to tell; else a
    minute's worth."""
    if bucket.window_s is not None and FULL_AGAIN_S[0] <= bucket.window_s <= FULL_AGAIN_S[1]:
        return limit / bucket.window_s
    usual = window.refill_per_s if window is not None and window.limit == limit else limit / MINUTE_S
    missing, reset_s = limit - bucket.remaining, bucket.reset_s
    if reset_s is None or missing < 0.05 * limit or not FULL_AGAIN_S[0] <= reset_s <= FULL_AGAIN_S[1]:
        return usual
    told = missing / reset_s
    # Whole seconds in a reset make single figures coarse.
    return usual + (told - usual) * SMOOTHING if window is not None else told
