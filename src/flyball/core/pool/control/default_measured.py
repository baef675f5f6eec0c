"""The default controller: it measures the capacity instead of guessing it.

**Falling.** A refused call is a measurement. When it was sent, so many calls were in flight and being served:
that *is* the capacity, so the level becomes exactly that, not half of it.

    refusal of a call sent before the last cut   already answered; it may refine what was measured
    refusal of a probe                           back to what was measured, and probe less often
    refusal on firm ground                       the capacity fell: down to what was measured; falls that
                                                 follow each other at once go deeper, and starts pause
    overload                                     the provider's trouble, not our quota: the level stays; the
                                                 breaker opens when overloads come as fast as answers do
    timeout                                      a quarter less, once per cut

**Holding.** After a fall nothing starts until the answers to what was already sent are in. Then calls start
one by one, a confirmation apart, and every silent step halves the gap: what still refuses is met by one call
and not by a volley. Caution is bounded by the holds really seen: a first pause lasts at most half a hold, no
pause is longer than one, and starts are never so far apart that the level could not be filled within half a
hold. A Retry-After may be longer. Where one call alone was refused it may be that call's own, so after two
holds one call is tried, as starts come one by one then; if it or another of those sent before is refused too,
the pool waits as long as it was told. An answer that says that the limit is near, or that comes slowly, stops
growth until another says neither.

**Growing.** A level is *firm* once a call was admitted that filled it and the time that a refusal usually
takes has passed in silence; that call need not have finished. From firm ground it probes: at once and with
doubling strides while probes succeed, and with long ones until its first refusal, else one step after
``interval`` successes. After a single fall it
tries the old level again at once, as long as that has paid lately: a blip and a real fall look the same from
below.

A failed probe costs one refusal, whatever the level; a successful one gains what lies above. So probes are
counted in successes, which bounds the waste to one refusal in hundreds, and they come more often the further
the level is below one that was served lately: there is more to win, and successes are slow to come there.

    interval   a probe that found nothing doubles it, one that found much halves it
    look       after a fall or a rise the first probe comes sooner, as long as such looks find something; at a
               small level after three rounds of it, and after twice as many again
    lost       the level before a deep fall. A small level is probed after each round of it as long as that is
               lost, each time a little later, so it comes back as fast as a large one. Back there it stops,
               as what lies beyond is another question
    best       the level served lately; it fades with every failed probe, so an old one is given up
"""

from __future__ import annotations

import math
from dataclasses import replace

from flyball.core.pool.control.port import (
    BreakerTimes,
    CapChange,
    SignalContext,
    UsageSample,
    cap_for,
    clamp_level,
    count_throttle,
)
from flyball.core.pool.learned import FIRST_LOOK, INTERVAL_LEAST, CapEvent, CapState, MeasuredState
from flyball.core.pool.settings import PoolSettings
from flyball.core.signals import SignalKind

COLD_STRIDE = 0.5
"""Before its first refusal, and where each step takes a hold, a level grows by this part of itself once one
step up was served: after three holds it has doubled."""
INTERVAL_MOST = 360.0
"""Successes between two probes. Waste is about one per probe, so the most bounds it near a third of a
percent."""
MUCH = 0.1
CRASH_HOLDS = 3.0
BELOW, OFTEN_MOST, SLOW_OFTEN_MOST = 4.0, 6.0, 2.0
"""Half of the best level is probed so many times as often; at most; and at most where slot time is the
budget."""
OVERDUE_S = 600.0
PROBE_SHARE = 0.0024
"""The part of the slot time that probes may cost where holds are long."""
REJECT_TIMES = 1.5
"""So many usual rejection times in silence mean: not rejected."""
REJECT_SMOOTHING = 0.3
DEEPER = (0.75, 0.5)
"""A first fall goes to what was measured; one that follows at once goes this much deeper, and climbs back."""
FIRST_PAUSE = 0.5
"""Nothing starts for at most this part of a usual hold after a first fall."""
LONE_HOLDS = 2.0
"""After so many holds one call is tried while the longer Retry-After of a lone refusal runs: what was in
flight has ended, and none of it was refused."""
PAUSE = 0.25
"""The same after a second fall, doubling with each further one."""
SPACED_TIMES = 16
SPACED_HOLDS = 0.5
"""Starting one by one ends after so many confirmations or holds, whichever is sooner, whatever happens."""
SPACED_STARTS = 16.0
"""So many starts fit into that time, or as many as the level has: what people run. A volley is larger."""
LEAST_S = 1.0
"""No hold is so short that it bounds silence further: where calls are mixed, a short one says little."""
DEPTH_SMOOTHING = 0.35
OVERLOADS_TO_TRIP = 5
FALLS_TO_TRIP = 3
"""So many falls in a row, the pauses between them in vain, before a refusal at the floor opens the
breaker."""
BLIPS_MOST = 2
BEST_FADES = 0.99
FAR_BELOW = 0.8
"""A smaller part of the best level is far below it."""
ROUNDS_LEVEL = 8.0
"""The largest level that is small: its probes are counted in rounds of it. Three rounds of a larger one take
as many successes as a first look."""
ROUNDS_SLOWER, ROUNDS_REJECT_S = 1.03, 60.0
"""Each probe that does not find what was lost makes the wait for the next one longer by this factor, until
that is the usual pace. The factor is larger by 1 for every so many seconds that a rejection takes: they are
an agent's."""


