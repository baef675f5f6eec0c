"""Leftovers: workspaces, branches and run folders of work that is over.

Looking and removing are apart. A survey says of every one whether it can go, and why or why not; removing
one, it looks again at what may have changed since. Always kept, with the reason:

    uncommitted work         whatever its task's state
    commits of its own       a branch goes when the default branch has all that it changes, under whatever
                             name: landing rebases
    work that is not over    and what a run needs to go on with it
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from flyball.core.pool.verdict import span_words
from flyball.core.tasks.next_step import wants_pull
from flyball.core.tasks.task import Task, TaskStatus
from flyball.core.tasks.task_run import State, TaskRecord
from flyball.errors import FlyballError, GitError
from flyball.factory.git.repository import BRANCHES, Checkout, Repository
from flyball.factory.git.workspace import (
    REVIEW_PREFIX,
    is_half,
    remove_tree,
    uncommitted_paths,
    uncommitted_words,
)
from flyball.factory.landing.rebase import LANDING_WORKTREE
from flyball.factory.project_view import Project, open_ledger
from flyball.factory.run.context import open_workspaces


class LeftoverKind(Enum):
    WORKSPACE = "workspace"
    BRANCH = "branch"
    RUN = "run folder"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    kind: LeftoverKind
    name: str
    path: Path | None
    """None for a branch."""
    goes: bool
    why: str
    tip: str = ""
    """Where a branch stands: it can be made again from this."""
    size_bytes: int = 0
    young: bool = False
    """Kept for its age alone."""
    foreign: bool = False
    """A folder in a workspace's place that is not a workspace of this repository."""


@dataclass(frozen=True, slots=True)
class TaskStates:
    """How far the work on every task has come, and the tasks themselves."""

    live: Mapping[str, TaskRecord] = field(default_factory=dict)
    parked: Mapping[str, TaskRecord] = field(default_factory=dict)
    blocked: Mapping[str, TaskRecord] = field(default_factory=dict)
    merged: frozenset[str] = frozenset()
    tasks: Mapping[str, Task] = field(default_factory=dict)
    unreadable: frozenset[str] = frozenset()

    def needed_by(self, task_id: str) -> str:
        """Why a task's things are still needed, in words; empty if its work is over."""
        task = self.tasks.get(task_id)
        if task_id in self.live:
            return f"its work is not over ({self.live[task_id].state.value}); flyball run goes on with it"
        if task_id in self.unreadable:
            return "its task cannot be read; flyball validate says why"
        if task is None or task.status is TaskStatus.CLOSED or task_id in self.merged:
            return ""
        if task_id in self.parked and (number := self.parked[task_id].pull.number):
            return f"its pull request #{number} is open: flyball land {task_id}, or flyball pr sync"
        if task_id in self.parked and wants_pull(self.parked[task_id]):
            return f"it waits for you: flyball pr open {task_id}, or flyball merge {task_id}"
        if task_id in self.parked:
            return f"it waits for you: flyball merge {task_id}"
        if task_id in self.blocked:
            return "it is blocked and its task is open; flyball run tries again, or close the task"
        return "its task is open"

    def over_words(self, task_id: str) -> str:
        if task_id in self.merged:
            return "merged"
        return "its task is closed" if task_id in self.tasks else "its task is gone"


def load_task_states(project: Project) -> TaskStates:
    loaded = project.source.load()
    tasks = {task.id: task for task in loaded.tasks}
    unreadable = frozenset(each.task for each in loaded.problems if each.task) - tasks.keys()
    with open_ledger(project.state) as ledger:
        if ledger is None:
            return TaskStates(tasks=tasks, unreadable=unreadable)
        ledger.load()
        return TaskStates(
            live={name: record for name, record in ledger.records.items() if not record.final},
            parked=ledger.runs_in(State.PARKED),
            blocked=ledger.runs_in(State.BLOCKED),
            merged=frozenset(ledger.merged_tasks()),
            tasks=tasks,
            unreadable=unreadable,
        )


