"""Lock files that a killed git left behind, told from those of a git that lives.

git guards what it changes with files named ``*.lock`` and removes them when it is done. One that was killed,
by a power cut or with its container, leaves them, and every later git refuses to touch what they guard.

A lock is *held* while a living process has it open, or a git works in this repository that was there before
the lock was written. Otherwise it is *left*, once it is a few seconds old. Where the system does not tell
about processes, only time can: then a lock counts as left after ten minutes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from flyball.host.file_users import find_users

_NAMES = frozenset(
    f"{name}.lock"
    for name in (
        "HEAD",
        "ORIG_HEAD",
        "FETCH_HEAD",
        "MERGE_HEAD",
        "CHERRY_PICK_HEAD",
        "REVERT_HEAD",
        "REBASE_HEAD",
        "AUTO_MERGE",
        "index",
        "config",
        "config.worktree",
        "packed-refs",
        "shallow",
    )
)
_LEFT_AFTER_S = 2.0
_LEFT_UNSEEN_AFTER_S = 600.0
_PATIENCE_S = 10.0
_LOOK_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class GitLockFile:
    path: Path
    age_s: float
    holders: tuple[int, ...] = ()
    """Processes that may still need it."""
    left: bool = False
    """No living process needs it."""


def lock_files(common: Path) -> list[GitLockFile]:
    """Every lock in a repository's git folder and in those of its worktrees."""
    states = [common, *sorted((common / "worktrees").glob("*"))]
    folders = _folders(common, states)
    return [found for path in _lock_paths(states) if (found := _inspect(path, folders)) is not None]


def clear(common: Path, *, patience_s: float = _PATIENCE_S) -> list[Path]:
    """Remove the locks that were left behind; which those were. One that no process holds and that is too
    young to tell is waited for; one that is held is its holder's."""
    removed: list[Path] = []
    end = time.monotonic() + patience_s
    while True:
        locks = lock_files(common)
        for lock in locks:
            if lock.left:
                with suppress(FileNotFoundError):
                    lock.path.unlink()
                    removed.append(lock.path)
        if all(lock.left or lock.holders for lock in locks) or time.monotonic() > end:
            return removed
        time.sleep(_LOOK_EVERY_S)


def _lock_paths(states: Sequence[Path]) -> Iterator[Path]:
    for state in states:
        yield from (state / name for name in sorted(_NAMES) if os.path.lexists(state / name))
        # No branch can be called so: git forbids it.
        for folder, _, names in os.walk(state / "refs"):
            yield from (Path(folder, name) for name in sorted(names) if name.endswith(".lock"))


def _folders(common: Path, states: Sequence[Path]) -> list[Path]:
    """Where a git of this repository works."""
    trees = [common.parent] if common.name == ".git" else []
    for state in states[1:]:
        with suppress(OSError):
            trees.append(Path((state / "gitdir").read_text(encoding="utf-8").strip()).parent)
    return [Path(os.path.realpath(each)) for each in (common, *trees)]


def _inspect(path: Path, folders: Sequence[Path]) -> GitLockFile | None:
    try:
        users = find_users(path, program="git", folders=folders)
        age_s = time.time() - path.lstat().st_mtime
    except FileNotFoundError:
        return None
    if users is None:
        return GitLockFile(path, age_s, left=age_s > _LEFT_UNSEEN_AFTER_S)
    return GitLockFile(path, age_s, tuple(users), left=not users and age_s > _LEFT_AFTER_S)
