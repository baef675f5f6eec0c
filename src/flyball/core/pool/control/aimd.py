"""How many slots are usable now: additive increase, multiplicative decrease, with a memory.

The controller climbs until the provider says stop, cuts, remembers the level that failed, returns
quickly to just under it and probes slowly beyond it.

    throttle, not settling        cut by 2; by 4 when it is a burst of distinct tasks
    throttle, settling after a cut     only counted; if it turns the cut into a burst, the cut deepens once
    throttle, settling after a probe   the probe is undone at once
    throttle at the floor         nothing left to cut: the breaker's business
    quiet, below the failed level      half the distance to just under it, once per settle
    quiet, at or beyond it        one step per probe period

Cuts that follow each other without the cap coming back in between are a fall; three of them are the breaker's
business too. A cut at the level that failed before is the ordinary sawtooth and starts the count anew.

Two rules keep growth honest: the cap grows only while it is what limits work (an idle pool proves
nothing), and every change is followed by a settle, so that decisions are made against work that
was admitted under the current cap.
"""

from __future__ import annotations

import math
from dataclasses import replace

from flyball.core.pool.control.port import (
    AIMD_TUNING,
    HISTORY_LIMIT,
    CapChange,
    Controller,
    SignalContext,
    UsageSample,
    cap_for,
    clamp_level,
    count_throttle,
)
from flyball.core.pool.learned import CapEvent, CapState, CooldownState
from flyball.core.pool.settings import Growth, PoolSettings
from flyball.core.pool.verdict import span_words


def on_throttle(state: CapState, s: PoolSettings, *, project: str, name: str, now: float) -> CapChange:
    """Fold one throttle into the cap."""
    state = count_throttle(clamp_level(state, s), s, project=project, name=name, now=now)
    settling = now < state.settle_until
    burst = len({(p, n) for _, p, n in state.throttles}) >= s.burst_count
    if settling and state.settling is CooldownState.CUT:
        return _deepen(state, s, now) if burst else (state, CapEvent.COUNTED)
    if settling and state.settling is CooldownState.PROBE and state.grew_by > 0:
        undone = max(float(s.cap_floor), state.level - state.grew_by)
        return _settle_cut(state, s, level=undone, now=now), CapEvent.UNDONE
    if cap_for(state, s) <= s.cap_floor:
        return state, CapEvent.AT_FLOOR
    return _cut_level(state, s, factor=s.burst_factor if burst else s.cut_factor, now=now), CapEvent.CUT


def _cut_level(state: CapState, s: PoolSettings, *, factor: float, now: float) -> CapState:
    recent = tuple(at for at in state.cuts if now - at <= s.trip_window_s)
    if state.failed_level is not None and state.level >= state.failed_level - 1:
        # The cap had come back to where it failed: an ordinary sawtooth, not a fall that goes on.
        recent = ()
    cut = _settle_cut(state, s, level=_divide(state.level, factor, s), now=now)
    return replace(
        cut,
        # A cut by the burst factor has nothing left to deepen.
        cut_from=state.level if factor == s.cut_factor else 0.0,
        cuts=(*recent, now)[-HISTORY_LIMIT:],
        last_cut_at=now,
        episode_level=state.episode_level if recent and state.episode_level is not None else state.level,
    )


def _deepen(state: CapState, s: PoolSettings, now: float) -> CapChange:
    """The cut turned out to answer a burst: make it the deeper one, once, as one cut."""
    deeper = _divide(state.cut_from, s.burst_factor, s)
    fresh = state.last_cut_at is not None and now - state.last_cut_at <= s.burst_window_s
    if not fresh or state.cut_from == 0.0 or deeper >= state.level:
        return state, CapEvent.COUNTED
    return replace(state, level=deeper, cut_from=0.0), CapEvent.DEEPENED


def _settle_cut(state: CapState, s: PoolSettings, *, level: float, now: float) -> CapState:
    return replace(
        state,
        level=level,
        failed_level=state.level,
        settle_until=now + s.settle_s,
        settling=CooldownState.CUT,
        grew_by=0.0,
        cut_from=0.0,
    )


def _divide(level: float, factor: float, s: PoolSettings) -> float:
    divided = level / factor
    if s.growth is Growth.QUIET:
        divided = float(int(divided))
    return max(float(s.cap_floor), divided)


def freeze(state: CapState, s: PoolSettings, now: float) -> CapState:
    """Near the limit: stop growing for one settle, do not cut."""
    if now < state.settle_until:
        return state
    return replace(state, settle_until=now + s.settle_s, settling=CooldownState.PROBE, grew_by=0.0)