class Survey:
    """Everything the factory has left behind in one project."""

    def __init__(self, project: Project, *, older_than_s: float, now: float, going_on: bool) -> None:
        """``older_than_s``: of run folders; ``inf`` leaves them out."""
        self._project, self._going_on = project, going_on
        self._older_than_s, self._now = older_than_s, now
        self._repository = Repository(project.root, default_branch=project.config.project.default_branch)
        self._workspaces = open_workspaces(project.root, project.config, self._repository)
        self._task_states = load_task_states(project)

    def leftovers(self) -> list[Leftover]:
        checkouts = self._repository.checkouts()
        folders = list(self._folders(checkouts))
        going = {thing.path for thing in folders if thing.goes}
        held: dict[str | None, Path | None] = {
            f"{BRANCHES}{thing.name}": thing.path for thing in folders if not thing.goes
        }
        held |= {each.branch: each.path for each in checkouts if each.path not in going}
        return [*folders, *self._branches(held), *self._runs()]

    # -- workspaces -------------------------------------------------------------------------------------

    def _folders(self, checkouts: list[Checkout]) -> Iterator[Leftover]:
        """Workspaces of agents, and the landing's own worktree beside them."""
        folder = self._workspaces.folder
        linked = [each.path for each in checkouts if each.path.parent.resolve() == folder.resolve()]
        ours = [*linked, *self._workspaces.registered()]
        for path in ours:
            why = self._keeps_folder(path, linked=path in linked)
            yield Leftover(
                kind=LeftoverKind.WORKSPACE,
                name=path.name,
                path=path,
                goes=not why,
                why=why or self._gone_words(path),
                size_bytes=0 if why else folder_size(path),
            )
        for name in sorted(set(_names_in(folder)) - {path.name for path in ours}):
            half = is_half(name) and not self._going_on
            why = "it is not a workspace of this repository; look at it"
            yield Leftover(
                kind=LeftoverKind.WORKSPACE,
                name=name,
                path=folder / name,
                goes=half,
                why="it is a part of one that was being made or removed" if half else why,
                foreign=not is_half(name),
            )

    def _gone_words(self, path: Path) -> str:
        if not path.exists():
            return "its folder is gone"
        if path.name == LANDING_WORKTREE:
            return "the next landing makes it again"
        if path.name.startswith(REVIEW_PREFIX):
            return "its review is over"
        return self._task_states.over_words(path.name)

    def _keeps_folder(self, path: Path, *, linked: bool) -> str:
        """Why it has to stay; empty if it can go."""
        if path.name == LANDING_WORKTREE:
            landing = any(record.state is State.LANDING for record in self._task_states.live.values())
            needed = "a run is going on" if self._going_on else "a landing is not over" if landing else ""
        elif path.name.startswith(REVIEW_PREFIX):
            needed = "a run is going on" if self._going_on else ""
        else:
            needed = self._task_states.needed_by(path.name)
        return needed or self._unsaved(path, linked=linked)

    def _unsaved(self, path: Path, *, linked: bool) -> str:
        if linked:
            copied = self._project.config.worktree.copy
            return unsaved_in_worktree(self._repository, path, copied=copied)
        return self._workspaces.unsaved(path)

    # -- branches ---------------------------------------------------------------------------------------

    def _branches(self, held: Mapping[str | None, Path | None]) -> Iterator[Leftover]:
        for branch, tip in self._repository.agent_branches().items():
            why = self._keeps_branch(branch, tip, held)
            over = f"all its changes are in {self._repository.default}"
            yield Leftover(
                kind=LeftoverKind.BRANCH, name=branch, path=None, goes=not why, why=why or over, tip=tip
            )

    def _keeps_branch(self, branch: str, tip: str, held: Mapping[str | None, Path | None]) -> str:
        needed = self._task_states.needed_by(branch.removeprefix(BRANCHES))
        if needed:
            return needed
        if branch in held:
            return f"it is checked out in {held[branch]}"
        if is_landed(self._repository, tip):
            return ""
        default = self._repository.default
        ahead = self._repository.ahead(default, tip)
        commits = "a commit" if ahead == 1 else f"{ahead} commits"
        return f"it has {commits} that {default} has not: git log {default}..{branch}"

    # -- run folders ------------------------------------------------------------------------------------

    def _runs(self) -> Iterator[Leftover]:
        if self._older_than_s == math.inf:
            return
        runs = self._project.state / "runs"
        for task_id in sorted(_names_in(runs)):
            numbers = sorted(int(name) for name in _names_in(runs / task_id) if name.isdigit())
            needed = self._task_states.needed_by(task_id)
            for number in numbers:
                last = number == numbers[-1]
                yield self._run(runs / task_id / str(number), task_id, needed=needed, last=last)

    def _run(self, folder: Path, task_id: str, *, needed: str, last: bool) -> Leftover:
        age_s = self._now - _written_at(folder)
        live, young = task_id in self._task_states.live, age_s < self._older_than_s
        why = needed if live or last else ""
        if young:
            why = f"it is younger than {span_words(self._older_than_s)}"
        over = f"{span_words(age_s)} old"
        return Leftover(
            kind=LeftoverKind.RUN,
            name=f"{task_id}/{folder.name}",
            path=folder,
            goes=not why,
            why=why or over,
            size_bytes=0 if why else folder_size(folder),
            young=young,
        )

    # -- removing ---------------------------------------------------------------------------------------

    def remove(self, thing: Leftover) -> None:
        """Remove what can go; FlyballError if it must stay after all."""
        if thing.path is None:
            self._remove_branch(thing)
        elif thing.kind is LeftoverKind.RUN:
            _remove_run(thing.path)
        else:
            self._remove_folder(thing.path)

    def _remove_folder(self, path: Path) -> None:
        if self._workspaces.is_ours(path):
            if why := self._workspaces.unsaved(path):
                raise GitError(why)
            self._workspaces.discard(path)
        elif is_half(path.name):
            remove_tree(path)
        elif any(each.path == path for each in self._repository.checkouts()):
            if why := self._unsaved(path, linked=True):
                raise GitError(why)
            with self._repository.worktree_lock():
                # Forced because of what flyball copied in; all else was looked for just now. A lock still
                # holds.
                self._repository.git("worktree", "remove", "--force", str(path))

    def _remove_branch(self, thing: Leftover) -> None:
        holder = next((each for each in self._repository.checkouts() if each.branch == thing.name), None)
        if holder is not None:
            raise GitError(f"it is checked out in {holder.path}")
        self._repository.delete_branch(thing.name, tip=thing.tip)


