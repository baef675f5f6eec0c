"""koryph's machine governor as it shipped, as a brain to be compared with. It can coordinate processes."""

from __future__ import annotations

from flyball.core.signals import Signal, SignalKind
from flyball.sim.hidden import INFINITY
from flyball.sim.jobs import Job
from flyball.sim.peers import CALLERS, Peer


class Koryph(Peer):
    """Cap 8, ceiling 16, settle 120 s, +1 per 5 quiet minutes after it; cuts by 2, by 4 in a burst.

    A burst is 3 tasks in 30 s; while it settles, throttles are only counted. A throttle at the floor or 3
    cuts in 10 min open the breaker for 300 s, doubling to an hour; then one trial, and on from the floor.
    3 s between starts, give or take half. A refused task is requeued after 15 s times its attempts;
    "overloaded" is not recognised as a limit, and Retry-After is not seen: it watches agents, not
    answers.
    """

    CEILING, SETTLE_S, PROBE_S, BREAK_S, BREAK_MAX_S = 16, 120.0, 300.0, 300.0, 3600.0
    BURST, BURST_S, CUTS, CUTS_S, SPACING_S, REQUEUE_S = 3, 30.0, 3, 600.0, 3.0, 15.0

    def __init__(self, seed: int = 0, callers: int = CALLERS) -> None:
        super().__init__(8, seed, callers)
        self._quiet_since_s = self._settle_until_s = self._next_start_s = 0.0
        self._throttles: list[tuple[float, int]] = []
        self._cuts: list[float] = []
        self._open_until_s: float | None = None
        self._break_s = self.BREAK_S
        self._trial: int | None = None

    def open_at(self, t_s: float, job: Job) -> float:
        due_s = max(self._quiet_since_s, self._settle_until_s) + self.PROBE_S
        if self._open_until_s is None and t_s >= due_s and self.limit < self.CEILING:
            self.limit += 1
            self._quiet_since_s, self._settle_until_s = t_s, t_s + self.SETTLE_S
            due_s = self._settle_until_s + self.PROBE_S
        at_s = super().open_at(t_s, job)
        return due_s if at_s == INFINITY and due_s > t_s else at_s

    def slot_at(self, t_s: float) -> float:
        if self._open_until_s is not None:
            if t_s < self._open_until_s:
                return self._open_until_s
            if self._trial is not None:
                return INFINITY
        return max(t_s, self._next_start_s)

    def start(self, t_s: float, job: Job) -> object:
        self._next_start_s = t_s + self.SPACING_S * (0.5 + self.chance.random())
        if self._open_until_s is not None:
            self._trial = job.number
        return super().start(t_s, job)

    def served(self, job: Job, t_s: float, *, took_s: float, in_flight: int) -> None:  # noqa: ARG002
        if job.number == self._trial:
            self._trial = self._open_until_s = None
            self._break_s, self._cuts, self.limit = self.BREAK_S, [], 1
            self._quiet_since_s = t_s

    def refused(self, job: Job, signal: Signal, t_s: float, *, took_s: float, in_flight: int) -> None:  # noqa: ARG002
        if signal.kind is not SignalKind.THROTTLED:
            self._trial = None if job.number == self._trial else self._trial
            return
        self._quiet_since_s = t_s
        if job.number == self._trial:
            self._trip(t_s, min(self.BREAK_MAX_S, self._break_s * 2))
        elif self._open_until_s is None:
            self._throttled(job, t_s)

    def _throttled(self, job: Job, t_s: float) -> None:
        recent = [(at, task) for at, task in self._throttles if t_s - at <= self.BURST_S]
        self._throttles = [*recent, (t_s, job.number)]
        if self.limit <= 1:
            self._trip(t_s, self.BREAK_S)
        elif t_s >= self._settle_until_s:
            burst = len({task for _, task in self._throttles}) >= self.BURST
            self.limit = max(1, int(self.limit) // (4 if burst else 2))
            self._settle_until_s = t_s + self.SETTLE_S
            self._cuts = [*(at for at in self._cuts if t_s - at <= self.CUTS_S), t_s]
            if len(self._cuts) >= self.CUTS:
                self._trip(t_s, self.BREAK_S)

    def _trip(self, t_s: float, break_s: float) -> None:
        self._open_until_s, self._break_s, self._trial = t_s + break_s, break_s, None

    def patience_s(self, job: Job, signal: Signal) -> float:  # noqa: ARG002
        return self.REQUEUE_S * job.attempts
