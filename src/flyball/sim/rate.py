"""botocore's adaptive retry mode: a client that limits its rate, not how many calls it has in flight.

Written from its published algorithm (client-side rate limiter with CUBIC, beta 0.7, scale constant 0.4).
Until the first throttle nothing is limited; from then on every send takes a token from a bucket whose
rate is

    after a throttle    0.7 x the rate at which answers came
    after an answer     0.4 x (seconds since the throttle - k)^3 + that rate,  k = cbrt(rate x 0.3 / 0.4)

and never more than twice the measured rate, nor less than 0.5 per second.
"""

from __future__ import annotations

import math

from flyball.core.signals import Signal, SignalKind
from flyball.sim.jobs import Job
from flyball.sim.peers import CALLERS, Peer


class Botocore(Peer):
    """As many calls as there are callers. Retries sleep rand(0, 1) x min(2^n, 20) s (a twentieth of it
    where it was no throttle), longer by up to 5 s if the server asks, and take a token again. Its limit
    of three attempts and its retry quota are left out: nobody may give up here.
    """

    holds_slot = True
    BETA, SCALE, LEAST_PER_S, SMOOTHING, TICKS_PER_S = 0.7, 0.4, 0.5, 0.8, 2.0

    def __init__(self, seed: int = 0, callers: int = CALLERS) -> None:
        super().__init__(math.inf, seed, callers)
        self._limits = False
        self._rate, self._size, self._tokens, self._filled_s = 1.0, 1.0, 0.0, 0.0
        self._most, self._zero_s, self._throttled_s = 0.0, 0.0, 0.0
        self._measured, self._tick_s, self._answers = 0.0, 0.0, 0

    @property
    def level(self) -> float:
        return float(self.running)

    def open_at(self, t_s: float, job: Job) -> float:
        if job.attempts == 0 and self.calling >= self.callers:
            return math.inf
        if not self._limits:
            return t_s
        self._fill(t_s)
        missing = 1.0 - self._tokens
        return t_s if missing <= 1e-9 else t_s + missing / self._rate

    def start(self, t_s: float, job: Job) -> object:
        if self._limits:
            self._tokens -= 1.0
        return super().start(t_s, job)

    def served(self, job: Job, t_s: float, *, took_s: float, in_flight: int) -> None:  # noqa: ARG002
        self._answered(t_s, throttled=False)

    def refused(self, job: Job, signal: Signal, t_s: float, *, took_s: float, in_flight: int) -> None:  # noqa: ARG002
        self._answered(t_s, throttled=signal.kind is SignalKind.THROTTLED)

    def _answered(self, t_s: float, *, throttled: bool) -> None:
        self._measure(t_s)
        if throttled:
            self._most = min(self._measured, self._rate) if self._limits else self._measured
            self._zero_s = (self._most * (1 - self.BETA) / self.SCALE) ** (1 / 3)
            self._throttled_s, self._limits = t_s, True
            wanted = self._most * self.BETA
        else:
            wanted = self.SCALE * (t_s - self._throttled_s - self._zero_s) ** 3 + self._most
        self._set_rate(min(wanted, 2 * self._measured), t_s)

    def _measure(self, t_s: float) -> None:
        """The rate of answers, smoothed over half seconds."""
        tick_s = math.floor(t_s * self.TICKS_PER_S) / self.TICKS_PER_S
        self._answers += 1
        if tick_s > self._tick_s:
            rate = self._answers / (tick_s - self._tick_s)
            self._measured = rate * self.SMOOTHING + self._measured * (1 - self.SMOOTHING)
            self._answers, self._tick_s = 0, tick_s

    def _fill(self, t_s: float) -> None:
        self._tokens = min(self._size, self._tokens + (t_s - self._filled_s) * self._rate)
        self._filled_s = t_s

    def _set_rate(self, rate: float, t_s: float) -> None:
        self._fill(t_s)
        self._rate, self._size = max(rate, self.LEAST_PER_S), max(rate, 1.0)
        self._tokens = min(self._tokens, self._size)

    def patience_s(self, job: Job, signal: Signal) -> float:
        scale_s = 1.0 if signal.kind is SignalKind.THROTTLED else 0.05
        own_s = self.chance.random() * min(scale_s * 2.0 ** min(job.attempts - 1, 16), 20.0)
        asked_s = signal.retry_after_s or 0.0
        return max(own_s, min(asked_s, own_s + 5.0))
