"""Everything that could happen next to a small fleet. Each step is taken by the shipped functions.

* A renewal leaves, is handled by the store, and its reply is heard. Messages are lost, delivered twice and in
  any order, and may be late without limit.
* Work starts below the limit, and ends.
* A tick passes for the store, and for each holder at a rate of its own.
* The store drops a lease that is over, and recomputes the targets.
* What else may happen a few times is in rare.py: crashes, leaves, a store that forgets, a cap that moves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from itertools import product

from tests.explore import rare
from tests.explore.rule import SHIPPED, Rule
from tests.explore.steps import Steps
from tests.explore.tidying import dead, in_line, ranked, with_one, without
from tests.explore.world import (
    LIVE,
    PLENTY,
    RARE,
    UNBORN,
    Answer,
    AtFence,
    Block,
    Books,
    Fault,
    Hold,
    Kind,
    Process,
    Request,
    Row,
    Scenario,
    World,
    called,
)

Step = tuple[str, World, Fault | None]
"""What happens, the world after it, and what is wrong with that if anything."""


class Model:
    """The moves of one scenario under one rule."""

    def __init__(self, scenario: Scenario, rule: Rule = SHIPPED) -> None:
        self.scenario, self.steps = scenario, Steps(scenario, rule)
        self.own_moves = cache(self._own_moves)
        self.arrivals = cache(self._arrivals)
        self.later = cache(self._later)
        self.rights = cache(self._rights)
        self.homes = self.steps.homes()
        self.linger = scenario.grace + self.steps.late
        """How long work goes on beyond a fence, and is counted."""
        # Numbers of two processes in one lease are compared as they are, not by their order alone.
        self.apart = self.homes == tuple(range(len(self.homes)))
        self.tidy: Callable[[Block], Block] = cache(self._tidy) if self.apart else lambda block: block

    def first(self) -> World:
        cap = self.scenario.caps[0]
        blocks = (_newborn(one) for one in self.scenario.processes)
        left = tuple(self.scenario.rare.get(kind, 0) for kind in RARE)
        return World(cap, self.scenario.ttls[0], cap, 0, left, tuple(blocks))

    def moves(self, world: World) -> Iterator[Step]:
        books = self.books(world)
        for index, block in enumerate(world.blocks):
            if block.status == UNBORN:
                continue
            for move, after in self.own_moves(block):
                yield move.format(called(index)), self.put(world, index, after), None
            if block.requests:
                yield from self.arriving(world, index, books)
                if self.scenario.prompt:
                    yield from self._meeting_the_plan(world, index, books)
        planned = self.planned(world)
        if planned != tuple(block.row for block in world.blocks):
            targets = [row.target if row else None for row in planned]
            yield f"plan: targets {targets}", self.with_rows(world, planned), None
        yield from ((move, after, None) for move, after in rare.moves(self, world))
        if self.scenario.time:
            yield from self._ticks(world)

    def books(self, world: World) -> Books:
        nodes = sum(1 for block in world.blocks if block.row and not block.row.draining)
        return Books(world.cap, self.held(world), nodes, world.learning, world.ttl)

    def held(self, world: World) -> int:
        return sum(block.row.slots for block in world.blocks if block.row)

    def planned(self, world: World) -> tuple[Row | None, ...]:
        return self.steps.plan(tuple(block.row for block in world.blocks), world.cap, world.ttl)

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
        if block.row and self.steps.expired(block.row):
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
        if self.scenario.impatient and block.hold.pending:
            yield "{} waits no longer for a reply", block._replace(hold=steps.missed(block.hold))
        if in_flight < steps.limit(block.hold):
            yield self._started(block)
        if block.work:
            yield "{} ends work", block._replace(work=block.work - 1)
        if block.old:
            yield "{} ends work from before its fence", block._replace(old=block.old - 1)
        if steps.gone(block.hold, in_flight):
            yield "{} exits", dead(block)._replace(work=block.work)

    def _started(self, block: Block) -> tuple[str, Block]:
        if self.steps.fenced(block.hold):
            return "{} starts work on its own account", block._replace(old=block.old + 1)
        return "{} starts work", block._replace(work=block.work + 1)

    def _rights(self, block: Block) -> int:
        """What it uses, or may use, or may use once it hears what is on its way."""
        heard = (self.steps.receive(block.hold, answer) for answer in block.answers)
        open_to = [self.steps.limit(hold) for hold in (block.hold, *heard) if not self.steps.fenced(hold)]
        return max(block.work, *open_to, 0) if block.status == LIVE else 0

    def wants(self, block: Block) -> int:
        return PLENTY if block.hungry else block.work + block.old

    def sent(self, block: Block) -> tuple[Request, Block]:
        hold, request = self.steps.send(block.hold, block.work + block.old, self.wants(block))
        return request, block._replace(hold=hold, requests=with_one(block.requests, request))

    # --- a renewal reaches the store ---

    def arriving(self, world: World, index: int, books: Books) -> Iterator[Step]:
        block = self.at_home(world, index)
        for move, after, wrong in self.arrivals(block, books):
            yield move.format(called(index)), self.moved_in(world, index, after), wrong

    def at_home(self, world: World, index: int) -> Block:
        """A process and the lease that it renews: its own, unless leases are not told apart."""
        home = self.homes[index]
        block = world.blocks[index]
        return block if home == index else block._replace(row=world.blocks[home].row)

    def moved_in(self, world: World, index: int, block: Block) -> World:
        """The reverse of ``at_home``."""
        home = self.homes[index]
        if home == index:
            return self.put(world, index, block)
        moved = self.put(world, index, block._replace(row=None))
        return self.put(moved, home, moved.blocks[home]._replace(row=block.row))

    def _arrivals(self, block: Block, books: Books) -> tuple[tuple[str, Block, Fault | None], ...]:
        found = []
        for request in block.requests:
            after, wrong = self.handled(block, request, books)
            taken = after._replace(requests=without(block.requests, request))
            words = f"holds {request.holds}"
            found.append((f"renewal of {{}} arrives: {words}", self.tidy(taken), wrong))
            if self.scenario.twice:
                again = self.tidy(after)
                found.append((f"renewal of {{}} arrives, not for the last time: {words}", again, wrong))
        return tuple(found)

    def handled(self, block: Block, request: Request, books: Books) -> tuple[Block, Fault | None]:
        others = books.held - (block.row.slots if block.row else 0)
        row, answer = self.steps.renew(block.row, request, books)
        after = block._replace(row=row)
        if answer is not None and block.status == LIVE and len(block.answers) < self.scenario.wire:
            after = after._replace(answers=with_one(block.answers, answer))
        if row != block.row and row.slots > request.holds and others + row.slots > books.cap:
            words = f"{others + row.slots} slots are granted with a cap of {books.cap}"
            return after, Fault(Kind.OVERGRANT, words)
        return after, None

    def _meeting_the_plan(self, world: World, index: int, books: Books) -> Iterator[Step]:
        """As in stores/shares.py where the plan is due: the renewal, the plan, and in its light the rest."""
        home, block = self.homes[index], self.at_home(world, index)
        for request in block.requests:
            first, wrong = self.handled(block, request, books)
            if first.row == block.row:
                continue
            rows = tuple(one.row for one in world.blocks)
            rows = self.steps.plan((*rows[:home], first.row, *rows[home + 1 :]), world.cap, world.ttl)
            pairs = zip(world.blocks, rows, strict=True)
            met = world._replace(blocks=tuple(one._replace(row=row) for one, row in pairs))
            if row := rows[home]:
                known, again = row._replace(seq=row.seq - 1), request._replace(holds=row.slots)
                after, worse = self.handled(block._replace(row=known), again, self.books(met))
                taken = self.tidy(after._replace(requests=without(block.requests, request)))
                move = f"renewal of {called(index)} arrives and meets the plan: holds {request.holds}"
                yield move, self.moved_in(met, index, taken), wrong or worse

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
            ticked = world._replace(learning=learning, blocks=self.lined_up(later))
            yield f"tick{_clocks(world, ticked)}", ticked, None

    def lined_up(self, blocks: tuple[Block, ...]) -> tuple[Block, ...]:
        return in_line(blocks, self.steps.turn) if self.steps.turns else blocks

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
        since = row.since + 1 if self.steps.turns else 0
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
        ends = self.scenario.at_fence in (AtFence.ABORT, AtFence.LINGER) and not grace
        after = block._replace(hold=hold, offset=offset, grace=grace, old=0 if ends else block.old)
        return self._at_fence(after) if fenced and block.work else after

    def _at_fence(self, block: Block) -> Block:
        match self.scenario.at_fence:
            case AtFence.ABORT if not self.linger:
                return block._replace(work=0)
            case AtFence.DEAF:
                return block
            case _:
                return block._replace(work=0, old=block.old + block.work, grace=self.linger)


def _newborn(process: Process) -> Block:
    status = LIVE if process.starts else UNBORN
    return Block(status=status, hold=Hold(seq=process.seq), drift=process.drift)


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
    words = [f"at {called(index)} {'none' if by > 0 else 'two'}" for index, by in shifts.items() if by]
    return f" ({', '.join(words)})" if words else ""