class MeasuredController:
    name = "measured"
    by_success = True
    # It bounds what it finds out itself by ``settle_s``; that is not a way to tune it.
    tuned_by = frozenset({"confirm_s"})

    def on_signal(self, state: CapState, s: PoolSettings, context: SignalContext) -> CapChange:
        own, now = replace(_own(state), hold_s=context.hold_mean_s), context.now
        state = clamp_level(state, s)
        state = count_throttle(state, s, project=context.project, name=context.name, now=now)
        if context.signal.kind is SignalKind.OVERLOADED:
            return _count_overload(state, own, context)
        if _is_old_news(own, s, context):
            return _wait_whole(_refine(state, own, s, context), s, context), CapEvent.COUNTED
        if context.signal.kind is SignalKind.TIMEOUT:
            return _lower(state, own, s, context, level=state.level * 0.75, least=state.level * 0.75)
        own = replace(own, reject_s=_usual_reject_s(own.reject_s, s, context))
        served = _served_level(state, context)
        if _is_probe(state, own, context):
            return _undo_probe(state, own, s, context, served)
        # Refused with little in flight: then it is not about how much is. Be careful, not small.
        least = state.level / 2 if own.falls == 0 else 0.0
        lone_s = LONE_HOLDS * context.hold_mean_s if self.shortens_wait(state, s, context) else 0.0
        state, event = _lower(state, own, s, context, level=served * _kept_part(own), least=least)
        if not lone_s:
            return state, event
        tried_at = now + lone_s
        return replace(state, hold_until=tried_at, measured=replace(_own(state), tried_at=tried_at)), event

    def on_usage(self, state: CapState, s: PoolSettings, usage: UsageSample) -> CapState:
        own, state = replace(_own(state), hold_s=usage.hold_mean_s), clamp_level(state, s)
        state = _relax_holding(state, own, s, usage.now)
        own = _count_usage(own, usage)
        if own.filled_at is None or usage.now < own.filled_at + _confirm_s(own, s):
            return _with(state, own)
        own = _confirm(own, state.level)
        if state.spaced_s and not own.climbing:
            state = replace(state, spaced_s=0.0)
        return _raise(state, own, s, usage.now) if _may_raise(state, own, s, usage) else _with(state, own)

    def freeze(self, state: CapState, s: PoolSettings, now: float) -> CapState:  # noqa: ARG002
        return replace(state, measured=replace(_own(state), still=True))

    def resume(self, state: CapState, s: PoolSettings, now: float) -> CapState:
        """At half: the capacity is probably what it was, but all other clients come back at once too."""
        own = _own(state)
        level = max(float(s.cap_floor), float(int(own.firm / 2)))
        # What first looks found before the outage says nothing about those after it.
        own = replace(_cut_to(own, level, now), look=FIRST_LOOK, overloads=(), testing=0.0)
        own = replace(own, falls=0, climbing=True)
        return replace(state, level=level, spaced_s=0.0, measured=own)

    def next_move_at(self, state: CapState, s: PoolSettings, now: float) -> float | None:
        own, times = _own(state), []
        if own.filled_at is not None and state.level < s.cap_ceiling:
            times.append(max(own.filled_at + _confirm_s(own, s), state.settle_until))
        if state.spaced_s:
            times.append(_spaced_until(state, own, s))
        return min((at for at in times if at > now), default=None)

    def trip_reason(self, state: CapState, s: PoolSettings, event: CapEvent) -> str:  # noqa: ARG002
        if event is CapEvent.AT_FLOOR:
            return "a throttle at the floor"
        return f"{OVERLOADS_TO_TRIP} overloads in a row" if event is CapEvent.OVERLOADED else ""

    def binds_one_call(self, state: CapState, s: PoolSettings, context: SignalContext) -> bool:
        own = _own(state)
        throttled = context.signal.kind is SignalKind.THROTTLED
        return throttled and (_is_probe(state, own, context) or _is_old_news(own, s, context))

    def shortens_wait(self, state: CapState, s: PoolSettings, context: SignalContext) -> bool:
        own = _own(state)
        wait_s = min(context.signal.retry_after_s or 0.0, s.retry_after_max_s)
        throttled = context.signal.kind is SignalKind.THROTTLED
        first = own.falls == 0 and cap_for(state, s) > s.cap_floor
        return throttled and first and 0 < LONE_HOLDS * context.hold_mean_s < wait_s

    def blames_quota(self, state: CapState, s: PoolSettings, context: SignalContext) -> bool:
        return context.signal.kind is SignalKind.THROTTLED and not self.binds_one_call(state, s, context)

    def confirmed_level(self, state: CapState) -> float:
        return state.measured.firm if state.measured is not None else 0.0

    def undo_refusals(self, state: CapState, s: PoolSettings, now: float) -> CapState:
        own = _own(state)
        level = max(state.level, own.testing, own.best)
        level = min(float(s.cap_ceiling), level)
        own = replace(_cut_to(own, level, now), falls=0, testing=0.0, climbing=False)
        return replace(state, level=level, spaced_s=0.0, measured=own)

    def breaker_times(self, state: CapState, s: PoolSettings, hold_mean_s: float) -> BreakerTimes:
        """In hold times, within what the settings allow: an outage should not outlive itself by much."""
        own = _own(state)
        first, most = s.break_s, s.break_max_s
        if hold_mean_s > 0:
            first = max(1.0, min(first, hold_mean_s / 2))
            most = max(first, min(most, hold_mean_s))
        return BreakerTimes(first, most, min(s.trial_clean_s, _confirm_s(own, s)))


