"""What others do, as policies: written from their published code, with their own defaults.

Every peer serves 200 callers (over all its processes), each with one job at a time. A refused caller
sleeps and tries the same job again; ``holds_slot`` says whether it keeps its slot meanwhile. Unless said
otherwise it sleeps as the providers' SDKs do: Retry-After when there is one, else half a second doubling
to eight, up to a quarter less by chance.

    Fixed               a semaphore around an SDK call
    Article             the AIMD of "Stop hard-coding your agent concurrency", its code as printed
    NetflixAimd         concurrency-limits, AIMDLimit
    NetflixGradient2    concurrency-limits, Gradient2Limit
    Inspect             Inspect AI 0.3.285, adaptive connections
    Botocore            botocore's adaptive retry mode
    Koryph              koryph's machine governor as it shipped

Where a default would be absurd for calls of seconds or minutes, the peer gets a better one, and its
docstring says so. Only koryph can coordinate processes.
"""

from __future__ import annotations

import math
import random
from typing import cast

from flyball.core.signals import Signal, SignalKind
from flyball.sim.demo.worker import retry_delay_s
from flyball.sim.simulator.jobs import Job
from flyball.sim.simulator.limits import INFINITY

CALLERS = 200


class Peer:
    """Callers, slots and the SDK's waits, for all peers. ``limit`` is what a subclass moves."""

    holds_slot = False

    def __init__(self, limit: float, seed: int = 0, callers: int = CALLERS) -> None:
        self.limit, self.callers = limit, callers
        self.running = 0
        self.calling = 0
        """Callers with a job, whether it runs, sleeps or waits for a slot."""
        self.chance = random.Random(f"peer/{seed}")

    @property
    def level(self) -> float:
        return self.limit

    def earliest_start(self, t_s: float, job: Job) -> float:
        again = job.attempts > 0
        if again and self.holds_slot:
            return t_s
        busy = self.calling if self.holds_slot else self.running
        free = busy < max(1, int(self.limit)) and (again or self.calling < self.callers)
        return self.slot_at(t_s) if free else INFINITY

    def slot_at(self, t_s: float) -> float:
        """When a free slot may be used."""
        return t_s

    def start(self, t_s: float, job: Job) -> object:
        self.running += 1
        self.calling += job.attempts == 0
        return (t_s, self.running)

    def end(self, started: object, job: Job, signal: Signal, t_s: float) -> float | None:
        sent_s, in_flight = cast(tuple[float, int], started)
        self.running -= 1
        if signal.kind is SignalKind.OK:
            self.calling -= 1
            self.on_success(job, t_s, took_s=t_s - sent_s, in_flight=in_flight)
            return None
        self.on_refusal(job, signal, t_s, took_s=t_s - sent_s, in_flight=in_flight)
        return self.retry_wait_s(job, signal)

    def on_success(self, job: Job, t_s: float, *, took_s: float, in_flight: int) -> None: ...

    def on_refusal(self, job: Job, signal: Signal, t_s: float, *, took_s: float, in_flight: int) -> None: ...

    def retry_wait_s(self, job: Job, signal: Signal) -> float:
        return retry_delay_s(job.attempts - 1, signal.retry_after_s, self.chance)


class Fixed(Peer):
    """A semaphore: the SDK sleeps and tries again inside it."""

    holds_slot = True


class Article(Peer):
    """Start 2, floor 1, ceiling 12, +0.5 per success unless within 8 s of a cut, halved per throttle.

    429 and 503 are throttles alike, as its ``classify`` has it.
    """

    FLOOR, CEILING, STEP, FACTOR, COOLDOWN_S = 1.0, 12.0, 0.5, 0.5, 8.0

    def __init__(self, seed: int = 0, callers: int = CALLERS, *, ceiling: float = CEILING) -> None:
        super().__init__(2.0, seed, callers)
        self._ceiling = ceiling
        self._cut_at_s = -INFINITY

    def on_success(self, job: Job, t_s: float, *, took_s: float, in_flight: int) -> None:  # noqa: ARG002
        if t_s - self._cut_at_s >= self.COOLDOWN_S:
            self.limit = min(self._ceiling, self.limit + self.STEP)

    def on_refusal(self, job: Job, signal: Signal, t_s: float, *, took_s: float, in_flight: int) -> None:  # noqa: ARG002
        self.limit = max(self.FLOOR, self.limit * self.FACTOR)
        self._cut_at_s = t_s


