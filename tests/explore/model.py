"""Everything that could happen next to a small fleet. Each step is taken by the shipped functions.

* A renewal leaves, is handled by the store, and its reply is heard. Messages are lost, delivered twice and in
  any order, and may be late without limit.
* Work starts below the limit, and ends.
* A tick passes for the store, and for each holder at a rate of its own.
* The store drops a lease that is over, and recomputes the targets.
* What else may happen a few times is in rare.py: crashes, leaves, a store that forgets, a cap that moves.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product

from tests.explore import rare
from tests.explore.rule import SHIPPED, Rule
from tests.explore.steps import SINCE_MAX, Steps
from tests.explore.tidying import dead, ranked, with_one, without
from tests.explore.world import LIVE, PLENTY, RARE, UNBORN, Answer, Block, Hold, Request, Row, Scenario, World

Step = tuple[str, World, str | None]
"""What happens, the world after it, and what is wrong with that if anything."""


class Model:
    """The moves of one scenario under one rule."""

    def __init__(self, scenario: Scenario, rule: Rule = SHIPPED) -> None:
        self.scenario, self.steps = scenario, Steps(scenario, rule)
        self.own_moves = cache(self._own_moves)
        self.arrivals = cache(self._arrivals)
        self.later = cache(self._later)
        self.tidy = cache(self._tidy)

    def first(self) -> World:
        processes, cap = self.scenario.processes, self.scenario.caps[0]
        blocks = [Block(status=LIVE if one.starts else UNBORN, drift=one.drift) for one in processes]
        left = tuple(self.scenario.rare.get(kind, 0) for kind in RARE)
        return World(cap, cap, 0, left, tuple(blocks))

    def moves(self, world: World) -> Iterator[Step]:
        held = self.held(world)
        nodes = sum(1 for block in world.blocks if block.row and not block.row.draining)
        for index, block in enumerate(world.blocks):
            if block.status == UNBORN:
                continue
            for move, after in self.own_moves(block):
                yield move.format(index), self.put(world, index, after), None
            if block.requests:
                yield from self.arriving(world, index, held, nodes)
        rows = tuple(block.row for block in world.blocks)
        planned = self.steps.plan(rows, world.cap)
        if planned != rows:
            targets = [row.target if row else None for row in planned]
            yield f"plan: targets {targets}", self.with_rows(world, planned), None
        yield from ((move, after, None) for move, after in rare.moves(self, world))
        if self.scenario.time:
            yield from self._ticks(world)

    def held(self, world: World) -> int:
        return sum(block.row.slots for block in world.blocks if block.row)

    def put(self, world: World, index: int, block: Block) -> World:
        blocks = world.blocks
        after = world._replace(blocks=(*blocks[:index], block, *blocks[index + 1 :]))
        return self.settled(after) if after.high != after.cap else after

    def with_rows(self, world: World, rows: tuple[Row | None, ...]) -> World:
        blocks = (self.tidy(block._replace(row=row)) for block, row in zip(world.blocks, rows, strict=True))
        return world._replace(blocks=tuple(blocks))

    def settled(self, world: World) -> World:
        """The high water comes down with what is held, once the store knows all of it."""
        if world.learning:
            return world
        return world._replace(high=max(world.cap, min(world.high, self.held(world))))

    # --- one process and its wire ---

    def _own_moves(self, block: Block) -> tuple[tuple[str, Block], ...]:
        found = list(_losses(block)) if self.scenario.lossy else []
        if block.row and not block.row.expires:
            found.append(("{} is evicted", block._replace(row=None)))
        if block.status == LIVE:
            found += self._moves_of_the_living(block)
        return tuple((move, self.tidy(after)) for move, after in found)

    def _moves_of_the_living(self, block: Block) -> Iterator[tuple[str, Block]]:
        steps, in_flight = self.steps, block.work + block.old
        if len(block.requests) < self.scenario.wire:
            request, sent = self.sent(block)
            yield f"{{}} renews, holding {request.holds}", sent
        for answer in block.answers:
            heard = block._replace(hold=steps.receive(block.hold, answer))
            yield f"{{}} hears: gate {answer.gate}", heard._replace(answers=without(block.answers, answer))
            if self.scenario.twice:
                yield f"{{}} hears, not for the last time: gate {answer.gate}", heard
        if in_flight < steps.limit(block.hold):
            yield "{} starts work", block._replace(work=block.work + 1)
        if block.work:
            yield "{} ends work", block._replace(work=block.work - 1)
        if block.old:
            yield "{} ends work from before its fence", block._replace(old=block.old - 1)
        if steps.gone(block.hold, in_flight):
            yield "{} exits", dead(block)

    def sent(self, block: Block) -> tuple[Request, Block]:
        in_flight = block.work + block.old
        hold, request = self.steps.send(block.hold, in_flight, PLENTY if block.hungry else in_flight)
        return request, block._replace(hold=hold, requests=with_one(block.requests, request))

    # --- a renewal reaches the store ---

    def arriving(self, world: World, index: int, held: int, nodes: int) -> Iterator[Step]:
        found = self.arrivals(world.blocks[index], world.cap, held, nodes, world.learning)
        for move, after, wrong in found:
            yield move.format(index), self.put(world, index, after), wrong

    def _arrivals(
        self, block: Block, cap: int, held: int, nodes: int, learning: int
    ) -> tuple[tuple[str, Block, str | None], ...]:
        found = []
        for request in block.requests:
            after, wrong = self.handled(block, request, cap, held, nodes, learning)
            taken = after._replace(requests=without(block.requests, request))
            words = f"holds {request.holds}"
            found.append((f"renewal of {{}} arrives: {words}", self.tidy(taken), wrong))
            if self.scenario.twice:
                again = self.tidy(after)
                found.append((f"renewal of {{}} arrives, not for the last time: {words}", again, wrong))
        return tuple(found)

    def handled(
        self, block: Block, request: Request, cap: int, held: int, nodes: int, learning: int
    ) -> tuple[Block, str | None]:
        others = held - (block.row.slots if block.row else 0)
        row, answer = self.steps.renew(block.row, request, cap, held, nodes, learning)
        after = block._replace(row=row)
        if answer is not None and block.status == LIVE and len(block.answers) < self.scenario.wire:
            after = after._replace(answers=with_one(block.answers, answer))
        if row != block.row and row.slots > request.holds and others + row.slots > cap:
            return after, f"{others + row.slots} slots are granted with a cap of {cap}"
        return after, None

    def _tidy(self, block: Block) -> Block:
        """The same block without what can make no difference any more.

        A reply to anything but the pending renewal is dropped by its holder, now and at any later time, since
        sequence numbers only grow. That it is dropped now is what the rule itself says here.
        """
        receive, hold = self.steps.receive, block.hold
        if block.answers:
            heard = (one for one in block.answers if _awaited(one, hold) or receive(hold, one) != hold)
            block = block._replace(answers=tuple(heard))
        return ranked(block)

    # --- time ---

    def _ticks(self, world: World) -> Iterator[Step]:
        learning = max(0, world.learning - 1)
        for later in product(*(self.later(block) for block in world.blocks)):
            ticked = world._replace(learning=learning, blocks=tuple(later))
            yield f"tick{_clocks(world, ticked)}", ticked, None

    def _later(self, block: Block) -> tuple[Block, ...]:
        """One tick later; the holder's own clock may stand still, or catch up."""
        block = block._replace(row=self._row_later(block.row), saved=self._row_later(block.saved))
        if block.status != LIVE:
            return (block,)
        offsets = range(max(0, block.offset - 1), min(block.drift, block.offset + 1) + 1)
        return tuple(self.tidy(self._aged(block, offset)) for offset in offsets)

    def _row_later(self, row: Row | None) -> Row | None:
        if row is None:
            return None
        since = min(row.since + 1, SINCE_MAX) if self.steps.turns else 0
        return row._replace(expires=max(0, row.expires - 1), since=since)

    def _aged(self, block: Block, offset: int) -> Block:
        passed, hold = 1 - (offset - block.offset), block.hold
        age = min(self.steps.fence, hold.age + passed) if hold.pending else 0
        hold = hold._replace(fence=max(0, hold.fence - passed), age=age)
        fenced = self.steps.fenced(hold)
        if fenced:
            early = hold.pending and (hold.early or block.hold.fence > 0)
            hold = hold._replace(gate=0, early=int(early))
        grace = max(0, block.grace - 1)
        old = block.old if grace or self.scenario.at_fence == "stubborn" else 0
        after = block._replace(hold=hold, offset=offset, grace=grace, old=old)
        return self._at_fence(after) if fenced and block.work else after

    def _at_fence(self, block: Block) -> Block:
        """What the work does whose holder has just been fenced."""
        if self.scenario.at_fence == "deaf":
            return block
        if self.scenario.at_fence == "abort":
            return block._replace(work=0)
        return block._replace(work=0, old=block.old + block.work, grace=self.scenario.grace)


def _losses(block: Block) -> Iterator[tuple[str, Block]]:
    for request in block.requests:
        yield "a renewal of {} is lost", block._replace(requests=without(block.requests, request))
    for answer in block.answers:
        yield "a reply to {} is lost", block._replace(answers=without(block.answers, answer))


def _awaited(answer: Answer, hold: Hold) -> bool:
    return bool(hold.pending) and answer.seq == hold.seq


def _clocks(before: World, after: World) -> str:
    """Whose clock did not move as the store's did."""
    pairs = enumerate(zip(before.blocks, after.blocks, strict=True))
    shifts = {index: new.offset - old.offset for index, (old, new) in pairs}
    words = [f"at {index} {'none' if by > 0 else 'two'}" for index, by in shifts.items() if by]
    return f" ({', '.join(words)})" if words else ""
