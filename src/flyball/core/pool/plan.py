"""The slow tempo: fold signals, demand, time and settings into ``Limits``.

Cap control, breaker, Retry-After and fairness meet here, once, for every store. A plan has a version
and a valid-until; whoever meets a stale one recomputes it. Time-driven moves (probe, settle end,
breaker to trial, rotation) happen when somebody cares, and exactly at the time that was announced.

``fold`` takes one signal at once; ``replan`` takes what the meters gathered and the passing of time.
Nobody but this module reads ``LearnedState``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from flyball.core.pool import admission as fairness
from flyball.core.pool import rate_window as windowing
from flyball.core.pool import token_quota as quotas
from flyball.core.pool.breaker import BreakerEvent, BreakerState
from flyball.core.pool.breaker import step as breaker_step
from flyball.core.pool.control.port import SignalContext, UsageSample, cap_of, count_throttle
from flyball.core.pool.control.registry import controller_of
from flyball.core.pool.learned import CapEvent, CapState
from flyball.core.pool.model import Fact, Limits, Meters, Notes, Outcome, Phase, PoolCounts, ProjectUse
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
"""So long after a refusal the work is counted, in case a quota is behind it."""
FOLD_EVERY_S = 0.25
"""How long after a success at a full cap the plan is made anew, where a cap grows by success."""
LOOK_AGAIN_S = 1.0
"""A cap that could grow as soon as it is full is looked at again at least this much later."""
FOREVER_S = 3600.0
"""A plan that waits for nothing is still looked at once an hour."""


@dataclass(frozen=True, slots=True)
class LearnedState:
    """What one pool learned. An opaque blob to everybody else."""

    cap: CapState
    breaker: BreakerState = field(default_factory=BreakerState)
    retry_until: float | None = None
    retry_why: str = ""
    """What the provider said that closed the pool until then."""
    quota: Quota = field(default_factory=Quota)


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


def reseeded(memory: LearnedState, s: PoolSettings, now: float) -> LearnedState:
    """After a person set the cap: start from it, forget which level failed."""
    cap = CapState(
        level=float(s.cap),
        settle_until=now,
        throttles=memory.cap.throttles,
        throttle_count=memory.cap.throttle_count,
        last_throttle_at=memory.cap.last_throttle_at,
        last_cut_at=memory.cap.last_cut_at,
    )
    return replace(memory, cap=cap)


def fold(
    memory: LearnedState,
    meters: Meters,
    s: PoolSettings,
    signal: Signal,
    *,
    pool: str,
    project: str,
    name: str,
    claim_id: int | None,
    now: float,
    in_use: int,
    sent_at: float | None = None,
    in_flight: int | None = None,
    work: Mapping[str, float] | None = None,
    explained: bool = False,
) -> tuple[LearnedState, tuple[Fact, ...]]:
    """Take one signal in, at once. Says what it changed.

    ``sent_at`` and ``in_flight``: when the call was admitted that this answers, and how many were in use
    then. ``work``: what was accepted so far, by unit, where somebody counts. ``explained``: a window we
    know was empty, so the refusal says nothing about how much may be in flight.
    """
    control = controller_of(s)
    if signal.kind in HOLD_STILL and s.adapts:
        return replace(memory, cap=control.freeze(memory.cap, s, now)), ()
    note = Notes(pool, project, name, now)
    if signal.kind in A_PERSONS_TURN:
        note.add("person", f"{signal.kind.value}: {signal.detail or 'only a person can change that'}")
        return memory, note.facts
    if signal.kind is SignalKind.WINDOW_USED_UP:
        return _close_for_retry_after(memory, s, signal, now, note), note.facts
    if signal.kind not in CONGESTION:
        return memory, ()
    heard = SignalContext(
        signal=signal,
        now=now,
        in_use=in_use,
        project=project,
        name=name,
        sent_at=sent_at,
        in_flight=in_flight,
        hold_mean_s=meters.hold_mean_s,
    )
    governed = s.adapts and memory.breaker.phase is Phase.CLOSED
    if not (governed and control.binds_one_call(memory.cap, s, heard)):
        memory = _close_for_retry_after(memory, s, signal, now, note)
    if not s.adapts or memory.breaker.phase is Phase.OPEN or (explained and governed):
        return _counted(memory, s, project, name, now), note.facts
    if memory.breaker.phase is Phase.TRIAL:
        memory = _counted(memory, s, project, name, now)
        if _is_trial(meters, project, name, claim_id):
            why = f"the trial {project}/{name or '?'} was throttled"
            return _opened(memory, BreakerEvent.THROTTLED, s, why, meters, note), note.facts
        return memory, note.facts
    before = cap_of(memory.cap, s)
    if work is not None and control.blames_quota(memory.cap, s, heard):
        believed, quota = memory.quota.believed, _refused(memory.quota, heard, work, memory.cap.level)
        memory = replace(memory, quota=quota)
        if quota.believed:
            if not believed:
                note.add("quota", _quota_words(quota))
                memory = replace(memory, cap=control.forgive(memory.cap, s, now))
            return _counted(memory, s, project, name, now), note.facts
    cap, event = control.hear(memory.cap, s, heard)
    memory = replace(memory, cap=cap)
    after = cap_of(cap, s)
    if event in _CAP_WORDS:
        who = f" ({project}/{name})" if project or name else ""
        note.add(_CAP_FACTS[event], f"cap {before} -> {after}: {_CAP_WORDS[event]}{who}")
    why = control.trips(cap, s, event)
    if why:
        memory = _opened(memory, BreakerEvent.TRIP, s, why, meters, note)
    return memory, note.facts


def _refused(quota: Quota, heard: SignalContext, work: Mapping[str, float], level: float) -> Quota:
    return quotas.refused(
        quota,
        work=work,
        in_flight=float(heard.in_flight if heard.in_flight is not None else heard.in_use),
        named=heard.signal.scope in QUOTA_SCOPES,
        hold_s=heard.hold_mean_s,
        now=heard.now,
        level=level,
    )


def _quota_words(quota: Quota) -> str:
    return f"paced by an estimated quota of {quota.per_s * 60:.0f} {quota.unit}/min"


_CAP_FACTS = {CapEvent.CUT: "cut", CapEvent.DEEPENED: "cut", CapEvent.UNDONE: "undo"}
_CAP_WORDS = {
    CapEvent.CUT: "throttled",
    CapEvent.DEEPENED: "the throttle is a burst",
    CapEvent.UNDONE: "throttled right after a probe, probe undone",
}


def fold_trial_end(
    memory: LearnedState, meters: Meters, s: PoolSettings, outcome: Outcome, *, pool: str, now: float
) -> tuple[LearnedState, tuple[Fact, ...]]:
    """The trial's own lease was released. Abandoned says nothing: the next ask becomes the trial."""
    if memory.breaker.phase is not Phase.TRIAL or outcome in (Outcome.ABANDONED, Outcome.THROTTLED):
        return memory, ()
    note = Notes(pool, meters.trial_project, meters.trial_name, now)
    return _closed(memory, s, "the trial ended without a throttle", note), note.facts


