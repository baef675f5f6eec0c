"""Which node should get how much of the slots that share leases divide. Part of the plan: renewals move them.

    even     every node the same for its weight, used or not; remainders go to the lowest names
    demand   weighted max-min over what the nodes want; what no node wants stays where it is, and a node that
             has nothing keeps one slot to begin with where there is room

No node starves: one that wants something is asked to go to one slot at least. With fewer slots than nodes
they take turns: one that has had its slot for a turn yields to the one that has waited longest, and that one
keeps its place in line until it was served, however long the other's work takes to end.

Slots of leases that drain, and of holders that have been silent for two beats, cannot be asked for: the
others divide the rest. Costs O(n log n) in the number of leases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flyball.core.share_lease.renewal import ShareLease
from flyball.core.share_lease.timing import AllotRule as AllotRule
from flyball.core.share_lease.timing import ShareTiming

INFINITY = float("inf")
SILENT_BEATS = 2


@dataclass(frozen=True, slots=True)
class Allotment:
    targets: Mapping[str, int]
    """The target of each lease, by its name."""
    until: float
    """Time alone changes nothing before this."""


def allot(
    leases: Sequence[ShareLease], *, cap: int, rule: AllotRule, terms: ShareTiming, now: float
) -> Allotment:
    """The target of every lease. Those that can be asked are never asked for more, in sum, than is left."""
    ordered = sorted(leases, key=lambda lease: lease.name)
    asked = [lease for lease in ordered if not lease.draining and not is_silent(lease, terms, now=now)]
    apart = {lease.name: 0 if lease.draining else lease.slots for lease in ordered}
    room = max(0, cap - sum(lease.slots for lease in ordered) + sum(lease.slots for lease in asked))
    even = rule is AllotRule.EVEN
    wants = {lease.name: room if even else min(room, lease.wants) for lease in asked}
    wanting = [lease for lease in asked if wants[lease.name]]
    short = room < len(wanting)
    targets = _turns(wanting, room, terms, now) if short else _levels(wanting, wants, room)
    spared = _spread(asked, targets, room - sum(targets.values()))
    return Allotment(apart | spared, _until(ordered, short=short, terms=terms, now=now))


def is_silent(lease: ShareLease, terms: ShareTiming, *, now: float) -> bool:
    """It has not renewed for two beats: it may be dead, and is promised nothing."""
    return lease.expires_at - now < terms.lease_s - SILENT_BEATS * terms.heartbeat_s


def _levels(wanting: Sequence[ShareLease], wants: Mapping[str, int], room: int) -> dict[str, int]:
    """Weighted max-min in whole slots, at least one each. There is room for that."""
    level = _water_level(wanting, wants, room)
    exact = {lease.name: min(wants[lease.name], max(1.0, level * lease.weight)) for lease in wanting}
    # The tiny addend keeps 3 * (1 / 3) from flooring to 0.
    got = {name: int(part + 1e-9) for name, part in exact.items()}
    left = room - sum(got.values())
    more = sorted((name for name in got if got[name] < wants[name]), key=lambda name: got[name] - exact[name])
    for name in more[: max(0, left)]:
        got[name] += 1
    return got


def _water_level(wanting: Sequence[ShareLease], wants: Mapping[str, int], room: int) -> float:
    """Slots per unit of weight at which the parts, kept between one slot and their wants, fill the room.

    The sum of the parts bends where one of them leaves its lower bound and where it meets its upper one.
    """
    rises = [(1 / lease.weight, lease.weight) for lease in wanting]
    stops = [(wants[lease.name] / lease.weight, -lease.weight) for lease in wanting]
    level, total, slope = 0.0, float(len(wanting)), 0.0
    for bend, change in sorted(rises + stops):
        grown = total + slope * (bend - level)
        if grown >= room and slope > 0:
            return level + (room - total) / slope
        level, total, slope = bend, grown, slope + change
    return level


def _turns(wanting: Sequence[ShareLease], room: int, terms: ShareTiming, now: float) -> dict[str, int]:
    """One slot each for as many as there are slots: whose turn is running, then who waits longest."""

    def place(lease: ShareLease) -> tuple[int, float, str]:
        running = lease.slots > 0 and now < lease.since + terms.turn_s
        return 0 if running else 1 if not lease.slots else 2, lease.since, lease.name

    line = sorted(wanting, key=place)
    return {lease.name: int(place < room) for place, lease in enumerate(line)}


def _spread(asked: Sequence[ShareLease], targets: Mapping[str, int], left: int) -> dict[str, int]:
    """What no node wants: one slot for those that have none, then as it is now, then the same for all."""
    got = {lease.name: targets.get(lease.name, 0) for lease in asked}
    for up_to in (dict.fromkeys(got, 1), {lease.name: lease.slots for lease in asked}):
        for name, aim in up_to.items():
            step = max(0, min(left, aim - got[name]))
            got[name] += step
            left -= step
    for index, name in enumerate(got):
        got[name] += left // len(got) + (index < left % len(got))
    return got


def _until(leases: Sequence[ShareLease], *, short: bool, terms: ShareTiming, now: float) -> float:
    """The next end of a turn, or when a holder that stays silent starts to count as such or is over."""
    times = [lease.expires_at for lease in leases]
    times += [time - terms.lease_s + SILENT_BEATS * terms.heartbeat_s for time in times]
    if short:
        times += [lease.since + terms.turn_s for lease in leases if lease.slots]
    return min((time for time in times if time > now), default=INFINITY)
