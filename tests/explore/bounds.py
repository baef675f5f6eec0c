"""What must hold in every world, and what must come about from every world once it is left in peace.

bound     never more in flight than the cap; after the cap was lowered, than was held then and is still
books     never more granted than that; and no grant passes the cap (checked where a renewal is handled)
cover     no holder uses or may use more than the store counts for it, except while the store learns
in peace  no slot is lost and nobody starves: with no more faults every slot is soon in use again, every
          process gets its part, and with fewer slots than processes its turn
"""

from __future__ import annotations

from tests.explore.model import Model
from tests.explore.world import LIVE, Block, World


class Bounds:
    def __init__(self, model: Model, *, only_the_bound: bool = False) -> None:
        self.model, self._only_the_bound = model, only_the_bound
        self._peaceful: set[World] = set()
        """Worlds from which peace is known to bring everything back."""

    def wrong(self, world: World) -> str | None:
        """What is wrong with a world, in words."""
        survivors = self.model.scenario.at_fence == "linger"
        in_flight = sum(block.work + survivors * block.old for block in world.blocks)
        if in_flight > world.high:
            return f"{in_flight} in flight with a cap of {world.high}"
        return None if self._only_the_bound else self._wrong_in_the_books(world)

    def _wrong_in_the_books(self, world: World) -> str | None:
        granted = sum(block.row.slots - block.row.owed for block in world.blocks if block.row)
        if granted > world.high:
            return f"{granted} slots are granted with a cap of {world.high}"
        if world.learning:
            return None
        for index, block in enumerate(world.blocks):
            if block.status == LIVE and self._uses(block) > (block.row.slots if block.row else 0):
                counted = f"{block.row.slots} slots" if block.row else "no lease"
                return f"process {index} may use {self._uses(block)} and the store counts {counted}"
        return None

    def _uses(self, block: Block) -> int:
        return max(block.work, self.model.steps.limit(block.hold))

    # --- left in peace ---

    def lost(self, world: World) -> str | None:
        """What does not come back from here although nothing bad happens any more."""
        seen: list[World] = []
        served, most = [0] * len(world.blocks), 0
        world = self._hushed(world)
        for _ in range(self._rounds(world)):
            if world in self._peaceful:
                break
            seen.append(world)
            world = self._round(world)
            in_use = [block.work for block in world.blocks]
            served = [max(pair) for pair in zip(served, in_use, strict=True)]
            most = max(most, sum(in_use))
        else:
            missing = _missing(world, served, most)
            if missing:
                return missing
        self._peaceful.update(seen)
        return None

    def _rounds(self, world: World) -> int:
        """Long enough for old leases to expire and for everybody to have a turn."""
        terms = self.model.steps.terms
        return int(2 * terms.lease_s + terms.turn_s * len(world.blocks) + 4)

    def _hushed(self, world: World) -> World:
        """All that is on its way gets lost."""
        blocks = tuple(self.model.tidy(block._replace(requests=(), answers=())) for block in world.blocks)
        return world._replace(blocks=blocks, left=(0,) * len(world.left))

    def _round(self, world: World) -> World:
        """All work ends, everybody renews and fills its gate; a tick passes; the store looks around."""
        model = self.model
        for index in range(len(world.blocks)):
            world = self._renewed(world, index)
        later = [model.later(block)[0] for block in world.blocks]
        blocks = [one._replace(row=None) if one.row and not one.row.expires else one for one in later]
        world = world._replace(blocks=tuple(blocks), learning=max(0, world.learning - 1))
        planned = model.steps.plan(tuple(block.row for block in world.blocks), world.cap)
        return model.with_rows(model.settled(world), planned)

    def _renewed(self, world: World, index: int) -> World:
        model, block = self.model, world.blocks[index]
        if block.status != LIVE:
            return world
        held = sum(one.row.slots for one in world.blocks if one.row)
        nodes = sum(1 for one in world.blocks if one.row and not one.row.draining)
        request, sent = model.sent(block._replace(work=0, old=0))
        after, _ = model.handled(sent, request, world.cap, held, nodes, world.learning)
        hold = after.hold
        for answer in after.answers:
            hold = model.steps.receive(hold, answer)
        work = model.steps.limit(hold) if block.hungry else 0
        quiet = model.tidy(after._replace(hold=hold, work=work, requests=(), answers=()))
        return world._replace(blocks=(*world.blocks[:index], quiet, *world.blocks[index + 1 :]))


def _missing(world: World, served: list[int], most: int) -> str | None:
    stay = [i for i, block in enumerate(world.blocks) if block.status == LIVE and not block.hold.leaving]
    hungry = [index for index in stay if world.blocks[index].hungry]
    held = sum(block.row.slots for block in world.blocks if block.row)
    if hungry and most < world.cap:
        return f"in peace only {most} of {world.cap} slots are ever used"
    if held > world.cap:
        return f"in peace {held} slots stay held with a cap of {world.cap}"
    fair = world.cap // len(stay) if stay else 0
    for index in hungry:
        work = world.blocks[index].work
        if not served[index] or work < fair:
            return f"in peace process {index} has {work} of the {max(1, fair)} slots that are its part"
    return None
