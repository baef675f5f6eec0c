"""The slow tempo: signals, demand, time and settings become ``Limits``.

A pool is read in three files. The plan (here) decides its limits at a bounded rate; ``admission.py`` compares
each ask against them; ``verdict.py`` is the answer that the ask gets.

Three events change a plan:

    apply_signal       a provider answered a call, and the answer says something about limits
    apply_trial_end    the breaker's trial ended
    replan             the plan is stale: time passed, and the meters counted successes

What a signal does depends on its kind:

    near limit, slow                 the cap does not grow for a while
    credit gone, auth                a person is told
    window used up                   the pool closes until the window's reset
    any, with usage windows          how full the account's windows are: account_windows.py says what follows
    throttled, overloaded, timeout   a Retry-After closes the pool. Then the phase of the breaker decides:
                                     closed: the quota or the controller explains it, and the cap may fall;
                                     open: it is counted; trial: the breaker opens again if it hit the trial

A plan has a version and a valid-until. The first caller that meets a stale plan recomputes it, so moves that
time alone causes (a probe, the end of a settle, breaker to trial, rotation) need no daemon and happen exactly
at the time that was announced. Only this module reads ``LearnedState``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from flyball.core.pool import fairness
from flyball.core.pool import rate_window as windowing
from flyball.core.pool import token_quota as quotas
from flyball.core.pool.account_windows import (
    AccountWindow,
    UsageHold,
    current_windows,
    fold_readings,
    slowed_cap,
    usage_hold,
)
from flyball.core.pool.breaker import BreakerEvent, BreakerState
from flyball.core.pool.breaker import step as breaker_step
from flyball.core.pool.control.port import SignalContext, UsageSample, cap_for, count_throttle
from flyball.core.pool.control.registry import controller_for
from flyball.core.pool.learned import CapEvent, CapState
from flyball.core.pool.model import (
    Fact,
    FactKind,
    Limits,
    Meters,
    Notes,
    Outcome,
    Phase,
    PoolCounts,
    ProjectUse,
)
from flyball.core.pool.settings import PoolSettings, ShareRule
from flyball.core.pool.token_quota import Quota
from flyball.core.pool.verdict import span_words
from flyball.core.signals import CONGESTION, Signal, SignalKind

QUOTA_SCOPES = frozenset({"requests", "tokens", "input-tokens", "output-tokens"})
A_PERSONS_TURN = (SignalKind.CREDIT_GONE, SignalKind.AUTH)
WINDOW_CLOSED_S = 3600.0
"""A used-up window closes the pool until its reset, but is asked about again after this long."""
HOLD_STILL = (SignalKind.NEAR_LIMIT, SignalKind.SLOW)
COUNT_FOR_S = 900.0
"""For this long after a refusal the accepted work is counted, in case a quota is behind it."""
FOLD_EVERY_S = 0.25
"""After a success at a full cap the plan is recomputed this much later, where the cap grows by success."""
LOOK_AGAIN_S = 1.0
"""A cap that may grow as soon as it is full is planned again at least this much later."""
FOREVER_S = 3600.0
"""A plan that waits for nothing is still recomputed once an hour."""


@dataclass(frozen=True, slots=True)
class LearnedState:
    """What one pool learned. Other modules store it and do not look inside."""

    cap: CapState
    breaker: BreakerState = field(default_factory=BreakerState)
    retry_until: float | None = None
    retry_why: str = ""
    """What the provider said that closed the pool until then."""
    quota: Quota = field(default_factory=Quota)
    windows: tuple[AccountWindow, ...] = ()
    """How full the usage windows of the account are."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The outcome of one planning step. ``shares`` is empty unless sharing is strict."""

    limits: Limits
    memory: LearnedState
    meters: Meters
    shares: Mapping[str, int]
    facts: tuple[Fact, ...]


def first_memory(s: PoolSettings, now: float) -> LearnedState:
    """What a pool knows before anything happened. The quiet that a probe needs starts now."""
    return LearnedState(CapState(level=float(s.cap), settle_until=now))


