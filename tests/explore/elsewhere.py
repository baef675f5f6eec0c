"""Designs that were tried elsewhere, as one change to ours: each overshot, froze or starved a node there.

None of them may come back unseen, so each is searched for the fault that it had.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.explore.model import Model, Step
from tests.explore.mutants import CROWDED, LEAVING, QUIET, TIMED, Mutant
from tests.explore.rule import broken
from tests.explore.world import AtFence, Block, Books, Fault, Kind, Process, Request, Scenario, World

ONE_NAME = ('return f"{node}\\x1f{incarnation}"', "return node")
"""A lease belongs to a node, whichever process speaks for it."""


class CountsTargets(Model):
    """Counts what others should hold, not what they do."""

    def arriving(self, world: World, index: int, books: Books) -> Iterator[Step]:
        rows = [block.row for block in world.blocks]
        counted = sum(
            row.slots if at == index else min(row.slots, row.target) for at, row in enumerate(rows) if row
        )
        yield from super().arriving(world, index, books._replace(held=counted))


class ForgetsDraining(Model):
    """Counts only what those hold that stay."""

    def held(self, world: World) -> int:
        return sum(block.row.slots for block in world.blocks if block.row and not block.row.draining)


class ReadsTheCapEarly(Model):
    """Compares with a cap that was read before the transaction."""

    def handled(self, block: Block, request: Request, books: Books) -> tuple[Block, Fault | None]:
        return super().handled(block, request, books._replace(cap=max(self.scenario.caps)))


ELSEWHERE = (
    Mutant(
        name="every node gets cap / nodes at once, on a staggered join",
        scenario=QUIET,
        rule=lambda: broken("renewal", ("room = pot.cap - held_by_others - slots", "room = pot.cap - slots")),
    ),
    Mutant(
        name="a joiner gets nothing for one beat, then its part",
        scenario=QUIET,
        rule=lambda: broken(
            "renewal",
            (
                "slots += max(0, min(target - slots, room))",
                "slots = renewal.holds if lease is None else max(renewal.holds, target)",
            ),
        ),
    ),
    Mutant(
        name="the cap is compared with shares while an incumbent still drains",
        scenario=QUIET,
        model=CountsTargets,
    ),
    Mutant(
        name="an old grant that was overtaken is believed",
        scenario=CROWDED,
        rule=lambda: broken(
            "holder",
            (" or reply.seq != holding.seq or not holding.pending:", " or reply.slots < holding.slots:"),
        ),
    ),
    Mutant(
        name="what a restarted node said before counts as said by it now",
        scenario=Scenario(
            name="restart",
            time=False,
            twice=False,
            lossy=False,
            processes=(
                Process(node="a", heir=2, seq=1),
                Process(node="b"),
                Process(node="a", starts=False),
            ),
            rare={"crash": 1},
        ),
        rule=lambda: broken("renewal", ONE_NAME),
    ),
    Mutant(
        name="a node that restarts within the TTL begins again at number one",
        scenario=Scenario(
            name="restart",
            time=False,
            processes=(Process(node="a", heir=1, seq=100), Process(node="a", starts=False)),
            rare={"crash": 1},
        ),
        finds=Kind.STARVED,
        rule=lambda: broken(
            "renewal",
            ONE_NAME,
            (
                "RenewedShare(lease=lease,",
                "RenewedShare(lease=replace(lease, expires_at=now + pot.terms.lease_s),",
            ),
        ),
    ),
    Mutant(
        name="a store that forgot grants at once, with holders alive",
        scenario=Scenario(name="flush", time=False, rare={"flush": 1}),
        rule=lambda: broken("renewal", ("learning_until=now + pot.terms.lease_s", "learning_until=now")),
    ),
    Mutant(
        name="leaving gives everything back while work runs",
        scenario=LEAVING,
        rule=lambda: broken(
            "holder",
            ("holds = max(gate, in_flight)", "holds = 0 if holding.leaving else max(gate, in_flight)"),
        ),
    ),
    Mutant(
        name="the slots of those that leave are not counted",
        scenario=LEAVING,
        model=ForgetsDraining,
    ),
    Mutant(
        name="two processes under one node id share a lease",
        scenario=Scenario(name="one name", time=False, processes=(Process(node="a"), Process(node="a"))),
        rule=lambda: broken("renewal", ONE_NAME),
    ),
    Mutant(
        name="a renewal that hangs instead of failing keeps the fence away",
        scenario=TIMED,
        rule=lambda: broken(
            "holder",
            ("return now >= holding.fence_at", "return now >= holding.fence_at and not holding.pending"),
        ),
    ),
    Mutant(
        name="only the next acquire notices the fence",
        scenario=Scenario(name="with time", ttls=(1,), twice=False, lossy=False, at_fence=AtFence.DEAF),
    ),
    Mutant(
        name="a caller's clock decides when its lease ends",
        scenario=TIMED,
        rule=lambda: broken(
            "renewal",
            (
                "expires_at=max(row.expires_at, now + pot.terms.lease_s)",
                "expires_at=now - 1 + pot.terms.lease_s",
            ),
        ),
    ),
    Mutant(
        name="with fewer slots than nodes the same ones get them for ever",
        scenario=Scenario(name="turns", caps=(1,)),
        finds=Kind.STARVED,
        rule=lambda: broken(
            "allotment",
            (
                "return 0 if running else 1 if not lease.slots else 2, lease.since, lease.name",
                "return 0, 0.0, lease.name",
            ),
        ),
    ),
    Mutant(
        name="the cap is lowered while renewals that read it are under way",
        scenario=Scenario(name="cap", time=False, caps=(2, 1), rare={"cap": 1}),
        model=ReadsTheCapEarly,
    ),
)
