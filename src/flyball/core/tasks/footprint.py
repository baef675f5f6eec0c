"""What a task touches: tokens it writes and tokens it only reads, and whether two tasks may run side by side.

Tokens have the meaning of a read-write lock: two footprints clash if a token of one meets a token of the
other (globs.py says when) and at least one of the two is written. A token named as read and as written
counts as written. None is a task that does not say what it touches: it may touch anything, so it clashes
with every other, also with another None. A footprint without tokens was declared: it touches
nothing and clashes with None only.

Where the footprint of a task comes from, in this order:

1. what the task itself declares, together with its labels ``fp:x`` (writes x) and ``fp:read:x`` (reads x)
2. its labels ``area:x`` through the project's map of areas, as writes; they count where nothing of 1 says
   what is written, so a task with ``area:api`` and ``fp:read:lib`` writes the area and reads lib. An area
   that the map does not know, or that maps to nothing, leaves the whole task undeclared
3. nothing: None

``Taken`` holds the footprints of all that runs and answers for all of them at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from flyball.core.tasks.glob_index import PatternTree
from flyball.core.tasks.globs import check_token
from flyball.errors import UsageError

TOKENS_LIMIT = 200
FOOTPRINT_PREFIXES = ("fp:", "area:")
"""How labels begin that say what a task touches."""


@dataclass(frozen=True, slots=True)
class Footprint:
    write: tuple[str, ...] = ()
    read: tuple[str, ...] = ()


class Clash(NamedTuple):
    """Why two must not run side by side: a token of each, or that one of them declares nothing."""

    mine: str | None = None
    theirs: str | None = None
    i_write: bool = True
    they_write: bool = True
    i_declare: bool = True
    they_declare: bool = True

    def words(self, who: str) -> str:
        """Why I wait for ``who``.

        >>> Clash(mine="pages/hello*", theirs="pages/**", they_write=False).words("t-3")
        'writes pages/hello*, which t-3 reads as pages/**'
        """
        mine, theirs, i_write, they_write, i_declare, they_declare = self
        if not i_declare:
            return f"declares no footprint, so it cannot run beside {who}"
        if not they_declare:
            return f"cannot run beside {who}, which declares no footprint"
        i, they = "writes" if i_write else "reads", "writes" if they_write else "reads"
        alias = "" if mine == theirs else f" as {theirs}"
        return f"{i} {mine}, which {who} {they}{alias}"


_I_SAY_NOTHING = Clash(i_declare=False)
_THEY_SAY_NOTHING = Clash(they_declare=False)


def conflict(a: Footprint | None, b: Footprint | None) -> Clash | None:
    """How ``a`` clashes with ``b``, or None where they may run side by side."""
    taken = Taken()
    taken.add(b, owner="")
    found = taken.clash(a)
    return found[1] if found else None


def check_footprint(footprint: Footprint) -> Footprint:
    """The footprint with its tokens in normal form, or UsageError with the way out."""
    count = len(footprint.write) + len(footprint.read)
    if count > TOKENS_LIMIT:
        raise UsageError(f"a footprint has {count} tokens, at most {TOKENS_LIMIT}; name folders for files")
    return Footprint(
        write=tuple(check_token(token) for token in footprint.write),
        read=tuple(check_token(token) for token in footprint.read),
    )


def effective_footprint(
    declared: Footprint | None, labels: Iterable[str], areas: Mapping[str, Sequence[str]]
) -> Footprint | None:
    """What a task touches, from what it declares, its labels and the project's map of areas.

    >>> effective_footprint(None, ["area:api", "fp:read:lib"], {"api": ["src/api/**"]})
    Footprint(write=('src/api/**',), read=('lib',))
    """
    said = [label for label in labels if label.startswith(FOOTPRINT_PREFIXES)]
    if not said:
        return declared
    write, read, named = _parse_labels(said)
    if declared is not None:
        return Footprint(declared.write + write, declared.read + read) if write or read else declared
    if not write and named:
        if not all(areas.get(area) for area in named):
            return None
        return Footprint(tuple(token for area in named for token in areas[area]), read)
    return Footprint(write, read) if write or read else None


def _parse_labels(labels: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Tokens written, tokens read, areas."""
    write, read, named = [], [], []
    for label in labels:
        if label.startswith("fp:read:"):
            read.append(label[len("fp:read:") :])
        elif label.startswith("fp:"):
            write.append(label[len("fp:") :])
        elif label.startswith("area:"):
            named.append(label[len("area:") :])
    return tuple(write), tuple(read), tuple(named)


class Taken:
    """The footprints of all that runs or is about to, each with its owner."""

    __slots__ = ("_first_owner", "_read", "_undeclared", "_written")

    def __init__(self) -> None:
        self._written = PatternTree()
        self._read = PatternTree()
        self._first_owner: str | None = None
        self._undeclared: str | None = None

    def add(self, footprint: Footprint | None, *, owner: str) -> None:
        if self._first_owner is None:
            self._first_owner = owner
        if footprint is None:
            if self._undeclared is None:
                self._undeclared = owner
            return
        for token in footprint.write:
            self._written.add(token, owner=owner)
        for token in footprint.read:
            self._read.add(token, owner=owner)

    def clash(self, footprint: Footprint | None) -> tuple[str, Clash] | None:
        """The owner of a footprint that is in the way of this one, and how."""
        if footprint is None:
            return None if self._first_owner is None else (self._first_owner, _I_SAY_NOTHING)
        if self._undeclared is not None:
            return self._undeclared, _THEY_SAY_NOTHING
        for token in footprint.write:
            if found := self._written.find(token):
                return found[0], Clash(token, found[1])
            if found := self._read.find(token):
                return found[0], Clash(token, found[1], they_write=False)
        for token in footprint.read:
            if found := self._written.find(token):
                return found[0], Clash(token, found[1], i_write=False)
        return None