def _own(state: CapState) -> MeasuredState:
    """What it learned; before anything happened, the level a person set counts as firm."""
    return state.measured or MeasuredState(firm=state.level, changed_at=state.settle_until)


def _with(state: CapState, own: MeasuredState) -> CapState:
    return state if own == _own(state) else replace(state, measured=own)


def _confirm_s(own: MeasuredState, s: PoolSettings) -> float:
    """How long silence has to last before it means yes. After a hold, what was in flight has ended."""
    silence_s = min(REJECT_TIMES * own.reject_s, s.settle_s) if own.reject_s > 0 else s.confirm_s
    return min(silence_s, max(own.hold_s, LEAST_S)) if own.hold_s > 0 else silence_s


# -- growing


def _count_usage(own: MeasuredState, usage: UsageSample) -> MeasuredState:
    own = replace(own, oks=own.oks + usage.bound_oks, still=own.still and not usage.bound_oks)
    if own.filled_at is not None:
        return own
    if usage.bound_at >= own.changed_at:
        return replace(own, filled_at=usage.bound_at)
    return replace(own, filled_at=usage.now) if usage.level_is_too_small else own


def _may_raise(state: CapState, own: MeasuredState, s: PoolSettings, usage: UsageSample) -> bool:
    if own.still or not usage.bound_now or state.level >= s.cap_ceiling or usage.now < state.settle_until:
        return False
    return own.climbing or usage.level_is_too_small or is_probe_due(own, state.level, usage)


def is_probe_due(own: MeasuredState, level: float, usage: UsageSample) -> bool:
    """A probe is due after so many successes; where those are rare (agents), after a time that keeps the slot
    time of failed probes small."""
    often = max(1.0, min(OFTEN_MOST, BELOW * (own.best / level - 1)))
    needed = min(_first_look(own, level), own.interval) if own.early else own.interval / often
    if own.oks >= (round_look(own, level) or needed):
        return True
    elapsed_s = usage.now - own.changed_at
    if own.early and level < own.best / 2 and 0 < CRASH_HOLDS * usage.hold_mean_s <= elapsed_s:
        # So deep a fall is rarely one of seats, and at a low level successes are slow to come.
        return True
    often = min(SLOW_OFTEN_MOST, often)
    return elapsed_s >= OVERDUE_S and elapsed_s * level * PROBE_SHARE * often >= own.reject_s


