"""A quota that is not declared and that no header reports, found out from its refusals alone.

An empty bucket refuses whatever the load, so a controller of concurrency misreads it. What gives it away
is *inversion*: a call is refused with so many in flight, and moments later calls are served with as many
or more. Seats do not do that; their number changes now and then, not every few seconds.

Once that is seen again and again, the refill follows: the work accepted between two empty moments,
divided by the time between them, is always the same number. From then on work is paced by an *estimated
window*: empty at the last refusal, refilled at the estimate and a little more. The little more grows
while nothing is refused, so a raised quota is found; a little less at the start builds a cushion, so that
the overdraft is met by it and not by refusals. Over a whole cycle everything that was refilled is spent.

Refusals that go on in spite of the pacing refute it: it is given up, and not tried again for a while.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from flyball.core.pool.learned import NEVER
from flyball.core.pool.rate_window import Source, Window

STRAIGHT = 0.04
"""How far the work accepted may stray from a straight line over time, as a part of all of it."""
CROOKED_CALLS = 2.0
LEAST_EMPTIES = 5
LEAST_GAP_S, LEAST_SPAN_S = 4.0, 20.0
"""Between two empty moments, and between the first and the last: less holds too few calls to tell."""
LEAST_REQUESTS = 20.0
SAME_MOMENT_S = 1.0
"""Refusals closer than this are one empty moment, however many calls met it."""
CHANGED = 0.15
CUSHION_S, SAVING = 10.0, 0.25
"""After an empty moment this part of the refill is saved until so many seconds' worth lie in the bucket."""
OVERDRAFT, OVERDRAFT_PER_MIN, OVERDRAFT_PER_MIN2 = 0.002, 0.0015, 0.0008
SOON_HOLDS, LATELY_HOLDS = 1.5, 12.0
INVERSIONS, INVERTED_HOLDS = 2, 20.0
DEEP, DEEP_HOLDS = 2.0, 8.0
"""Served with so many times as much in flight, it may come later and still be an inversion."""
FEW_REQUESTS = 60.0
"""So many inversions lately, each so soon after its refusal (in usual holds), and it is not a matter of
seats."""
LATE_MIN, LATE_PER_MIN = 6.0, 0.1
SPREAD = 0.75
NEARLY_FULL, FULL_REFUTES = 0.85, 3
REFUTING, REFUTING_S = 6, 40.0
"""So many refusals in a row, each before the cushion could be spent, and it was not a quota."""
GIVEN_UP_S = 900.0
KEPT = 8


@dataclass(frozen=True, slots=True)
class ExhaustedAt:
    """One empty moment: when, and how much of each unit had been accepted until then."""

    at: float
    work: Mapping[str, float]
    in_flight: float = 0.0
    """The refused call included."""


@dataclass(frozen=True, slots=True)
class Quota:
    """What is suspected, and once it is clear, what is believed."""

    empties: tuple[ExhaustedAt, ...] = ()
    unit: str = ""
    """The unit that the refill is counted in; empty while nothing is believed."""
    per_s: float = 0.0
    anchor_at: float = 0.0
    """The last empty moment: the window starts from it."""
    first: ExhaustedAt | None = None
    """The first empty moment of the present belief: the longer the span, the better the estimate."""
    recent: tuple[float, ...] = ()
    full: int = 0
    """Refusals in a row, under pacing, of calls that found the level nearly full: as seats would refuse."""
    given_up_until: float = 0.0
    refused_at: float = NEVER
    refused_level: float = 0.0
    """The last refusal that was not a probe's: when, and how much was in flight, the refused call
    included."""
    inversions: tuple[float, ...] = ()

    @property
    def believed(self) -> bool:
        return self.per_s > 0


def on_refusal(
    quota: Quota,
    *,
    work: Mapping[str, float],
    in_flight: float,
    named: bool,
    hold_s: float,
    now: float,
    level: float = float("inf"),
) -> Quota:
    """A call that was not a probe was refused, with so much of ``level`` in flight. ``named``: the provider
    itself said that it is a quota."""
    if quota.believed:
        if quota.recent and now - quota.recent[-1] < SAME_MOMENT_S:
            return replace(quota, anchor_at=now)
        full = quota.full + 1 if in_flight >= NEARLY_FULL * level and not named else 0
        if full >= FULL_REFUTES:
            return Quota(given_up_until=now + GIVEN_UP_S)
        return _correct_estimate(replace(quota, full=full), work, now)
    if now < quota.given_up_until:
        return quota
    if (
        now - quota.refused_at > SOON_HOLDS * hold_s
        or quota.refused_level == 0
        or in_flight < quota.refused_level
    ):
        quota = replace(quota, refused_at=now, refused_level=in_flight)
    if not quota.empties or now - quota.empties[-1].at >= LEAST_GAP_S:
        quota = replace(quota, empties=(*quota.empties, ExhaustedAt(now, dict(work), in_flight))[-KEPT:])
    since = now - LATELY_HOLDS * hold_s
    inverted = sum(at >= now - INVERTED_HOLDS * hold_s for at in quota.inversions) >= INVERSIONS
    return _find_quota(quota, since, now, named=named) if named or inverted else quota


