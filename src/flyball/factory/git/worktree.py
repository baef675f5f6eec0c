"""A worktree of its own for every task, outside the user's checkout.

    add --no-checkout   under the repository's lock: git's list of worktrees is not safe against itself
    checkout            outside it, where the time goes
    copy, bootstrap     what a fresh clone lacks: untracked files such as .env, installed packages

A registered worktree is used again; a path that is something else is refused, never cleared. A worktree with
uncommitted work is never removed. Where an agent deleted its folder, the branch still has its commits.

A reviewer works in another one, at the commit to be reviewed and on no branch. What is changed or committed
there never becomes part of the work: it is made for one review and removed after it. One that a killed engine
left is replaced by the next.

Repositories inside a worktree, submodules and those that an agent made, are entered with care. To see whether
one has changed, ``git status``, ``git diff`` and ``git add`` run git in it, with its own settings, and
settings name programs that git runs. So flyball has git look into one only where its settings are those that
git itself writes when it makes or clones a repository.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from flyball.errors import GitError, UsageError
from flyball.factory.git import stale_locks
from flyball.factory.git.git import Git, format_paths
from flyball.factory.git.repository import BRANCHES, Repository, same_folder
from flyball.factory.git.worktree_setup import Preparation

_REBASES = ("rebase-merge", "rebase-apply")
_CONCLUDED = ("MERGE_HEAD", "MERGE_MSG", "MERGE_MODE", "SQUASH_MSG", "CHERRY_PICK_HEAD", "REVERT_HEAD")
"""What ``git commit`` takes away."""


class DirtyError(GitError):
    """There is uncommitted work that would be lost."""


@dataclass(frozen=True, slots=True)
class Worktree:
    path: Path
    branch: str
    base: str
    """The commit the branch was made from, or was last brought onto."""


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
    env: Mapping[str, str] | None = None
    """What bootstrap commands find in their environment; None: all of ours."""

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
        there = self._adopt(path, branch)
        if not there:
            self._add(path, branch, start, existing=tips.branch is not None)
        since = start
        if tips.branch is not None or there:
            tip = self.repository.tip(branch) or base
            since = self.repository.own_since(tip, known=base, recorded=recorded)
        self.fill(path, since, again=not self.sandboxed)
        return Worktree(path, branch, since)

    def _adopt(self, path: Path, branch: str) -> bool:
        """Is it there and ours? A foreign thing at its place is refused."""
        if not path.exists():
            return False
        checkout = next((each for each in self.repository.checkouts() if same_folder(each.path, path)), None)
        if checkout is None:
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()
                return False
            raise UsageError(f"{path} exists and is not a worktree of {self.repository.root}; move it away")
        self.repository.check_plain(branch)
        self._undo_rebase(path, branch)
        stands_on = self._head_branch(path)
        if stands_on != branch:
            self._back_onto(path, branch, stands_on)
        return True

    def _undo_rebase(self, path: Path, branch: str) -> None:
        """Undo a rebase whose git was killed: the branch still stands where it stood before."""
        stale_locks.clear(self.repository.common)
        git, state = self.repository.git_in(path), self.repository.worktree_git_dir(path)
        if _is_rebasing(state, branch):
            # By hand: `git rebase --abort` moves whatever branch these files name.
            for name in _REBASES:
                shutil.rmtree(state / name, ignore_errors=True)
            # First of all: a reset moves whatever HEAD stands for.
            git("symbolic-ref", "HEAD", f"refs/heads/{branch}")
            git("reset", "--quiet", "--hard")

    def _head_branch(self, path: Path) -> str | None:
        """The branch a linked worktree stands on; None if it is detached."""
        text = _text(self.repository.worktree_git_dir(path) / "HEAD").strip()
        return text.removeprefix("ref: refs/heads/") if text.startswith("ref: refs/heads/") else None

    def _back_onto(self, path: Path, branch: str, found: str | None) -> None:
        """The agent, or a person, left the branch. Its own commits come along if they build on it."""
        git = self.repository.git_in(path)
        tip, head = self.repository.tip(branch), git("rev-parse", "HEAD")
        builds = tip is None or self.repository.contains(head, tip)
        if not builds or self.is_dirty(Worktree(path, branch, "")):
            where = found or "a detached commit"
            raise GitError(f"{path} stands on {where} instead of {branch}, with work that is not on {branch}")
        # The files stand at this commit already: only names move.
        self.repository.move_branch(branch, old=tip, new=head)
        git("symbolic-ref", "HEAD", f"refs/heads/{branch}")

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
            env=self.env,
        )

    def fill(self, path: Path, commit: str, *, again: bool = True) -> None:
        """Check it out and prepare it, as ``commit`` asks for, unless that was done. A kill may have left it
        at any point of that. ``again``: also where it was prepared as another commit asked for."""
        preparation = self.preparation
        if preparation.is_current(path, commit):
            return
        if not preparation.was_done(path):
            index = self.repository.worktree_git_dir(path) / "index"
            if not index.exists():
                # Written last: no agent has worked here yet, and the process that was checking out is dead.
                index.with_suffix(".lock").unlink(missing_ok=True)
                self.repository.git_in(path)("reset", "--quiet", "--hard")
        elif not again:
            return
        preparation.run(path, commit)

    def put_back(self, task_id: str, commit: str) -> None:
        """The branch and the files of a task as they were at ``commit``. What came after it stays in the
        reflog."""
        branch, path = f"{BRANCHES}{task_id}", self.path(task_id)
        self.repository.move_branch(branch, old=self.repository.tip(branch), new=commit)
        git = self.repository.git_in(path)
        git("symbolic-ref", "HEAD", f"refs/heads/{branch}")
        git("reset", "--quiet", "--hard")
        git("clean", "--quiet", "-fd", *[f"--exclude={name}" for name in self.copy])

    # -- after an agent ------------------------------------------------------------------------------

    def gather(self, task_id: str, message: str, *, base: str, commit: bool) -> bool:
        """Bring what an agent left onto its branch, uncommitted work too where ``commit`` says so.

        True if the branch now has something of its own. An agent may have left its branch, or deleted its
        folder.
        """
        branch, path = f"{BRANCHES}{task_id}", self.path(task_id)
        self.repository.check_plain(branch)
        if (path / ".git").is_file():
            stale_locks.clear(self.repository.common)
            state = self.repository.worktree_git_dir(path)
            stands_on = self._head_branch(path)
            if commit:
                self._commit_all(path, branch, message)
            if stands_on != branch and not _is_rebasing(state, branch):
                self._back_onto(path, branch, stands_on)
        return self.has_commits(task_id, base)

    def has_commits(self, task_id: str, base: str) -> bool:
        """Has the task's branch moved since it was made from ``base``, or brought onto it?"""
        tips = self.repository.tips(f"{BRANCHES}{task_id}")
        return tips.branch not in (None, base, tips.local, tips.remote)

    def _commit_all(self, path: Path, branch: str, message: str) -> None:
        """On its own branch, or else on no branch: whatever other one it went to is not ours to move.

        Step by step, since ``git commit`` moves whatever HEAD stands for in the end.
        """
        git, state = self.repository.git_in(path), self.repository.worktree_git_dir(path)
        if unsolved := sorted(
            {line.partition("\t")[2] for line in git.lines("ls-files", "-z", "--unmerged")}
        ):
            raise GitError(
                f"the agent left {path} in the middle of a merge: {format_paths(unsolved)} is not solved"
            )
        if _is_rebasing(state):
            raise GitError(f"the agent left {path} in the middle of a rebase; finish it there, or abort it")
        head = git("rev-parse", "--verify", "HEAD^{commit}")
        self._add_all(git)
        tree, merged = git("write-tree"), _text(state / "MERGE_HEAD").split()
        if tree == git("rev-parse", f"{head}^{{tree}}") and not merged:
            return
        signed = ["-S"] if git.run("config", "--type=bool", "commit.gpgSign").text == "true" else []
        parents = [word for parent in (head, *merged) for word in ("-p", parent)]
        new = git("commit-tree", *signed, *parents, tree, stdin=message.encode())
        if self._head_branch(path) == branch:
            self.repository.move_branch(branch, old=head, new=new)
        else:
            git("update-ref", "--no-deref", "HEAD", new)
        for name in _CONCLUDED:
            (state / name).unlink(missing_ok=True)

    def _add_all(self, git: Git) -> None:
        """``git add --all``, but git never enters a repository in the worktree to see whether it has changed:
        its settings are the agent's."""
        inside = inner_repositories(git)
        # What we copied in is the user's own and secret as like as not: it is not part of the work.
        # git refuses a pathspec that names what is ignored anyway, also one that leaves it out.
        copied = [name for name in self.copy if not git.ok("check-ignore", "--quiet", "--", name)]
        kept_out = [f":(exclude,literal){name}" for name in (*copied, *inside)]
        given = "\0".join([".", *kept_out]).encode("utf-8", "surrogateescape")
        git("add", "--all", "--pathspec-from-file=-", "--pathspec-file-nul", stdin=given)
        if inside:
            given = "\0".join(inside).encode("utf-8", "surrogateescape")
            git("update-index", "--add", "--remove", "--replace", "-z", "--stdin", stdin=given)

    def is_dirty(self, tree: Worktree) -> bool:
        """Is there uncommitted work?"""
        return bool(self._uncommitted_changes(tree))

    def _uncommitted_changes(self, tree: Worktree) -> set[str]:
        """Paths with work that is not committed, without what we copied in."""
        return set(uncommitted_paths(self.repository.git_in(tree.path), copied=self.copy))

    def refresh(self, tree: Worktree, *, pull: bool = False) -> Worktree:
        """Bring its own commits, and no others, onto where such work starts now. It stays as it is where they
        clash there, or where what is uncommitted would."""
        base = self.repository.pull_base() if pull else self.repository.base()
        git = self.repository.git_in(tree.path)
        if self.repository.contains(git("rev-parse", "HEAD"), base):
            return tree
        moved = git.lines("diff", "-z", "--name-only", "--no-renames", tree.base, base, "--")
        if not self._uncommitted_changes(tree).isdisjoint(moved):
            return tree
        if git.run("rebase", "--quiet", "--autostash", "--onto", base, tree.base).ok:
            self.fill(tree.path, base, again=not self.sandboxed)
            return Worktree(tree.path, tree.branch, base)
        git.run("rebase", "--abort")
        return tree

    def remove(self, task_id: str) -> None:
        """Remove a worktree, if nothing in it would be lost. Its branch stays.

        By force: git would look for uncommitted work by itself, and with the settings that it finds there.
        """
        path = self.path(task_id)
        checkout = next((each for each in self.repository.checkouts() if same_folder(each.path, path)), None)
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


