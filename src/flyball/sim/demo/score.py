"""The result of a trial: the record of what was seen, and the numbers made from it.

Pure. Every number here is measured: counted by the provider, or timed by the process that watched the
workers. None is a model of what would have happened.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from flyball.sim.provider.capacity import CapacityTally


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at everything while it runs."""

    t_s: float
    capacity: int
    inside: int
    open: int
    cap: int | None = None
    in_use: int | None = None
    state: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRow:
    """One project at one moment."""

    project: str = field(kw_only=False)
    processes: int
    running: int
    waiting: int
    """For a slot, or to try again."""
    throttles: int
    done: int
    calls: int


@dataclass(frozen=True, slots=True)
class Standing:
    """A trial at one moment."""

    governed: bool
    t_s: float
    rows: tuple[ScoreRow, ...]
    samples: tuple[Sample, ...]


@dataclass(slots=True)
class Record:
    """What was seen of one trial."""

    projects: Sequence[str]
    calls_each: int
    finished_at_s: dict[str, list[float]] = field(default_factory=dict)
    throttles: dict[str, int] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    wall_s: float = 0.0
    tally: CapacityTally = field(default_factory=CapacityTally)
    stopped: bool = False
    """True where the trial ran into its time limit before the work was done."""

    def add_done(self, project: str, t_s: float) -> None:
        self.finished_at_s.setdefault(project, []).append(t_s)

    def add_throttle(self, project: str) -> None:
        self.throttles[project] = self.throttles.get(project, 0) + 1

    def close(self, t_s: float, tally: CapacityTally, *, stopped: bool) -> None:
        self.wall_s, self.tally, self.stopped = t_s, tally, stopped

    def count(self, project: str, *, by_s: float | None = None) -> int:
        """Calls of a project that were done, or done by a time."""
        times = self.finished_at_s.get(project, [])
        return len(times) if by_s is None else sum(at <= by_s for at in times)

    @property
    def calls_done(self) -> int:
        return sum(self.count(project) for project in self.projects)

    @property
    def first_finish_s(self) -> float | None:
        """When the first project had made all its calls."""
        last = [times[-1] for times in self.finished_at_s.values() if len(times) >= self.calls_each]
        return min(last, default=None)


@dataclass(frozen=True, slots=True)
class TrialScore:
    """A trial in numbers, all of them measured."""

    calls_done: int
    throttles: int
    wasted_per_100: float | None
    wall_s: float
    fairness: float | None
    done_by_first_finish: tuple[int, ...]
    peak_open: int
    capacity: int
    stopped: bool


def score(record: Record) -> TrialScore:
    by_s = record.first_finish_s
    counts = tuple(record.count(project, by_s=by_s) for project in record.projects)
    tally, done = record.tally, record.calls_done
    return TrialScore(
        calls_done=done,
        throttles=tally.rejected,
        wasted_per_100=100 * (tally.accepted + tally.rejected - done) / done if done else None,
        wall_s=record.wall_s,
        fairness=jain(counts),
        done_by_first_finish=counts,
        peak_open=tally.peak_open,
        capacity=max((row.capacity for row in tally.seconds.values()), default=0),
        stopped=record.stopped,
    )


def jain(counts: Iterable[float]) -> float | None:
    """Jain's index of fairness: 1 when all have the same, 1/n when one has everything.

    >>> jain([4, 4, 4]), jain([9, 0, 0])
    (1.0, 0.3333333333333333)
    """
    values = list(counts)
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else None
