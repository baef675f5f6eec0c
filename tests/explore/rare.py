"""What may happen a few times in a scenario, as often as it says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tests.explore.tidying import dead
from tests.explore.world import LIVE, RARE, UNBORN, World, called

if TYPE_CHECKING:
    from tests.explore.model import Model

Moves = Iterator[tuple[str, World]]


def moves(model: Model, world: World) -> Moves:
    for index, left in enumerate(world.left):
        if left:
            spent = (*world.left[:index], left - 1, *world.left[index + 1 :])
            yield from _KINDS[RARE[index]](model, world._replace(left=spent))


def _join(model: Model, world: World) -> Moves:
    heirs = {one.heir for one in model.scenario.processes}
    for index, block in enumerate(world.blocks):
        if block.status == UNBORN and index not in heirs:
            yield f"{called(index)} joins", model.put(world, index, block._replace(status=LIVE))


def _leave(model: Model, world: World) -> Moves:
    for index, block in enumerate(world.blocks):
        if block.status == LIVE and not block.hold.leaving:
            after = block._replace(hold=model.steps.leave(block.hold))
            yield f"{called(index)} wants to leave", model.put(world, index, model.tidy(after))


def _crash(model: Model, world: World) -> Moves:
    for index, block in enumerate(world.blocks):
        if block.status != LIVE:
            continue
        after = model.put(world, index, model.tidy(dead(block)))
        heir = model.scenario.processes[index].heir
        if heir is None:
            yield f"{called(index)} crashes", after
        else:
            reborn = after.blocks[heir]._replace(status=LIVE)
            yield (
                f"{called(index)} crashes and starts again as {called(heir)}",
                model.put(after, heir, reborn),
            )


def _flush(model: Model, world: World) -> Moves:
    lost = model.with_rows(world, (None,) * len(world.blocks))
    yield "the store forgets everything", lost._replace(learning=model.steps.learning(world.ttl))


def _save(_model: Model, world: World) -> Moves:
    blocks = tuple(block._replace(saved=block.row) for block in world.blocks)
    yield "the store saves a snapshot", world._replace(blocks=blocks)


def _restore(model: Model, world: World) -> Moves:
    blocks = tuple(model.tidy(block._replace(row=block.saved, saved=None)) for block in world.blocks)
    restored = world._replace(blocks=blocks, learning=model.steps.learning(world.ttl))
    yield "the store goes back to its snapshot", restored


def _cap(model: Model, world: World) -> Moves:
    caps = model.scenario.caps
    cap = caps[(caps.index(world.cap) + 1) % len(caps)]
    moved = world._replace(cap=cap, high=max(world.high, cap))
    yield f"the cap becomes {cap}", model.settled(moved)


def _ttl(model: Model, world: World) -> Moves:
    ttls = model.scenario.ttls
    ttl = ttls[(ttls.index(world.ttl) + 1) % len(ttls)]
    yield f"leases last {ttl} ticks from now on", world._replace(ttl=ttl)


def _notice(model: Model, world: World) -> Moves:
    for index, block in enumerate(world.blocks):
        if block.status != LIVE or not block.row:
            continue
        after = block._replace(hold=model.steps.notice(block.hold, block.row.target))
        if after != block:
            yield (
                f"{called(index)} is told its target: {block.row.target}",
                model.put(world, index, model.tidy(after)),
            )


def _mood(model: Model, world: World) -> Moves:
    for index, block in enumerate(world.blocks):
        if block.status == LIVE:
            wish = "wants nothing more" if block.hungry else "wants all it can get"
            yield f"{called(index)} {wish}", model.put(world, index, block._replace(hungry=1 - block.hungry))


_KINDS: dict[str, Callable[[Model, World], Moves]] = {
    "join": _join,
    "leave": _leave,
    "crash": _crash,
    "flush": _flush,
    "save": _save,
    "restore": _restore,
    "cap": _cap,
    "ttl": _ttl,
    "notice": _notice,
    "mood": _mood,
}
