"""A holder of a share lease in a scene: the shipped holder's side, with work that a check begins and ends."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from flyball.core.holding import Holding, leave, limit, receive, send
from flyball.core.renewal import Renewal, Reply, Tally
from flyball.core.settings import PoolChanges, resolve_pool
from flyball.core.terms import ShareTerms
from flyball.testing.store_checks.scene import POOL, Scene, expect

if TYPE_CHECKING:
    from flyball.stores.port import After

_incarnations = count(1)


class Node:
    """One incarnation. It wants what it was told to, and runs as much of it as it may."""

    def __init__(
        self,
        scene: Scene,
        name: str,
        *,
        wants: int = 0,
        weight: float = 1.0,
        pool: str = POOL,
        estimate: float | None = None,
    ) -> None:
        self.scene, self.pool, self.estimate = scene, pool, estimate
        self.holding = Holding(node=name, incarnation=f"i{next(_incarnations)}", weight=weight)
        self.wants, self.running = wants, 0
        self.tally = Tally()
        self.refused_age_s: float | None = None
        self.after: After

    @property
    def may(self) -> int:
        """How much it may have in flight now."""
        return limit(self.holding, now=self.scene.world.clock())

    def renewal(self) -> Renewal:
        """The next one, as it goes out."""
        now = self.scene.world.clock()
        self.holding, sent = send(
            self.holding, now=now, in_flight=self.running, wants=self.wants, tally=self.tally
        )
        sent = replace(
            sent,
            peak=self.running,
            estimate=self.estimate,
            refused_age_s=self.refused_age_s,
            mailbox=f"/mail/{self.holding.node}",
        )
        self.refused_age_s = None
        return sent

    def give(self, renewal: Renewal) -> Reply:
        """The store handles a renewal."""
        reply, self.after = self.scene.store.renew(self.pool, renewal)
        return reply

    def take(self, reply: Reply) -> int:
        """A reply arrives: begin what is wanted and allowed. What runs then."""
        now = self.scene.world.clock()
        self.holding = receive(self.holding, reply, now=now, terms=self.terms)
        self.running = max(self.running, min(self.wants, self.may))
        return self.running

    def renew(self) -> int:
        """There and back, with nothing in between; what runs then."""
        return self.take(self.give(self.renewal()))

    def end(self, pieces: int) -> None:
        """Some of its work ends."""
        expect(self.running >= pieces, f"{self.holding.node} runs {self.running}, not {pieces}")
        self.running -= pieces

    def answered(self, *, ok: int = 0, throttled: int = 0, overloaded: int = 0) -> None:
        """What the provider said since the last renewal."""
        t = self.tally
        self.tally = Tally(t.successes + ok, t.throttles + throttled, t.overloads + overloaded)

    def leave(self) -> None:
        self.holding, self.wants = leave(self.holding), 0

    @property
    def terms(self) -> ShareTerms:
        named: PoolChanges = self.scene.seen(self.pool).named
        return resolve_pool(named).share_terms


def settle(*nodes: Node, rounds: int = 6) -> list[int]:
    """Let all of them renew until nothing moves any more; what each runs then."""
    for _ in range(rounds):
        for node in nodes:
            node.scene.wait(0.06)
            node.renew()
    return [node.running for node in nodes]


def take_turns(*nodes: Node, rounds: int) -> None:
    """One after the other ends what it may not run any more, and renews."""
    for _ in range(rounds):
        for node in nodes:
            node.end(max(0, node.running - node.may))
            node.scene.wait(0.1)
            node.renew()


def learned(scene: Scene) -> None:
    """Let a new store learn that nobody holds anything: a lease's length after its first renewal."""
    first = Node(scene, "first")
    first.renew()
    scene.wait(first.terms.lease_s + 0.01)
    first.leave()
    first.renew()
    scene.wait(first.terms.lease_s + 0.01)


def ready(scene: Scene, cap: int, **changes: object) -> None:
    """A pool of a fixed cap whose store knows that nobody holds anything."""
    scene.static(cap, **changes)  # type: ignore[arg-type]
    learned(scene)
