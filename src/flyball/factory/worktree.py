"""A worktree of its own for every task, outside the user's checkout.

    add --no-checkout   under the repository's lock: git's list of worktrees is not safe against itself
    checkout            outside it, where the time goes
    copy, bootstrap     what a fresh clone lacks: untracked files such as .env, installed packages

A registered worktree is used again; a path that is something else is refused, never cleared. A worktree with
uncommitted work is never removed. Where an agent deleted its folder, the branch still has its commits.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from flyball.errors import GitError, UsageError
from flyball.factory import git_locks
from flyball.factory.git import Git, named
from flyball.factory.preparing import Preparation
from flyball.factory.repository import BRANCHES, Repository


class DirtyError(GitError):
    """There is uncommitted work that would be lost."""


@dataclass(frozen=True, slots=True)
class Worktree:
    path: Path
    branch: str
    base: str
    """The commit the branch was made from, or was last brought onto."""

    @property
    def git(self) -> Git:
        return Git(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Worktrees:
    """The worktrees of one project."""

    repository: Repository
    folder: Path
    bootstrap: Sequence[str] = ()
    bootstrap_timeout_s: float = 600.0
    copy: Sequence[str] = ()
    sandboxed: bool = False
    """Agents are kept inside: nothing is run outside in a worktree where one has been."""

    def path(self, task_id: str) -> Path:
        return self.folder / task_id

    def ensure(self, task_id: str, *, recorded: str = "", pull: bool = False) -> Worktree:
        """The task's worktree on its branch: the one that is there, or a new one.

        ``recorded``: what the branch was made from. ``pull``: its work is to become a pull request.
        """
        branch, path = f"{BRANCHES}{task_id}", self.path(task_id)
        tips = self.repository.tips(branch)
        base = self.repository.base_among(tips).commit
        start = tips.remote or base if pull else base
        there = self._registered(path, branch)
        if not there:
            self._add(path, branch, start, existing=tips.branch is not None)
        since = start
        if tips.branch is not None or there:
            tip = self.repository.tip(branch) or base
            since = self.repository.own_since(tip, known=base, recorded=recorded)
        self.fill(path, since, again=not self.sandboxed)
        return Worktree(path, branch, since)

    def _registered(self, path: Path, branch: str) -> bool:
        """Is it there and ours? A foreign thing at its place is refused."""
        if not path.exists():
            return False
        checkout = next((each for each in self.repository.checkouts() if _same(each.path, path)), None)
        if checkout is None:
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()
                return False
            raise UsageError(f"{path} exists and is no worktree of {self.repository.root}; move it away")
        self._settle(path, branch)
        stands_on = head_branch(path)
        if stands_on != branch:
            self._back_onto(path, branch, stands_on)
        return True

    def _settle(self, path: Path, branch: str) -> None:
        """Undo what somebody was killed in the middle of: the branch still stands where it stood before."""
        git_locks.clear(self.repository.common)
        if _rebases(git_dir(path), branch):
            Git(path).run("rebase", "--abort")

    def _back_onto(self, path: Path, branch: str, found: str | None) -> None:
        """The agent, or somebody, left the branch. Its own commits come along if they build on it."""
        git = Git(path)
        tip, head = self.repository.tip(branch), git("rev-parse", "HEAD")
        builds = tip is None or self.repository.contains(head, tip)
        if not builds or self.is_dirty(Worktree(path, branch, "")):
            where = found or "a detached commit"
            raise GitError(f"{path} stands on {where} instead of {branch}, with work that is not on {branch}")
        git("checkout", "--quiet", "-B", branch, head)

    def _add(self, path: Path, branch: str, base: str, *, existing: bool) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        git = self.repository.git
        self.preparation.forget(path)
        which = [str(path), branch] if existing else ["-b", branch, str(path), base]
        with self.repository.worktree_lock():
            if not git.ok("worktree", "add", "--quiet", "--no-checkout", *which):
                # A folder that an agent deleted is still on git's list.
                git("worktree", "prune")
                git("worktree", "add", "--quiet", "--no-checkout", *which)

    @property
    def preparation(self) -> Preparation:
        return Preparation(
            repository=self.repository,
            bootstrap=self.bootstrap,
            timeout_s=self.bootstrap_timeout_s,
            copy=self.copy,
        )

    def fill(self, path: Path, commit: str, *, again: bool = True) -> None:
        """Check it out and prepare it, as ``commit`` asks for, unless that was done. A kill may have left it
        at any point of that. ``again``: also where it was prepared as another commit asked for."""
        preparation = self.preparation
        if preparation.is_current(path, commit):
            return
        if not preparation.was_done(path):
            index = git_dir(path) / "index"
            if not index.exists():
                # Written last: nobody has worked here yet, and whoever was checking out is dead.
                index.with_suffix(".lock").unlink(missing_ok=True)
                Git(path)("reset", "--quiet", "--hard")
        elif not again:
            return
        preparation.do(path, commit)

    # -- after an agent ------------------------------------------------------------------------------

    def gather(self, task_id: str, message: str, *, base: str, commit: bool) -> bool:
        """Bring what an agent left onto its branch, uncommitted work too where ``commit`` says so.

        True if the branch now has something of its own. An agent may have left its branch, or deleted its
        folder.
        """
        branch, path = f"{BRANCHES}{task_id}", self.path(task_id)
        if (path / ".git").is_file():
            git_locks.clear(self.repository.common)
            stands_on = head_branch(path)
            if commit:
                self._commit_all(path, message, detach=stands_on not in (None, branch))
            if stands_on != branch and not _rebases(git_dir(path), branch):
                self._back_onto(path, branch, stands_on)
        return self.has_commits(task_id, base)

    def has_commits(self, task_id: str, base: str) -> bool:
        """Has the task's branch moved since it was made from ``base``, or brought onto it?"""
        tips = self.repository.tips(f"{BRANCHES}{task_id}")
        return tips.branch not in (None, base, tips.local, tips.remote)

    def _commit_all(self, path: Path, message: str, *, detach: bool) -> None:
        git = Git(path)
        if unsolved := git.lines("diff", "-z", "--name-only", "--diff-filter=U"):
            raise GitError(f"the agent left {path} in the middle of a merge: {named(unsolved)} is not solved")
        if _rebases(git_dir(path)):
            raise GitError(f"the agent left {path} in the middle of a rebase; finish it there, or abort it")
        if detach:
            # Whatever branch it went to, that one is not ours to move.
            git("checkout", "--quiet", "--detach")
        # What we copied in is the user's own and secret as like as not: it is no part of the work.
        # git refuses a pathspec that names what is ignored anyway, also one that leaves it out.
        named_out = [name for name in self.copy if not git.ok("check-ignore", "--quiet", "--", name)]
        kept_out = [f":(exclude,literal){name}" for name in named_out]
        git("add", "--all", "--", ".", *kept_out)
        done = git.run("commit", "--quiet", "--no-verify", "--message", message)
        if not done.ok and not git.ok("diff", "--cached", "--quiet"):
            raise GitError(
                f"cannot commit what the agent left in {path}: {done.err.strip()}", output=done.err
            )

    def is_dirty(self, tree: Worktree) -> bool:
        """Is there uncommitted work?"""
        return bool(self._uncommitted(tree))

    def _uncommitted(self, tree: Worktree) -> set[str]:
        """Paths with work that is not committed; what we copied in is none."""
        copied = tuple(f"{name.rstrip('/')}/" for name in self.copy)
        flags = ("--porcelain", "-z", "--no-renames", "--untracked-files=all")
        found = [line[3:] for line in tree.git.lines("status", *flags)]
        return {path for path in found if not f"{path}/".startswith(copied)}

    def refresh(self, tree: Worktree, *, pull: bool = False) -> Worktree:
        """Bring its own commits, and no others, onto where such work starts now. It stays as it is where they
        clash there, or where what is uncommitted would."""
        base, git = self.repository.pull_base() if pull else self.repository.base(), tree.git
        if self.repository.contains(git("rev-parse", "HEAD"), base):
            return tree
        moved = git.lines("diff", "-z", "--name-only", "--no-renames", tree.base, base, "--")
        if not self._uncommitted(tree).isdisjoint(moved):
            return tree
        if git.run("rebase", "--quiet", "--autostash", "--onto", base, tree.base).ok:
            self.fill(tree.path, base, again=not self.sandboxed)
            return Worktree(tree.path, tree.branch, base)
        git.run("rebase", "--abort")
        return tree

    def remove(self, task_id: str) -> None:
        """Remove a worktree, if nothing in it would be lost. Its branch stays."""
        path = self.path(task_id)
        with self.repository.worktree_lock():
            # git refuses by itself where there is uncommitted work.
            if self.repository.git.ok("worktree", "remove", str(path)):
                return
        self._remove_by_force(path)

    def _remove_by_force(self, path: Path) -> None:
        """Where git was too careful: files of ours that we copied in, submodules, a folder that is gone."""
        checkout = next((each for each in self.repository.checkouts() if _same(each.path, path)), None)
        if checkout is None:
            return
        if path.exists() and self.is_dirty(Worktree(path, checkout.branch or "", "")):
            raise DirtyError(f"{path} has uncommitted work; it was left as it is")
        with self.repository.worktree_lock():
            removed = self.repository.git.run("worktree", "remove", "--force", str(path))
            if not removed.ok and path.exists():
                raise DirtyError(f"{path} could not be removed: {removed.err.strip()}")
            if not removed.ok:
                self.repository.git("worktree", "prune")


def git_dir(path: Path) -> Path:
    """Where git keeps what belongs to one linked worktree."""
    try:
        text = (path / ".git").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise GitError(f"{path} is no worktree any more ({error.strerror}); move it away") from error
    return Path(os.path.normpath(path / text.removeprefix("gitdir:").strip()))


def head_branch(path: Path) -> str | None:
    """The branch a linked worktree stands on; None if it is detached."""
    text = (git_dir(path) / "HEAD").read_text(encoding="utf-8").strip()
    return text.removeprefix("ref: refs/heads/") if text.startswith("ref: refs/heads/") else None


def _rebases(state: Path, branch: str | None = None) -> bool:
    """Is a rebase under way, and of this branch?"""
    for name in ("rebase-merge", "rebase-apply"):
        with suppress(OSError):
            found = (state / name / "head-name").read_text(encoding="utf-8").strip()
            return branch is None or found == f"refs/heads/{branch}"
    return False


def _same(one: Path, other: Path) -> bool:
    return one == other or one.resolve() == other.resolve()
