"""A fleet in simulated time: the shipped share leases, one store, one provider with hidden limits.

Nothing of flyball is re-coded here. A node is a ``ShareLimiter`` with work standing in its line, and a
``ShareRenewer`` whose threads are never started: this drives its steps (declare, hear the answer, be told to
look) when they are due. The store is a ``MemoryStore`` on the same clock. Renewals and replies travel for
half a trip each, so nodes act on what they last heard, as they do in life. Only the provider and the time
are made up.

A node has so many *workers*, each with endless work: it waits for a slot, calls, and tries a refused call
again at once, at the front of its work, as everywhere in the simulator. The same seed is the same run.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import cast

from flyball.core.pool.local_pool import CallStart, LocalPool
from flyball.core.pool.setting_table import resolve_pool
from flyball.core.pool.settings import PoolChanges
from flyball.core.share_lease import holder
from flyball.core.share_lease.holder import HolderState
from flyball.core.share_lease.renewal import Renewal, Reply
from flyball.core.share_lease.timing import timing_for
from flyball.core.signals import Signal, SignalKind
from flyball.governor.share.renewer import Outage, ShareRenewer, StoreClient
from flyball.governor.share.share import ShareLimiter, ShareNews
from flyball.sim.simulator.engine import SimulatedProvider
from flyball.sim.simulator.jobs import Job, Mix, jobs
from flyball.sim.simulator.limits import Rule
from flyball.stores.memory import MemoryStore
from flyball.stores.pool_session import Environment
from flyball.stores.port import AfterCommit
from flyball.testing.world import HERE
from flyball.wake.mailbox import Box

POOL = "fleet"
TRIP_S = 0.004
"""There and back between a node and the store."""
INFINITY = float("inf")
_NO_LIMIT: PoolChanges = {"adaptive": False, "cap": 1_000_000, "cap_ceiling": 1_000_000}
_NO_COST: Mapping[str, float] = {}


@dataclass(frozen=True, slots=True)
class Moment:
    """One look at the whole fleet."""

    t_s: float
    cap: int
    held: int
    in_flight: int
    nodes: tuple[int, ...]
    """In flight on each."""


@dataclass(slots=True)
class Mail:
    """Stands in for a mailbox: its address is all that travels."""

    address: str


class Worker:
    """One piece of work at a time, for ever; also the waiter for its slot."""

    priority, cost = 0, _NO_COST

    def __init__(self, node: Node) -> None:
        self.start: CallStart | None = None
        self._node = node

    def ask(self) -> None:
        self.start = None
        self._node.queue.enqueue(self)

    def wake(self) -> bool:
        self._node.fleet.after(0.0, self._call)
        return True

    def wait_on(self) -> None:
        raise AssertionError("in simulated time every waiter wakes when it is woken")

    def look_in(self, delay_s: float) -> bool:
        self._node.fleet.after(delay_s, self._look)
        return True

    def _look(self) -> None:
        if self.start is None:
            self._node.queue.serve(self)

    def _call(self) -> None:
        node, job = self._node, self._node.next_job()
        signal = node.fleet.provider.attempt(node.fleet.now, job)
        took_s = job.service_s if signal.kind is SignalKind.OK else node.fleet.provider.reject_s
        node.fleet.after(took_s, lambda: self._end(job, signal))

    def _end(self, job: Job, signal: Signal) -> None:
        node = self._node
        if signal.kind is SignalKind.OK:
            node.fleet.provider.leave(node.fleet.now, job)
            node.served += 1
        else:
            node.refused += 1
            node.again.append(job)
        assert self.start is not None
        node.queue.end(self.start, signal, heard=False, actual=_NO_COST)
        if node.keeps(self):
            self.ask()


class Node:
    """One process with a share lease and work to do."""

    def __init__(self, fleet: Fleet, name: str, work: Iterator[Job], *, weight: float = 1.0) -> None:
        self.fleet, self.name = fleet, name
        self.again: list[Job] = []
        self.served = self.refused = 0
        self._work, self._workers, self._width = work, set[Worker](), 0
        self._due_at = INFINITY
        self.queue = ShareLimiter(LocalPool(resolve_pool(_NO_LIMIT), fleet.now, name=POOL), lambda: fleet.now)
        holding = HolderState(node=name, incarnation=f"{name}x{fleet.number()}", weight=weight)
        line = StoreClient(renew=_never, report=_nor_this, open_box=lambda: None)
        self.renewing = ShareRenewer(self.queue, holding, line, Outage(), timing_for(fleet.heartbeat_s))
        self.renewing._box = cast(Box, Mail(self.name))
        self.queue.set_listener(self._stirred)
        with self.queue.lock:
            self.renewing._limit(fleet.now)

    # -- work ---------------------------------------------------------------------------------------

    def next_job(self) -> Job:
        return self.again.pop(0) if self.again else next(self._work)

    def widen(self, width: int) -> None:
        """So many workers from now on; those too many end with their work."""
        self._width = width
        while len(self._workers) < width:
            worker = Worker(self)
            self._workers.add(worker)
            worker.ask()

    def keeps(self, worker: Worker) -> bool:
        if len(self._workers) <= self._width:
            return True
        self._workers.discard(worker)
        return False

    @property
    def in_flight(self) -> int:
        return self.queue.in_hands

    # -- renewing -------------------------------------------------------------------------------------

    def leave(self) -> None:
        with self.queue.lock:
            self.renewing.holding = holder.leave(self.renewing.holding)
            self.renewing._limit(self.fleet.now)
            self._look_by()

    def notice(self) -> None:
        """Mail: what the renewing thread does when its box has some."""
        with self.queue.lock:
            holding = self.renewing.holding
            self.renewing.holding = holder.notice(holding, target=holding.target)
            self._look_by()

    def _stirred(self) -> None:
        self.renewing._on_change()
        self._look_by()

    def _look_by(self) -> None:
        """With the lock held: be there when the next renewal is due."""
        if self.renewing.holding.pending:
            return
        due_at = self.renewing._due().at
        if due_at < self._due_at:
            self._due_at = due_at
            self.fleet.at(due_at, self._look)

    def _look(self) -> None:
        with self.queue.lock:
            if self.fleet.now < self._due_at:
                return
            self._due_at = INFINITY
            holding = self.renewing.holding
            if holding.pending or holder.has_left(holding, in_flight=self.queue.minted):
                return
            due = self.renewing._due()
            if due.at > self.fleet.now:
                self._look_by()
                return
            renewal, news = self.renewing._declare(due)
        self.fleet.renewals += 1
        self.fleet.after(self.fleet.trip_s / 2, lambda: self._handled(renewal, news))

    def _handled(self, renewal: Renewal, news: ShareNews) -> None:
        for signal in news.signals:
            self.fleet.report(self, signal)
        reply = self.fleet.renew(renewal)
        self.fleet.after(self.fleet.trip_s / 2, lambda: self._receive(reply, news.refused_at))

    def _receive(self, reply: Reply, refused_at: float | None) -> None:
        self.renewing._receive(reply, refused_at)
        with self.queue.lock:
            self._look_by()


class Fleet:
    """Nodes, their store and the provider, under one clock."""

    def __init__(
        self,
        rules: Sequence[Rule],
        pool: PoolChanges,
        *,
        seed: int,
        mix: Mix | None = None,
        trip_s: float = TRIP_S,
        every_s: float = 1.0,
    ) -> None:
        self.now, self.seed, self.trip_s = 1_000.0, seed, trip_s
        self.provider = SimulatedProvider(rules)
        self.nodes: list[Node] = []
        self.moments: list[Moment] = []
        self.renewals = 0
        self._mix, self._every_s = mix or Mix(), every_s
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        chance = Random(seed).random
        self.store = MemoryStore(Environment(lambda: self.now, chance, lambda: None, lambda: HERE))
        self.store.set_pool(POOL, pool)
        self.heartbeat_s = resolve_pool(pool).heartbeat_s
        self.began = self.now
        self.after(0.0, self._look)

    # -- time -----------------------------------------------------------------------------------------

    def number(self) -> int:
        self._number += 1
        return self._number

    def at(self, time: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (max(self.now, time), self.number(), action))

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        self.at(self.now + delay_s, action)

    def play(self, for_s: float) -> None:
        until = self.now + for_s
        while self._events and self._events[0][0] <= until:
            self.now, _, action = heapq.heappop(self._events)
            action()
        self.now = until

    # -- nodes ----------------------------------------------------------------------------------------

    def join(self, width: int, *, weight: float = 1.0) -> Node:
        """A node begins to renew now, with so much work at once."""
        name = f"n{len(self.nodes) + 1:02}"
        node = Node(self, name, jobs(self._mix, f"{self.seed}/{name}"), weight=weight)
        self.nodes.append(node)
        node.widen(width)
        with node.queue.lock:
            node._look_by()
        return node

    def renew(self, renewal: Renewal) -> Reply:
        reply, after = self.store.renew(POOL, renewal)
        self._tell(after)
        return reply

    def report(self, node: Node, signal: Signal) -> None:
        self._tell(self.store.report(POOL, signal, project="", name=node.name, claim_id=None))

    def _tell(self, after: AfterCommit) -> None:
        told = set(after.notices)
        for node in self.nodes:
            if node.name in told:
                self.after(self.trip_s / 2, node.notice)

    # -- seeing ---------------------------------------------------------------------------------------

    @property
    def cap(self) -> int:
        (pool,) = self.store.snapshot().pools
        return pool.cap

    def _look(self) -> None:
        (pool,) = self.store.snapshot().pools
        running = tuple(node.in_flight for node in self.nodes)
        self.moments.append(Moment(self.now - self.began, pool.cap, pool.in_use, sum(running), running))
        self.after(self._every_s, self._look)

    def mean_cap(self, since_s: float, until_s: float = INFINITY) -> float:
        seen = [moment.cap for moment in self.moments if since_s <= moment.t_s <= until_s]
        return sum(seen) / len(seen)

    @property
    def served(self) -> int:
        return sum(node.served for node in self.nodes)

    @property
    def refused(self) -> int:
        return sum(node.refused for node in self.nodes)


def _never(_: Renewal) -> Reply:
    raise AssertionError("the simulation talks to the store itself")


def _nor_this(_: Signal) -> None:
    raise AssertionError("the simulation talks to the store itself")