def restart_from(memory: LearnedState, s: PoolSettings, now: float) -> LearnedState:
    """After a person set the cap: start from it, and forget which level failed."""
    cap = CapState(
        level=float(s.cap),
        settle_until=now,
        throttles=memory.cap.throttles,
        throttle_count=memory.cap.throttle_count,
        last_throttle_at=memory.cap.last_throttle_at,
        last_cut_at=memory.cap.last_cut_at,
    )
    return replace(memory, cap=cap)


def apply_signal(
    memory: LearnedState, meters: Meters, s: PoolSettings, context: SignalContext
) -> tuple[LearnedState, tuple[Fact, ...]]:
    """Take one signal in, at once: what is known after it, and the facts of what it changed."""
    kind, now = context.signal.kind, context.now
    note = Notes(context.pool, context.project, context.name, now)
    if context.signal.windows:
        memory = _fold_windows(memory, s, context, note)
    if kind in HOLD_STILL and s.adapts:
        memory = replace(memory, cap=controller_for(s).freeze(memory.cap, s, now))
    elif kind in A_PERSONS_TURN:
        note.add(FactKind.PERSON, f"{kind.value}: {context.signal.detail or 'only a person can change that'}")
    elif kind is SignalKind.WINDOW_USED_UP:
        memory = _close_for_retry_after(memory, s, context.signal, note)
    elif kind in CONGESTION:
        memory = _apply_congestion(memory, meters, s, context, note)
    return memory, note.facts


def _fold_windows(memory: LearnedState, s: PoolSettings, context: SignalContext, note: Notes) -> LearnedState:
    """Keep what the answer said about usage windows, and note where a window has become nearly full."""
    now, before = context.now, {(each.account, each.name): each for each in memory.windows}
    windows = fold_readings(memory.windows, context.signal.windows, now)
    for each in windows:
        known = before.get((each.account, each.name))
        was = known.fraction if known is not None and now < known.over_at else 0.0
        if s.usage_warn and was < s.usage_warn <= each.fraction:
            note.add(
                FactKind.USAGE,
                f"{each.words}; {_hold_words(usage_hold(windows, s, pool=note.pool, now=now))}",
            )
    return replace(memory, windows=windows)


def _hold_words(held: UsageHold | None) -> str:
    if held is None:
        return "everything may start"
    return "only priority above 0 starts" if held.open_above == 0 else "nothing starts"


def _apply_congestion(
    memory: LearnedState, meters: Meters, s: PoolSettings, context: SignalContext, note: Notes
) -> LearnedState:
    phase = memory.breaker.phase
    governed = s.adapts and phase is Phase.CLOSED
    binds_one = governed and controller_for(s).binds_one_call(memory.cap, s, context)
    if context.signal.repeated and not binds_one:
        return memory
    known = context.explained or memory.quota.believed or context.signal.scope in QUOTA_SCOPES
    shortens = governed and not known and controller_for(s).shortens_wait(memory.cap, s, context)
    if not (binds_one or shortens):
        memory = _close_for_retry_after(memory, s, context.signal, note)
    if governed and not context.explained:
        return _lower_cap(memory, meters, s, context, note)
    memory = _count_throttle(memory, s, note)
    if s.adapts and phase is Phase.TRIAL and _is_trial(meters, context):
        why = f"the trial {context.project}/{context.name or '?'} was throttled"
        return _open_breaker(memory, BreakerEvent.THROTTLED, s, why, meters, note)
    return memory


