"""Which tasks could start at all, whatever else runs, and in which order they are looked at.

The order is priority (0 first), then age (those without a date last), then id, where t-2 comes before t-10.
What forbids a start is looked at in this order, and the first is told: it is in flight already, this run was
not asked for it, its type, a label, what the caller says, its status, a circle, its children, its needs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache

from flyball.core.deferral import Deferral, DeferReason
from flyball.core.needs import Waits
from flyball.core.task import Task, TaskStatus

NOT_DISPATCHED_TYPES = frozenset({"epic", "feature", "decision", "merge-request"})
NOT_DISPATCHED_LABELS = frozenset({"no-dispatch", "refactor-core"})
NOT_DISPATCHED_PREFIX = "gt:"

_DIGITS = re.compile(r"[0-9]+")
_STATUS_WORDS = {
    TaskStatus.IN_PROGRESS: "is in progress: somebody else works on it",
    TaskStatus.BLOCKED: "is marked as blocked where it is kept",
    TaskStatus.DEFERRED: "is marked as deferred where it is kept",
}


def in_order(tasks: Iterable[Task]) -> list[Task]:
    """Sorted by the last key first: each sort is stable, and its keys are cheap to compare."""
    found = sorted(tasks, key=_id)
    found.sort(key=_natural)
    found.sort(key=_age)
    found.sort(key=_priority)
    return found


@lru_cache(maxsize=1 << 14)
def natural(name: str) -> str:
    """A key under which a number in a name counts as a number. Names that differ only in leading zeros tie.

    >>> sorted(["t-10", "t-2", "t-1b"], key=natural)
    ['t-1b', 't-2', 't-10']
    """
    return _DIGITS.sub(_counted, name)


def _counted(digits: re.Match[str]) -> str:
    """The longer number is larger; of equally long ones text decides."""
    number = digits[0].lstrip("0")
    return f"{len(number):04}{number}"


def _id(task: Task) -> str:
    return task.id


def _natural(task: Task) -> str:
    return natural(task.id)


def _age(task: Task) -> float:
    return math.inf if task.created is None else task.created


def _priority(task: Task) -> int:
    return task.priority


class Ready:
    """Says of one task after the other whether anything forbids it to start."""

    def __init__(
        self,
        waits: Waits,
        *,
        active: Collection[str],
        held: Mapping[str, str],
        ours: Collection[str],
        only: Collection[str] | None,
        parent: str | None,
    ) -> None:
        self._waits = waits
        self._active = active
        self._held = held
        self._ours = ours
        self._only = only
        self._parent = parent
        self._beneath = waits.beneath(parent) if parent is not None else None
        self._all_asked = only is None and parent is None
        self._special = {*active, *held, *waits.anybody()}

    def forbids(self, task: Task) -> Deferral | None:
        if self._all_asked and task.status is TaskStatus.OPEN and task.id not in self._special:
            return _not_dispatched(task)  # nothing else could be against it, and most are like this
        if task.id in self._active:
            return Deferral(task.id, DeferReason.ACTIVE, None, "is already in flight")
        return self._not_asked(task) or _not_dispatched(task) or self._kept_back(task) or self._waiting(task)

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


def _not_dispatched(task: Task) -> Deferral | None:
    if task.type in NOT_DISPATCHED_TYPES:
        words = f"is of type {task.type}, which is not dispatched"
        return Deferral(task.id, DeferReason.TYPE, None, words)
    for label in task.labels:
        if label in NOT_DISPATCHED_LABELS or label.startswith(NOT_DISPATCHED_PREFIX):
            words = f"carries the label {label}, which keeps it from being dispatched"
            return Deferral(task.id, DeferReason.LABEL, None, words)
    return None
