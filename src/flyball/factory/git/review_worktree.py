"""Where a reviewer works: a worktree of its own, at the commit to be reviewed, on no branch.

Nothing that is done in it can become part of the work: what it changes or commits there is thrown away with
it. It is made for one review and removed after it; one that a killed engine left is replaced by the next.
"""

from __future__ import annotations

import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path

from flyball.factory.git.worktree import Worktrees

PREFIX = ".review-"
_DIFF_LIMIT_BYTES = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewFiles:
    """Files in the worktree, for the reviewer."""

    answer: Path
    diff: Path
    """What is to be reviewed: some agents may read files and not run git."""


@dataclass(frozen=True, slots=True)
class ReviewWorktree:
    worktrees: Worktrees
    task_id: str

    @property
    def path(self) -> Path:
        return self.worktrees.folder / f"{PREFIX}{self.task_id}"

    def make(self, *, base: str, commit: str) -> ReviewFiles:
        """A fresh one, with what a reviewer needs in it."""
        self.remove()
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        repository = self.worktrees.repository
        self.worktrees.preparation.forget(self.path)
        with repository.worktree_lock():
            repository.git("worktree", "add", "--quiet", "--no-checkout", "--detach", str(self.path), commit)
        self.worktrees.fill(self.path, commit)
        # Nobody can have committed files of these names: they are made up here.
        name = f".flyball-review-{secrets.token_hex(8)}"
        desk = ReviewFiles(answer=self.path / f"{name}.json", diff=self.path / f"{name}.diff")
        shown = repository.git_in(self.path).run(
            "diff", "--no-ext-diff", "--no-textconv", f"{base}...{commit}"
        )
        desk.diff.write_bytes(shown.out[:_DIFF_LIMIT_BYTES])
        return desk

    def remove(self) -> None:
        repository = self.worktrees.repository
        with repository.worktree_lock():
            # Twice forced: whatever was done in it, or to it.
            removed = repository.git.ok("worktree", "remove", "--force", "--force", str(self.path))
            if not removed and self.path.exists():
                shutil.rmtree(self.path, ignore_errors=True)
            if not removed:
                repository.git("worktree", "prune")
