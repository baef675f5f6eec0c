"""Stops admission after repeated throttles, then lets one trial through.

    closed --trip-----> open     a throttle at the floor, or three cuts in the trip window
    open   --elapsed--> trial    the break is over: the next admitted ask is the trial
    trial  --clean----> closed   a clean period, or a clean end, of the trial
    trial  --throttled> open     break doubled
    trial  --vanished-> open     break doubled: the outcome of the trial will never be known

Everything not in ``TRANSITIONS`` is a bug. Running work is never touched: the breaker only decides
what starts next. A trial is judged after a short clean period, not at its end, so an agent that
works for hours does not keep the pool shut.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from flyball.core.pool.model import Phase
from flyball.errors import invariant


class BreakerEvent(Enum):
    TRIP = "trip"
    ELAPSED = "elapsed"
    CLEAN = "clean"
    THROTTLED = "throttled"
    VANISHED = "vanished"


TRANSITIONS: Mapping[tuple[Phase, BreakerEvent], Phase] = {
    (Phase.CLOSED, BreakerEvent.TRIP): Phase.OPEN,
    (Phase.OPEN, BreakerEvent.ELAPSED): Phase.TRIAL,
    (Phase.TRIAL, BreakerEvent.CLEAN): Phase.CLOSED,
    (Phase.TRIAL, BreakerEvent.THROTTLED): Phase.OPEN,
    (Phase.TRIAL, BreakerEvent.VANISHED): Phase.OPEN,
}


@dataclass(frozen=True, slots=True)
class BreakerState:
    """Where the breaker of a pool stands."""

    phase: Phase = Phase.CLOSED
    open_until: float = 0.0
    reopens: int = 0
    """Times it re-opened since it last closed cleanly; doubles the break."""
    since: float = 0.0
    why: str = ""


FLAPPING_REOPENS = 2


def step(
    state: BreakerState,
    event: BreakerEvent,
    *,
    now: float,
    break_s: float = 0.0,
    break_max_s: float = 0.0,
    why: str = "",
) -> BreakerState:
    """The state after ``event``; raises InvariantError for one the table does not list.

    ``break_s`` and ``break_max_s`` matter where it opens: how long at first, and how long at most.
    """
    key = (state.phase, event)
    invariant(key in TRANSITIONS, f"breaker: no transition from {state.phase.value} on {event.value}")
    phase = TRANSITIONS[key]
    if phase is Phase.CLOSED:
        return BreakerState(since=now)
    if phase is Phase.TRIAL:
        return replace(state, phase=phase, since=now)
    reopens = state.reopens if event is BreakerEvent.TRIP else state.reopens + 1
    # 2**reopens is bounded before it can overflow a float.
    open_s = min(break_max_s, break_s * 2.0 ** min(reopens, 64))
    return BreakerState(phase, now + open_s, reopens, now, why)
