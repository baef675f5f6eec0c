"""Hidden limits: the rules of a simulated provider. Simulated time, nothing random after construction.

A provider is a handful of rules; a request is served if none of them refuses. What a rule knows
(capacities, levels, outages) its clients never see, except what its signals say.

    Seats          so many at once, by a schedule of steps
    Refilling      a bucket of requests or tokens, with or without headers or Retry-After
    Outages        no request is served in these spans, whatever the load
    Flaky          a seeded fraction is refused as overload
    Acceleration   more at once only if the use of the last minutes grew slowly
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Protocol

from flyball.core.signals import Bucket, Signal, SignalKind
from flyball.sim.simulator.jobs import Job

INFINITY = float("inf")


class Rule(Protocol):
    def refusal(self, t_s: float, job: Job) -> Signal | None:
        """Why this job is not served now; None if this rule has nothing against it."""

    def enter(self, t_s: float, job: Job) -> None:
        """The job is served from now on."""

    def leave(self, t_s: float, job: Job) -> None: ...

    def room_at(self, t_s: float, job: Job) -> float:
        """When this rule would serve it if nothing else happened; infinity: not before something ends."""

    def buckets(self, t_s: float) -> tuple[Bucket, ...]:
        """What an answer's headers say."""


@dataclass(slots=True)
class Seats:
    """Steps of (from this second, so many at once). The answer to one too many is a plain 429.

    A stale seat stays taken for a while after its client is gone.
    """

    steps: Sequence[tuple[float, int]]
    retry_after_s: float | None = None
    inside: int = 0
    _times: list[float] = field(init=False)
    _stale: list[float] = field(default_factory=list)
    """When each stale seat is free again, as a heap."""

    def __post_init__(self) -> None:
        self._times = [at for at, _ in self.steps]

    def capacity(self, t_s: float) -> int:
        return self.steps[max(0, bisect_right(self._times, t_s) - 1)][1]

    def _clear(self, t_s: float) -> None:
        while self._stale and self._stale[0] <= t_s:
            heappop(self._stale)
            self.inside -= 1

    def refusal(self, t_s: float, job: Job) -> Signal | None:  # noqa: ARG002
        self._clear(t_s)
        if self.inside < self.capacity(t_s):
            return None
        return Signal(SignalKind.THROTTLED, self.retry_after_s)

    def enter(self, t_s: float, job: Job) -> None:  # noqa: ARG002
        self.inside += 1

    def leave(self, t_s: float, job: Job) -> None:
        if job.lingers_s > 0:
            heappush(self._stale, t_s + job.lingers_s)
        else:
            self.inside -= 1

    def room_at(self, t_s: float, job: Job) -> float:  # noqa: ARG002
        self._clear(t_s)
        if self.inside < self.capacity(t_s):
            return t_s
        freed_s = self._stale[0] if self._stale else INFINITY
        for at in self._times[bisect_right(self._times, t_s) :]:
            if at >= freed_s or self.capacity(at) > self.inside:
                return min(at, freed_s)
        return freed_s

    def buckets(self, t_s: float) -> tuple[Bucket, ...]:  # noqa: ARG002
        return ()


@dataclass(slots=True)
class Draw:
    """A neighbour takes this much out of the same bucket at this second, whatever is left in it."""

    at_s: float
    amount: float


@dataclass(slots=True)
class Refilling:
    """A bucket of ``unit`` (requests or tokens) that refills steadily, shared with a neighbour or not.

    The neighbour gets what it wants, if need be on credit (the level goes below zero). So it takes the
    same from every contender: none can starve it by taking more, not even the oracle.
    """

    unit: str
    limit: float
    per_s: float
    headers: bool = False
    retry_after: bool = False
    neighbour: Sequence[Draw] = ()
    level: float = field(init=False)
    _at_s: float = 0.0
    _drawn: int = 0

    def __post_init__(self) -> None:
        self.level = self.limit

    def _advance(self, t_s: float) -> None:
        while self._drawn < len(self.neighbour) and self.neighbour[self._drawn].at_s <= t_s:
            draw = self.neighbour[self._drawn]
            self._drawn += 1
            self._fill(draw.at_s)
            self.level -= draw.amount
        self._fill(t_s)

    def _fill(self, t_s: float) -> None:
        self.level = min(self.limit, self.level + self.per_s * (t_s - self._at_s))
        self._at_s = t_s

    def _cost(self, job: Job) -> float:
        return 1.0 if self.unit == "requests" else job.tokens

    def refusal(self, t_s: float, job: Job) -> Signal | None:
        self._advance(t_s)
        missing = self._cost(job) - self.level
        if missing <= 1e-9:
            return None
        wait_s = max(1.0, float(int(missing / self.per_s) + 1)) if self.retry_after else None
        return Signal(SignalKind.THROTTLED, wait_s)

    def enter(self, t_s: float, job: Job) -> None:  # noqa: ARG002
        self.level -= self._cost(job)

    def leave(self, t_s: float, job: Job) -> None: ...

    def room_at(self, t_s: float, job: Job) -> float:
        self._advance(t_s)
        missing = self._cost(job) - self.level
        return t_s if missing <= 1e-9 else t_s + missing / self.per_s + 1e-6

    def buckets(self, t_s: float) -> tuple[Bucket, ...]:
        if not self.headers:
            return ()
        self._advance(t_s)
        full_s = (self.limit - self.level) / self.per_s
        return (Bucket(self.unit, self.limit, float(max(0, int(self.level))), float(int(full_s) + 1)),)


