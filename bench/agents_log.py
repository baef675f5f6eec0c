"""What a log of calls and a row of looks say. Pure: values in, values out.

**The oracle.** It serves, at every moment, as many calls as it has seats and as there are calls to serve: the
smaller of the provider's capacity and the calls in hand, whether they are at the provider, in line or wait
after a refusal. Added up over time that is the seat time that could have been served. What was served is the
seat time of accepted calls, no more than the capacity at any moment: calls that go on while the capacity
falls below them earn nothing. So a seat that is empty while a call waits is lost, for whatever reason: a cap
that is too low, a refused call on its way, a slot on its way from one call to the next.

The calls in hand are those of the gateway, from the moment when it has the whole request until its client has
the whole answer. What a call takes on the way between agent, gateway and provider counts against us, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from flyball.sim.provider.capacity import Capacity

SLACK_S = 1.0
"""A call may have had its slot so long before it came to the provider of a busy machine."""


@dataclass(frozen=True, slots=True)
class ServedCall:
    """One call at the provider."""

    owner: str
    """The agent."""
    began_s: float
    ended_s: float
    accepted: bool
    open: int
    """How many calls were there when it came, itself among them."""


@dataclass(frozen=True, slots=True)
class Look:
    t_s: float
    cap: int
    in_use: int
    in_hand: int
    """Calls whose clients do not have the whole answer yet."""


@dataclass(frozen=True, slots=True)
class SeatTime:
    served_s: float
    possible_s: float

    @property
    def share(self) -> float:
        return self.served_s / self.possible_s if self.possible_s else 1.0


def seat_time(
    calls: Iterable[ServedCall], looks: Sequence[Look], capacity: Capacity, *, from_s: float, to_s: float
) -> SeatTime:
    """Between two moments."""
    served_s = sum(
        (b - a) * min(inside, capacity.at(a))
        for a, b, inside in _levels(calls, capacity)
        for a, b in _within(a, b, from_s, to_s)
    )
    possible_s = sum(
        (b - a) * min(look.in_hand, capacity.at(a))
        for look, after in pairwise(looks)
        for a, b in _within(look.t_s, after.t_s, from_s, to_s)
    )
    return SeatTime(served_s, possible_s)


def _within(a: float, b: float, from_s: float, to_s: float) -> Iterator[tuple[float, float]]:
    a, b = max(a, from_s), min(b, to_s)
    if a < b:
        yield a, b


def _levels(calls: Iterable[ServedCall], capacity: Capacity) -> Iterator[tuple[float, float, int]]:
    """From when to when how many were served at once; cut where the capacity moves."""
    changes = [(at_s, 0) for at_s, _ in capacity.steps]
    for call in calls:
        if call.accepted:
            changes += [(call.began_s, 1), (call.ended_s, -1)]
    changes.sort()
    inside = 0
    for (at_s, change), (next_s, _) in pairwise(changes):
        inside += change
        yield at_s, next_s, inside


def above_cap(calls: Iterable[ServedCall], looks: Sequence[Look]) -> int:
    """Calls that came to the provider while more were there than the cap had been of late."""
    return sum(
        call.open > max(caps)
        for call in calls
        if (caps := [cap for at_s, cap in _caps(looks) if _is_near(at_s, call.began_s)])
    )


def _caps(looks: Sequence[Look]) -> Iterator[tuple[float, int]]:
    return ((look.t_s, look.cap) for look in looks)


def _is_near(at_s: float, moment_s: float) -> bool:
    return moment_s - SLACK_S <= at_s <= moment_s + SLACK_S / 4


def in_flight_s(calls: Iterable[ServedCall], owner: str) -> float:
    """How long at least one call of this agent was being served."""
    total, end_s = 0.0, 0.0
    for call in sorted((c for c in calls if c.accepted and c.owner == owner), key=lambda c: c.began_s):
        total += max(0.0, call.ended_s - max(call.began_s, end_s))
        end_s = max(end_s, call.ended_s)
    return total


def caps_over_time(looks: Sequence[Look]) -> str:
    """Each cap with the second it was first seen at: ``8, 10.2 s: 4``."""
    words: list[str] = []
    seen: int | None = None
    for look in looks:
        if look.cap != seen:
            words.append(f"{look.t_s:.1f} s: {look.cap}")
            seen = look.cap
    return ", ".join(words)
