"""One pool inside one process: counts, meters and limits, without queues, threads or a clock.

The plan that governs a pool of a machine governs this one too; only the rows are plain attributes. Its driver
(``Limiter`` in real time, the simulator in its own) keeps the queue and passes the time in:

    earliest_start   when the next call may start: now, later, or when another ends
    start            the call starts; keep what this returns
    report           the provider said something about a call that goes on
    end              the call ended, and this is what the provider said

In flight never exceeds the cap's ceiling, whatever a controller says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from flyball.core.pool import plan as planning
from flyball.core.pool import rate_window as windowing
from flyball.core.pool.admission import next_grant_at
from flyball.core.pool.control.port import SignalContext
from flyball.core.pool.control.registry import migrate_state
from flyball.core.pool.model import Fact, Limits, Meters, Outcome, Phase, PoolCounts
from flyball.core.pool.rate_window import Window
from flyball.core.pool.settings import PoolSettings
from flyball.core.pool.token_quota import Quota
from flyball.core.signals import CONGESTION, REJECTIONS, SUCCESSES, Signal, SignalKind

INFINITY = float("inf")
_NO_COST: Mapping[str, float] = {}
_TRIAL_OUTCOMES = {
    **dict.fromkeys(CONGESTION, Outcome.THROTTLED),
    # The outcome is not known: the next call is the trial.
    SignalKind.UNKNOWN: Outcome.ABANDONED,
}


class CallStart:
    """One call in flight, as it was when it started."""

    __slots__ = ("cost", "in_flight", "marks", "number", "sent_at")

    def __init__(
        self,
        number: int,
        sent_at: float,
        in_flight: int,
        cost: Mapping[str, float],
        marks: Mapping[str, float],
    ) -> None:
        self.number, self.sent_at, self.in_flight, self.cost, self.marks = (
            number,
            sent_at,
            in_flight,
            cost,
            marks,
        )


class LocalPool:
    """Not thread-safe: its driver serialises."""

    def __init__(
        self,
        settings: PoolSettings,
        now: float,
        *,
        name: str = "limiter",
    ) -> None:
        self.settings, self.name = settings, name
        self.is_fixed = not settings.adapts
        """The cap never moves, so nothing has to be learned from a full one."""
        self.memory = planning.first_memory(settings, now)
        self.meters, self.counts = Meters(), PoolCounts()
        self.facts: list[Fact] = []
        """What happened since the driver last emptied it."""
        self._number = 0
        self._work = {"requests": 0.0, "tokens": 0.0}
        """Accepted so far: a quota is found out from it."""
        self.limits: Limits
        self._replan(now)

    @property
    def cap(self) -> int:
        return self.limits.cap

    @property
    def in_use(self) -> int:
        return self.counts.in_use

    @property
    def windows(self) -> tuple[Window, ...]:
        return self.meters.windows

    def earliest_start(self, now: float, cost: Mapping[str, float] = _NO_COST) -> float:
        """``now`` if a call of this cost may start, else when to ask again; infinity: when a call ends."""
        if now >= self.limits.valid_until:
            self._replan(now)
        limits, meters = self.limits, self.meters
        if limits.closed_until is not None and now < limits.closed_until:
            return limits.closed_until
        trial = limits.phase is Phase.TRIAL
        if trial and meters.trial_id is not None:
            return limits.valid_until
        if limits.spacing_s and not trial and now < meters.next_grant_at:
            return meters.next_grant_at
        if self.counts.in_use >= (limits.ceiling if trial else limits.cap):
            # A cap that time alone may raise is looked at again then.
            return limits.valid_until if not trial else INFINITY
        return windowing.room_at(self.meters.windows, cost, now)[0] if self.meters.windows else now

    def start(self, now: float, cost: Mapping[str, float] = _NO_COST, *, chance: float = 0.5) -> CallStart:
        """Only when ``earliest_start`` is now. ``chance`` spreads the spacing; a half leaves it as it is."""
        self._number += 1
        counts, limits = self.counts, self.limits
        counts.in_use += 1
        if counts.in_use >= limits.cap:
            self.meters.bound_at = now
            self._fold_by(now + planning.FOLD_EVERY_S)
        if limits.spacing_s:
            self.meters.next_grant_at = next_grant_at(now, limits.spacing_s, limits.spacing_jitter, chance)
        if limits.phase is Phase.TRIAL:
            self.meters.trial_id, self.meters.trial_at = self._number, now
            self._replan(now)
        self._count_work(cost, 1.0)
        if self.meters.windows:
            self.meters.windows = windowing.take(self.meters.windows, cost, now)
        marks = windowing.marks(self.meters.windows) if self.meters.windows else _NO_COST
        return CallStart(self._number, now, counts.in_use, cost, marks)

    def end(
        self,
        start: CallStart,
        signal: Signal,
        now: float,
        *,
        actual: Mapping[str, float] = _NO_COST,
        heard: bool = False,
    ) -> None:
        """The call ended. ``actual`` names what it used of the windows, where that is known.

        ``heard``: the signal was given to ``report`` before.
        """
        if not heard and (signal.buckets or signal.kind is not SignalKind.OK):
            self._settle_windows(start, signal, now)
        if actual and signal.kind not in REJECTIONS:
            self.meters.windows = windowing.reconcile(
                self.meters.windows, start.cost, actual, sent_at=start.sent_at, mark=start.marks, now=now
            )
        was_full = self.counts.in_use >= self.limits.cap
        if signal.kind in SUCCESSES:
            self._note_success(start, now, proves=was_full and signal.kind is SignalKind.OK)
        if signal.kind is not SignalKind.OK and not heard:
            self._apply_signal(start, signal, now)
        self.counts.in_use -= 1
        if start.number == self.meters.trial_id:
            self._end_trial(_TRIAL_OUTCOMES.get(signal.kind, Outcome.FINISHED), now)
        if now >= self.limits.valid_until:
            self._replan(now)

    def report(self, start: CallStart, signal: Signal, now: float) -> None:
        """The provider said something about a call that goes on; pass ``heard`` to ``end`` then."""
        self._settle_windows(start, signal, now)
        if signal.kind is not SignalKind.OK:
            self._apply_signal(start, signal, now)
        if now >= self.limits.valid_until:
            self._replan(now)

    def abandon(self, start: CallStart, now: float) -> None:
        """The call was never sent: nothing was learned, and the next call is the trial if this one was."""
        self._count_work(start.cost, -1.0)
        self._refund(start, now)
        self.counts.in_use -= 1
        if start.number == self.meters.trial_id:
            self._end_trial(Outcome.ABANDONED, now)

    def renew(self, now: float) -> None:
        """Recompute the plan if its time has passed."""
        if now >= self.limits.valid_until:
            self._replan(now)

    def change(self, settings: PoolSettings, now: float, *, reseed: bool) -> None:
        """Other settings from now on; ``reseed`` where a person set the level itself."""
        before, self.settings, self.is_fixed = self.settings, settings, not settings.adapts
        if reseed:
            self.memory = planning.restart_from(self.memory, settings, now)
        elif before.controller != settings.controller:
            self.memory = replace(self.memory, cap=migrate_state(self.memory.cap, now), quota=Quota())
        self._replan(now)

    def count_starts(self, count: int) -> None:
        """Count calls of no particular cost that started without ``start``, far from every limit."""
        self._work["requests"] += count

    def _apply_signal(self, start: CallStart, signal: Signal, now: float) -> None:
        context = SignalContext(
            signal=signal,
            now=now,
            in_use=self.counts.in_use,
            pool=self.name,
            claim_id=start.number,
            sent_at=start.sent_at,
            in_flight=start.in_flight,
            hold_mean_s=self.meters.hold_mean_s,
            work=self._work,
            explained=windowing.explains(self.meters.windows, signal, start.cost),
        )
        self.memory, facts = planning.apply_signal(self.memory, self.meters, self.settings, context)
        self.facts += facts
        self._fold_by(now)

    def _note_success(self, start: CallStart, now: float, *, proves: bool) -> None:
        """``proves``: it is evidence for a higher cap."""
        meters, held_s = self.meters, now - start.sent_at
        meters.note_hold(held_s)
        if start.in_flight > meters.high and start.sent_at > self.memory.quota.refused_at:
            meters.high = start.in_flight
        if proves:
            meters.bound_oks += 1
            self._fold_by(now + planning.FOLD_EVERY_S)

    def _end_trial(self, outcome: Outcome, now: float) -> None:
        self.memory, facts = planning.apply_trial_end(
            self.memory, self.meters, self.settings, outcome, pool=self.name, now=now
        )
        self.facts += facts
        self.meters.trial_id = None
        self._replan(now)

    def _settle_windows(self, start: CallStart, signal: Signal, now: float) -> None:
        if signal.buckets:
            self.meters.windows = windowing.learn(
                self.meters.windows, signal.buckets, sent_at=start.sent_at, mark=start.marks, now=now
            )
        if signal.kind in REJECTIONS:
            self._count_work(start.cost, -1.0)
            self._refund(start, now)

    def _refund(self, start: CallStart, now: float) -> None:
        if self.meters.windows:
            self.meters.windows = windowing.refund(
                self.meters.windows, start.cost, sent_at=start.sent_at, mark=start.marks, now=now
            )

    def _count_work(self, cost: Mapping[str, float], sign: float) -> None:
        self._work["requests"] += sign
        if cost:
            self._work["tokens"] += sign * cost.get("tokens", 0.0)

    def _fold_by(self, at: float) -> None:
        if self.limits.valid_until > at:
            self.limits = replace(self.limits, valid_until=at)

    def _replan(self, now: float) -> None:
        plan = planning.replan(
            self.memory,
            self.meters,
            self.settings,
            pool=self.name,
            version=self.limits.version if self._number else 0,
            counts=self.counts,
            trial_live=self.meters.trial_id is not None,
            now=now,
        )
        self.limits, self.memory, self.meters = plan.limits, plan.memory, plan.meters
        self.facts += plan.facts
