"""What a task waits for before it may start: other tasks, and its own children.

* A task waits for each of its ``needs`` to be closed or merged.
* A child waits for the needs of its parents too, at any depth: an epic that comes after t-9 means the work
  beneath it.
* A parent waits for its open children. It may name what is beneath it among its needs; that says nothing new,
  and no child waits for it.

So "waits for" is a graph, and a circle in it is work that can never start. A circle is told to the tasks
that are on it; one that merely waits for one of them is told that its need is not merged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from flyball.core.tasks.task import Task, TaskStatus

_SHOWN = 8
"""A longer circle is not written out in full."""


class UnmetDependency(NamedTuple):
    """A need in the way. ``heir_of`` is the parent that declares it, where it is not the task's own."""

    need: str
    missing: bool = False
    heir_of: str | None = None

    def words(self) -> str:
        subject = f"its parent {self.heir_of} needs" if self.heir_of else "needs"
        return f"{subject} {self.need}, which {'does not exist' if self.missing else 'is not merged'}"


@dataclass(frozen=True, slots=True)
class DependencyCycle:
    """Tasks of which each waits for the next, and the place of one of them in it."""

    ids: tuple[str, ...]
    at: int = 0

    @property
    def next(self) -> str:
        return self.ids[(self.at + 1) % len(self.ids)]

    def words(self) -> str:
        """The circle from here.

        >>> DependencyCycle(("t-1", "t-2"), at=1).words()
        't-2 -> t-1 -> t-2'
        """
        count = len(self.ids)
        shown = [self.ids[(self.at + step) % count] for step in range(min(count, _SHOWN))]
        more = [f"({count - _SHOWN} more)"] if count > _SHOWN else []
        return " -> ".join([*shown, *more, self.ids[self.at]])


class DependencyGraph:
    """Which task waits for which. The order in which tasks are given decides which reason is told."""

    def __init__(self, tasks: Iterable[Task], *, merged: Collection[str] = ()) -> None:
        self._tasks = {task.id: task for task in tasks}
        self._merged = merged
        self._open = {
            name: task
            for name, task in self._tasks.items()
            if task.status is not TaskStatus.CLOSED and name not in merged
        }
        self.children: Mapping[str, Sequence[str]] = _by_parent(self._open.values())
        """Per parent, its open children."""
        self._unmet = {
            name: self._all_unmet(task) for name, task in self._open.items() if task.needs or task.parent
        }
        graph: dict[str, Sequence[str]] = dict(self.children)
        for name, found in self._unmet.items():
            if name not in self.children:
                graph[name] = [unmet.need for unmet in found if not unmet.missing]
        self._circles = {
            name: DependencyCycle(ring, at) for ring in _rings(graph) for at, name in enumerate(ring)
        }

    def waiting_ids(self) -> set[str]:
        """All tasks that wait for something, and perhaps others."""
        return {*self.children, *self._unmet, *self._circles}

    def unmet(self, task_id: str) -> UnmetDependency | None:
        """The first need in the way. One that does not exist comes before all others: no merge will help."""
        found = self._unmet.get(task_id)
        if not found:
            return None
        for unmet in found:
            if unmet.missing:
                return unmet
        return found[0]

    @property
    def open(self) -> list[Task]:
        """All that is neither closed nor merged."""
        return list(self._open.values())

    def circle(self, task_id: str) -> DependencyCycle | None:
        return self._circles.get(task_id)

    def circles(self) -> list[DependencyCycle]:
        """Each circle once."""
        return [circle for circle in self._circles.values() if circle.at == 0]

    def beneath(self, root: str) -> set[str]:
        """All whose parent, or parent's parent and so on, is ``root``; never root itself."""
        below = _by_parent(self._tasks.values())
        found: set[str] = set()
        stack = [root]
        while stack:
            fresh = [child for child in below.get(stack.pop(), ()) if child not in found]
            found.update(fresh)
            stack.extend(fresh)
        return found - {root}

    def _all_unmet(self, task: Task) -> list[UnmetDependency]:
        """Its own, then its parents'. A parent itself waits for its children, and they for its needs."""
        found: list[UnmetDependency] = []
        self._collect(task, None, found)
        if task.parent is not None:
            for parent in self._above(task):
                if parent.id in self._open:
                    self._collect(parent, parent.id, found)
        return found

    def _collect(self, task: Task, heir_of: str | None, found: list[UnmetDependency]) -> None:
        for need in task.needs:
            other = self._open.get(need)
            if other is not None:
                if other.parent is None or all(above is not task for above in self._above(other)):
                    found.append(UnmetDependency(need, heir_of=heir_of))
            elif need not in self._tasks and need not in self._merged:
                found.append(UnmetDependency(need, missing=True, heir_of=heir_of))

    def _above(self, task: Task) -> Iterator[Task]:
        """Its parents, nearest first. A loop of parents is walked once."""
        seen: set[str] = set()
        while task.parent is not None and task.parent not in seen and task.parent in self._tasks:
            seen.add(task.parent)
            task = self._tasks[task.parent]
            yield task


def _by_parent(tasks: Iterable[Task]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for task in tasks:
        if task.parent is not None:
            found[task.parent].append(task.id)
    return dict(found)


def _rings(graph: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, ...]]:
    """Circles in a graph, no two with a member in common, and at least one wherever there are any.

    A stuck task waits for another stuck one: following the first of these leads into a circle.
    """
    stuck = _stuck(graph)
    seen: set[str] = set()
    for start in stuck:
        name, path = start, dict[str, int]()
        while name not in seen:
            seen.add(name)
            path[name] = len(path)
            name = next(other for other in graph[name] if other in stuck)
        if name in path:
            yield tuple(path)[path[name] :]


def _stuck(graph: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """What would wait for ever: the rest when all that waits for nothing is taken away, again and again."""
    left = {name: len(others) for name, others in graph.items()}
    waiters: dict[str, list[str]] = defaultdict(list)
    for name, others in graph.items():
        for other in others:
            waiters[other].append(name)
    free = [name for name in waiters if not left.get(name)]
    while free:
        for waiter in waiters[free.pop()]:
            left[waiter] -= 1
            if not left[waiter]:
                free.append(waiter)
    return {name: count for name, count in left.items() if count}