class NetflixAimd(Peer):
    """AIMDLimit: start and least 20, most 200; a drop times 0.9, else +1 where at least half was in use.

    Its timeout of 5 s, which makes a slow answer a drop, is set beyond any call here: with it nearly
    every answer of a model would be one.
    """

    LEAST, MOST, BACKOFF = 20, 200, 0.9

    def __init__(self, seed: int = 0, callers: int = CALLERS) -> None:
        super().__init__(20, seed, callers)

    def on_success(self, job: Job, t_s: float, *, took_s: float, in_flight: int) -> None:  # noqa: ARG002
        if in_flight * 2 >= self.limit:
            self.limit = min(self.MOST, self.limit + 1)

    def on_refusal(self, job: Job, signal: Signal, t_s: float, *, took_s: float, in_flight: int) -> None:  # noqa: ARG002
        self.limit = max(self.LEAST, int(self.limit * self.BACKOFF))


class NetflixGradient2(Peer):
    """Gradient2Limit: start and least 20, most 200, tolerance 1.5, long window 600, smoothing 0.2, queue 4.

    It does not treat a drop as a signal: the time of a refusal is a sample like any other.
    """

    LEAST, MOST, TOLERANCE, LONG, WARMUP, SMOOTHING, QUEUE = 20, 200, 1.5, 600, 10, 0.2, 4

    def __init__(self, seed: int = 0, callers: int = CALLERS) -> None:
        super().__init__(20.0, seed, callers)
        self._long_s = 0.0
        self._samples = 0

    def on_success(self, job: Job, t_s: float, *, took_s: float, in_flight: int) -> None:  # noqa: ARG002
        self._sample(took_s, in_flight)

    def on_refusal(self, job: Job, signal: Signal, t_s: float, *, took_s: float, in_flight: int) -> None:  # noqa: ARG002
        self._sample(took_s, in_flight)

    def _sample(self, took_s: float, in_flight: int) -> None:
        self._samples += 1
        weight = 1 / self._samples if self._samples <= self.WARMUP else 2 / (self.LONG + 1)
        self._long_s += (took_s - self._long_s) * weight
        long_s = self._long_s
        if long_s / took_s > 2:
            self._long_s *= 0.95
        if in_flight < self.limit / 2:
            return
        gradient = max(0.5, min(1.0, self.TOLERANCE * long_s / took_s))
        target = self.limit * gradient + self.QUEUE
        moved = self.limit * (1 - self.SMOOTHING) + target * self.SMOOTHING
        self.limit = max(self.LEAST, min(self.MOST, moved))


