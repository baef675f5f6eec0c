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
BLIND_S = 0.3
"""No cap above the limit lasts so long: a refusal is there sooner."""


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


def _within(a: float, b: float, from_s: float, to_s: float) -> Sequence[tuple[float, float]]:
    """The part of one time that is in another, if any."""
    a, b = max(a, from_s), min(b, to_s)
    return [(a, b)] if a < b else []


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


@dataclass(frozen=True, slots=True)
class CapCheck:
    above: int = 0
    """Calls that came to the provider while more were there than the cap had been of late."""
    unjudged: int = 0
    """Calls that came while the bench did not get to look: a cap may have come and gone."""


def check_cap(calls: Iterable[ServedCall], looks: Sequence[Look]) -> CapCheck:
    above = unjudged = 0
    blind = [(look.t_s, after.t_s) for look, after in pairwise(looks) if after.t_s - look.t_s > BLIND_S]
    for call in calls:
        from_s, to_s = call.began_s - SLACK_S, call.began_s + BLIND_S
        caps = [look.cap for look in looks if from_s <= look.t_s <= to_s]
        if caps and call.open <= max(caps):
            continue
        if not caps or any(_within(*each, from_s, to_s) for each in blind):
            unjudged += 1
        else:
            above += 1
    return CapCheck(above, unjudged)


def in_flight_s(calls: Iterable[ServedCall], owner: str) -> float:
    """How long at least one call of this agent was being served."""
    total, end_s = 0.0, 0.0
    for call in sorted((c for c in calls if c.accepted and c.owner == owner), key=lambda c: c.began_s):
        total += max(0.0, call.ended_s - max(call.began_s, end_s))
        end_s = max(end_s, call.ended_s)
    return total
