"""One pool inside one process: counts, meters and limits, without queues, threads or a clock.

The same plan that governs a pool of a machine governs this one; only the rows are plain attributes. Whoever
drives it (``Limiter`` in real time, the simulator in its own) keeps the queue and passes the time in:

    open_at   when the next call may start: now, later, or when something ends
    start     it starts; keep what this returns
    end       it ended, and this is what the provider said

In flight never exceeds the cap's ceiling, whatever a controller says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from flyball.core.pool import plan as planning
from flyball.core.pool import rate_window as windowing
from flyball.core.pool.admission import next_grant_at
from flyball.core.pool.control.registry import handed_over
from flyball.core.pool.model import Fact, Limits, Meters, Outcome, Phase, PoolCounts
from flyball.core.pool.rate_window import Window
from flyball.core.pool.settings import PoolSettings
from flyball.core.pool.token_quota import Quota
from flyball.core.signals import CONGESTION, REJECTIONS, SUCCESSES, Signal, SignalKind

INFINITY = float("inf")
_NO_COST: Mapping[str, float] = {}
_TRIAL_OUTCOMES = {
    **dict.fromkeys(CONGESTION, Outcome.THROTTLED),
    # Nobody knows how it went: the next call is the trial.
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
        self.memory = planning.first_memory(settings, now)
        self.meters, self.counts = Meters(), PoolCounts()
        self.facts: list[Fact] = []
        """What happened since somebody last emptied it."""
        self._number = 0
        self._work = {"requests": 0.0, "tokens": 0.0}
        """Accepted so far, for whoever has to find out a quota from it."""
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

    def open_at(self, now: float, cost: Mapping[str, float] = _NO_COST) -> float:
        """``now`` if a call of this cost may start, else when to look again; infinity: when something
        ends."""
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
        """Only after ``open_at`` said now. ``chance`` spreads the spacing; a half leaves it as it is."""
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

        ``heard``: the signal was given to ``hear`` before.
        """
        if not heard and (signal.buckets or signal.kind is not SignalKind.OK):
            self._settle_windows(start, signal, now)
        if actual and signal.kind not in REJECTIONS:
            self.meters.windows = windowing.settle(
                self.meters.windows, start.cost, actual, sent_at=start.sent_at, mark=start.marks, now=now
            )
        was_full = self.counts.in_use >= self.limits.cap
        if signal.kind in SUCCESSES:
            self._note_success(start, now, proves=was_full and signal.kind is SignalKind.OK)
        if signal.kind is not SignalKind.OK and not heard:
            self._fold(start, signal, now)
        self.counts.in_use -= 1
        if start.number == self.meters.trial_id:
            self._end_trial(_TRIAL_OUTCOMES.get(signal.kind, Outcome.FINISHED), now)
        if now >= self.limits.valid_until:
            self._replan(now)

    def hear(self, start: CallStart, signal: Signal, now: float) -> None:
        """Something was said about a call that goes on; tell ``end`` that it was heard."""
        self._settle_windows(start, signal, now)
        if signal.kind is not SignalKind.OK:
            self._fold(start, signal, now)
        if now >= self.limits.valid_until:
            self._replan(now)

    def abandon(self, start: CallStart, now: float) -> None:
        """It never began: nothing was sent, nothing was learned, and a trial goes to the next."""
        self._count_work(start.cost, -1.0)
        self._refund(start, now)
        self.counts.in_use -= 1
        if start.number == self.meters.trial_id:
            self._end_trial(Outcome.ABANDONED, now)

    @property
    def fixed(self) -> bool:
        """The cap never moves, so nothing has to be learned from a full one."""
        return not self.settings.adapts

    def renew(self, now: float) -> None:
        """Make the plan anew if its time has passed."""
        if now >= self.limits.valid_until:
            self._replan(now)

    def change(self, settings: PoolSettings, now: float, *, reseed: bool) -> None:
        """Other settings from now on; ``reseed`` where a person set the level itself."""
        before, self.settings = self.settings, settings
        if reseed:
            self.memory = planning.reseeded(self.memory, settings, now)
        elif before.controller != settings.controller:
            self.memory = replace(self.memory, cap=handed_over(self.memory.cap, now), quota=Quota())
        self._replan(now)

    def count_starts(self, count: int) -> None:
        """So many calls of no particular cost started without ``start``, far from every limit."""
        self._work["requests"] += count

    def _fold(self, start: CallStart, signal: Signal, now: float) -> None:
        self.memory, facts = planning.fold(
            self.memory,
            self.meters,
            self.settings,
            signal,
            pool=self.name,
            project="",
            name="",
            claim_id=start.number,
            now=now,
            in_use=self.counts.in_use,
            sent_at=start.sent_at,
            in_flight=start.in_flight,
            work=self._work,
            explained=windowing.explains(self.meters.windows, signal, start.cost),
        )
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
        self.memory, facts = planning.fold_trial_end(
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
            projects=(),
            announced=(),
            next_demand_expiry=None,
            trial_live=self.meters.trial_id is not None,
            now=now,
        )
        self.limits, self.memory, self.meters = plan.limits, plan.memory, plan.meters
        self.facts += plan.facts
