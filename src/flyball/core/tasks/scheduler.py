"""Which tasks start now: a batch without clashes, and for every other task why not.

Tasks are looked at in one order, and each is picked if nothing forbids it. What could be done at all and in
which order is said in readiness.py; here is what depends on others: room, resources, footprints.

Picking is greedy: a task that clashes with one in flight, or picked before it, is passed over, and those
after it may start. Under rolling refill that alone would starve a task with a wide footprint, above all one
that declares none: while one of two neighbours runs the other is replaced, for ever. So a task that was
passed over in ``patience`` refills is next in turn: later tasks that clash with it, or want a resource that
it waits for, do not start either. Only what comes before it in the order can still get in its way, so it
starts when that and what is in flight have ended. ``Selection.passed`` counts; the next call wants it back.

The answer follows from the tasks and not from the order in which they are given. Nothing is done here. What
is in flight, merged or held back is the ledger's to know and the caller's to say.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from flyball.core.tasks.footprint import Footprint, Taken
from flyball.core.tasks.readiness import (
    NO_AREAS,
    Deferral,
    DeferReason,
    Ready,
    ReadyTask,
    ResourcePool,
    TaskIndex,
)
from flyball.core.tasks.task import Task
from flyball.errors import invariant

PATIENCE: Final = 8
_NOTHING: Final[Mapping[str, int]] = MappingProxyType({})
_NO_WORDS: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class RunningTask:
    """A task in flight."""

    task_id: str
    footprint: Footprint | None
    resources: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Selection:
    items: tuple[ReadyTask, ...]
    deferrals: tuple[Deferral, ...]
    """One for every task that is neither picked nor closed. Both are in the order of looking."""
    passed: Mapping[str, int] = field(default_factory=dict)
    """How often each that still waits has been passed over."""

    def why(self, task_id: str) -> Deferral | None:
        return next((deferral for deferral in self.deferrals if deferral.task_id == task_id), None)


def choose(
    tasks: TaskIndex | Iterable[Task],
    *,
    room: int,
    active: Sequence[RunningTask] = (),
    areas: Mapping[str, Sequence[str]] = NO_AREAS,
    capacity: Mapping[str, int] = _NOTHING,
    merged: Collection[str] = (),
    held: Mapping[str, str] = _NO_WORDS,
    ours: Collection[str] = (),
    only: Collection[str] | None = None,
    parent: str | None = None,
    passed: Mapping[str, int] = _NOTHING,
    patience: int = PATIENCE,
) -> Selection:
    """Pick at most ``room`` tasks to start beside what is in flight.

    ``tasks`` is all that the source knows, closed ones included: they satisfy needs. A caller that looks
    again and again gives a ``TaskIndex`` of them, which has the ``areas`` already. ``merged`` are closed
    whatever their status says; ``held`` are kept back with the caller's own sentence; ``ours`` may start
    though their status is in progress, for it was this factory that said so. ``only`` and ``parent`` (all
    beneath it) are what this run is for. A kind of resource without a ``capacity`` has no limit here.
    """
    invariant(not (areas and isinstance(tasks, TaskIndex)), "a TaskIndex has its areas already")
    lineup = tasks if isinstance(tasks, TaskIndex) else TaskIndex(tasks, areas=areas)
    waits = lineup.waits(merged)
    ready = Ready(
        lineup,
        waits,
        active=frozenset(each.task_id for each in active),
        held=held,
        ours=frozenset(ours),
        only=None if only is None else frozenset(only),
        parent=parent,
    )
    picking = _Selector(room=room, active=active, capacity=capacity, passed=passed, patience=patience)
    for task in waits.open:
        forbidden = ready.forbids(task)
        if forbidden is not None:
            picking.deferrals.append(forbidden)
        else:
            picking.look(lineup.items[task.id])
    return picking.choice()


class _Selector:
    """One pass over the tasks that nothing forbids, and what has been taken so far."""

    def __init__(
        self,
        *,
        room: int,
        active: Sequence[RunningTask],
        capacity: Mapping[str, int],
        passed: Mapping[str, int],
        patience: int,
    ) -> None:
        self.deferrals: list[Deferral] = []
        self._items: list[ReadyTask] = []
        self._room = room
        self._passed = passed
        self._patience = patience
        self._in_flight = frozenset(each.task_id for each in active)
        self._stock = ResourcePool(capacity)
        for each in active:
            self._stock.take(each.resources, owner=each.task_id)
        self._footprints = tuple((each.task_id, each.footprint) for each in active)
        self._taken = _cached_taken(self._footprints)
        self._next_in_turn = Taken()
        self._turns = False
        self._waiting: list[str] = []
        """Passed over, and no task was picked since."""
        self._overtaken: set[str] = set()
        self._full = ""
        """The words for all that come when there is no room left."""

    def look(self, item: ReadyTask) -> None:
        """Pick it, or defer it and say why."""
        blocked = self._beyond_reach(item)
        if blocked is not None:
            self.deferrals.append(blocked)
            return
        blocked = self._in_the_way(item)
        if blocked is None and self._turns:
            blocked = self._out_of_turn(item)
        if blocked is None:
            self._pick(item)
        else:
            self.deferrals.append(blocked)
            self._pass_over(item)

    def choice(self) -> Selection:
        passed = {}
        for deferral in self.deferrals:
            name = deferral.task_id
            if name in self._overtaken or name in self._passed:
                passed[name] = self._passed.get(name, 0) + (name in self._overtaken)
        return Selection(tuple(self._items), tuple(self.deferrals), passed)

    def _pick(self, item: ReadyTask) -> None:
        if not self._items:
            self._taken = _build_taken(self._footprints)  # one of our own, as it will change
        self._items.append(item)
        if item.resources:
            self._stock.take(item.resources, owner=item.task.id)
        self._taken.add(item.footprint, owner=item.task.id)
        self._overtaken.update(self._waiting)
        self._waiting.clear()

    def _pass_over(self, item: ReadyTask) -> None:
        name = item.task.id
        self._waiting.append(name)
        if self._passed.get(name, 0) >= self._patience:
            self._turns = True
            self._stock.promise(item.resources, owner=name)
            self._next_in_turn.add(item.footprint, owner=name)

    def _beyond_reach(self, item: ReadyTask) -> Deferral | None:
        never = self._stock.lacks_forever(item.resources) if item.resources else None
        if never is not None:
            return Deferral(item.task.id, DeferReason.RESOURCE, never.blocker, never.words)
        if len(self._items) >= self._room:
            if not self._full:
                busy = [f"{len(self._in_flight)} in flight"] if self._in_flight else []
                picked = [f"{len(self._items)} picked before it"] if self._items else []
                self._full = f"no room: {', '.join(busy + picked) or 'nothing may start now'}"
            return Deferral(item.task.id, DeferReason.ROOM, None, self._full)
        return None

    def _in_the_way(self, item: ReadyTask) -> Deferral | None:
        """A clash with what is in flight or has been picked."""
        shortage = self._stock.lacks(item.resources) if item.resources else None
        if shortage is not None:
            return Deferral(item.task.id, DeferReason.RESOURCE, shortage.blocker, shortage.words)
        found = self._taken.clash(item.footprint)
        if found is None:
            return None
        owner, clash = found
        where = "in flight" if owner in self._in_flight else "starts first"
        return Deferral(item.task.id, DeferReason.FOOTPRINT, owner, clash.words(f"{owner} ({where})"))

    def _out_of_turn(self, item: ReadyTask) -> Deferral | None:
        """Only a task that is next in turn is against it."""
        shortage = self._stock.lacks_unpromised(item.resources) if item.resources else None
        if shortage is not None:
            return Deferral(item.task.id, DeferReason.TURN, shortage.blocker, shortage.words)
        found = self._next_in_turn.clash(item.footprint)
        if found is None:
            return None
        owner, clash = found
        turn = f"next in turn, passed over {self._passed.get(owner, 0)} times"
        return Deferral(item.task.id, DeferReason.TURN, owner, clash.words(f"{owner} ({turn})"))


def _build_taken(footprints: Iterable[tuple[str, Footprint | None]]) -> Taken:
    taken = Taken()
    for owner, footprint in footprints:
        taken.add(footprint, owner=owner)
    return taken


@lru_cache(maxsize=1)
def _cached_taken(footprints: tuple[tuple[str, Footprint | None], ...]) -> Taken:
    """What is in flight is mostly the same as at the last look, and so is all that was asked about it.

    Nothing may be added to it.
    """
    return _build_taken(footprints)
