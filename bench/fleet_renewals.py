"""What renewals cost the server: so many nodes on one Redis, each renewing its share lease once a second.

The nodes are the shipped holder's side, driven by one process that spreads their renewals evenly over the
beat. The fleet is settled, as it is nearly always: every node has its part, uses it, and would like one more.
What the server does by itself, without anybody, is measured first and taken off.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bench.fleet_server import Client
from bench.report import Figure, Progress, Target
from flyball.core.share_lease import holder
from flyball.core.share_lease.holder import HolderState
from flyball.core.share_lease.renewal import CallCounts
from flyball.core.share_lease.timing import ShareTiming, timing_for

POOL = "renewals"
EACH = 4
SETTLED = 3
"""Beats in which nobody's part moved."""


@dataclass(frozen=True, slots=True)
class Sizes:
    nodes: tuple[int, ...] = (10, 100, 1_000)
    beats: int = 10
    heartbeat_s: float = 1.0


class Node:
    def __init__(self, name: str) -> None:
        self.holding = HolderState(node=name, incarnation=name)
        self._answered = 0

    def renew(self, client: Client, terms: ShareTiming) -> int:
        """There and back; how many slots it has then."""
        running = holder.limit(self.holding, now=time.monotonic())
        self._answered += running
        self.holding, renewal = holder.send(
            self.holding,
            now=time.monotonic(),
            in_flight=running,
            wants=EACH + 1,
            tally=CallCounts(self._answered),
        )
        reply, _ = client.store.renew(POOL, replace(renewal, peak=running, hold_s=terms.heartbeat_s))
        self.holding = holder.receive(self.holding, reply, now=time.monotonic(), terms=terms)
        return self.holding.slots


@dataclass(frozen=True, slots=True)
class Cost:
    nodes: int
    renewals: int
    took_s: float
    server_us: float
    """Of processor time, without what the server does by itself."""

    @property
    def each_us(self) -> float:
        return self.server_us / self.renewals

    @property
    def a_second_ms(self) -> float:
        """At one renewal a second each."""
        return self.each_us * self.nodes / 1e3


def figures(url: str, sizes: Sizes, progress: Progress) -> list[Figure]:
    client = Client(url)
    try:
        idle = _idle_us_per_s(client, sizes)
        costs = [_cost(client, nodes, sizes, idle, progress) for nodes in sizes.nodes]
    finally:
        client.store.close()
    few, many = costs[0], costs[-1]
    return [
        *(
            Figure(what=f"server CPU in a second, {cost.nodes:,} nodes", ours=cost.a_second_ms, unit="ms")
            for cost in costs
        ),
        *(
            Figure(
                what=f"server CPU per renewal, {cost.nodes:,} nodes",
                ours=cost.each_us,
                unit="us",
                beside=f"{few.nodes:,} nodes",
                theirs=few.each_us,
                # No faster than linearly, as far as two measurements of the same thing agree.
                target=Target("ratio", 1.15) if cost is many else None,
            )
            for cost in costs[1:]
        ),
    ]


def _idle_us_per_s(client: Client, sizes: Sizes) -> float:
    start, before = time.monotonic(), client.server_us()
    time.sleep(sizes.beats * sizes.heartbeat_s / 4)
    return (client.server_us() - before) / (time.monotonic() - start)


def _cost(client: Client, count: int, sizes: Sizes, idle: float, progress: Progress) -> Cost:
    progress(f"fleet: {count:,} nodes join")
    client.store.set_pool(POOL, {"cap": EACH * count, "adaptive": True, "cap_ceiling": EACH * count})
    client.store.set_pool(POOL, {"heartbeat_s": sizes.heartbeat_s})
    terms = timing_for(sizes.heartbeat_s)
    nodes = [Node(f"of{count}n{number:04}") for number in range(count)]
    _settle(client, nodes, terms)
    progress(f"fleet: {count:,} nodes renew")
    start, before = time.monotonic(), client.server_us()
    for _ in range(sizes.beats):
        _beat(client, nodes, terms)
    took_s = time.monotonic() - start
    used = client.server_us() - before - idle * took_s
    _leave(client, nodes, terms)
    return Cost(count, sizes.beats * count, took_s, max(0.0, used))


def _settle(client: Client, nodes: Sequence[Node], terms: ShareTiming) -> None:
    """Renew until everybody has its part, and has had it for a while."""
    still, deadline = 0, time.monotonic() + 20 * terms.ttl_s
    while still < SETTLED:
        parts = _beat(client, nodes, terms)
        still = still + 1 if set(parts) == {EACH} else 0
        assert time.monotonic() < deadline, f"the fleet does not settle: {sorted(set(parts))}"


def _beat(client: Client, nodes: Sequence[Node], terms: ShareTiming) -> list[int]:
    """Everybody renews once, evenly over one beat, or as fast as this process can."""
    begin, parts = time.monotonic(), []
    for number, node in enumerate(nodes):
        time.sleep(max(0.0, begin + number * terms.heartbeat_s / len(nodes) - time.monotonic()))
        parts.append(node.renew(client, terms))
    time.sleep(max(0.0, begin + terms.heartbeat_s - time.monotonic()))
    return parts


def _leave(client: Client, nodes: Sequence[Node], terms: ShareTiming) -> None:
    for node in nodes:
        node.holding = holder.leave(node.holding)
        node.renew(client, terms)
