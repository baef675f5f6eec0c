"""A fleet on one Redis server: leases, shares and their renewals, all from one machine.

One server for all parts, in turn: what a lease costs (fleet_leases.py), what a slot of a share costs
(fleet_shares.py), what renewals cost the server (fleet_renewals.py), how fast slots move (fleet_ramp.py), and
the design this replaces (fleet_lock.py). PostgreSQL has a bench of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench import fleet_leases, fleet_lock, fleet_ramp, fleet_renewals, fleet_shares
from bench.fleet_server import served
from bench.report import Figure, Progress, Section

NAME = "fleet"
TITLE = "a fleet on one Redis server, seen from one machine"


@dataclass(frozen=True, slots=True)
class Sizes:
    leases: fleet_leases.Sizes = field(default_factory=fleet_leases.Sizes)
    lock: fleet_lock.Sizes = field(default_factory=fleet_lock.Sizes)
    shares: fleet_shares.Sizes = field(default_factory=fleet_shares.Sizes)
    renewals: fleet_renewals.Sizes = field(default_factory=fleet_renewals.Sizes)
    ramp: fleet_ramp.Sizes = field(default_factory=fleet_ramp.Sizes)


FULL = Sizes()
QUICK = Sizes(
    leases=fleet_leases.Sizes(rounds=3, admits=200, crowd_rounds=2, many=2_000),
    lock=fleet_lock.Sizes(rounds=2),
    shares=fleet_shares.Sizes(rounds=3, pairs=2_000),
    renewals=fleet_renewals.Sizes(nodes=(10, 100), beats=3),
    ramp=fleet_ramp.Sizes(joins=1, skews=(2, 8), skew_s=1.0),
)
Part = Callable[[str, Any, Progress], Sequence[Figure]]


def run(sizes: Sizes, progress: Progress) -> Section:
    parts: list[tuple[Part, object]] = [
        (fleet_leases.figures, sizes.leases),
        (fleet_lock.figures, sizes.lock),
        (fleet_shares.figures, sizes.shares),
        (fleet_renewals.figures, sizes.renewals),
        (fleet_ramp.figures, sizes.ramp),
    ]
    found: list[Figure] = []
    for part, its_sizes in parts:
        # A server of its own each: the one before left nothing in its memory or its scripts.
        with served() as server:
            found += part(server.url, its_sizes, progress)
    return Section(NAME, TITLE, tuple(found), _notes(sizes))


def _notes(sizes: Sizes) -> tuple[str, ...]:
    leases, lock, shares, ramp = sizes.leases, sizes.lock, sizes.shares, sizes.ramp
    return (
        f"leases: {leases.rounds} rounds of {leases.admits:,} in turn, over a unix socket, one client",
        f"starts at once: {lock.starts} threads of one process against a limit of {fleet_lock.LIMIT}, "
        f"{lock.rounds} rounds; the lock's time to live is 10 s, its patience 2 s",
        f"share: {shares.rounds} rounds of {shares.pairs:,} pairs in turn, in the thread's processor time",
        f"renewals: a settled fleet, every node renews once a second for {sizes.renewals.beats} s; what the "
        "server does without anybody is taken off",
        f"joiner: pieces of {ramp.piece_s * 1e3:.0f} ms, a beat of 1 s, so eager renewals keep 50 ms apart; "
        "two of them and their round trips are what a joiner may take beyond the drain",
    )
