"""What a controller is: it estimates a level, and never enforces one.

The plan asks, the gate enforces, within the floor and the ceiling a person set: a controller that goes
mad cannot exceed the hard maximum. A controller keeps nothing itself. What it learned travels in
``CapState`` (its own part of it under its own name), so one controller serves a pool for all processes,
and a pool can change controllers.

Two events reach it: something was *heard* (a signal that asks for fewer), or time passed and successes were
*seen*. Both come with everything it may know; there is no clock here.

How many slots a learned level stands for, and the count of throttles every controller keeps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from flyball.core.pool.learned import CapEvent, CapState
from flyball.core.pool.settings import PoolSettings
from flyball.core.signals import Signal


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalContext:
    """One signal that asks for fewer, and the call it answers."""

    signal: Signal
    now: float
    in_use: int
    project: str = ""
    name: str = ""
    sent_at: float | None = None
    """When the call was admitted that this answers; None where a long run merely mentions it."""
    in_flight: int | None = None
    """Slots in use right after that call was admitted, its own included."""
    hold_mean_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageSample:
    """What happened since the last plan."""

    now: float
    in_use: int
    bound_now: bool
    """The cap is what limits work at this moment."""
    bound_at: float
    """The last time an admission filled the cap."""
    bound_oks: int
    """Calls that succeeded while the cap was full."""
    hold_mean_s: float = 0.0


@dataclass(frozen=True, slots=True)
class BreakerTimes:
    """How long the breaker stays open (first, and at most), and how long a trial must be clean."""

    break_s: float
    break_max_s: float
    trial_clean_s: float


AIMD_TUNING = frozenset(
    {"step", "cut_factor", "burst_factor", "burst_count", "burst_window_s", "settle_s", "probe_s"}
    | {"trip_cuts", "trip_window_s"}
)
TUNING = AIMD_TUNING | {"confirm_s"}
"""Settings that matter to some controllers only. The others find such times out, or need none."""


class Controller(Protocol):
    """Pure. Every method takes the state and returns the next one."""

    name: str
    by_success: bool
    """Its level grows by successes: it wants to see them soon, not when the plan gets old."""
    heeds: frozenset[str]
    """The settings of ``TUNING`` that it is tuned with."""

    def hear(self, state: CapState, s: PoolSettings, heard: SignalContext) -> tuple[CapState, CapEvent]:
        """Take in a throttle, an overload or a timeout; what it did."""

    def see(self, state: CapState, s: PoolSettings, seen: UsageSample) -> CapState:
        """Take in successes and the passing of time: where a level grows."""

    def freeze(self, state: CapState, s: PoolSettings, now: float) -> CapState:
        """Near the limit, or slow: stop growing for a while, do not cut."""

    def resume(self, state: CapState, s: PoolSettings, now: float) -> CapState:
        """The breaker closes after a clean trial."""

    def next_move_at(self, state: CapState, s: PoolSettings, now: float) -> float | None:
        """When time alone could change the level next; None where it cannot."""

    def trips(self, state: CapState, s: PoolSettings, event: CapEvent) -> str:
        """Why the breaker must open after ``event``; empty if it need not."""

    def binds_one_call(self, state: CapState, s: PoolSettings, heard: SignalContext) -> bool:
        """Is this refusal about its own call alone? It answers a probe, or a call from before the last cut:
        the others are being served, and its Retry-After is not theirs."""

    def blames_quota(self, state: CapState, s: PoolSettings, heard: SignalContext) -> bool:
        """May a quota be behind this refusal? Not if it binds one call."""

    def firm(self, state: CapState) -> float:
        """The level known to be served at present; 0 where nobody knows."""

    def forgive(self, state: CapState, s: PoolSettings, now: float) -> CapState:
        """It was a quota: take back what its refusals did to the level."""

    def breaker_times(self, state: CapState, s: PoolSettings, hold_mean_s: float) -> BreakerTimes: ...


HISTORY_LIMIT = 64


def cap_of(state: CapState, s: PoolSettings) -> int:
    """The whole number of slots the level stands for."""
    if not s.adapts:
        return s.cap
    # Bounded before it is rounded: whatever a controller says, even no number, stands for some cap.
    return int(max(float(s.cap_floor), min(state.level, float(s.cap_ceiling))))


def within(state: CapState, s: PoolSettings) -> CapState:
    """The bounds may have moved since the level was learned; what counts is the cap it stands for."""
    level = max(float(s.cap_floor), min(state.level, float(s.cap_ceiling)))
    return state if level == state.level else replace(state, level=level)


def count_throttle(state: CapState, s: PoolSettings, *, project: str, name: str, now: float) -> CapState:
    """Remember a throttle without acting on it."""
    recent = [t for t in state.throttles if now - t[0] <= s.burst_window_s]
    recent.append((now, project, name))
    return replace(
        state,
        throttles=tuple(recent[-HISTORY_LIMIT:]),
        throttle_count=state.throttle_count + 1,
        last_throttle_at=now,
    )