def _first_look(own: MeasuredState, level: float) -> float:
    return own.look * min(1.0, level / ROUNDS_LEVEL)


def round_look(own: MeasuredState, level: float) -> float | None:
    """Successes until a small level far below a lost one is probed; None where the usual pace holds."""
    after = level * (ROUNDS_SLOWER + own.reject_s / ROUNDS_REJECT_S) ** own.rounds
    small = level <= ROUNDS_LEVEL and level < FAR_BELOW * own.lost
    return float(int(after)) if small and after < INTERVAL_LEAST else None


def _confirm(own: MeasuredState, level: float) -> MeasuredState:
    back = 0 < own.lost <= level
    own = replace(own, best=max(own.best, level), lost=0.0 if back else own.lost)
    if level <= own.firm:
        return replace(own, falls=0)
    if own.testing and level >= own.testing:
        # Back where it was. Whether there is more beyond is another question, asked at the usual pace.
        blips = min(BLIPS_MOST, own.blips + 1)
        own = replace(own, firm=level, falls=0, testing=0.0, blips=blips, climbing=False, stride=1.0)
        return replace(own, depth=own.depth * (1 - DEPTH_SMOOTHING))
    if back and own.climbed_from <= ROUNDS_LEVEL:
        return replace(own, firm=level, falls=0, climbing=False, stride=1.0)
    return replace(own, firm=level, falls=0, climbing=True)


def _raise(state: CapState, own: MeasuredState, s: PoolSettings, now: float) -> CapState:
    stride = own.stride if own.climbing else 1.0
    if own.climbing and stride > 1 and state.last_cut_at is None and 0 < own.hold_s <= _confirm_s(own, s):
        stride = max(stride, COLD_STRIDE * state.level)
    level = min(float(s.cap_ceiling), state.level + stride)
    if own.testing:
        level = min(level, max(own.testing, state.level + 1))
    elif state.level <= ROUNDS_LEVEL and state.level < own.lost:
        level = min(level, own.lost)
    # Until a refusal was timed, it is not known how long to wait for one: strides are long then, and short
    # later.
    longest = max(2.0, state.level / 12) if own.reject_s > 0 else max(2.0, state.level / 3)
    own = replace(
        own,
        climbed_from=own.climbed_from if own.climbing and own.climbed_from else state.level,
        changed_at=now,
        filled_at=None,
        oks=0,
        stride=min(longest, 2 * stride),
    )
    spaced_s = state.spaced_s / 2 if state.spaced_s > own.reject_s / 8 else 0.0
    return replace(state, level=level, grew_by=level - state.level, spaced_s=spaced_s, measured=own)


def next_interval(own: MeasuredState, level: float) -> float:
    """A probe that found nothing doubles it; one that found much shortens it: there is more to follow."""
    found = level - own.climbed_from
    if found < 1:
        return own.interval if own.early else min(INTERVAL_MOST, own.interval * 2)
    if found < max(2.0, MUCH * level):
        return own.interval
    return max(INTERVAL_LEAST, own.interval / 2)


def next_look(own: MeasuredState, level: float) -> float:
    """Many falls are short, but not everywhere: one that found nothing makes the next one come later."""
    if not own.early or own.testing:
        return own.look
    if level - own.climbed_from < 1:
        return min(INTERVAL_MOST, own.look * 2)
    return max(FIRST_LOOK, own.look / 2)


# -- holding


def _pause_s(own: MeasuredState, s: PoolSettings, *, falls: int) -> float:
    """Refusals that do not stop as less is in flight need time, not fewer calls: a quota refills
    meanwhile."""
    if falls == 0:
        confirm_s = _confirm_s(own, s)
        return min(confirm_s, FIRST_PAUSE * own.hold_s) if own.hold_s > 0 else confirm_s
    part = min(1.0, PAUSE * 2.0 ** (falls - 1))
    return min(part * (own.hold_s or s.confirm_s), 2 * s.settle_s)


