"""What the factory asks of a place where tasks are kept.

A source is read again and again and must be quick about it: what has not changed is not parsed twice. One bad
task is a ``TaskProblem`` beside the good ones, never an exception that stops them all; an exception means
that the source as a whole cannot be used (SourceError).

A task closes with its work. Where tasks live in the repository (``files``), closing is a change of a file in
the very landing that brings the work: ``close_in`` makes it in the landing's worktree. Where they live
elsewhere (``beads``, ``github``), ``close`` tells them after the branch has moved; it may be told twice.
What a person closes without any landing, ``drop`` closes where the person would do it.

Every call may take its time (a program is run, files are read), and may come from any thread.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from flyball.core.tasks.footprint import Footprint
from flyball.core.tasks.task import DEFAULT_PRIORITY, DEFAULT_TYPE, Task
from flyball.factory.git.git import Git


@dataclass(frozen=True, slots=True)
class TaskProblem:
    """A task that cannot be used as it is written."""

    where: str
    words: str
    """What is wrong and the way out, without the place."""
    task: str | None = None


@dataclass(frozen=True, slots=True)
class LoadedTasks:
    tasks: tuple[Task, ...] = ()
    """Every task that could be read, closed ones included as far as the source knows them. Of a closed one
    the body may be missing: ``read`` has it."""
    problems: tuple[TaskProblem, ...] = ()
    passed_over: tuple[str, ...] = ()
    """Where something lies among the tasks that could be one by its name and does not say that it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTask:
    title: str
    id: str | None = None
    """None: the source makes one."""
    type: str = DEFAULT_TYPE
    priority: int = DEFAULT_PRIORITY
    needs: Sequence[str] = ()
    parent: str | None = None
    labels: Sequence[str] = ()
    footprint: Footprint | None = None
    acceptance: str = ""
    body: str = ""
    used: Collection[str] = ()
    """Ids that earlier tasks had: a source that numbers its tasks itself goes on after them."""


@dataclass(frozen=True, slots=True)
class Closing:
    """What closing a task changed in a worktree: paths to commit, relative to it. Empty: nothing to do."""

    paths: tuple[str, ...] = ()
    texts: dict[str, bytes] = field(default_factory=dict)
    """Per path, the text that it was made from: a checkout that still has exactly this loses nothing."""


class TaskSource(Protocol):
    @property
    def name(self) -> str: ...

    def load(self) -> LoadedTasks: ...

    def read(self, task_id: str) -> Task | None:
        """One task as it is now, with all its text; None if there is none that can be used."""
        ...

    def add(self, new: NewTask) -> Task: ...

    def claim(self, task_id: str) -> None:
        """Say in the source that work has begun, where it can be said without touching the repository."""
        ...

    def unclaim(self, task_id: str) -> None:
        """Take ``claim`` back: the work stopped and no run goes on with it."""
        ...

    def close_in(self, task_id: str, worktree: Path) -> Closing:
        """Close the task by changing files of a worktree, where tasks live in the repository."""
        ...

    def close(self, task_id: str, *, commit: str) -> None:
        """Close the task where it lives outside the repository. A closed one stays closed."""
        ...

    def drop(self, task_id: str, *, reason: str = "") -> None:
        """Close the task because a person says so, landed or not, and keep why. A closed one stays so."""
        ...

    def closed_at(self, task_id: str, git: Git, revision: str) -> bool:
        """Does a commit say that the task is closed? False where tasks do not live in the repository."""
        ...

    def watch_folders(self) -> Sequence[Path]:
        """Folders whose change means that ``load`` may say something new; empty where that cannot be told."""
        ...
