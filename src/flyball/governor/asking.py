"""What a caller may say about an ask, and what is filled in where it says nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypedDict

from flyball.core.model import Ask
from flyball.core.settings import DEFAULT_POOL
from flyball.governor.caller import default_name, default_project
from flyball.host.process import me

if TYPE_CHECKING:
    from typing import Unpack


class AskOptions(TypedDict, total=False):
    """Keyword arguments of ``slot`` and ``acquire``."""

    project: str | None
    """Who competes for fairness; the repository's name if not given."""
    name: str | None
    """The task's name in status and messages; the program and its pid if not given."""
    slots: int
    priority: int
    """Higher first; above 0 may use the reserve."""
    resources: Mapping[str, int] | None
    """Machine-wide resources taken along, such as ``{"docker": 1}``."""
    model: str
    cost: Mapping[str, float] | None
    """What the call is expected to use of the pool's windows, such as ``{"tokens": 1200}``."""


_OPTIONS = frozenset(AskOptions.__annotations__)


@dataclass(frozen=True, slots=True)
class Asking:
    """A caller's wish with every default filled in."""

    pool: str
    project: str
    name: str
    slots: int = 1
    priority: int = 0
    resources: Mapping[str, int] = field(default_factory=dict)
    model: str = ""
    pid: int = 0
    cost: Mapping[str, float] = field(default_factory=dict)
    unread: bool = False


def asking_for(pool: str, **options: Unpack[AskOptions]) -> Asking:
    """Fill in what the caller left out."""
    if not options.keys() <= _OPTIONS:
        unknown = min(options.keys() - _OPTIONS)
        raise TypeError(f"unknown option {unknown!r}; an ask knows {', '.join(AskOptions.__annotations__)}")
    project, name = options.get("project"), options.get("name")
    return Asking(
        pool or DEFAULT_POOL,
        project if project is not None else default_project(),
        name if name is not None else default_name(),
        options.get("slots", 1),
        options.get("priority", 0),
        dict(options.get("resources") or {}),
        options.get("model", ""),
        os.getpid(),
        dict(options.get("cost") or {}),
    )


def ask_of(asking: Asking, mailbox: str) -> Ask:
    """The wish of this process, for a store."""
    return Ask(
        pool=asking.pool,
        project=asking.project,
        name=asking.name,
        holder=me(),
        slots=asking.slots,
        priority=asking.priority,
        resources=asking.resources,
        model=asking.model,
        mailbox=mailbox,
        cost=asking.cost,
        unread=asking.unread,
    )