def resume_at_floor(state: CapState, s: PoolSettings, now: float) -> CapState:
    """After a clean trial: start at the floor, and climb back towards the level before the outage."""
    return replace(
        state,
        level=float(s.cap_floor),
        # Work from before the outage may still be throttled: that is not a verdict on the floor.
        settle_until=now + s.settle_s,
        settling=CooldownState.CUT,
        grew_by=0.0,
        cut_from=0.0,
        failed_level=state.episode_level or state.failed_level,
        cuts=(),
        throttles=(),
    )


def grow(state: CapState, s: PoolSettings, *, bound_at: float, bound_oks: int, now: float) -> CapState:
    """Raise the level if it is time and the cap is what limits work. The same state if not.

    ``bound_at`` is the last time the cap stopped or filled up with work; ``bound_oks`` how many calls
    succeeded since the last plan while it was full.
    """
    state = clamp_level(state, s)
    if now < state.settle_until or state.level >= s.cap_ceiling:
        return state
    if s.growth is Growth.SUCCESS and bound_oks:
        if state.settling is CooldownState.NONE:
            return _grow_by_success(state, s, bound_oks)
        # What succeeded while nothing may change belongs to the settle, not to what comes after it.
        return replace(state, settling=CooldownState.NONE, grew_by=0.0)
    due = _probe_due_at(state, s)
    if now < due or bound_at < max(state.settle_until, now - s.probe_s):
        return state
    target = _quick_target(state)
    step = math.ceil((target - state.level) / 2) if target is not None else s.step
    level = min(float(s.cap_ceiling), state.level + step)
    return replace(
        state,
        level=level,
        grew_by=level - state.level,
        settle_until=now + s.settle_s,
        settling=CooldownState.PROBE,
        # Beyond the level that failed once, the failure is history.
        failed_level=None
        if state.failed_level is not None and level > state.failed_level
        else state.failed_level,
    )


def _grow_by_success(state: CapState, s: PoolSettings, oks: int) -> CapState:
    """Half a slot per success up to just under the failed level, half a slot per round beyond it."""
    level = state.level
    for _ in range(min(oks, 4 * s.cap_ceiling)):
        beyond = state.failed_level is not None and level >= state.failed_level - 1
        level += s.step / level if beyond else s.step
        if level >= s.cap_ceiling:
            level = float(s.cap_ceiling)
            break
    return (
        state
        if level == state.level
        else replace(state, level=level, settling=CooldownState.NONE, grew_by=0.0)
    )


def _quick_target(state: CapState) -> float | None:
    """Just under the level that failed, while we are below that."""
    if state.failed_level is None or state.level >= state.failed_level - 1:
        return None
    return state.failed_level - 1


def _probe_due_at(state: CapState, s: PoolSettings) -> float:
    return state.settle_until + (0.0 if _quick_target(state) is not None else s.probe_s)


def next_move_at(state: CapState, s: PoolSettings, now: float) -> float | None:
    """When time alone could raise the cap next; None where time alone changes nothing."""
    if not s.adaptive or state.level >= s.cap_ceiling:
        return None
    due = _probe_due_at(state, s)
    return due if due > now else None


class AimdController(Controller):
    """AIMD under two names that differ in what makes a level grow (``PoolSettings.growth``)."""

    tuned_by = AIMD_TUNING

    def __init__(self, name: str, *, by_success: bool) -> None:
        self.name, self.by_success = name, by_success

    def on_signal(self, state: CapState, s: PoolSettings, context: SignalContext) -> CapChange:
        return on_throttle(state, s, project=context.project, name=context.name, now=context.now)

    def on_usage(self, state: CapState, s: PoolSettings, usage: UsageSample) -> CapState:
        # A level that only unread work has filled is not proven. What is too large for it waits alone.
        grown_at = state.settle_until - s.settle_s if state.settling is CooldownState.PROBE else -math.inf
        cut_at = state.last_cut_at if state.last_cut_at is not None else -math.inf
        proven = usage.bound_at > -math.inf and usage.bound_at >= max(grown_at, cut_at)
        proven = proven or usage.level_is_too_small
        bound_at = usage.now if usage.bound_now and proven else usage.bound_at
        return grow(state, s, bound_at=bound_at, bound_oks=usage.bound_oks, now=usage.now)

    def freeze(self, state: CapState, s: PoolSettings, now: float) -> CapState:
        return freeze(state, s, now)

    def resume(self, state: CapState, s: PoolSettings, now: float) -> CapState:
        return resume_at_floor(state, s, now)

    def next_move_at(self, state: CapState, s: PoolSettings, now: float) -> float | None:
        return next_move_at(state, s, now)

    def trip_reason(self, state: CapState, s: PoolSettings, event: CapEvent) -> str:
        if event is CapEvent.AT_FLOOR:
            return "a throttle at the floor"
        if event is CapEvent.CUT and len(state.cuts) >= s.trip_cuts:
            return f"{len(state.cuts)} cuts in {span_words(s.trip_window_s)}"
        return ""
