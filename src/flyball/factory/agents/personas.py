"""One persona: a name, a text that goes into the prompt, and a hint of how much thought it takes.

The project's own go first, in the files that people expect them in; else what is bundled is used:

    .claude/agents/NAME.md     Claude Code finds it there too, as a sub-agent
    .agents/personas/NAME.md   for every runtime
    bundled                    in this package

Both places are protected: an agent that could change them would choose its own judge. A persona hints at
effort and says nothing about the model; what else its front matter has (``tools``, ``model``) is for others.

Writing bundled personas into a project, where people can change them.

An installed file carries the hash of what was written (``flyball:`` in its front matter). So a file
that was not touched is told from one that a person changed: the first is brought up to date, the second stays
unless a person says otherwise.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from flyball.core.suggestions import did_you_mean
from flyball.errors import UsageError
from flyball.factory.tasks.front_matter import MalformedError, split
from flyball.host.atomic_file import replace_file

CLAUDE, AGENTS = ".claude/agents", ".agents/personas"
PLACES = (CLAUDE, AGENTS)
BUNDLED = "bundled"
IMPLEMENTER = "implementer"
EFFORTS = ("low", "medium", "high")
LENGTH_LIMIT = 100_000
"""Every agent that reads it pays for it."""
_NAME = re.compile(r"[^\W_][\w.-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Persona:
    name: str
    text: str
    """What the agent is told."""
    where: str
    """Its path in the project, or ``bundled``."""
    description: str = ""
    effort: str = ""
    """low, medium or high; empty leaves it to the runtime."""


def bundled_names() -> list[str]:
    return sorted(each.name.removesuffix(".md") for each in _folder().iterdir() if each.name.endswith(".md"))


def bundled_text(name: str) -> str:
    return (_folder() / f"{name}.md").read_text(encoding="utf-8")


def find_persona(root: Path, name: str) -> Persona:
    """The project's own, else the bundled one; UsageError where there is none."""
    if not _NAME.fullmatch(name) or ".." in name:
        raise UsageError(f"{name!r} cannot be a persona; use letters and digits with . _ - among them")
    for place in PLACES:
        path = root / place / f"{name}.md"
        if path.is_file():
            return read_persona(name, _read(path), where=f"{place}/{name}.md")
    if name in bundled_names():
        return read_persona(name, bundled_text(name), where=BUNDLED)
    known = did_you_mean(name, known_names(root))
    raise UsageError(f"there is no persona {name!r}; {known or f'write {AGENTS}/{name}.md'}")


def known_names(root: Path) -> list[str]:
    """All that ``find_persona`` would find."""
    own = (path.stem for place in PLACES for path in (root / place).glob("*.md"))
    return sorted({*bundled_names(), *filter(_NAME.fullmatch, own)})


def read_persona(name: str, text: str, *, where: str) -> Persona:
    """``text`` is the whole file."""
    fields, body = _parts(text, where)
    effort = str(fields.get("effort") or "")
    if effort and effort not in EFFORTS:
        raise UsageError(f"{where}: effort is {effort!r}; it is {', '.join(EFFORTS)}, or left out")
    if not body.strip():
        raise UsageError(f"{where} says nothing; write below its front matter who the agent is")
    description = " ".join(str(fields.get("description") or "").split())
    return Persona(name=name, text=body.strip(), where=where, description=description, effort=effort)


def _parts(text: str, where: str) -> tuple[dict[str, object], str]:
    import yaml

    try:
        parts = split(text)
        found = yaml.safe_load(text[: parts.end].split("\n", 1)[1]) if parts is not None else {}
    except (MalformedError, yaml.YAMLError) as error:
        raise UsageError(f"the front matter of {where} cannot be read: {error}") from error
    return (found if isinstance(found, dict) else {}), text[parts.rest :] if parts is not None else text


def _read(path: Path) -> str:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the persona {path} ({error})") from error
    if len(text) > LENGTH_LIMIT:
        raise UsageError(f"the persona {path} has {len(text)} characters, at most {LENGTH_LIMIT}; shorten it")
    return text


def _folder() -> Traversable:
    return files("flyball.factory.agents") / "bundled_personas"


_MARK = re.compile(r"^flyball: ([0-9a-f]{16})\n", re.MULTILINE)


class InstallState(Enum):
    NEW = "new"
    CURRENT = "current"
    """There, and as bundled."""
    OUTDATED = "outdated"
    """There, untouched, and of another flyball."""
    CHANGED = "changed"
    """A person changed it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    name: str
    path: str
    """In the project."""
    state: InstallState
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
    written = {InstallState.NEW, InstallState.OUTDATED} | ({InstallState.CHANGED} if force else set())
    plan: list[Planned] = []
    for name in names or known:
        path, content = f"{place_for(runtime)}/{name}.md", with_mark(bundled_text(name))
        state = _state(root / path, content)
        plan.append(Planned(name=name, path=path, state=state, writes=state in written, content=content))
    return plan


def write_install(root: Path, plan: Sequence[Planned]) -> list[str]:
    """Write it; the paths written."""
    written: list[str] = []
    for planned in plan:
        if not planned.writes:
            continue
        path = root / planned.path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, planned.content.encode(), mode=0o644)
        except OSError as error:
            so_far = f"; written so far: {', '.join(written)}" if written else ""
            raise UsageError(f"cannot write {path}: {error.strerror}{so_far}") from error
        written.append(planned.path)
    return written


def with_mark(text: str) -> str:
    """The text with its own hash in the front matter."""
    return text.replace("---\n", f"---\nflyball: {_hash(text)}\n", 1)


def _state(path: Path, content: str) -> InstallState:
    if not os.path.lexists(path):
        return InstallState.NEW
    try:
        there = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return InstallState.CHANGED
    if there == content:
        return InstallState.CURRENT
    mark = _MARK.search(there)
    untouched = mark is not None and _hash(_MARK.sub("", there, count=1)) == mark[1]
    return InstallState.OUTDATED if untouched else InstallState.CHANGED


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