def _gap_s(own: MeasuredState, s: PoolSettings, level: float) -> float:
    """The time between two starts right after a fall: half a hold is enough to fill a level."""
    confirm_s = _confirm_s(own, s)
    if own.hold_s <= 0:
        return confirm_s
    return min(confirm_s, SPACED_HOLDS * own.hold_s / min(level, SPACED_STARTS))


def _spaced_until(state: CapState, own: MeasuredState, s: PoolSettings) -> float:
    """Where nothing ever fills the level, silence alone ends the starting one by one."""
    lasts_s = SPACED_TIMES * _confirm_s(own, s)
    return state.hold_until + (min(lasts_s, SPACED_HOLDS * own.hold_s) if own.hold_s > 0 else lasts_s)


def _relax_holding(state: CapState, own: MeasuredState, s: PoolSettings, now: float) -> CapState:
    """A pause or a gap that began before a hold was seen is bounded by the first one that is."""
    if own.hold_s > 0 and state.hold_until > max(now, own.tried_at):
        most_s = _pause_s(own, s, falls=max(0, own.falls - 1))
        state = replace(state, hold_until=min(state.hold_until, own.epoch_at + most_s))
    if not state.spaced_s:
        return state
    over = now >= _spaced_until(state, own, s)
    return replace(state, spaced_s=0.0 if over else min(state.spaced_s, _gap_s(own, s, state.level)))


# -- falling


def _is_old_news(own: MeasuredState, s: PoolSettings, context: SignalContext) -> bool:
    if context.sent_at is not None:
        return context.sent_at < own.epoch_at
    return context.now < own.epoch_at + _confirm_s(own, s)


def _is_probe(state: CapState, own: MeasuredState, context: SignalContext) -> bool:
    """Was the refused call one of those that went beyond firm ground?"""
    return state.level > own.firm and (context.in_flight or context.in_use) > own.firm


def _wait_whole(state: CapState, s: PoolSettings, context: SignalContext) -> CapState:
    """A refusal that is not alone is meant for all: nothing is tried before its Retry-After is over."""
    if context.now >= _own(state).tried_at:
        return state
    until = context.now + min(context.signal.retry_after_s or 0.0, s.retry_after_max_s)
    until = max(state.hold_until, until)
    return replace(state, hold_until=until, measured=replace(_own(state), tried_at=until))


def _served_level(state: CapState, context: SignalContext) -> float:
    """How many were being served when the refused call was sent: the measurement."""
    if context.in_flight is not None:
        return float(context.in_flight - 1)
    # Nothing of ours is running: nothing was measured, so guess, as other controllers do.
    return float(context.in_use - 1) if context.in_use > 1 else state.level / 2


def _usual_reject_s(usual: float, s: PoolSettings, context: SignalContext) -> float:
    took_s = context.now - context.sent_at if context.sent_at is not None else 0.0
    if took_s <= 0 or took_s > s.settle_s or 0 < context.hold_mean_s < took_s:
        # A throttle in the middle of a long run says nothing about how long a refusal takes.
        return usual
    return usual + (took_s - usual) * REJECT_SMOOTHING if usual > 0 else took_s


def _refine(state: CapState, own: MeasuredState, s: PoolSettings, context: SignalContext) -> CapState:
    """Of calls that were sent together and refused together, the one with the fewest beside it measures
    best."""
    together = (
        context.sent_at is not None and own.cohort_at <= context.sent_at and own.epoch_at == own.changed_at
    )
    level = max(float(s.cap_floor), _served_level(state, context))
    if not together or context.in_flight is None or level >= state.level:
        return state
    return replace(state, level=level, measured=replace(own, firm=level))


def _count_overload(state: CapState, own: MeasuredState, context: SignalContext) -> CapChange:
    """Open the breaker when overloads come as fast as answers usually do."""
    recent = (*own.overloads, context.now)[-OVERLOADS_TO_TRIP:]
    own = replace(own, overloads=recent)
    usual_s = OVERLOADS_TO_TRIP * context.hold_mean_s / max(1, context.in_use)
    enough = len(recent) == OVERLOADS_TO_TRIP and recent[-1] - recent[0] <= max(usual_s, 1.0)
    return replace(state, measured=own), CapEvent.OVERLOADED if enough else CapEvent.COUNTED