def replan(
    memory: LearnedState,
    meters: Meters,
    s: PoolSettings,
    *,
    pool: str,
    version: int,
    counts: PoolCounts,
    projects: Sequence[ProjectUse],
    announced: Sequence[str],
    next_demand_expiry: float | None,
    trial_live: bool,
    now: float,
) -> Plan:
    """Recompute the limits for ``now``. Pure: the caller swaps the result in."""
    note = Notes(pool, "", "", now)
    memory, meters = _move_breaker(memory, meters, s, trial_live=trial_live, note=note)
    if s.adapts and memory.breaker.phase is Phase.CLOSED:
        memory = _grow(memory, meters, s, counts, note)
    if memory.retry_until is not None and now >= memory.retry_until:
        memory = replace(memory, retry_until=None, retry_why="")
    high = max(float(meters.high), controller_of(s).firm(memory.cap))
    quota = quotas.served(memory.quota, high=high, hold_s=meters.hold_mean_s, now=now)
    memory = replace(memory, quota=quota)
    counting = memory.quota.believed or now - memory.quota.refused_at < COUNT_FOR_S
    windows = windowing.declare(meters.windows, s.windows, now)
    meters = replace(
        meters,
        bound_oks=0,
        high=0,
        work=meters.work if counting else 0.0,
        windows=quotas.applied(windows, memory.quota, now),
    )
    limits = _limits(memory, s, version=version + 1, now=now)
    shares: Mapping[str, int] = {}
    if s.share is ShareRule.STRICT:
        demanding = fairness.demanding(projects, announced)
        shares = fairness.strict_shares(limits.cap, demanding, int(now // s.rotation_s))
    valid_until = _valid_until(
        memory, meters, s, strict=bool(shares), demand_until=next_demand_expiry, now=now
    )
    return Plan(replace(limits, valid_until=valid_until), memory, meters, shares, note.facts)


def spacing_of(state: CapState, s: PoolSettings) -> float:
    """Seconds between starts: the setting's, or more while the pool feels its way after a refusal."""
    return max(s.spacing_s, state.spaced_s) if s.adapts else 0.0


def _limits(memory: LearnedState, s: PoolSettings, *, version: int, now: float) -> Limits:
    phase = memory.breaker.phase if s.adapts else Phase.CLOSED
    closings = [memory.retry_until or 0.0, memory.breaker.open_until if phase is Phase.OPEN else 0.0]
    if s.adapts:
        closings.append(memory.cap.hold_until)
    closed_until = max(closings)
    return Limits(
        version=version,
        valid_until=now,
        cap=cap_of(memory.cap, s),
        ceiling=s.cap_ceiling if s.adapts else s.cap,
        reserve=s.reserve,
        phase=phase,
        closed_until=closed_until if closed_until > now else None,
        spacing_s=spacing_of(memory.cap, s),
        spacing_jitter=s.spacing_jitter,
        share=s.share,
        ageing_s=s.ageing_s,
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
    move = controller_of(s).next_move_at(memory.cap, s, now)
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
        note.add("trial", "breaker half open: the next admitted ask is the trial")
        return memory, replace(meters, trial_id=None)
    if breaker.phase is Phase.TRIAL and meters.trial_id is not None:
        clean_s = _trial_clean_s(memory, meters, s)
        if trial_live and now >= meters.trial_at + clean_s:
            trial = f"{meters.trial_project}/{meters.trial_name}"
            why = f"{trial} ran {span_words(clean_s)} without a throttle"
            memory = _closed(memory, s, why, note)
        elif not trial_live and now >= meters.trial_at + s.trial_timeout_s:
            why = "the trial vanished without a word"
            memory = _opened(memory, BreakerEvent.VANISHED, s, why, meters, note)
    if memory.breaker.phase is not Phase.TRIAL:
        meters = replace(meters, trial_id=None)
    return memory, meters


def _grow(
    memory: LearnedState, meters: Meters, s: PoolSettings, counts: PoolCounts, note: Notes
) -> LearnedState:
    before = cap_of(memory.cap, s)
    bound_now = counts.in_use >= before or (meters.capped and counts.waiting > 0)
    seen = UsageSample(
        now=note.now,
        in_use=counts.in_use,
        bound_now=bound_now,
        bound_at=meters.bound_at,
        bound_oks=meters.bound_oks,
        hold_mean_s=meters.hold_mean_s,
    )
    grown = controller_of(s).see(memory.cap, s, seen)
    after = cap_of(grown, s)
    if after != before:
        note.add("probe", f"cap {before} -> {after}: quiet while the cap was full")
    return replace(memory, cap=grown)


def _close_for_retry_after(
    memory: LearnedState, s: PoolSettings, signal: Signal, now: float, note: Notes
) -> LearnedState:
    """The first Retry-After of an episode closes the pool; repeats while it is closed do not extend it."""
    if signal.retry_after_s is None or (memory.retry_until is not None and now < memory.retry_until):
        return memory
    window = signal.kind is SignalKind.WINDOW_USED_UP
    wait_s = min(signal.retry_after_s, max(s.retry_after_max_s, WINDOW_CLOSED_S if window else 0.0))
    if wait_s <= 0:
        return memory
    which = f"the {signal.scope or 'usage'} window is used up"
    said = f"{which}, back in" if window else "the provider said retry after"
    note.add("closed", f"{said} {span_words(signal.retry_after_s)}: closed {span_words(wait_s)}")
    why = which if window else "the provider said to retry later"
    return replace(memory, retry_until=now + wait_s, retry_why=why)


def _counted(memory: LearnedState, s: PoolSettings, project: str, name: str, now: float) -> LearnedState:
    return replace(memory, cap=count_throttle(memory.cap, s, project=project, name=name, now=now))


def _opened(
    memory: LearnedState, event: BreakerEvent, s: PoolSettings, why: str, meters: Meters, note: Notes
) -> LearnedState:
    times = controller_of(s).breaker_times(memory.cap, s, meters.hold_mean_s)
    breaker = breaker_step(
        memory.breaker, event, now=note.now, break_s=times.break_s, break_max_s=times.break_max_s, why=why
    )
    note.add("open", f"breaker open for {span_words(breaker.open_until - note.now)}: {why}")
    return replace(memory, breaker=breaker)


def _closed(memory: LearnedState, s: PoolSettings, why: str, note: Notes) -> LearnedState:
    cap = controller_of(s).resume(memory.cap, s, note.now)
    note.add("close", f"breaker closed, cap resumes at {cap_of(cap, s)}: {why}")
    return replace(memory, breaker=breaker_step(memory.breaker, BreakerEvent.CLEAN, now=note.now), cap=cap)


def _trial_clean_s(memory: LearnedState, meters: Meters, s: PoolSettings) -> float:
    return controller_of(s).breaker_times(memory.cap, s, meters.hold_mean_s).trial_clean_s


def _is_trial(meters: Meters, project: str, name: str, claim_id: int | None) -> bool:
    """A report that names no task is blamed on the trial if it comes from the trial's project."""
    if meters.trial_id is None:
        return False
    if claim_id is not None:
        return claim_id == meters.trial_id
    return project == meters.trial_project and name in ("", meters.trial_name)