def _lower_cap(
    memory: LearnedState, meters: Meters, s: PoolSettings, context: SignalContext, note: Notes
) -> LearnedState:
    """A quota explains the refusal, or the controller lowers the cap; the breaker opens when that is not
    enough."""
    control = controller_for(s)
    if context.work is not None and control.blames_quota(memory.cap, s, context):
        in_flight = context.in_flight if context.in_flight is not None else context.in_use
        quota = quotas.on_refusal(
            memory.quota,
            work=context.work,
            in_flight=float(in_flight),
            named=context.signal.scope in QUOTA_SCOPES,
            hold_s=context.hold_mean_s,
            now=context.now,
            level=memory.cap.level,
        )
        if quota.believed and not memory.quota.believed:
            words = f"paced by an estimated quota of {quota.per_s * 60:.0f} {quota.unit}/min"
            note.add(FactKind.QUOTA, words)
            memory = replace(memory, cap=control.undo_refusals(memory.cap, s, context.now))
        memory = replace(memory, quota=quota)
        if quota.believed:
            return _count_throttle(memory, s, note)
    before = cap_for(memory.cap, s)
    cap, event = control.on_signal(memory.cap, s, context)
    if event in _CAP_FACTS:
        who = f" ({context.project}/{context.name})" if context.project or context.name else ""
        kind, words = _CAP_FACTS[event]
        note.add(kind, f"cap {before} -> {cap_for(cap, s)}: {words}{who}")
    memory = replace(memory, cap=cap)
    why = control.trip_reason(cap, s, event)
    return _open_breaker(memory, BreakerEvent.TRIP, s, why, meters, note) if why else memory


_CAP_FACTS = {
    CapEvent.CUT: (FactKind.CUT, "throttled"),
    CapEvent.DEEPENED: (FactKind.CUT, "the throttle is a burst"),
    CapEvent.UNDONE: (FactKind.UNDO, "throttled right after a probe, probe undone"),
}
"""The kind of fact and the words for what a controller did to the cap."""


def apply_trial_end(
    memory: LearnedState, meters: Meters, s: PoolSettings, outcome: Outcome, *, pool: str, now: float
) -> tuple[LearnedState, tuple[Fact, ...]]:
    """The trial's own lease was released. Abandoned says nothing: the next ask becomes the trial."""
    if memory.breaker.phase is not Phase.TRIAL or outcome in (Outcome.ABANDONED, Outcome.THROTTLED):
        return memory, ()
    note = Notes(pool, meters.trial_project, meters.trial_name, now)
    return _close_breaker(memory, s, "the trial ended without a throttle", note), note.facts