@dataclass(slots=True)
class Outages:
    """Spans in which every request is refused; those that overlap are one."""

    spans: Sequence[tuple[float, float]]
    kind: SignalKind = SignalKind.OVERLOADED
    _starts: list[float] = field(init=False)

    def __post_init__(self) -> None:
        merged: list[tuple[float, float]] = []
        for start, end in sorted(self.spans):
            if merged and start <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((start, end))
        self.spans = merged
        self._starts = [start for start, _ in merged]

    def over_at(self, t_s: float) -> float | None:
        """When the outage of this moment ends; None: there is none."""
        found = bisect_right(self._starts, t_s) - 1
        return self.spans[found][1] if found >= 0 and t_s < self.spans[found][1] else None

    def refusal(self, t_s: float, job: Job) -> Signal | None:  # noqa: ARG002
        return Signal(self.kind) if self.over_at(t_s) is not None else None

    def enter(self, t_s: float, job: Job) -> None: ...

    def leave(self, t_s: float, job: Job) -> None: ...

    def room_at(self, t_s: float, job: Job) -> float:  # noqa: ARG002
        return self.over_at(t_s) or t_s

    def buckets(self, t_s: float) -> tuple[Bucket, ...]:  # noqa: ARG002
        return ()


@dataclass(slots=True)
class Flaky:
    """Some jobs meet an overload on their first attempt. Not even the oracle can know which."""

    def refusal(self, t_s: float, job: Job) -> Signal | None:  # noqa: ARG002
        if job.unlucky and job.attempts == 1:
            return Signal(SignalKind.OVERLOADED)
        return None

    def enter(self, t_s: float, job: Job) -> None: ...

    def leave(self, t_s: float, job: Job) -> None: ...

    def room_at(self, t_s: float, job: Job) -> float:  # noqa: ARG002
        return t_s

    def buckets(self, t_s: float) -> tuple[Bucket, ...]:  # noqa: ARG002
        return ()


@dataclass(slots=True)
class Acceleration:
    """The use may grow by ``factor`` over the most of the last ``window_s``; ``free`` are always served.

    Use counts once it is a quarter of the window old, so growth takes time.
    """

    factor: float = 1.5
    window_s: float = 60.0
    free: int = 4
    inside: int = 0
    _young: deque[tuple[float, int]] = field(default_factory=deque)
    """Peaks that do not count yet."""
    _best: deque[tuple[float, int]] = field(default_factory=deque)
    """Those that do and could still be the highest, falling."""

    def _allowance(self, t_s: float) -> float:
        while self._young and self._young[0][0] <= t_s - self.window_s / 4:
            peak = self._young.popleft()
            while self._best and self._best[-1][1] <= peak[1]:
                self._best.pop()
            self._best.append(peak)
        while self._best and self._best[0][0] < t_s - self.window_s:
            self._best.popleft()
        return max(self.free, self.factor * (self._best[0][1] if self._best else 0))

    def refusal(self, t_s: float, job: Job) -> Signal | None:  # noqa: ARG002
        return None if self.inside + 1 <= self._allowance(t_s) else Signal(SignalKind.THROTTLED)

    def enter(self, t_s: float, job: Job) -> None:  # noqa: ARG002
        self.inside += 1
        self._young.append((t_s, self.inside))

    def leave(self, t_s: float, job: Job) -> None:  # noqa: ARG002
        self._young.append((t_s, self.inside))
        self.inside -= 1

    def room_at(self, t_s: float, job: Job) -> float:
        if self.refusal(t_s, job) is None:
            return t_s
        # A hair late: the difference of two times may round the wrong way.
        grown = (at for at, count in self._young if self.inside + 1 <= self.factor * count)
        return next(grown, INFINITY) + self.window_s / 4 + 1e-6

    def buckets(self, t_s: float) -> tuple[Bucket, ...]:  # noqa: ARG002
        return ()