def uncommitted_paths(git: Git, *, copied: Sequence[str]) -> list[str]:
    """Changed and untracked paths, whatever the user's own settings hide; not what flyball copied in. A
    repository inside that git must not look into counts as changed."""
    odd = untrusted_repositories(git)
    inside = "dirty" if odd else "none"
    flags = ("--porcelain", "-z", "--no-renames", "--untracked-files=all", f"--ignore-submodules={inside}")
    ours = tuple(f"{name.rstrip('/')}/" for name in copied)
    names = (line[3:] for line in git.lines("status", *flags))
    return [*odd, *(name for name in names if not f"{name}/".startswith(ours))]


def _is_rebasing(state: Path, branch: str | None = None) -> bool:
    """Is a rebase under way, and of this branch?"""
    for name in _REBASES:
        with suppress(OSError):
            found = (state / name / "head-name").read_text(encoding="utf-8").strip()
            return branch is None or found == f"refs/heads/{branch}"
    return False


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""


REVIEW_PREFIX = ".review-"
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
        return self.worktrees.folder / f"{REVIEW_PREFIX}{self.task_id}"

    def make(self, *, base: str, commit: str) -> ReviewFiles:
        """A fresh one, with what a reviewer needs in it."""
        self.remove()
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        repository = self.worktrees.repository
        self.worktrees.preparation.forget(self.path)
        with repository.worktree_lock():
            repository.git("worktree", "add", "--quiet", "--no-checkout", "--detach", str(self.path), commit)
        self.worktrees.fill(self.path, commit)
        # No commit can have files of these names: they are made up here.
        name = f".flyball-review-{secrets.token_hex(8)}"
        files = ReviewFiles(answer=self.path / f"{name}.json", diff=self.path / f"{name}.diff")
        diff = ("diff", "--no-ext-diff", "--no-textconv")
        shown = repository.git_in(self.path).run(*diff, f"{base}...{commit}").out
        if len(shown) > _DIFF_LIMIT_BYTES:
            changed = repository.git_in(self.path).run(*diff, "--name-status", f"{base}...{commit}").out
            shown = _cut(shown, changed, f"git diff {base}...HEAD")
        files.diff.write_bytes(shown)
        return files

    def remove(self) -> None:
        repository = self.worktrees.repository
        with repository.worktree_lock():
            # Twice forced: whatever was done in it, or to it.
            removed = repository.git.ok("worktree", "remove", "--force", "--force", str(self.path))
            if not removed and self.path.exists():
                shutil.rmtree(self.path, ignore_errors=True)
            if not removed:
                repository.git("worktree", "prune")


