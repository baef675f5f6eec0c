"""One piece of work as a person wrote it down, whatever it is kept in.

What a task *is* comes from its source and changes only there. How far its work has come lives in the ledger
of the factory: a task knows nothing about agents, attempts or branches.

An id is also a branch (``agent/<id>``), a folder and a word on a command line, so it is letters and digits of
any script with ``. _ -`` among them, in a form that git takes for a branch.

A project's id (and the name of an account or of its window) follows a rule of its own. It is a file name in
the registry, a folder name for worktrees, and the project's name in every pool. So it is letters and digits
of any script with ``. _ -`` between them, and short enough for every file system. Two ids that some file
system would take for one (``Blog`` and ``blog``) have the same ``same_id_key``.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from flyball.core.tasks.footprint import Footprint
from flyball.errors import UsageError

DEFAULT_PRIORITY = 2
DEFAULT_TYPE = "task"
ID_BYTES_LIMIT = 100
"""A branch's lock file and a run's folder put more in front and behind; both must fit into 255 bytes."""


class TaskStatus(Enum):
    OPEN = "open"
    IN_PROGRESS = "in_progress"
    """A person works on it, or a factory that said so in the source."""
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
    parent_claimed: bool = False
    """The parent is named by a text that the task's author may edit, not by those who label tasks."""
    labels: tuple[str, ...] = ()
    footprint: Footprint | None = None
    """None: it is not said what it touches, so it may touch anything."""
    acceptance: str = ""
    body: str = ""
    created: float | None = None
    """Wall clock; among equal priorities the older goes first."""
    where: str = ""
    """Where a person finds it: a path, an address."""


def ancestors(task: Task, tasks: Mapping[str, Task]) -> Iterator[Task]:
    """Its parent, that one's parent, and so on. No task is above itself, whatever is written down."""
    seen = {task.id}
    while task.parent is not None and task.parent in tasks and task.parent not in seen:
        seen.add(task.parent)
        task = tasks[task.parent]
        yield task


def check_task_id(value: str) -> str:
    """The id itself, if it can be one; UsageError says why not.

    >>> check_task_id("t-14")
    't-14'
    """
    if why := _why_no_id(value):
        raise UsageError(f"{value!r} cannot be a task's id: {why}")
    return value


def _why_no_id(value: str) -> str:
    odd = next((char for char in value if not _is_id_char(char)), None)
    if not value:
        return "it is empty"
    if odd is not None:
        return f"it has {'a space' if odd == ' ' else repr(odd)} in it; use letters, digits and . _ -"
    if value[0] in ".-" or unicodedata.category(value[0])[0] == "M":
        return "it must begin with a letter or a digit"
    if ".." in value or value.endswith(".") or value.casefold().endswith(".lock"):
        return "git takes no branch with '..' in it or with '.' or '.lock' at its end"
    if len(value.encode()) > ID_BYTES_LIMIT:
        return f"it is {len(value.encode())} bytes long; at most {ID_BYTES_LIMIT}"
    return ""


def _is_id_char(char: str) -> bool:
    return char in _BETWEEN or unicodedata.category(char)[0] in "LNM"


ID_LIMIT = 60
"""Four bytes per letter and ``.json`` behind it still fit into a file name of 255 bytes."""
_BETWEEN = "._-"


def check_project_id(value: str) -> str:
    """The id itself, if it can be one.

    >>> check_project_id("blog-2")
    'blog-2'
    """
    if not value:
        raise UsageError('the project\'s id is empty; name it, for example: id = "blog"')
    return check_id(value, "a project's id")


def check_id(value: str, of: str) -> str:
    """The name itself, if it can be one ``of`` this kind.

    >>> check_id("work", "an account's name")
    'work'
    """
    if not value:
        raise UsageError(f"{of} cannot be empty; {_RULE}")
    if len(value) > ID_LIMIT:
        raise UsageError(f"{of} has at most {ID_LIMIT} characters, and this one {len(value)}")
    if made := id_from(value):
        if made == value:
            return value
        raise UsageError(f"{value!r} cannot be {of} ({_RULE}); {made!r} could")
    raise UsageError(f"{value!r} cannot be {of} ({_RULE})")


_RULE = "letters and digits, with . _ - between them"


def id_from(name: str) -> str:
    """The id that is nearest to a name, such as a folder's; empty if nothing in it can be used.

    >>> id_from("My site (old)"), id_from("../etc"), id_from("???")
    ('My-site-old', 'etc', '')
    """
    composed = unicodedata.normalize("NFC", name)
    kept = "".join(char if _is_id_char(char) else " " for char in composed)
    joined = "-".join(part for part in (part.strip(_BETWEEN) for part in kept.split()) if part)
    # An accent with no letter in front of it would attach itself to whatever is printed before it.
    while joined and unicodedata.category(joined[0])[0] not in "LN":
        joined = joined[1:]
    return joined[:ID_LIMIT].rstrip(_BETWEEN)


def same_id_key(value: str) -> str:
    """Equal for ids that a file system which ignores case would store as one file."""
    return unicodedata.normalize("NFC", value.casefold())
