"""One persona: a name, a text that goes into the prompt, and a hint of how much thought it takes.

The project's own go first, in the files that people expect them in; whoever has none gets what is bundled:

    .claude/agents/NAME.md     Claude Code finds it there too, as a sub-agent
    .agents/personas/NAME.md   for every runtime
    bundled                    in this package

Both places are protected: an agent that could change them would choose its own judge. A persona hints at
effort and says nothing about the model; what else its front matter has (``tools``, ``model``) is for others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from flyball.core.nearest import did_you_mean
from flyball.errors import UsageError
from flyball.factory.tasks.front_matter import MalformedError, split

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
    return sorted({*bundled_names(), *_own_names(root)})


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


def _own_names(root: Path) -> Iterator[str]:
    for place in PLACES:
        for path in sorted((root / place).glob("*.md")):
            if _NAME.fullmatch(path.stem):
                yield path.stem


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
    return files("flyball.factory.personas") / "bundled"