def _cut(diff: bytes, changed: bytes, command: str) -> bytes:
    """As much of a diff as a reviewer is given, with what it leaves out said in front: every changed file."""
    words = (
        f"THIS DIFF IS CUT: its first {_DIFF_LIMIT_BYTES} of {len(diff)} bytes follow. "
        f"All of it is shown by: {command}\nEvery file that it changes:\n"
    )
    return b"%b%b\n%b\n" % (words.encode(), changed[:_DIFF_LIMIT_BYTES], diff[:_DIFF_LIMIT_BYTES])


_GITLINK = "160000 "
_HARMLESS = re.compile(
    r"core\.(repositoryformatversion|filemode|bare|logallrefupdates|worktree|symlinks|ignorecase"
    r"|precomposeunicode)|remote\.[^.]+\.(url|fetch)|branch\..+\.(remote|merge)|submodule\..+\.(url|active)",
    re.IGNORECASE,
)


def inner_repositories(git: Git) -> list[str]:
    """Paths in the index that stand for a commit of another repository."""
    listed = (line.partition("\t") for line in git.lines("ls-files", "-z", "--stage"))
    return [path for staged, _, path in listed if staged.startswith(_GITLINK)]


def untrusted_repositories(git: Git) -> list[str]:
    """Those of them that git must not look into."""
    return [path for path in inner_repositories(git) if not _is_plain(git.folder / path)]


def _is_plain(folder: Path) -> bool:
    """Is there no repository, or one with nothing but git's own settings and no further one inside?"""
    state = folder / ".git"
    if not os.path.lexists(state):
        return True
    if state.is_file():
        state = Path(os.path.normpath(folder / state.read_text("utf-8", "replace").partition(":")[2].strip()))
    config = state / "config"
    odd = (state, config, state / "commondir", state / "config.worktree")
    if not config.is_file() or any(each.is_symlink() for each in odd) or any(map(os.path.exists, odd[2:])):
        return False
    asked = ("config", "--file", str(config), "--no-includes", "--list", "--name-only", "-z")
    # In the root folder, which is in no repository: settings are read there, and none of them is believed.
    keys = Git(Path("/")).run(*asked)
    if not keys.ok or not all(_HARMLESS.fullmatch(key) for key in keys.text.strip("\0").split("\0")):
        return False
    return not inner_repositories(Git(folder, pinned={"GIT_DIR": str(state), "GIT_WORK_TREE": str(folder)}))
