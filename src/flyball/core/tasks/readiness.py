"""Which tasks could start at all, whatever else runs, and in which order they are looked at.

The order is priority (0 first), then age (those without a date last), then id, where t-2 comes before t-10.
What forbids a start is looked at in this order, and the first is told: it is in flight already, this run was
not asked for it, its type, a label, what the caller says, its status, a circle, its children, its needs, a
label that cannot be read.

A run looks at the same tasks whenever something has moved. What follows from the tasks alone is found out
once, in ``TaskIndex``; ``Ready`` knows the moment. A ``Deferral`` says why a task does not start now.

A task may use the machine beside an agent: units of a kind, by a label such as ``res:docker=2`` or
``res:docker`` for one unit. ``ResourcePool`` is what is left of each kind within one project; a kind without
a capacity has no limit here, the governor decides about it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

from flyball.core.tasks.dependencies import DependencyGraph
from flyball.core.tasks.footprint import FOOTPRINT_PREFIXES, Footprint, effective_footprint
from flyball.core.tasks.task import Task, TaskStatus
from flyball.errors import UsageError, invariant


class DeferReason(StrEnum):
    ACTIVE = "active"
    """It is in flight already."""
    NOT_ASKED = "not-asked"
    """This run was asked for other tasks."""
    TYPE = "type"
    LABEL = "label"
    HELD = "held"
    """The caller keeps it back, with a sentence of its own."""
    STATUS = "status"
    CIRCLE = "circle"
    """It waits for itself."""
    CHILDREN = "children"
    NEEDS = "needs"
    ROOM = "room"
    BUDGET = "budget"
    """It could not be paid for now."""
    RESOURCE = "resource"
    FOOTPRINT = "footprint"
    TURN = "turn"
    """A task that was passed over too often comes first."""


class Deferral(NamedTuple):
    """A tuple, as one call makes thousands."""

    task_id: str
    reason: DeferReason
    blocker: str | None
    """The task in the way; the resource, where no task holds it."""
    words: str
    """One sentence about the task, without its name and without a full stop."""


_LABEL = re.compile(r"res:([^\s=]+)(?:=([1-9][0-9]{0,5}))?")
_NAMED = 3
"""How many holders a sentence names."""


@dataclass(frozen=True, slots=True)
class Shortage:
    blocker: str
    words: str


def parse_resources(labels: Iterable[str]) -> dict[str, int]:
    """Units by kind, from the labels of a task; of one kind the largest number counts.

    >>> parse_resources(["res:docker=2", "res:gpu", "backend"])
    {'docker': 2, 'gpu': 1}
    """
    found: dict[str, int] = {}
    for label in labels:
        if label.startswith("res:"):
            match = _LABEL.fullmatch(label)
            if match is None:
                raise UsageError(f"the label {label!r} cannot be read; write res:docker or res:docker=2")
            found[match[1]] = max(int(match[2] or 1), found.get(match[1], 0))
    return found


class ResourcePool:
    """Who holds how much of each kind that has a capacity, and to whom the next free units are promised."""

    def __init__(self, capacity: Mapping[str, int]) -> None:
        self._kinds = {kind: _Kind(limit) for kind, limit in capacity.items()}

    def take(self, resources: Mapping[str, int], *, owner: str) -> None:
        for kind, units in self._limits(resources):
            kind.held[owner] = units
            kind.used += units

    def promise(self, resources: Mapping[str, int], *, owner: str) -> None:
        for kind, units in self._limits(resources):
            kind.promised[owner] = units
            kind.wanted += units

    def lacks_forever(self, resources: Mapping[str, int]) -> Shortage | None:
        """What is asked for and can never be had. Ask this first."""
        for name, units in resources.items():
            kind = self._kinds.get(name)
            if kind is not None and units > kind.limit:
                return Shortage(name, f"needs {units} {name}, and there are never more than {kind.limit}")
        return None

    def lacks(self, resources: Mapping[str, int]) -> Shortage | None:
        """What is asked for and not free now, and who holds it."""
        for name, units in resources.items():
            kind = self._kinds.get(name)
            if kind is not None and kind.used + units > kind.limit:
                verb = "is" if kind.used == 1 else "are"
                holders = _few_names(list(kind.held))
                words = f"needs {units} {name}: {kind.used} of {kind.limit} {verb} held by {holders}"
                return Shortage(next(iter(kind.held)), words)
        return None

    def lacks_unpromised(self, resources: Mapping[str, int]) -> Shortage | None:
        """What is asked for and free now, but promised to another task."""
        for name, units in resources.items():
            kind = self._kinds.get(name)
            if kind is not None and kind.promised and kind.used + kind.wanted + units > kind.limit:
                first = next(iter(kind.promised))
                return Shortage(first, f"needs {units} {name}: the next free is kept for {first}")
        return None

    def _limits(self, resources: Mapping[str, int]) -> list[tuple[_Kind, int]]:
        return [(self._kinds[name], units) for name, units in resources.items() if name in self._kinds]


@dataclass(slots=True)
class _Kind:
    limit: int
    used: int = 0
    wanted: int = 0
    held: dict[str, int] = field(default_factory=dict)
    promised: dict[str, int] = field(default_factory=dict)


def _few_names(names: Sequence[str]) -> str:
    """A few names, and how many more there are.

    >>> _few_names(["t-1", "t-2"]), _few_names(["a", "b", "c", "d", "e"])
    ('t-1, t-2', 'a, b, c and 2 more')
    """
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


NOT_DISPATCHED_TYPES = frozenset({"epic", "feature", "decision", "merge-request"})
NOT_DISPATCHED_LABELS = frozenset({"no-dispatch", "refactor-core"})
NOT_DISPATCHED_PREFIX = "gt:"

NO_RESOURCES: Final[Mapping[str, int]] = MappingProxyType({})
NO_AREAS: Final[Mapping[str, Sequence[str]]] = MappingProxyType({})
_DIGITS = re.compile(r"[0-9]+")
_STATUS_WORDS = {
    TaskStatus.IN_PROGRESS: "is in progress: a person or another run works on it",
    TaskStatus.BLOCKED: "is marked as blocked where it is kept",
    TaskStatus.DEFERRED: "is marked as deferred where it is kept",
}


def dispatch_order(tasks: Iterable[Task]) -> list[Task]:
    """Sorted by the last key first: each sort is stable, and its keys are cheap to compare."""
    found = sorted(tasks, key=lambda task: task.id)
    found.sort(key=lambda task: natural(task.id))
    found.sort(key=lambda task: math.inf if task.created is None else task.created)
    found.sort(key=lambda task: task.priority)
    return found


@lru_cache(maxsize=1 << 14)
def natural(name: str) -> str:
    """A key under which a number in a name counts as a number. Names that differ only in leading zeros tie.

    >>> sorted(["t-10", "t-2", "t-1b"], key=natural)
    ['t-1b', 't-2', 't-10']
    """
    return _DIGITS.sub(_sortable_number, name)


def _sortable_number(digits: re.Match[str]) -> str:
    """The longer number is larger; of equally long ones text decides."""
    number = digits[0].lstrip("0")
    return f"{len(number):04}{number}"


class ReadyTask(NamedTuple):
    """A task to start, with what it touches and uses as it was decided."""

    task: Task
    footprint: Footprint | None
    resources: Mapping[str, int] = NO_RESOURCES


class TaskIndex:
    """All tasks of one load of a source, in order, with what can be said of them whatever else runs."""

    def __init__(self, tasks: Iterable[Task], *, areas: Mapping[str, Sequence[str]] = NO_AREAS) -> None:
        self.tasks = dispatch_order(tasks)
        self.items: dict[str, ReadyTask] = {}
        for task in self.tasks:
            terms, footprint = _parse_labels(task.labels), task.footprint
            if terms.touches:
                footprint = effective_footprint(footprint, task.labels, areas)
            self.items[task.id] = ReadyTask(task, footprint, terms.resources)
        invariant(len(self.items) == len(self.tasks), "two tasks have the same id")
        self.unfit = _deferrals(self.tasks, _unfit)
        """Those that no agent is ever given; ``unread``: those with a label that cannot be read."""
        self.unread = _deferrals(self.tasks, _unread)
        self.not_open = {task.id for task in self.tasks if task.status is not TaskStatus.OPEN}
        self._merged: frozenset[str] | None = None
        self._waits = DependencyGraph(())

    def waits(self, merged: Collection[str]) -> DependencyGraph:
        """Which task waits for which. Asked for at every look, it changes only with what is merged."""
        merged = frozenset(merged)
        if merged != self._merged:
            self._merged, self._waits = merged, DependencyGraph(self.tasks, merged=merged)
        return self._waits


def _deferrals(tasks: Iterable[Task], why: Callable[[Task], Deferral | None]) -> dict[str, Deferral]:
    return {task.id: deferral for task in tasks if (deferral := why(task)) is not None}


def _unfit(task: Task) -> Deferral | None:
    if task.type in NOT_DISPATCHED_TYPES:
        words = f"is of type {task.type}, which is not dispatched"
        return Deferral(task.id, DeferReason.TYPE, None, words)
    label = _parse_labels(task.labels).bar
    if label is None:
        return None
    words = f"carries the label {label}, which keeps it from being dispatched"
    return Deferral(task.id, DeferReason.LABEL, None, words)


def _unread(task: Task) -> Deferral | None:
    problem = _parse_labels(task.labels).problem
    return Deferral(task.id, DeferReason.LABEL, None, f"cannot start: {problem}") if problem else None


class _LabelTerms(NamedTuple):
    """What the labels of a task say about its start."""

    bar: str | None
    """The first that keeps it from being dispatched."""
    touches: bool
    """Some are about its footprint."""
    resources: Mapping[str, int]
    problem: str


@lru_cache(maxsize=1 << 12)
def _parse_labels(labels: tuple[str, ...]) -> _LabelTerms:
    """Remembered, as many tasks carry the same few labels."""
    bars = (
        each for each in labels if each in NOT_DISPATCHED_LABELS or each.startswith(NOT_DISPATCHED_PREFIX)
    )
    touches = any(each.startswith(FOOTPRINT_PREFIXES) for each in labels)
    resources, problem = NO_RESOURCES, ""
    try:
        resources = MappingProxyType(parse_resources(labels))
    except UsageError as error:
        problem = str(error)
    return _LabelTerms(next(bars, None), touches, resources, problem)


class Ready:
    """Says of one task after the other whether anything forbids it to start."""

    def __init__(
        self,
        lineup: TaskIndex,
        waits: DependencyGraph,
        *,
        active: Collection[str],
        held: Mapping[str, str],
        ours: Collection[str],
        only: Collection[str] | None,
        parent: str | None,
    ) -> None:
        self._lineup = lineup
        self._waits = waits
        self._active = active
        self._held = held
        self._ours = ours
        self._only = only
        self._parent = parent
        self._beneath = waits.beneath(parent) if parent is not None else None
        self._all_asked = only is None and parent is None
        self._doubtful = {
            *active,
            *held,
            *lineup.unfit,
            *lineup.unread,
            *lineup.not_open,
            *waits.waiting_ids(),
        }

    def forbids(self, task: Task) -> Deferral | None:
        name = task.id
        if self._all_asked and name not in self._doubtful:
            return None  # most are like this
        if name in self._active:
            return Deferral(name, DeferReason.ACTIVE, None, "is already in flight")
        return (
            self._not_asked(task)
            or self._lineup.unfit.get(name)
            or self._kept_back(task)
            or self._waiting(task)
            or self._lineup.unread.get(name)
        )

    def _not_asked(self, task: Task) -> Deferral | None:
        if self._only is not None and task.id not in self._only:
            return Deferral(task.id, DeferReason.NOT_ASKED, None, "is not among the tasks this run is for")
        if self._beneath is not None and task.id not in self._beneath:
            words = f"is not beneath {self._parent}, which this run is for"
            return Deferral(task.id, DeferReason.NOT_ASKED, None, words)
        return None

    def _kept_back(self, task: Task) -> Deferral | None:
        if task.id in self._held:
            return Deferral(task.id, DeferReason.HELD, None, self._held[task.id])
        if task.status is TaskStatus.OPEN:
            return None
        if task.status is TaskStatus.IN_PROGRESS and task.id in self._ours:
            return None
        return Deferral(task.id, DeferReason.STATUS, None, _STATUS_WORDS[task.status])

    def _waiting(self, task: Task) -> Deferral | None:
        circle = self._waits.circle(task.id)
        if circle is not None:
            words = f"waits for itself: {circle.words()}"
            return Deferral(task.id, DeferReason.CIRCLE, circle.next, words)
        children = self._waits.children.get(task.id)
        if children:
            first = children[0]
            words = f"has an open child, {first}"
            if len(children) > 1:
                words = f"has {len(children)} open children, {first} and others"
            return Deferral(task.id, DeferReason.CHILDREN, first, words)
        unmet = self._waits.unmet(task.id)
        return Deferral(task.id, DeferReason.NEEDS, unmet.need, unmet.words()) if unmet else None
