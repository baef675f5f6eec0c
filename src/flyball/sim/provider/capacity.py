"""How much a provider serves at once, and the counter that accepts requests up to it.

Pure: every time is an argument, in seconds since the provider opened. A request that was accepted is never
refused later when the capacity falls; only the next ones are, until enough have left. A refusal takes a
moment too, so ``open`` counts all requests while ``inside`` counts those that are being served.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from flyball.errors import UsageError, invariant


@dataclass(frozen=True, slots=True)
class Capacity:
    """Steps of (from this second on, this many at once), the first at 0.

    >>> Capacity.parse("6,5:3,10:6").at(7.5)
    3
    """

    steps: tuple[tuple[float, int], ...]

    def __post_init__(self) -> None:
        times = [at_s for at_s, _ in self.steps]
        if not times or times[0] != 0 or any(a >= b for a, b in pairwise(times)):
            raise UsageError("a capacity's steps start at 0 and go forward in time")
        if any(count < 0 for _, count in self.steps):
            raise UsageError("a capacity is 0 or more")

    @classmethod
    def parse(cls, text: str) -> Capacity:
        """``6`` or ``6,5:3,10:6``: six at once, three from second 5, six again from second 10."""
        steps = []
        for word in text.split(","):
            at_s, colon, count = word.rpartition(":")
            try:
                steps.append((float(at_s) if colon else 0.0, int(count)))
            except ValueError:
                raise UsageError(f"cannot read {text!r} as a capacity; write it as 6 or 6,5:3,10:6") from None
        return cls(tuple(steps))

    def at(self, t_s: float) -> int:
        return next(count for at_s, count in reversed(self.steps) if at_s <= max(0.0, t_s))

    @property
    def most(self) -> int:
        return max(count for _, count in self.steps)

    def words(self) -> str:
        """``6 -> 3 -> 6``."""
        return " -> ".join(str(count) for _, count in self.steps)


@dataclass(slots=True)
class Second:
    """What happened in one second of a provider's life."""

    capacity: int
    accepted: int = 0
    rejected: int = 0
    peak_inside: int = 0
    peak_open: int = 0


@dataclass(slots=True)
class CapacityTally:
    """A provider's own count of its requests."""

    accepted: int = 0
    rejected: int = 0
    inside: int = 0
    open: int = 0
    peak_inside: int = 0
    peak_open: int = 0
    seconds: dict[int, Second] = field(default_factory=dict)

    def as_json(self) -> Mapping[str, object]:
        names = ("accepted", "rejected", "inside", "open", "peak_inside", "peak_open")
        rows: Sequence[Mapping[str, int]] = [
            {
                "second": at,
                "capacity": row.capacity,
                "accepted": row.accepted,
                "rejected": row.rejected,
                "peak_inside": row.peak_inside,
                "peak_open": row.peak_open,
            }
            for at, row in sorted(self.seconds.items())
        ]
        return {**{name: getattr(self, name) for name in names}, "seconds": rows}


class CapacityCounter:
    """Accepts while fewer are inside than the capacity of the moment. Not thread-safe by itself."""

    def __init__(self, capacity: Capacity) -> None:
        self.capacity = capacity
        self.tally = CapacityTally()

    def enter(self, t_s: float, *, refuse: bool = False) -> bool:
        """Count a request; True if it is served. It stays open either way until it ``leave``s.

        ``refuse`` refuses it whatever the capacity is.
        """
        tally, capacity = self.tally, self.capacity.at(t_s)
        row = tally.seconds.setdefault(int(max(0.0, t_s)), Second(capacity))
        accepted = not refuse and tally.inside < capacity
        tally.open += 1
        if accepted:
            tally.inside += 1
            tally.accepted += 1
            row.accepted += 1
        else:
            tally.rejected += 1
            row.rejected += 1
        for count in (tally, row):
            count.peak_inside = max(count.peak_inside, tally.inside)
            count.peak_open = max(count.peak_open, tally.open)
        return accepted

    def leave(self, *, accepted: bool) -> None:
        self.tally.open -= 1
        self.tally.inside -= accepted
        invariant(self.tally.open >= self.tally.inside >= 0, "more left the provider than came in")