# -- is anything lost? --------------------------------------------------------------------------------------


def unsaved_in_worktree(repository: Repository, path: Path, *, copied: list[str] | tuple[str, ...]) -> str:
    """What would be lost with a worktree of the user's repository, in words; empty if nothing."""
    if not path.exists():
        return ""
    if not (path / ".git").is_file():
        return "its .git is gone, so flyball cannot tell what is in it; look at it"
    if (repository.worktree_git_dir(path) / "locked").exists():
        return f"it is locked: git worktree unlock {path}"
    return uncommitted_words(uncommitted_paths(repository.git_in(path), copied=copied))


def is_landed(repository: Repository, tip: str) -> bool:
    """Has the default branch, here or at origin, all that a commit brings?"""
    name = repository.default
    heads = (repository.commit(f"refs/{kind}/{name}") for kind in ("heads", "remotes/origin"))
    return any(
        repository.contains(head, tip) or _brings_nothing(repository, head, tip)
        for head in heads
        if head is not None
    )


def _brings_nothing(repository: Repository, head: str, tip: str) -> bool:
    """Merging it would change no file: its commits were rebased or squashed into the branch."""
    merged = repository.git.run("merge-tree", "--write-tree", head, tip)
    return merged.ok and merged.text == repository.git("rev-parse", f"{head}^{{tree}}")


# -- files --------------------------------------------------------------------------------------------------


def _remove_run(folder: Path) -> None:
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise FlyballError(f"cannot remove {folder}: {error.strerror}") from error
    with contextlib.suppress(OSError):  # it was not the last one
        folder.parent.rmdir()


def _names_in(folder: Path) -> list[str]:
    """Folders in it; links are left out, they are the user's."""
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _written_at(folder: Path) -> float:
    """Wall clock of the last change of anything directly in it; what cannot be looked at is not old."""
    try:
        with os.scandir(folder) as entries:
            times = [entry.stat(follow_symlinks=False).st_mtime for entry in entries]
        return max(times, default=folder.stat().st_mtime)
    except OSError:
        return math.inf


def folder_size(folder: Path) -> int:
    """Bytes on the disk; what cannot be looked at counts nothing."""
    total, waiting = 0, [str(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    found = entry.stat(follow_symlinks=False)
                    total += found.st_blocks * 512
                    if stat.S_ISDIR(found.st_mode):
                        waiting.append(entry.path)
        except OSError:
            continue
    return total
