"""The rule with one line broken, and stores that do one thing wrong: what a search must find.

The first ones are the lines that carry the bound; the others are designs that were tried elsewhere and
overshot, froze or starved somebody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

from tests.explore.model import Model, Step
from tests.explore.rule import SHIPPED, Rule, broken
from tests.explore.world import Block, Process, Request, Scenario, World


@dataclass(frozen=True, kw_only=True)
class Mutant:
    name: str
    scenario: Scenario
    rule: Callable[[], Rule] = lambda: SHIPPED
    model: type[Model] = Model
    peace: bool = False
    """What goes wrong is that something never comes back."""


class ForgetsDraining(Model):
    """Counts only what those hold that stay."""

    def held(self, world: World) -> int:
        return sum(block.row.slots for block in world.blocks if block.row and not block.row.draining)


class ReadsTheCapEarly(Model):
    """Compares with a cap that was read before the transaction."""

    def handled(
        self, block: Block, request: Request, cap: int, held: int, nodes: int, learning: int
    ) -> tuple[Block, str | None]:
        after, _ = super().handled(block, request, max(self.scenario.caps), held, nodes, learning)
        return after, None


class OneLeasePerNode(Model):
    """Does not tell incarnations apart: all processes of a node share one row and its sequence numbers."""

    def __init__(self, scenario: Scenario, rule: Rule = SHIPPED) -> None:
        super().__init__(scenario, rule)
        self.tidy = cache(lambda block: block)

    def arriving(self, world: World, index: int, held: int, nodes: int) -> Iterator[Step]:
        if index not in self.scenario.alias:
            yield from super().arriving(world, index, held, nodes)
            return
        home = self.scenario.alias[index]
        block = world.blocks[index]._replace(row=world.blocks[home].row)
        for move, after, wrong in self.arrivals(block, world.cap, held, nodes, world.learning):
            moved = self.put(world, index, after._replace(row=None))
            yield move.format(index), self.put(moved, home, moved.blocks[home]._replace(row=after.row)), wrong


QUIET = Scenario(name="messages only", time=False)
CROWDED = Scenario(name="messages only", time=False, wire=2, twice=False, lossy=False)
TIMED = Scenario(name="with time", ttl=2, twice=False, lossy=False)

MUTANTS = (
    Mutant(
        name="no check of sequence numbers",
        scenario=CROWDED,
        rule=lambda: broken(
            "renewal",
            line="if lease is not None and renewal.seq <= lease.seq:",
            by="if lease is not None and renewal.seq < 0:",
        ),
    ),
    Mutant(
        name="late replies are believed",
        scenario=CROWDED,
        rule=lambda: broken(
            "holding",
            line="if reply.stale or reply.seq != holding.seq or not holding.pending:",
            by="if reply.stale or reply.slots < holding.slots:",
        ),
    ),
    Mutant(
        name="a smaller size is declared before the work fits",
        scenario=QUIET,
        rule=lambda: broken("holding", line="holds = max(gate, in_flight)", by="holds = gate"),
    ),
    Mutant(
        name="what drains is not counted",
        scenario=Scenario(name="leave", time=False, rare={"leave": 1}),
        model=ForgetsDraining,
    ),
    Mutant(
        name="no learning period",
        scenario=Scenario(name="flush", time=False, rare={"flush": 1}),
        rule=lambda: broken(
            "renewal", line="learning_until=now + pot.terms.lease_s", by="learning_until=now"
        ),
    ),
    Mutant(
        name="the fence counts from the reply",
        scenario=TIMED,
        rule=lambda: broken("holding", line="fence_at=holding.sent_at + terms", by="fence_at=now + terms"),
    ),
    Mutant(
        name="the margin ignores drift",
        scenario=Scenario(
            name="drift", ttl=3, processes=(Process(drift=1), Process()), twice=False, lossy=False
        ),
        rule=lambda: broken(
            "terms",
            line="return self.heartbeat_s / 4 + ttl_s * self.drift",
            by="return self.heartbeat_s / 4",
        ),
    ),
    Mutant(
        name="what is owed may be refilled",
        scenario=Scenario(name="stubborn work", ttl=2, twice=False, lossy=False, at_fence="stubborn"),
        rule=lambda: broken("renewal", line="gate=min(target, slots - owed)", by="gate=min(target, slots)"),
    ),
    Mutant(
        name="what a fenced holder runs is a right while the store learns",
        scenario=Scenario(
            name="stubborn work",
            ttl=2,
            twice=False,
            lossy=False,
            at_fence="stubborn",
            rare={"flush": 1},
        ),
        rule=lambda: broken("renewal", line="renewal.holds * renewal.fenced", by="0"),
    ),
    Mutant(
        name="a renewal from before the fence lifts it",
        scenario=Scenario(name="flush", ttl=2, twice=False, lossy=False, rare={"flush": 1}),
        rule=lambda: broken("holding", line="if holding.sent_at < holding.fence_at <= now:", by="if False:"),
    ),
    Mutant(
        name="everybody gets cap / nodes at once",
        scenario=QUIET,
        rule=lambda: broken(
            "renewal", line="room = pot.cap - held_by_others - holds", by="room = pot.cap - holds"
        ),
    ),
    Mutant(
        name="a joiner gets nothing for one beat, then its part",
        scenario=QUIET,
        rule=lambda: broken(
            "renewal",
            line="slots = renewal.holds + _growth(renewal.holds, held_by_others, target, pot, now)",
            by="slots = renewal.holds if lease is None else max(renewal.holds, target)",
        ),
    ),
    Mutant(
        name="leaving gives everything back at once",
        scenario=Scenario(name="leave", time=False, rare={"leave": 1}),
        rule=lambda: broken(
            "holding",
            line="holds = max(gate, in_flight)",
            by="holds = 0 if holding.leaving else max(gate, in_flight)",
        ),
    ),
    Mutant(
        name="a renewal that hangs fences nobody",
        scenario=TIMED,
        rule=lambda: broken("holding", line="return now >= holding.fence_at", by="return False"),
    ),
    Mutant(
        name="callers' clocks decide who is evicted",
        scenario=TIMED,
        rule=lambda: broken(
            "renewal",
            line="expires_at=max(row.expires_at, now + pot.terms.lease_s)",
            by="expires_at=now - 1 + pot.terms.lease_s",
        ),
    ),
    Mutant(
        name="the cap is read before the transaction",
        scenario=Scenario(name="cap", time=False, caps=(2, 1), rare={"cap": 1}),
        model=ReadsTheCapEarly,
    ),
    Mutant(
        name="with fewer slots than nodes nobody takes turns",
        scenario=Scenario(name="turns", caps=(1,), processes=(Process(), Process())),
        rule=lambda: broken(
            "allotment",
            line="return 0 if running else 1 if not lease.slots else 2, lease.since, lease.name",
            by="return 0, 0.0, lease.name",
        ),
        peace=True,
    ),
    Mutant(
        name="two processes under one name share a lease",
        scenario=Scenario(name="one name", time=False, alias={1: 0}),
        model=OneLeasePerNode,
    ),
    Mutant(
        name="a restarted node goes on with its old lease",
        scenario=Scenario(
            name="restart",
            time=False,
            wire=2,
            twice=False,
            lossy=False,
            processes=(Process(heir=2), Process(), Process(starts=False)),
            alias={2: 0},
            rare={"crash": 1},
        ),
        model=OneLeasePerNode,
    ),
    Mutant(
        name="only new work notices the fence",
        scenario=Scenario(name="with time", ttl=2, twice=False, lossy=False, at_fence="deaf"),
    ),
    Mutant(
        name="the gate stays open when less is asked for",
        scenario=QUIET,
        rule=lambda: broken("holding", line="gate=reply.gate,", by="gate=reply.slots,"),
        peace=True,
    ),
)