def on_success(quota: Quota, *, high: float, hold_s: float, now: float) -> Quota:
    """Calls sent after the last refusal were served; ``high`` is the most that was in flight with one of
    them."""
    if high < quota.refused_level or quota.refused_level == 0 or quota.believed:
        return quota
    inverted, holds = quota.inversions, (now - quota.refused_at) / hold_s if hold_s > 0 else 0.0
    deep = high >= DEEP * quota.refused_level
    if holds <= 1 + (DEEP_HOLDS if deep else SOON_HOLDS):
        inverted = (*inverted, now)[-INVERSIONS:]
    elif holds <= 1 + DEEP_HOLDS:
        # Too late for so little; it may still become deep.
        return quota
    return replace(quota, refused_level=0.0, inversions=inverted)


def _find_quota(quota: Quota, since: float, now: float, *, named: bool) -> Quota:
    # Over a long time everything lies on a line.
    done = quota.empties[-1].work["requests"] if quota.empties else 0.0
    empties = tuple(
        empty for empty in quota.empties if empty.at >= since or done - empty.work["requests"] <= FEW_REQUESTS
    )
    if len(empties) < LEAST_EMPTIES:
        return quota
    levels = [empty.in_flight for empty in empties]
    if not named and min(levels) > SPREAD * max(levels):
        # Refused with about as many in flight each time: that is what seats do.
        return quota
    for first in range(len(empties) - LEAST_EMPTIES + 1):
        found = _straightest_unit(empties[first:])
        if found is not None:
            unit, per_s = found
            return replace(quota, unit=unit, per_s=per_s, anchor_at=now, first=empties[first], recent=(now,))
    return quota


def _straightest_unit(empties: tuple[ExhaustedAt, ...]) -> tuple[str, float] | None:
    """The unit whose accepted work grew in the straightest line from empty to empty, and how fast."""
    start, end = empties[0], empties[-1]
    span_s = end.at - start.at
    requests = end.work["requests"] - start.work["requests"]
    if span_s < LEAST_SPAN_S or requests < LEAST_REQUESTS:
        return None
    # An empty bucket may still hold a little less than one call needs, so few calls make a crooked line.
    straight = STRAIGHT + CROOKED_CALLS / requests
    best: tuple[float, str, float] | None = None
    for unit in end.work:
        total = end.work[unit] - start.work[unit]
        if total <= 0:
            continue
        per_s = total / span_s
        strays = (abs(e.work[unit] - start.work[unit] - per_s * (e.at - start.at)) for e in empties[1:-1])
        stray = max(strays) / total
        if stray <= straight and (best is None or stray < best[0]):
            best = (stray, unit, per_s)
    return (best[1], best[2]) if best is not None else None


def _correct_estimate(quota: Quota, work: Mapping[str, float], now: float) -> Quota:
    soon = now - quota.anchor_at <= REFUTING_S
    recent = (*quota.recent, now) if soon else (now,)
    if len(recent) > REFUTING:
        return Quota(given_up_until=now + GIVEN_UP_S)
    if now - quota.anchor_at >= LEAST_GAP_S:
        quota = replace(quota, empties=(*quota.empties, ExhaustedAt(now, dict(work)))[-KEPT:])
    first = quota.first or ExhaustedAt(now, dict(work))
    span_s, per_s = now - first.at, quota.per_s
    if span_s >= LEAST_SPAN_S:
        per_s = (work[quota.unit] - first.work[quota.unit]) / span_s
    if abs(per_s / quota.per_s - 1) > CHANGED:
        # Not the number it was: count anew from here.
        first = ExhaustedAt(now, dict(work))
    # The more empty moments there are, the clearer it is what is being counted.
    unit, per_s = _straightest_unit(quota.empties) or (quota.unit, per_s)
    return replace(quota, unit=unit, per_s=per_s, anchor_at=now, first=first, recent=recent)


def estimated_window(quota: Quota, now: float) -> Window:
    """The window to pace by, right after an empty moment.

    Idle time earns a few seconds' worth, not more: whether the bucket was full is the provider's to know. A
    call that needs more than that waits for all of it, and is paid off afterwards.
    """
    limit, refill_per_s = quota.per_s * CUSHION_S, quota.per_s * (1 - SAVING)
    return Window(quota.unit, limit, refill_per_s, 0.0, now, Source.ESTIMATED, seen_sent_at=now)


def with_refill_at(window: Window, quota: Quota, now: float) -> Window:
    """The same window with the refill that is right for the time since the last empty moment."""
    limit, refill = quota.per_s * CUSHION_S, quota.per_s * _pace(now - quota.anchor_at)
    return replace(window, limit=limit, refill_per_s=refill, level=min(limit, window.level_at(now)), at=now)


def _pace(since_s: float) -> float:
    minutes = (since_s - CUSHION_S / SAVING) / 60
    if minutes < 0:
        return 1 - SAVING
    # Long without a refusal, the belief is losing its point.
    late = LATE_PER_MIN * max(0.0, minutes - LATE_MIN)
    return 1 + OVERDRAFT + OVERDRAFT_PER_MIN * minutes + OVERDRAFT_PER_MIN2 * minutes**2 + late


def with_estimated_window(windows: tuple[Window, ...], quota: Quota, now: float) -> tuple[Window, ...]:
    """The windows with the estimated one in step with what is believed."""
    paced = next((window for window in windows if window.source is Source.ESTIMATED), None)
    if paced is None and not quota.believed:
        return windows
    others = tuple(window for window in windows if window.source is not Source.ESTIMATED)
    if not quota.believed:
        return others
    if paced is None or paced.name != quota.unit or quota.anchor_at == now:
        return (*others, estimated_window(quota, now))
    return (*others, with_refill_at(paced, quota, now))