def _undo_probe(
    state: CapState, own: MeasuredState, s: PoolSettings, context: SignalContext, served: float
) -> CapChange:
    level = max(float(s.cap_floor), min(served, state.level - 1))
    blips = max(-BLIPS_MOST, own.blips - 1) if own.testing else own.blips
    if own.testing:
        fell = max(0.0, 1 - level / own.testing)
        own = replace(own, depth=own.depth + (fell - own.depth) * DEPTH_SMOOTHING)
    if level - own.climbed_from < 1 and not own.testing and round_look(own, level) is not None:
        own = replace(own, rounds=own.rounds + 1)
        if round_look(own, level) is not None:
            own = replace(_cut_to(own, level, context.now), climbing=False, falls=0)
            return _after_cut(state, own, level, context.now), CapEvent.UNDONE
    look = next_look(own, level)
    again = own.early and _first_look(replace(own, look=look), level) < FIRST_LOOK
    own = replace(
        _cut_to(own, level, context.now),
        interval=next_interval(own, level),
        look=look,
        best=max(level, own.best * BEST_FADES),
        lost=own.lost if round_look(own, level) is not None else 0.0,
        early=again or bool(own.testing) or level - own.climbed_from >= max(2.0, MUCH * level),
        climbing=False,
        testing=0.0,
        falls=own.falls if own.testing else 0,
        blips=blips,
    )
    return _after_cut(state, own, level, context.now), CapEvent.UNDONE


def _lower(
    state: CapState,
    own: MeasuredState,
    s: PoolSettings,
    context: SignalContext,
    *,
    level: float,
    least: float,
) -> CapChange:
    pause_s = _pause_s(own, s, falls=own.falls)
    if cap_for(state, s) <= s.cap_floor:
        if not 0 < own.falls < FALLS_TO_TRIP:
            return replace(state, measured=replace(own, epoch_at=context.now)), CapEvent.AT_FLOOR
        # It has only just come down here: that is not a verdict on the floor yet.
        own = replace(_cut_to(own, state.level, context.now), falls=own.falls + 1)
        return replace(state, hold_until=context.now + pause_s, measured=own), CapEvent.COUNTED
    wait_s = max(pause_s, min(context.signal.retry_after_s or 0.0, s.retry_after_max_s))
    level = min(level, _left_in_flight(context, wait_s))
    lowered = max(float(s.cap_floor), min(float(int(max(level, least))), state.level - 1))
    single = own.falls == 0
    again = not single or own.blips >= 0
    before = min(state.level, math.ceil(own.best))
    deep = single and lowered < FAR_BELOW * before and before > own.lost
    own = replace(
        _cut_to(own, lowered, context.now),
        falls=own.falls + 1,
        lost=before if deep else own.lost,
        rounds=0 if deep else own.rounds,
        climbing=again,
        # A failed test in BLIPS_MOST + 1 falls is the price of noticing when blips come back.
        blips=own.blips if again else own.blips + 1,
        testing=(state.level if single else max(own.testing, state.level)) if again else 0.0,
    )
    state = _after_cut(state, own, lowered, context.now)
    return replace(state, hold_until=context.now + pause_s, spaced_s=_gap_s(own, s, lowered)), CapEvent.CUT


def _kept_part(own: MeasuredState) -> float:
    """How much of what was measured a fall keeps. Where falls have been deep, the first one expects the
    next."""
    if own.falls == 0:
        return 1 - own.depth if own.depth > MUCH else 1.0
    return DEEPER[min(own.falls, len(DEEPER)) - 1]


def _left_in_flight(context: SignalContext, wait_s: float) -> float:
    """By the time it opens again fewer will be in flight: do not make up for them all at once."""
    left = max(0, context.in_use - 1)
    return left * math.exp(-wait_s / context.hold_mean_s) + 1 if context.hold_mean_s > 0 else math.inf


def _cut_to(own: MeasuredState, level: float, now: float) -> MeasuredState:
    return replace(
        own,
        firm=level,
        cohort_at=own.changed_at,
        changed_at=now,
        epoch_at=now,
        filled_at=None,
        oks=0,
        stride=1.0,
        climbed_from=0.0,
    )


def _after_cut(state: CapState, own: MeasuredState, level: float, now: float) -> CapState:
    state = replace(state, failed_level=state.level, last_cut_at=now, spaced_s=0.0)
    return replace(state, level=level, grew_by=0.0, measured=own)
