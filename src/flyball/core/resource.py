"""What tasks use of the machine beside an agent: units of a kind, such as ``docker=2``.

A task says so with a label, ``res:docker=2`` or ``res:docker`` for one unit. ``Stock`` is what is left of
each kind within one project; a kind without a capacity has no limit here, the governor decides about it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from flyball.errors import UsageError

_LABEL = re.compile(r"res:([^\s=]+)(?:=([1-9][0-9]{0,5}))?")
_NAMED = 3
"""How many holders a sentence names."""


@dataclass(frozen=True, slots=True)
class Shortage:
    blocker: str
    words: str


def resources_of(labels: Iterable[str]) -> dict[str, int]:
    """Units by kind, from the labels of a task; of one kind the largest number counts.

    >>> resources_of(["res:docker=2", "res:gpu", "backend"])
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


class Stock:
    """Who holds how much of each kind that has a capacity, and to whom the next free units are promised."""

    def __init__(self, capacity: Mapping[str, int]) -> None:
        self._kinds = {kind: _Kind(limit) for kind, limit in capacity.items()}

    def take(self, resources: Mapping[str, int], *, owner: str) -> None:
        for kind, units in self._limited(resources):
            kind.held[owner] = units
            kind.used += units

    def promise(self, resources: Mapping[str, int], *, owner: str) -> None:
        for kind, units in self._limited(resources):
            kind.promised[owner] = units
            kind.wanted += units

    def never(self, resources: Mapping[str, int]) -> Shortage | None:
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
                holders = _listed(list(kind.held))
                words = f"needs {units} {name}: {kind.used} of {kind.limit} {verb} held by {holders}"
                return Shortage(next(iter(kind.held)), words)
        return None

    def promised(self, resources: Mapping[str, int]) -> Shortage | None:
        """What is asked for and free now, but promised to somebody else."""
        for name, units in resources.items():
            kind = self._kinds.get(name)
            if kind is not None and kind.promised and kind.used + kind.wanted + units > kind.limit:
                first = next(iter(kind.promised))
                return Shortage(first, f"needs {units} {name}: the next free is kept for {first}")
        return None

    def _limited(self, resources: Mapping[str, int]) -> list[tuple[_Kind, int]]:
        return [(self._kinds[name], units) for name, units in resources.items() if name in self._kinds]


@dataclass(slots=True)
class _Kind:
    limit: int
    used: int = 0
    wanted: int = 0
    held: dict[str, int] = field(default_factory=dict)
    promised: dict[str, int] = field(default_factory=dict)


def _listed(names: Sequence[str]) -> str:
    """A few names, and how many more there are.

    >>> _listed(["t-1", "t-2"]), _listed(["a", "b", "c", "d", "e"])
    ('t-1, t-2', 'a, b, c and 2 more')
    """
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