class Inspect(Peer):
    """Least 10, start 20, most 100: doubles per clean round until the first 429, then +5 %; a cut is x 0.8.

    A round is as many clean successes as the limit (4 at least) with four fifths of it in use; at most
    one cut per 15 s, which counts no successes; from 10 up in steps of 5. Overloads and successes after a
    retry count for nothing. The connection is held through the retries: 3 s doubling to 30 min, plus up
    to 3 s by chance; Retry-After is not used for that.
    """

    holds_slot = True
    LEAST, START, MOST, COOLDOWN_S, CUT, GROWTH, ROUND, IN_USE = 10, 20, 100, 15.0, 0.8, 0.05, 4, 0.8

    def __init__(self, seed: int = 0, callers: int = CALLERS) -> None:
        super().__init__(self.START, seed, callers)
        self._clean = self._peak = 0
        self._throttled = False
        self._cooldown_until_s = 0.0

    def start(self, t_s: float, job: Job) -> object:
        started = super().start(t_s, job)
        if t_s >= self._cooldown_until_s:
            self._peak = max(self._peak, self.calling)
        return started

    def on_success(self, job: Job, t_s: float, *, took_s: float, in_flight: int) -> None:  # noqa: ARG002
        if job.attempts > 1 or t_s < self._cooldown_until_s:
            return
        self._clean += 1
        if self._clean < max(self.limit, self.ROUND):
            return
        in_use = self._peak >= self.IN_USE * self.limit
        self._clean = self._peak = 0
        if in_use and not self._throttled:
            self.limit = min(self.limit * 2, self.MOST)
        elif in_use:
            grown = int(self.limit) + max(1, round(self.limit * self.GROWTH))
            self.limit = min(grown if grown < 10 else -(-grown // 5) * 5, self.MOST)

    def on_refusal(self, job: Job, signal: Signal, t_s: float, *, took_s: float, in_flight: int) -> None:  # noqa: ARG002
        if signal.kind is not SignalKind.THROTTLED:
            return
        self._clean = self._peak = 0
        self._throttled = True
        if t_s < self._cooldown_until_s:
            return
        cut = int(self.limit * self.CUT)
        self.limit = max(cut if cut < 10 else cut // 5 * 5, self.LEAST)
        self._cooldown_until_s = t_s + self.COOLDOWN_S

    def retry_wait_s(self, job: Job, signal: Signal) -> float:  # noqa: ARG002
        return min(3.0 * 2.0 ** min(job.attempts - 1, 16) + 3 * self.chance.random(), 1800.0)


class Botocore(Peer):
    """Limits its rate, not how many calls are in flight: there are as many as callers.

    Until the first throttle nothing is limited; from then on every send takes a token from a bucket whose
    rate is (CUBIC, beta 0.7, scale constant 0.4)

        after a throttle    0.7 x the rate at which answers came
        after an answer     0.4 x (seconds since the throttle - k)^3 + that rate,  k = cbrt(rate x 0.3 / 0.4)

    and never more than twice the measured rate, nor less than 0.5 per second. Retries sleep rand(0, 1) x
    min(2^n, 20) s (a twentieth of it if it was not a throttle), longer by up to 5 s if the server asks, and
    take a token again. Its limit of three attempts and its retry quota are left out: no client gives up here.
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

    def earliest_start(self, t_s: float, job: Job) -> float:
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

    def on_success(self, job: Job, t_s: float, *, took_s: float, in_flight: int) -> None:  # noqa: ARG002
        self._adjust_rate(t_s, throttled=False)

    def on_refusal(self, job: Job, signal: Signal, t_s: float, *, took_s: float, in_flight: int) -> None:  # noqa: ARG002
        self._adjust_rate(t_s, throttled=signal.kind is SignalKind.THROTTLED)

    def _adjust_rate(self, t_s: float, *, throttled: bool) -> None:
        self._measure(t_s)
        if throttled:
            self._most = min(self._measured, self._rate) if self._limits else self._measured
            self._zero_s = (self._most * (1 - self.BETA) / self.SCALE) ** (1 / 3)
            self._throttled_s, self._limits = t_s, True
            wanted = self._most * self.BETA
        else:
            wanted = self.SCALE * (t_s - self._throttled_s - self._zero_s) ** 3 + self._most
        rate = min(wanted, 2 * self._measured)
        self._fill(t_s)
        self._rate, self._size = max(rate, self.LEAST_PER_S), max(rate, 1.0)
        self._tokens = min(self._tokens, self._size)

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

    def retry_wait_s(self, job: Job, signal: Signal) -> float:
        scale_s = 1.0 if signal.kind is SignalKind.THROTTLED else 0.05
        own_s = self.chance.random() * min(scale_s * 2.0 ** min(job.attempts - 1, 16), 20.0)
        asked_s = signal.retry_after_s or 0.0
        return max(own_s, min(asked_s, own_s + 5.0))


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

    def earliest_start(self, t_s: float, job: Job) -> float:
        due_s = max(self._quiet_since_s, self._settle_until_s) + self.PROBE_S
        if self._open_until_s is None and t_s >= due_s and self.limit < self.CEILING:
            self.limit += 1
            self._quiet_since_s, self._settle_until_s = t_s, t_s + self.SETTLE_S
            due_s = self._settle_until_s + self.PROBE_S
        at_s = super().earliest_start(t_s, job)
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

    def on_success(self, job: Job, t_s: float, *, took_s: float, in_flight: int) -> None:  # noqa: ARG002
        if job.number == self._trial:
            self._trial = self._open_until_s = None
            self._break_s, self._cuts, self.limit = self.BREAK_S, [], 1
            self._quiet_since_s = t_s

    def on_refusal(self, job: Job, signal: Signal, t_s: float, *, took_s: float, in_flight: int) -> None:  # noqa: ARG002
        if signal.kind is not SignalKind.THROTTLED:
            self._trial = None if job.number == self._trial else self._trial
            return
        self._quiet_since_s = t_s
        if job.number == self._trial:
            self._trip(t_s, min(self.BREAK_MAX_S, self._break_s * 2))
        elif self._open_until_s is None:
            self._count_throttle(job, t_s)

    def _count_throttle(self, job: Job, t_s: float) -> None:
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

    def retry_wait_s(self, job: Job, signal: Signal) -> float:  # noqa: ARG002
        return self.REQUEUE_S * job.attempts
