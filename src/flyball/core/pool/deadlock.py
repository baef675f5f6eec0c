"""Leases that wait for each other's slots for ever.

A command that holds a lease of one pool and waits inside it for a slot of another ends when it has got that.
Where each of several holds what another waits for, none does.

What ends for certain is taken away, as long as anything does: a lease in which nothing waits gives its slots
back; an ask that then fits is served, and ends too. What is left waits for each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Holding:
    """A lease, and what it holds of each limit."""

    id: int
    holds: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Waiting:
    """An ask, what it wants of each limit, and the leases whose commands it was made by."""

    id: int
    wants: Mapping[str, int]
    inside: frozenset[int]


def deadlocked(free: Mapping[str, int], leases: Iterable[Holding], asks: Iterable[Waiting]) -> frozenset[int]:
    """The leases that wait for each other. ``free``: what is left of each limit now.

    >>> a, b = Holding(1, {"a": 1}), Holding(2, {"b": 1})
    >>> wants_b, wants_a = Waiting(3, {"b": 1}, frozenset({1})), Waiting(4, {"a": 1}, frozenset({2}))
    >>> sorted(deadlocked({"a": 0, "b": 0}, [a, b], [wants_a, wants_b]))
    [1, 2]
    >>> sorted(deadlocked({"a": 0, "b": 1}, [a, b], [wants_a, wants_b]))
    []
    """
    left, held, waiting = dict(free), {lease.id: lease for lease in leases}, {ask.id: ask for ask in asks}
    while True:
        needed = {lease_id for ask in waiting.values() for lease_id in ask.inside}
        ended = [lease for lease in held.values() if lease.id not in needed]
        for lease in ended:
            del held[lease.id]
            for limit, count in lease.holds.items():
                left[limit] = left.get(limit, 0) + count
        served = [
            ask
            for ask in waiting.values()
            if all(left.get(limit, 0) >= count for limit, count in ask.wants.items())
        ]
        for ask in served:
            del waiting[ask.id]
        if not ended and not served:
            return frozenset(held)
