"""The landing's own worktree: where a branch is rebased, its task closed, and the gate run.

It is kept between landings, so that what the gate's tools cache in ignored files stays warm. Nothing that
happens in it counts before the default branch has been moved.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from flyball.errors import GitError
from flyball.factory.git import Git
from flyball.factory.repository import Repository
from flyball.factory.tasks.port import Closing, TaskSource
from flyball.factory.worktree import Worktrees, git_dir

NAME = ".landing"


@dataclass(frozen=True, slots=True)
class LandingPlace:
    repository: Repository
    worktrees: Worktrees
    source: TaskSource

    @property
    def path(self) -> Path:
        return self.worktrees.folder / NAME

    def put(self, tip: str, base: str) -> list[str] | None:
        """The commits of a branch on top of ``base``; the paths that clash, or None if all went well."""
        if self.repository.contains(tip, base):
            self._cleared(tip)
            return None
        git = self._cleared(base)
        # Three times as quick as a rebase, and the same for a plain row of commits. Whatever is not plain (a
        # merge, a commit that changes nothing any more, a clash) is the rebase's to judge.
        if git.run("cherry-pick", f"{base}..{tip}").ok:
            return None
        git.run("cherry-pick", "--abort")
        git("checkout", "--quiet", "--force", "--detach", tip)
        if git.run("rebase", "--quiet", base).ok:
            return None
        clashing = git.lines("diff", "-z", "--name-only", "--diff-filter=U")
        git.run("rebase", "--abort")
        return clashing

    def close(self, task_id: str, base: str) -> tuple[Closing, str]:
        """Close the task in the very commit that brings its work; what is to land.

        Reverting that commit reopens the task. Where ``base`` has all of the work already, there is no such
        commit, and what is there is nobody's to change.
        """
        git = Git(self.path)
        closing = self.source.close_in(task_id, self.path)
        if closing.paths:
            git("add", "--force", "--", *closing.paths)
            if self._head() == base:
                git("commit", "--quiet", "--no-verify", "--message", f"Close {task_id}: its work was here")
            else:
                git("commit", "--quiet", "--no-verify", "--amend", "--no-edit", "--allow-empty-message")
        return closing, self._head()

    def _head(self) -> str:
        return (git_dir(self.path) / "HEAD").read_text(encoding="utf-8").strip()

    def _cleared(self, tip: str) -> Git:
        """Standing at ``tip``, with nothing left over from the last landing but ignored files."""
        git = Git(self.path)
        if not self._is_ours():
            self._make(tip)
            return git
        state = git_dir(self.path)
        if any((state / name).exists() for name in ("rebase-merge", "rebase-apply")):
            git.run("rebase", "--abort")
        if (state / "CHERRY_PICK_HEAD").exists() or (state / "sequencer").exists():
            git.run("cherry-pick", "--abort")
        # We hold the landing's lock: whoever made this one is dead.
        (state / "index.lock").unlink(missing_ok=True)
        git("checkout", "--quiet", "--force", "--detach", tip)
        # Twice forced: repositories that a gate made inside go too.
        git("clean", "--quiet", "-ffd", *[f"--exclude={name}" for name in self.worktrees.copy])
        self.worktrees.fill(self.path)
        return git

    def _is_ours(self) -> bool:
        """Another clone of the same project may have been here before, or a gate that spares nothing."""
        try:
            state = git_dir(self.path)
        except GitError:
            return False
        return state.is_dir() and state.parent.resolve() == (self.repository.common / "worktrees").resolve()

    def _make(self, tip: str) -> None:
        git = self.repository.git
        # Nobody works here but gates.
        shutil.rmtree(self.path, ignore_errors=True)
        with self.repository.worktree_lock():
            git("worktree", "prune")
            git("worktree", "add", "--quiet", "--no-checkout", "--detach", str(self.path), tip)
        self.worktrees.fill(self.path)
