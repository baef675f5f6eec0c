"""What must hold in every world, and what must come about from every world once it is left in peace.

bound     never more in flight than the cap; after the cap was lowered, than was held then and is still
rights    nor more than that in flight, allowed by gates, and allowed by replies that are still on their way
books     nor in the store's own count, as long as it remembers; and no grant passes the cap (checked where
          a renewal is handled). A store that forgot counts declarations that may be out of date: too much
cover     no holder uses or may use more than the store counts for it, except while the store learns
in peace  nothing is lost and no node starves. With no more faults, work that ends, and renewals when ``due``
          says so, a fleet does the same over and over after a while. In that cycle every slot is in use,
          every node has its part, and with fewer slots than processes its turn

Where the cycle is the same, so is the verdict: each world needs to be followed only until a known one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

from flyball.errors import invariant
from tests.explore.model import Model
from tests.explore.world import LIVE, RARE, Block, Books, Fault, Kind, World, called

ALL = frozenset(Kind)
IN_PEACE = frozenset({Kind.LOST, Kind.STUCK, Kind.STARVED})
FOR_EVER = 60
"""Ticks in peace after which nothing new is expected; several leases and turns of every node."""


class Bounds:
    """``only`` names the kinds of fault that are looked for."""

    def __init__(self, model: Model, only: frozenset[Kind] = ALL) -> None:
        self.model, self.only = model, only
        self._renewed = cache(self._renews)
        self._silenced = cache(self._silence)
        self._restored: dict[World, int] = {}
        """Worlds from which peace is known to bring everything back, and after how many ticks."""

    def wrong(self, world: World) -> Fault | None:
        """What is wrong with a world as it is."""
        return self._first(self._faults(world))

    def lost(self, world: World) -> Fault | None:
        """What does not come back from here although nothing bad happens any more."""
        if not self.only & IN_PEACE:
            return None
        world = self._hushed(world)
        chain: list[World] = []
        while world not in self._restored and world not in chain and len(chain) < FOR_EVER:
            chain.append(world)
            world = self._round(world)
        if world not in self._restored:
            repeats = world in chain
            invariant(
                repeats or not self.model.apart, "a fleet in peace comes to do the same again and again"
            )
            cycle = chain[chain.index(world) if repeats else -FOR_EVER // 2 :]
            fault = self._first(_missing(cycle))
            if fault:
                return fault
            self._restored.update(dict.fromkeys(cycle, 0))
            chain = chain[: -len(cycle)]
            world = cycle[0]
        for ticks, one in enumerate(reversed(chain), self._restored[world] + 1):
            self._restored[one] = ticks
        return None

    @property
    def peace_ticks(self) -> int:
        """How long it took at most until everything was as it should be."""
        return max(self._restored.values(), default=0)

    def minded(self, fault: Fault | None) -> Fault | None:
        """A fault that was found elsewhere, if it is looked for."""
        return fault if fault and fault.kind in self.only else None

    def _first(self, faults: Iterable[Fault]) -> Fault | None:
        return next((fault for fault in faults if fault.kind in self.only), None)

    # --- a world as it is ---

    def _faults(self, world: World) -> Iterator[Fault]:
        blocks = world.blocks
        in_flight = sum(block.work for block in blocks)
        if self.model.linger:
            in_flight += sum(block.old for block in blocks)
        if in_flight > world.high:
            yield Fault(Kind.OVERSHOOT, f"{in_flight} in flight with a cap of {world.high}")
        rights = sum(self.model.rights(block) for block in blocks)
        if rights > world.high:
            yield Fault(Kind.OVERGRANT, f"{rights} slots may be used with a cap of {world.high}")
        granted = sum(block.row.slots - block.row.owed for block in blocks if block.row)
        if granted > world.high and not self._forgot(world):
            yield Fault(Kind.OVERCOUNT, f"{granted} slots are in the books with a cap of {world.high}")
        if not world.learning:
            yield from self._uncovered(world)

    def _uncovered(self, world: World) -> Iterator[Fault]:
        for index, block in enumerate(world.blocks):
            rights = self.model.rights(block)
            if rights > (block.row.slots if block.row else 0):
                counted = f"{block.row.slots} slots" if block.row else "no lease"
                words = f"{called(index)} may use {rights} and the store counts {counted}"
                yield Fault(Kind.UNCOVERED, words)

    def _forgot(self, world: World) -> bool:
        """Whether the store has ever lost its memory: from then on it may count what is out of date."""
        rare = self.model.scenario.rare
        return any(world.left[RARE.index(kind)] < rare.get(kind, 0) for kind in ("flush", "restore"))

    # --- left in peace ---

    def _hushed(self, world: World) -> World:
        """All that is on its way gets lost, and all work ends; a node waiting for a reply does not know."""
        blocks = tuple(self._silenced(block) for block in world.blocks)
        return world._replace(blocks=blocks, high=world.cap, left=(0,) * len(world.left))

    def _round(self, world: World) -> World:
        """Nodes that are due renew, all fill their gates with new work; a tick passes; the store looks."""
        model = self.model
        for index, block in enumerate(world.blocks):
            if block.status == LIVE:
                renewed = self._renewed(model.at_home(world, index), model.books(world))
                world = model.moved_in(world, index, renewed)
        blocks = tuple(self._evicted(model.later(block)[0]) for block in world.blocks)
        world = world._replace(blocks=model.lined_up(blocks), learning=max(0, world.learning - 1))
        return model.with_rows(world, model.planned(world))

    def _silence(self, block: Block) -> Block:
        return self.model.tidy(block._replace(work=0, old=0, grace=0, requests=(), answers=()))

    def _evicted(self, block: Block) -> Block:
        over = block.row and self.model.steps.expired(block.row)
        return block._replace(row=None) if over else block

    def _renews(self, block: Block, books: Books) -> Block:
        model = self.model
        block = block._replace(work=0, old=0)
        if model.steps.due(block.hold, 0, model.wants(block), books.ttl) <= 1:
            request, sent = model.sent(block)
            block, _ = model.handled(sent, request, books)
        hold = block.hold
        for answer in block.answers:
            hold = model.steps.receive(hold, answer)
        admits = block.hungry and not model.steps.fenced(hold)
        work = model.steps.limit(hold) if admits else 0
        return model.tidy(block._replace(hold=hold, work=work, requests=(), answers=()))


def _missing(cycle: list[World]) -> Iterator[Fault]:
    """What is wrong with a fleet that does nothing but this for ever."""
    cap, blocks = cycle[0].cap, cycle[0].blocks
    held = max(sum(block.row.slots for block in world.blocks if block.row) for world in cycle)
    if held > cap:
        yield Fault(Kind.STUCK, f"in peace {held} slots stay held with a cap of {cap}")
    stay = [i for i, block in enumerate(blocks) if block.status == LIVE and not block.hold.leaving]
    hungry = [index for index in stay if blocks[index].hungry]
    if not hungry:
        return
    used = max(sum(block.work for block in world.blocks) for world in cycle)
    if used < cap:
        yield Fault(Kind.LOST, f"in peace only {used} of {cap} slots are ever used")
    fair = cap // len(stay)
    for index in hungry:
        had = [world.blocks[index].work for world in cycle]
        if min(had) < fair or not max(had):
            words = f"in peace {called(index)} has {min(had)} of the {max(1, fair)} slots that are its part"
            yield Fault(Kind.STARVED, words)
