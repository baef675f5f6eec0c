"""What a caller may say about an ask, and what is filled in where it says nothing.

The default project is the registered one of the folder (``flyball project add``), else the repository's name,
else the folder's. A linked worktree and an agent's workspace count as the repository that they come from, so
agents compete for what they work on.

Every slot looks it up: without a registry it costs one system call, with one a stat of its folder.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from flyball.core.pool.model import Ask
from flyball.core.pool.settings import DEFAULT_POOL, NAME_LIMIT
from flyball.errors import UsageError
from flyball.host.process import me

if TYPE_CHECKING:
    from typing import Unpack


REGISTERED = os.path.join("registry", "projects")
"""In the home: one file per registered project, named after it."""
WORKTREES = "worktrees"
"""In the home: the factory's workspaces, in a folder per project."""
BORROWED_FROM = "flyball-borrowed-from"
"""In the git folder of an agent's workspace: the checkout that it was made from."""
_PATH_LIMIT = 4096


def default_project(folder: Path | None = None) -> str:
    """The project that a folder belongs to, or else the current folder."""
    try:
        here = (folder or Path.cwd()).absolute()
    except OSError:
        # The current folder was removed; the shell still says where it was.
        said = os.environ.get("PWD", "")
        here = Path(said if os.path.isabs(said) else os.sep)
    top = worktree_around(here)
    main = None if top is None else main_worktree(top)
    same = here if top is None or main is None else main / here.relative_to(top)
    return _registered_project(same, here) or _shown_name(main or top or here)


def worktree_around(folder: Path) -> Path | None:
    """The top of the git checkout that a folder is in."""
    for place in (folder, *folder.parents):
        if os.path.exists(os.path.join(place, ".git")):
            return place
    return None


def main_worktree(top: Path) -> Path | None:
    """The main worktree behind a linked one: ``gitdir: /repo/.git/worktrees/x`` -> ``/repo``; or the checkout
    that an agent's workspace was made from. Else None."""
    git_file = os.path.join(top, ".git")
    linked = os.path.isfile(git_file)
    try:
        with open(git_file if linked else os.path.join(git_file, BORROWED_FROM), "rb") as file:
            pointed = os.fsdecode(file.read(_PATH_LIMIT)).removeprefix("gitdir:").strip()
    except OSError:
        return None
    if not linked:
        return Path(pointed) if os.path.isabs(pointed) else None
    before, found, _ = os.path.normpath(top / pointed).partition("/.git/worktrees/")
    return Path(before) if found else None


# -- the registry, only read ----------------------------------------------------------------------

_TICK_S = 0.05
_read_last: tuple[tuple[str, int, int], dict[str, str]] | None = None


def _registered_project(*places: Path) -> str | None:
    """The id of the registered project around the first of these places that has one, the innermost.

    The registry is read again only when one of its files came, went or was replaced.
    """
    from flyball.governor.state_url import home  # a caller that names its project needs none of this

    global _read_last
    try:
        top = str(home())
        folder = os.path.join(top, REGISTERED)
        status = os.stat(folder)
        key = (folder, status.st_ino, status.st_mtime_ns)
        if _read_last is not None and _read_last[0] == key:
            known = _read_last[1]
        else:
            known = _read_registry(top, folder)
            # Within one tick of the file system's clock a second change leaves no trace.
            if abs(time.time() - status.st_mtime) > _TICK_S:
                _read_last = (key, known)
    except (OSError, RuntimeError, UsageError):
        return None
    for place in dict.fromkeys(places) if known else ():
        real = Path(os.path.realpath(place))
        found = next((known[str(p)] for p in (real, *real.parents) if str(p) in known), None)
        if found is not None:
            return found
    return None


def _read_registry(home: str, folder: str) -> dict[str, str]:
    """Ids by path. A file that cannot be read is passed over: the registry's own verbs say what is wrong."""
    import json

    entries: dict[str, str] = {}
    for name in sorted(os.listdir(folder)):
        project, _, ending = name.rpartition(".")
        if ending != "json" or not project.isprintable():
            continue
        try:
            with open(os.path.join(folder, name), "rb") as file:
                entry = json.loads(file.read())
            if entry["id"] == project:
                entries[str(entry["path"])] = project
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            continue
    worktrees = os.path.join(os.path.realpath(home), WORKTREES)
    return {os.path.join(worktrees, project): project for project in entries.values()} | entries


# -- names ----------------------------------------------------------------------------------------


def _shown_name(folder: Path) -> str:
    """A folder's name as something that can be stored and shown, whatever it is made of."""
    name = folder.name.encode("utf-8", "backslashreplace").decode()
    if not name.isprintable():
        name = "".join(char if char.isprintable() else "?" for char in name)
    return name[:NAME_LIMIT] or "root"


def default_name(program: str | None = None) -> str:
    """A program's name, by default that of the running one, and our pid."""
    if program is None:
        program = sys.argv[0] if sys.argv and sys.argv[0] not in ("", "-c", "-m") else "python"
    return f"{_shown_name(Path(program))[: NAME_LIMIT - 12]}-{os.getpid()}"


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
class AskRequest:
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


def asking_for(pool: str, **options: Unpack[AskOptions]) -> AskRequest:
    """Fill in what the caller left out."""
    if not options.keys() <= _OPTIONS:
        unknown = min(options.keys() - _OPTIONS)
        raise TypeError(f"unknown option {unknown!r}; an ask knows {', '.join(AskOptions.__annotations__)}")
    project, name = options.get("project"), options.get("name")
    return AskRequest(
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


def ask_of(asking: AskRequest, mailbox: str) -> Ask:
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