def replan(
    memory: LearnedState,
    meters: Meters,
    s: PoolSettings,
    *,
    pool: str,
    version: int,
    counts: PoolCounts,
    now: float,
    projects: Sequence[ProjectUse] = (),
    announced: Sequence[str] = (),
    next_demand_expiry: float | None = None,
    trial_live: bool = False,
) -> Plan:
    """Recompute the limits for ``now``. The caller stores the result.

    ``projects``, ``announced`` (by a heartbeat) and ``next_demand_expiry`` matter where shares are strict.
    """
    note = Notes(pool, "", "", now)
    memory, meters = _move_breaker(memory, meters, s, trial_live=trial_live, note=note)
    level = cap_for(memory.cap, s)
    slowed = slowed_cap(level, memory.windows, s, pool=pool, now=now) < level
    if s.adapts and memory.breaker.phase is Phase.CLOSED and not slowed:
        memory = _grow(memory, meters, s, counts, note)
    if memory.retry_until is not None and now >= memory.retry_until:
        memory = replace(memory, retry_until=None, retry_why="")
    high = max(float(meters.high), controller_for(s).confirmed_level(memory.cap))
    quota = quotas.on_success(memory.quota, high=high, hold_s=meters.hold_mean_s, now=now)
    memory = replace(memory, quota=quota)
    counting = memory.quota.believed or now - memory.quota.refused_at < COUNT_FOR_S
    windows = windowing.declare(meters.windows, s.windows, now)
    meters = replace(
        meters,
        bound_oks=0,
        high=0,
        work=meters.work if counting else 0.0,
        windows=quotas.with_estimated_window(windows, memory.quota, now),
    )
    limits = _limits(memory, s, pool=pool, version=version + 1, now=now)
    shares: Mapping[str, int] = {}
    if s.share is ShareRule.STRICT:
        demanding = fairness.competing_weights(projects, announced)
        shares = fairness.strict_shares(limits.cap, demanding, int(now // s.rotation_s))
    valid_until = _valid_until(
        memory, meters, s, strict=bool(shares), demand_until=next_demand_expiry, now=now
    )
    return Plan(replace(limits, valid_until=valid_until), memory, meters, shares, note.facts)


def spacing_s(state: CapState, s: PoolSettings) -> float:
    """Seconds between starts: the setting's, or more while the pool feels its way after a refusal."""
    return max(s.spacing_s, state.spaced_s) if s.adapts else 0.0


def _limits(memory: LearnedState, s: PoolSettings, *, pool: str, version: int, now: float) -> Limits:
    phase = memory.breaker.phase if s.adapts else Phase.CLOSED
    closings = [memory.retry_until or 0.0, memory.breaker.open_until if phase is Phase.OPEN else 0.0]
    if s.adapts:
        closings.append(memory.cap.hold_until)
    closed_until, open_above = max(closings), None
    if closed_until <= now and memory.windows:
        held = usage_hold(memory.windows, s, pool=pool, now=now)
        if held is not None:
            closed_until, open_above = held.until, held.open_above
    return Limits(
        version=version,
        valid_until=now,
        cap=slowed_cap(cap_for(memory.cap, s), memory.windows, s, pool=pool, now=now),
        ceiling=s.cap_ceiling if s.adapts else s.cap,
        reserve=s.reserve,
        phase=phase,
        closed_until=closed_until if closed_until > now else None,
        spacing_s=spacing_s(memory.cap, s),
        spacing_jitter=s.spacing_jitter,
        share=s.share,
        ageing_s=s.ageing_s,
        open_above=open_above,
    )


def _valid_until(
    memory: LearnedState,
    meters: Meters,
    s: PoolSettings,
    *,
    strict: bool,
    demand_until: float | None,
    now: float,
) -> float:
    """The earliest time at which the passing of time alone changes the limits."""
    times = [now + FOREVER_S]
    if memory.retry_until is not None:
        times.append(memory.retry_until)
    times.extend(each.over_at for each in current_windows(memory.windows, now))
    if strict:
        times.append((now // s.rotation_s + 1) * s.rotation_s)
        times.append(demand_until if demand_until is not None else times[0])
    if s.adapts:
        times.extend(_adaptive_times(memory, meters, s, now))
    return min(t for t in times if t > now)


def _adaptive_times(memory: LearnedState, meters: Meters, s: PoolSettings, now: float) -> list[float]:
    phase = memory.breaker.phase
    if phase is Phase.OPEN:
        return [memory.breaker.open_until]
    if phase is Phase.TRIAL:
        if meters.trial_id is None:
            return []
        return [meters.trial_at + _trial_clean_s(memory, meters, s), meters.trial_at + s.trial_timeout_s]
    move = controller_for(s).next_move_at(memory.cap, s, now)
    if memory.cap.hold_until > now:
        return [memory.cap.hold_until, *([move] if move is not None else [])]
    return [move] if move is not None else [now + max(s.settle_s, LOOK_AGAIN_S)]


def _move_breaker(
    memory: LearnedState, meters: Meters, s: PoolSettings, *, trial_live: bool, note: Notes
) -> tuple[LearnedState, Meters]:
    if not s.adapts:
        return memory, replace(meters, trial_id=None)
    breaker, now = memory.breaker, note.now
    if breaker.phase is Phase.OPEN and now >= breaker.open_until:
        memory = replace(memory, breaker=breaker_step(breaker, BreakerEvent.ELAPSED, now=now))
        note.add(FactKind.TRIAL, "breaker half open: the next admitted ask is the trial")
        return memory, replace(meters, trial_id=None)
    if breaker.phase is Phase.TRIAL and meters.trial_id is not None:
        clean_s = _trial_clean_s(memory, meters, s)
        if trial_live and now >= meters.trial_at + clean_s:
            trial = f"{meters.trial_project}/{meters.trial_name}"
            why = f"{trial} ran {span_words(clean_s)} without a throttle"
            memory = _close_breaker(memory, s, why, note)
        elif not trial_live and now >= meters.trial_at + s.trial_timeout_s:
            why = "the trial vanished without a word"
            memory = _open_breaker(memory, BreakerEvent.VANISHED, s, why, meters, note)
    if memory.breaker.phase is not Phase.TRIAL:
        meters = replace(meters, trial_id=None)
    return memory, meters


def _grow(
    memory: LearnedState, meters: Meters, s: PoolSettings, counts: PoolCounts, note: Notes
) -> LearnedState:
    before = cap_for(memory.cap, s)
    bound_now = counts.in_use >= before or (meters.capped and counts.waiting > 0)
    usage = UsageSample(
        now=note.now,
        in_use=counts.in_use,
        bound_now=bound_now,
        bound_at=meters.bound_at,
        bound_oks=meters.bound_oks,
        hold_mean_s=meters.hold_mean_s,
    )
    grown = controller_for(s).on_usage(memory.cap, s, usage)
    after = cap_for(grown, s)
    if after != before:
        note.add(FactKind.PROBE, f"cap {before} -> {after}: quiet while the cap was full")
    return replace(memory, cap=grown)


def _close_for_retry_after(
    memory: LearnedState, s: PoolSettings, signal: Signal, note: Notes
) -> LearnedState:
    """The first Retry-After of an episode closes the pool; repeats while it is closed do not extend it."""
    now = note.now
    if signal.retry_after_s is None or (memory.retry_until is not None and now < memory.retry_until):
        return memory
    window = signal.kind is SignalKind.WINDOW_USED_UP
    wait_s = min(signal.retry_after_s, max(s.retry_after_max_s, WINDOW_CLOSED_S if window else 0.0))
    if wait_s <= 0:
        return memory
    which = f"the {signal.scope or 'usage'} window is used up"
    said = f"{which}, back in" if window else "the provider said retry after"
    note.add(FactKind.CLOSED, f"{said} {span_words(signal.retry_after_s)}: closed {span_words(wait_s)}")
    why = which if window else "the provider said to retry later"
    return replace(memory, retry_until=now + wait_s, retry_why=why)


def _count_throttle(memory: LearnedState, s: PoolSettings, note: Notes) -> LearnedState:
    cap = count_throttle(memory.cap, s, project=note.project, name=note.name, now=note.now)
    return replace(memory, cap=cap)


def _open_breaker(
    memory: LearnedState, event: BreakerEvent, s: PoolSettings, why: str, meters: Meters, note: Notes
) -> LearnedState:
    times = controller_for(s).breaker_times(memory.cap, s, meters.hold_mean_s)
    breaker = breaker_step(
        memory.breaker, event, now=note.now, break_s=times.break_s, break_max_s=times.break_max_s, why=why
    )
    note.add(FactKind.OPEN, f"breaker open for {span_words(breaker.open_until - note.now)}: {why}")
    return replace(memory, breaker=breaker)


def _close_breaker(memory: LearnedState, s: PoolSettings, why: str, note: Notes) -> LearnedState:
    cap = controller_for(s).resume(memory.cap, s, note.now)
    note.add(FactKind.CLOSE, f"breaker closed, cap resumes at {cap_for(cap, s)}: {why}")
    return replace(memory, breaker=breaker_step(memory.breaker, BreakerEvent.CLEAN, now=note.now), cap=cap)


def _trial_clean_s(memory: LearnedState, meters: Meters, s: PoolSettings) -> float:
    return controller_for(s).breaker_times(memory.cap, s, meters.hold_mean_s).trial_clean_s


def _is_trial(meters: Meters, context: SignalContext) -> bool:
    """A report that names no task is blamed on the trial if it comes from the trial's project."""
    if meters.trial_id is None:
        return False
    if context.claim_id is not None:
        return context.claim_id == meters.trial_id
    return context.project == meters.trial_project and context.name in ("", meters.trial_name)
