"""One piece of work as a person wrote it down, whatever it is kept in.

What a task *is* comes from its source and changes only there. How far its work has come lives in the ledger
of the factory: a task knows nothing about agents, attempts or branches.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from flyball.core.footprint import Footprint

DEFAULT_PRIORITY = 2
DEFAULT_TYPE = "task"


class TaskStatus(Enum):
    OPEN = "open"
    IN_PROGRESS = "in_progress"
    """Somebody works on it: a person, or a factory that said so in the source."""
    BLOCKED = "blocked"
    DEFERRED = "deferred"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    id: str
    title: str
    status: TaskStatus = TaskStatus.OPEN
    type: str = DEFAULT_TYPE
    priority: int = DEFAULT_PRIORITY
    """0 is most urgent."""
    needs: tuple[str, ...] = ()
    """Tasks that must be closed before this one may start."""
    parent: str | None = None
    labels: tuple[str, ...] = ()
    footprint: Footprint | None = None
    """None: nobody said what it touches, so it may touch anything."""
    acceptance: str = ""
    body: str = ""
    created: float | None = None
    """Wall clock; among equal priorities the older goes first."""
    where: str = ""
    """Where a person finds it: a path, an address."""
