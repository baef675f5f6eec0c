"""The turnstile of a share lease: a limiter's, whose maximum is what the store allows, until its fence.

Taking and returning a slot touches nothing but this process, and mostly no lock. Time is checked at every
start: a process that was stopped, or a machine that slept, must not go on with slots that were given away
meanwhile, however late its timers fire.

What renewals have to tell is gathered here: what was answered, the most that was in flight, and signals that
say more than "too much" (a Retry-After, a used-up window), which go to the pool as they are.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from flyball.core.gate import INFINITY, Gate, Start
from flyball.core.renewal import Tally
from flyball.core.signals import Signal, SignalKind
from flyball.core.verdict import Reason, Verdict
from flyball.governor.turnstile import Turnstile
from flyball.host.clock import CLOCK

clock: Callable[[], float] = partial(time.clock_gettime, CLOCK)
"""Seconds since boot, sleep included. A partial, for every start asks."""
OUTBOX = 100
"""Signals kept for a store that cannot be reached, at most."""
_COUNTED = frozenset({SignalKind.THROTTLED, SignalKind.OVERLOADED})


class ShareDesk(Turnstile):
    __slots__ = ("closed_why", "outbox", "overloads", "peak", "refused_at", "stir", "throttles")

    def __init__(self, gate: Gate, clock: Callable[[], float] = clock) -> None:
        self.stir: Callable[[], None] = _nobody
        """Called with the lock held after anything that a renewal might be about."""
        self.closed_why = "before its first renewal"
        self.peak = self.throttles = self.overloads = 0
        self.refused_at: float | None = None
        self.outbox: deque[Signal] = deque(maxlen=OUTBOX)
        super().__init__(gate, clock, 0)
        self.fence_at = -INFINITY

    # -- all of these with the lock held --------------------------------------------------------------

    def allow(self, maximum: int, *, until: float, why: str) -> None:
        """So much may be in flight from now on, until then; ``why`` is for those who are refused."""
        now = self._look_round()
        self.maximum, self.fence_at, self.closed_why = maximum, until, why
        self._serve(now)

    @property
    def wants(self) -> int:
        return self.in_hands + self.line.length

    @property
    def tally(self) -> Tally:
        return Tally(self.successes, self.throttles, self.overloads)

    def end_all_waits(self) -> None:
        """Nobody will be served any more."""
        self.closed = True
        while self.line.length:
            waiter = self.line.last()
            self._remove(waiter)
            waiter.wake()

    # -- what differs from a limiter's ------------------------------------------------------------------

    def _open_at(self, now: float, cost: Mapping[str, float]) -> float:
        if now >= self.fence_at:
            return INFINITY
        return super()._open_at(now, cost)

    def _settle(self) -> None:
        super()._settle()
        self.peak = max(self.peak, self.in_hands)
        self.stir()

    def hear(self, start: Start, signal: Signal) -> None:
        super().hear(start, signal)
        self._tell(start, signal)

    def end(self, start: Start, signal: Signal, *, heard: bool, actual: Mapping[str, float]) -> None:
        super().end(start, signal, heard=heard, actual=actual)
        if not heard:
            self._tell(start, signal)

    def _tell(self, start: Start, signal: Signal) -> None:
        if signal.kind in (SignalKind.OK, SignalKind.UNKNOWN):
            return
        with self.lock:
            if signal.kind in _COUNTED and signal.retry_after_s is None:
                self.throttles += signal.kind is SignalKind.THROTTLED
                self.overloads += signal.kind is SignalKind.OVERLOADED
                self.refused_at = start.sent_at
            else:
                self.outbox.append(replace(signal, buckets=()))
            self.stir()

    def verdict(self, cost: Mapping[str, float]) -> Verdict:
        verdict = super().verdict(cost)
        if self.closed or self.clock() >= self.fence_at:
            return replace(verdict, reason=Reason.FENCED, detail=self.closed_why, look_again_s=None)
        if verdict.reason is Reason.CAP:
            return replace(verdict, detail="its share is used")
        return verdict


def _nobody() -> None:
    return None
