"""What a controller is: it estimates a level, and never enforces one.

The plan asks it and admission enforces the result, within the floor and the ceiling that a person set: a
controller that goes wrong cannot exceed the hard maximum. A controller keeps nothing itself. What it learned
travels in ``CapState`` (its own part of it under its own name), so one controller serves a pool for all
processes, and a pool can change controllers.

Two events reach it: a signal that asks for fewer calls (``on_signal``), and the passing of time with
successes (``on_usage``). Both come with everything it may know; there is no clock here. ``cap_for`` and
``count_throttle`` are the same for all controllers, and what a controller has nothing special to say of is
answered by ``Controller`` itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from flyball.core.pool.learned import CapEvent, CapState
from flyball.core.pool.settings import PoolSettings
from flyball.core.signals import Signal


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalContext:
    """One signal, whose it is, and the call that it answers."""

    signal: Signal
    now: float
    in_use: int
    pool: str = ""
    project: str = ""
    name: str = ""
    claim_id: int | None = None
    sent_at: float | None = None
    """When the call that it answers was admitted; None where a long run merely mentions it."""
    in_flight: int | None = None
    """Slots in use right after that call was admitted, its own included."""
    hold_mean_s: float = 0.0
    work: Mapping[str, float] | None = None
    """What was accepted so far, by unit; None while it is not counted."""
    explained: bool = False
    """A window that we mirror was empty, so the refusal says nothing about how much may be in flight."""


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

    @property
    def level_is_too_small(self) -> bool:
        """Nothing runs, and still an ask waits for slots: it wants more than the whole level has."""
        return self.bound_now and self.in_use == 0


@dataclass(frozen=True, slots=True)
class BreakerTimes:
    """How long the breaker stays open (first, and at most), and how long a trial must be clean."""

    break_s: float
    break_max_s: float
    trial_clean_s: float


CapChange = tuple[CapState, CapEvent]
"""The state after a signal, and what the signal did to the cap."""
AIMD_TUNING = frozenset(
    {"step", "cut_factor", "burst_factor", "burst_count", "burst_window_s", "settle_s", "probe_s"}
    | {"trip_cuts", "trip_window_s"}
)
TUNING = AIMD_TUNING | {"confirm_s"}
"""Settings that matter to some controllers only. The others find such times out, or need none."""


class Controller(Protocol):
    """Pure. Every method takes the state and returns the next one.

    Derive from it: what has an answer here is that of a controller that probes nothing and suspects no quota.
    """

    name: str
    by_success: bool
    """Its level grows by successes, so the plan is recomputed soon after one."""
    tuned_by: frozenset[str]
    """The settings of ``TUNING`` that it is tuned with."""

    def on_signal(self, state: CapState, s: PoolSettings, context: SignalContext) -> CapChange:
        """Take in a throttle, an overload or a timeout."""

    def on_usage(self, state: CapState, s: PoolSettings, usage: UsageSample) -> CapState:
        """Take in successes and the passing of time: the level may grow."""

    def freeze(self, state: CapState, s: PoolSettings, now: float) -> CapState:
        """Near the limit, or slow: stop growing for a while, do not cut."""

    def resume(self, state: CapState, s: PoolSettings, now: float) -> CapState:
        """The breaker closes after a clean trial."""

    def next_move_at(self, state: CapState, s: PoolSettings, now: float) -> float | None:
        """When time alone could change the level next; None where it cannot."""

    def trip_reason(self, state: CapState, s: PoolSettings, event: CapEvent) -> str:
        """Why the breaker must open after ``event``; empty if it need not."""

    def binds_one_call(self, state: CapState, s: PoolSettings, context: SignalContext) -> bool:  # noqa: ARG002
        """Whether this refusal is about its own call alone. It answers a probe, or a call from before the
        last cut: the others are being served, and its Retry-After is not theirs."""
        return False

    def shortens_wait(self, state: CapState, s: PoolSettings, context: SignalContext) -> bool:  # noqa: ARG002
        """Whether it pauses for less than the Retry-After of this refusal and then tries one call: what one
        call was told may be meant for it alone."""
        return False

    def blames_quota(self, state: CapState, s: PoolSettings, context: SignalContext) -> bool:  # noqa: ARG002
        """Whether a quota may be behind this refusal. Not if it binds one call."""
        return False

    def confirmed_level(self, state: CapState) -> float:  # noqa: ARG002
        """The level known to be served at present; 0 where that is not known."""
        return 0.0

    def undo_refusals(self, state: CapState, s: PoolSettings, now: float) -> CapState:  # noqa: ARG002
        """The refusals came from a quota: take back what they did to the level."""
        return state

    def breaker_times(self, state: CapState, s: PoolSettings, hold_mean_s: float) -> BreakerTimes:  # noqa: ARG002
        """The times of the settings, or such as suit work that is held for so long."""
        return BreakerTimes(s.break_s, s.break_max_s, s.trial_clean_s)


HISTORY_LIMIT = 64


def cap_for(state: CapState, s: PoolSettings) -> int:
    """The whole number of slots the level stands for."""
    if not s.adapts:
        return s.cap
    # Bounded before it is rounded: whatever a controller says, even NaN, stands for some cap.
    return int(max(float(s.cap_floor), min(state.level, float(s.cap_ceiling))))


def clamp_level(state: CapState, s: PoolSettings) -> CapState:
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
