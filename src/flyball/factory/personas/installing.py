"""Writing bundled personas into a project, where people can change them.

An installed file carries the hash of what was written (``flyball:`` in its front matter). So a file that
nobody touched is told from one that somebody made their own: the first is brought up to date, the second
stays unless a person says otherwise.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from flyball.core.nearest import did_you_mean
from flyball.errors import UsageError
from flyball.factory.personas.persona import AGENTS, CLAUDE, bundled_names, bundled_text

_MARK = re.compile(r"^flyball: ([0-9a-f]{16})\n", re.MULTILINE)


class State(Enum):
    NEW = "new"
    CURRENT = "current"
    """There, and as bundled."""
    OUTDATED = "outdated"
    """There, untouched, and of another flyball."""
    CHANGED = "changed"
    """Somebody made it their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    name: str
    path: str
    """In the project."""
    state: State
    writes: bool
    content: str


def place_for(runtime: str) -> str:
    """Where the personas of a project belong."""
    return CLAUDE if runtime == "claude" else AGENTS


def plan_install(root: Path, names: Sequence[str], *, runtime: str, force: bool = False) -> list[Planned]:
    """What would be written. Changes nothing."""
    known = bundled_names()
    for name in names:
        if name not in known:
            meant = did_you_mean(name, known) or f"there are {', '.join(known)}"
            raise UsageError(f"no persona {name!r} is bundled; {meant}")
    return [_planned(root, name, runtime, force) for name in (names or known)]


def write_install(root: Path, plan: Sequence[Planned]) -> list[str]:
    """Write it; the paths written."""
    written: list[str] = []
    for planned in plan:
        if not planned.writes:
            continue
        path = root / planned.path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            fresh = path.with_suffix(".md.new")
            fresh.write_text(planned.content, encoding="utf-8")
            fresh.replace(path)
        except OSError as error:
            so_far = f"; written so far: {', '.join(written)}" if written else ""
            raise UsageError(f"cannot write {path}: {error.strerror}{so_far}") from error
        written.append(planned.path)
    return written


def _planned(root: Path, name: str, runtime: str, force: bool) -> Planned:
    path, content = f"{place_for(runtime)}/{name}.md", marked(bundled_text(name))
    state = _state(root / path, content)
    writes = state in (State.NEW, State.OUTDATED) or (force and state is State.CHANGED)
    return Planned(name=name, path=path, state=state, writes=writes, content=content)


def marked(text: str) -> str:
    """With its own hash in the front matter."""
    return text.replace("---\n", f"---\nflyball: {_hash(text)}\n", 1)


def _state(path: Path, content: str) -> State:
    if not os.path.lexists(path):
        return State.NEW
    try:
        there = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return State.CHANGED
    if there == content:
        return State.CURRENT
    mark = _MARK.search(there)
    untouched = mark is not None and _hash(_MARK.sub("", there, count=1)) == mark[1]
    return State.OUTDATED if untouched else State.CHANGED


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
