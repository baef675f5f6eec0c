"""Ids of tasks that were begun once, whether or not their tasks are still there.

A task that was deleted leaves things behind under its id: a branch, a worktree with uncommitted work, a trip
in the ledger. A new task of the same id would go on from them, so its number is not given out again.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from flyball.errors import StoreError
from flyball.factory.config import ProjectConfig
from flyball.factory.git import Git
from flyball.factory.looking import opened_ledger
from flyball.factory.repository import BRANCHES
from flyball.factory.workshop import STATE, worktrees_folder


def used_ids(root: Path, config: ProjectConfig) -> set[str]:
    return _with_branch(root) | _with_worktree(worktrees_folder(root, config)) | _in_ledger(root / STATE)


def _with_branch(root: Path) -> set[str]:
    """Here or, as far as was fetched, at origin."""
    kept = (f"refs/heads/{BRANCHES}", f"refs/remotes/origin/{BRANCHES}")
    done = Git(root).run("for-each-ref", "--format=%(refname)", *kept)
    return {line.partition(f"/{BRANCHES}")[2] for line in done.text.splitlines()} if done.ok else set()


def _with_worktree(folder: Path) -> set[str]:
    with suppress(OSError):
        return {path.name for path in folder.iterdir()}
    return set()


def _in_ledger(state: Path) -> set[str]:
    # What is wrong with a ledger is told by whoever needs it: a task can be written down without.
    with suppress(StoreError), opened_ledger(state) as ledger:
        return ledger.tasks() if ledger is not None else set()
    return set()
