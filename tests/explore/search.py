"""Breadth first, so the first thing that is found wrong is reached in the fewest moves."""

from __future__ import annotations

import gc
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

from tests.explore.bounds import ALL, Bounds
from tests.explore.model import Model
from tests.explore.world import Fault, Kind, World


@dataclass(frozen=True)
class Found:
    """What a search has seen."""

    states: int
    transitions: int
    depth: int
    """Every world within so many moves was visited, with all that can follow it."""
    complete: bool
    """There are no others."""
    fault: Fault | None = None
    path: tuple[str, ...] = ()
    peace_ticks: int = 0
    """From any of them everything is as it should be within so many ticks, once nothing bad happens."""

    def words(self) -> str:
        """The counter-example as a person reads it."""
        lines = [f"{number:3}. {move}" for number, move in enumerate(self.path, 1)]
        return "\n".join([*lines, f"     -> {self.fault.words if self.fault else 'nothing is wrong'}"])


def search(model: Model, *, max_states: int, only: frozenset[Kind] = ALL) -> Found:
    """Visit worlds until there are no others, there are too many, or something of that kind is wrong."""
    with _no_search_for_cycles():
        return _Search(model, Bounds(model, only)).run(max_states)


class _Search:
    def __init__(self, model: Model, bounds: Bounds) -> None:
        self.model, self.bounds = model, bounds
        self.worlds = [model.first()]
        self.parents = array("l", [0])
        self.known = set(self.worlds)
        self.transitions = self.depth = 0

    def run(self, max_states: int) -> Found:
        begin = 0
        while begin < len(self.worlds):
            end = len(self.worlds)
            for index in range(begin, end):
                found = self._visit(index)
                if found or len(self.worlds) >= max_states:
                    return found or self._found(complete=False)
            begin, self.depth = end, self.depth + 1
        return self._found(complete=True)

    def _visit(self, index: int) -> Found | None:
        world, known, bounds = self.worlds[index], self.known, self.bounds
        fault = bounds.lost(world)
        if fault:
            return self._found(complete=False, fault=fault, path=self._path(index))
        for move, after, passed in self.model.moves(world):
            self.transitions += 1
            if after in known and not passed:
                continue
            fault = bounds.minded(passed) or bounds.wrong(after)
            if fault:
                return self._found(complete=False, fault=fault, path=(*self._path(index), move))
            if after in known:
                continue
            known.add(after)
            self.worlds.append(after)
            self.parents.append(index)
        return None

    def _found(self, *, complete: bool, fault: Fault | None = None, path: tuple[str, ...] = ()) -> Found:
        ticks = self.bounds.peace_ticks
        return Found(len(self.worlds), self.transitions, self.depth, complete, fault, path, ticks)

    def _path(self, index: int) -> tuple[str, ...]:
        chain = [index]
        while chain[-1]:
            chain.append(self.parents[chain[-1]])
        worlds = [self.worlds[one] for one in reversed(chain)]
        return tuple(self._move(before, after) for before, after in pairwise(worlds))

    def _move(self, before: World, after: World) -> str:
        return next(move for move, world, _ in self.model.moves(before) if world == after)


@contextmanager
def _no_search_for_cycles() -> Iterator[None]:
    """Worlds are tuples without cycles; looking for some among millions of them takes most of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
