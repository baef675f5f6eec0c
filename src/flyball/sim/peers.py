"""What others do, as brains: written from their published code, with their own defaults.

Every peer serves 200 callers (over all its processes), each with one job at a time. A refused caller
sleeps and tries the same job again; ``holds_slot`` says whether it keeps its slot meanwhile. Unless said
otherwise it sleeps as the providers' SDKs do: Retry-After when there is one, else half a second doubling
to eight, up to a quarter less by chance.

    Fixed               a semaphore around an SDK call
    Article             the AIMD of "Stop hard-coding your agent concurrency", its code as printed
    NetflixAimd         concurrency-limits, AIMDLimit
    NetflixGradient2    concurrency-limits, Gradient2Limit
    Inspect             Inspect AI 0.3.285, adaptive connections

Beside them ``koryph.py`` (the machine governor of the seeds) and ``rate.py`` (botocore's adaptive mode).

Where a default would be absurd for calls of seconds or minutes, the peer gets a better one, and its
docstring says so. None of them can coordinate processes, except koryph.
"""

from __future__ import annotations

import random
from typing import cast

from flyball.core.signals import Signal, SignalKind
from flyball.sim.hidden import INFINITY
from flyball.sim.jobs import Job
from flyball.sim.workload import retry_delay_s

CALLERS = 200


class Peer:
    """What they share: callers, slots, and the SDK's patience. ``limit`` is what a subclass moves."""

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

    def open_at(self, t_s: float, job: Job) -> float:
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
            self.served(job, t_s, took_s=t_s - sent_s, in_flight=in_flight)
            return None
        self.refused(job, signal, t_s, took_s=t_s - sent_s, in_flight=in_flight)
        return self.patience_s(job, signal)

    def served(self, job: Job, t_s: float, *, took_s: float, in_flight: int) -> None: ...

    def refused(self, job: Job, signal: Signal, t_s: float, *, took_s: float, in_flight: int) -> None: ...

    def patience_s(self, job: Job, signal: Signal) -> float:
        return retry_delay_s(job.attempts - 1, signal.retry_after_s, self.chance)


class Fixed(Peer):
    """A semaphore: the SDK sleeps and tries again inside it."""

    holds_slot = True


class Article(Peer):
    """Start 2, floor 1, ceiling 12, +0.5 per success unless within 8 s of a cut, halved by every
    throttle.

    429 and 503 are throttles alike, as its ``classify`` has it.
    """

    FLOOR, CEILING, STEP, FACTOR, COOLDOWN_S = 1.0, 12.0, 0.5, 0.5, 8.0

    def __init__(self, seed: int = 0, callers: int = CALLERS, *, ceiling: float = CEILING) -> None:
        super().__init__(2.0, seed, callers)
        self._ceiling = ceiling
        self._cut_at_s = -INFINITY

    def served(self, job: Job, t_s: float, *, took_s: float, in_flight: int) -> None:  # noqa: ARG002
        if t_s - self._cut_at_s >= self.COOLDOWN_S:
            self.limit = min(self._ceiling, self.limit + self.STEP)

    def refused(self, job: Job, signal: Signal, t_s: float, *, took_s: float, in_flight: int) -> None:  # noqa: ARG002
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

    def served(self, job: Job, t_s: float, *, took_s: float, in_flight: int) -> None:  # noqa: ARG002
        if in_flight * 2 >= self.limit:
            self.limit = min(self.MOST, self.limit + 1)

    def refused(self, job: Job, signal: Signal, t_s: float, *, took_s: float, in_flight: int) -> None:  # noqa: ARG002
        self.limit = max(self.LEAST, int(self.limit * self.BACKOFF))


class NetflixGradient2(Peer):
    """Gradient2Limit: start and least 20, most 200, tolerance 1.5, long window 600, smoothing 0.2, queue
    4.

    A drop is no signal of its own to it: the time of a refusal is a sample like any other.
    """

    LEAST, MOST, TOLERANCE, LONG, WARMUP, SMOOTHING, QUEUE = 20, 200, 1.5, 600, 10, 0.2, 4

    def __init__(self, seed: int = 0, callers: int = CALLERS) -> None:
        super().__init__(20.0, seed, callers)
        self._long_s = 0.0
        self._samples = 0

    def served(self, job: Job, t_s: float, *, took_s: float, in_flight: int) -> None:  # noqa: ARG002
        self._sample(took_s, in_flight)

    def refused(self, job: Job, signal: Signal, t_s: float, *, took_s: float, in_flight: int) -> None:  # noqa: ARG002
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
    """Least 10, start 20, most 100: doubles per clean round until the first 429, then +5 %; a cut times
    0.8.

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

    def served(self, job: Job, t_s: float, *, took_s: float, in_flight: int) -> None:  # noqa: ARG002
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

    def refused(self, job: Job, signal: Signal, t_s: float, *, took_s: float, in_flight: int) -> None:  # noqa: ARG002
        if signal.kind is not SignalKind.THROTTLED:
            return
        self._clean = self._peak = 0
        self._throttled = True
        if t_s < self._cooldown_until_s:
            return
        cut = int(self.limit * self.CUT)
        self.limit = max(cut if cut < 10 else cut // 5 * 5, self.LEAST)
        self._cooldown_until_s = t_s + self.COOLDOWN_S

    def patience_s(self, job: Job, signal: Signal) -> float:  # noqa: ARG002
        return min(3.0 * 2.0 ** min(job.attempts - 1, 16) + 3 * self.chance.random(), 1800.0)
