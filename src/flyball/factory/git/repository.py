"""The project's repository: its default branch, its commits, and what is checked out where.

Questions and single steps; the order of a landing is in factory/landing/landing.py. Paths come from git with
``-z``, so that no name is quoted, and renames are never followed: a file that was moved away was also
removed.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

from flyball.errors import GitError, UsageError
from flyball.factory.git.git import TIMEOUT_S, Git
from flyball.factory.git.origin_merge import merge_origin
from flyball.host.lock_file import LockFile

BRANCHES = "agent/"
GATE_CACHE = "flyball-gate-cache"
"""In git's own folder of the landing's worktree."""
_NOT_GIT = frozenset({GATE_CACHE, "modules"})
"""Folders there that flyball's git never enters: a gate's, and repositories of submodules."""
_LOCK = "flyball-worktrees.lock"
_STUCK_S = 120.0
_SYMLINK, _SUBMODULE = "120000", "160000"
_HALF_MADE = "fatal: bad object worktrees/"
_HALF_MADE_OLD_S = 60.0
_FETCH_AGAIN_S = (0.0, 0.05, 0.2, 0.5, None)
_COUNT_AT = 8
"""Where a pack says how many objects are in it."""
_FEW_OBJECTS = 100
"""As many are files of their own, as after a fetch; more stay one pack."""
_SAID = 500
_COMMON = ("main", "master", "trunk")


@dataclass(frozen=True, slots=True)
class Checkout:
    """One worktree as git lists it."""

    path: Path
    head: str
    branch: str | None
    """None: detached."""
    prunable: bool = False


@dataclass(frozen=True, slots=True)
class Tips:
    """Commits, None where there is no such branch."""

    local: str | None
    remote: str | None
    branch: str | None


@dataclass(frozen=True, slots=True)
class Base:
    """Where work starts, and where finished work goes."""

    commit: str
    clashing: tuple[str, ...] = ()
    """Files in which the default branch here and origin's clash; ``commit`` is then the one here."""


@dataclass(frozen=True, slots=True)
class TreeChanges:
    """What differs between two commits."""

    paths: Mapping[str, str]
    """Every path, both sides of a rename, and where it points if it is a symlink now."""
    submodules: frozenset[str] = frozenset()
    """Those that are or were another repository's commit."""


class Repository:
    def __init__(self, root: Path, *, default_branch: str = "", tasks_folder: str | None = None) -> None:
        """``tasks_folder``: where tasks are files of the repository."""
        self.git = Git(root)
        self.root = root
        self._tasks_folder = tasks_folder
        if not self.git.ok("rev-parse", "--git-dir"):
            raise UsageError(f"{root} is not a git repository; run `git init` there first")
        top = Path(self.git("rev-parse", "--show-toplevel"))
        if not top.samefile(root):
            raise UsageError(f"flyball.toml must lie at the top of the repository, {top}, not in {root}")
        self.common = Path(self.git("rev-parse", "--path-format=absolute", "--git-common-dir"))
        if not self.git.ok("rev-parse", "--verify", "-q", "HEAD^{commit}"):
            raise UsageError(f"{root} has no commit yet; make a first one: git add -A && git commit -m Start")
        self.default = default_branch or self._find_default()
        if self.tip(self.default) is None:
            words = f"there is no branch {self.default!r} in {root}"
            raise UsageError(f"{words}; set project.default_branch in flyball.toml")

    def _find_default(self) -> str:
        remote = self.git.run("symbolic-ref", "-q", "--short", "refs/remotes/origin/HEAD")
        candidates = [remote.text.removeprefix("origin/")] if remote.ok else []
        configured = self.git.run("config", "init.defaultBranch")
        current = self.git.run("symbolic-ref", "-q", "--short", "HEAD")
        mine = [current.text] if current.ok and not current.text.startswith(BRANCHES) else []
        named = [configured.text] if configured.ok else []
        for name in (*candidates, *(n for n in (*_COMMON, *named) if n in mine), *_COMMON, *named, *mine):
            if name and self.tip(name) is not None:
                return name
        raise UsageError("cannot tell the default branch; set project.default_branch in flyball.toml")

    # -- commits ------------------------------------------------------------------------------------

    def tip(self, branch: str) -> str | None:
        """The commit a local branch stands at; None if there is no such branch."""
        found = self.git.run("rev-parse", "--verify", "-q", f"refs/heads/{branch}^{{commit}}")
        return found.text if found.ok else None

    def commit(self, revision: str) -> str | None:
        found = self.git.run("rev-parse", "--verify", "-q", f"{revision}^{{commit}}")
        return found.text if found.ok else None

    def contains(self, commit: str, ancestor: str) -> bool:
        return self.git.ok("merge-base", "--is-ancestor", ancestor, commit)

    def fork_point(self, one: str, other: str) -> str | None:
        """The newest commit that both have."""
        found = self.git.run("merge-base", one, other)
        return found.text if found.ok else None

    def own_since(self, tip: str, *, known: str, recorded: str = "") -> str:
        """The commit below a branch's own ones.

        What it has from ``known`` is not its own, nor what it was made from, ``recorded``: ``known`` may have
        been rewritten since.
        """
        fork = self.fork_point(known, tip)
        if recorded and self.contains(tip, recorded) and (fork is None or self.contains(recorded, fork)):
            return recorded
        return fork or known

    def ahead(self, base: str, tip: str) -> int:
        """How many commits ``tip`` has that ``base`` has not."""
        return int(self.git("rev-list", "--count", f"{base}..{tip}"))

    @cached_property
    def has_origin(self) -> bool:
        return self.git.ok("config", "--get", "remote.origin.url")

    def fetch(self, *, timeout_s: float = TIMEOUT_S) -> None:
        try:
            self.fetch_ref(self.default, timeout_s=timeout_s)
        except GitError as error:
            # An origin without a push yet has no such branch.
            if "couldn't find remote ref" not in error.output:
                raise

    def fetch_ref(self, spec: str, *, timeout_s: float = TIMEOUT_S) -> None:
        """Fetch one branch. git fails here over any worktree whose HEAD is not written yet."""
        for pause_s in _FETCH_AGAIN_S:
            try:
                self.git("fetch", "--quiet", "--no-tags", "origin", spec, timeout_s=timeout_s)
            except GitError as error:
                if _HALF_MADE not in error.output or pause_s is None:
                    raise
                self._drop_half_made()
                time.sleep(pause_s)
            else:
                return

    def _drop_half_made(self) -> None:
        """Workspaces that git was killed over while it added them: it never prunes them by itself."""
        with self.worktree_lock():
            # None of ours is on its way now; a person's own may be.
            for state in (self.common / "worktrees").glob("*"):
                # git's own words for "not there yet": no work can be in it.
                made = _text(state / "locked").strip() != "initializing" or set(
                    _text(state / "HEAD").strip()
                ) != {"0"}
                if not made and time.time() - state.stat().st_mtime > _HALF_MADE_OLD_S:
                    folder = Path(_text(state / "gitdir").strip()).parent
                    self.git.run("worktree", "remove", "--force", "--force", str(folder))

    def tips(self, branch: str = "") -> Tips:
        """Where the default branch, origin's, and a branch of ours stand, in one question."""
        names = (f"refs/heads/{self.default}", f"refs/remotes/origin/{self.default}", f"refs/heads/{branch}")
        asked = names if branch else names[:2]
        text = self.git("for-each-ref", "--format=%(refname) %(objectname)", *asked)
        found = dict(line.split(" ", 1) for line in text.splitlines())
        return Tips(*(found.get(name) for name in names))

    def base(self) -> str:
        """Where work starts that lands in the default branch here."""
        return self.base_among(self.tips()).commit

    def pull_base(self) -> str:
        """Where work starts that becomes a pull request: origin's default branch, and nothing that only this
        clone has."""
        tips = self.tips()
        return tips.remote or self.base_among(tips).commit

    def base_among(self, tips: Tips) -> Base:
        """What has all of both: the newer of origin's default branch and the one here, or a merge of them."""
        local, remote = tips.local, tips.remote
        if local is None:
            raise GitError(f"the branch {self.default} is gone")
        if remote is None or remote == local or self.contains(local, remote):
            return Base(local)
        if self.contains(remote, local):
            return Base(remote)
        joined = merge_origin(
            self.git, self.default, local=local, remote=remote, tasks_folder=self._tasks_folder
        )
        return Base(joined.commit or local, joined.clashing)

    def changes(self, old: str, new: str) -> TreeChanges:
        """What differs between two commits, or trees."""
        # Whatever the repository's own settings hide.
        plain = ("-z", "--raw", "--no-renames", "--no-abbrev", "--ignore-submodules=none")
        parts = self.git.lines("diff", *plain, old, new, "--")
        found: dict[str, str] = {}
        submodules = set()
        for meta, path in zip(parts[::2], parts[1::2], strict=True):
            was, mode, _, blob, _ = meta.split()
            found[path] = self.git("cat-file", "blob", blob) if mode == _SYMLINK else ""
            if _SUBMODULE in (was.lstrip(":"), mode):
                submodules.add(path)
        return TreeChanges(found, frozenset(submodules))

    # -- commits that an agent made -------------------------------------------------------------------

    @property
    def objects(self) -> Path:
        return self.common / "objects"

    def has_all_of(self, commit: str) -> bool:
        """Is a commit here, with everything it refers to?"""
        return self.commit(commit) is not None and self.has_all_below(commit)

    def has_all_below(self, commit: str) -> bool:
        """Is everything here that a commit, which is here, refers to?"""
        # Not by way of other worktrees: one that is being made has no HEAD yet, and git fails over it.
        known = ("--single-worktree", "--not", "--all")
        return self.git.ok("rev-list", "--objects", "--quiet", commit, *known)

    def take_in(self, pack: BinaryIO) -> None:
        """Objects from a stream that an agent may have written. GitError for one that is not what its name
        says, that is not as git writes it, or that refers to something missing."""
        pack.seek(_COUNT_AT)
        few = int.from_bytes(pack.read(4), "big") <= _FEW_OBJECTS
        pack.seek(0)
        how = (
            ("unpack-objects", "-q", "--strict")
            if few
            else ("index-pack", "--stdin", "--fix-thin", "--strict")
        )
        taken = self.git.run(*how, stdin=pack)
        if not taken.ok:
            said = [line for line in taken.err.splitlines() if line.startswith(("error:", "fatal:"))]
            raise GitError(f"git refuses what was handed over: {'; '.join(said)[:_SAID]}", output=taken.err)

    def signed_again(self, commit: str) -> str:
        """The same commit with the user's signature, where git's settings ask for one."""
        if self.git.run("config", "--type=bool", "commit.gpgSign").text != "true":
            return commit
        form = "--format=%T%x00%P%x00%an%x00%ae%x00%aI%x00%B"
        tree, parents, name, email, date, message = (
            self.git.run("show", "--no-patch", form, commit)
            .out.decode("utf-8", "surrogateescape")
            .split("\0", 5)
        )
        author = {"GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": email, "GIT_AUTHOR_DATE": date}
        words = [word for parent in parents.split() for word in ("-p", parent)]
        text = message.rstrip("\n").encode("utf-8", "surrogateescape") + b"\n"
        return self.git("commit-tree", "-S", *words, tree, env=author, stdin=text)

    def is_on_a_branch(self, commit: str) -> bool:
        """Has any branch, tag or remote this commit?"""
        if self.commit(commit) is None:
            return False
        return bool(self.git("for-each-ref", "--count=1", "--contains", commit))

    # -- branches and worktrees ---------------------------------------------------------------------

    def worktree_git_dir(self, path: Path) -> Path:
        """Where git keeps what belongs to one linked worktree, by the repository's own list. What the folder
        says of itself is an agent's to write."""
        known = self.common / "worktrees"
        for state in (known / path.name, *sorted(known.glob("*"))):
            folder = _worktree_folder(state)
            if folder is not None and same_folder(folder, path):
                return state
        raise GitError(f"{path} is not a worktree of {self.root} any more; move it away")

    def git_in(self, path: Path) -> Git:
        """git in a linked worktree, which takes neither its settings nor its branches from anything that an
        agent there could have written. GitError where git's own folder of it is not as git makes it."""
        state = self.worktree_git_dir(path)
        if odd := _odd_in(state):
            words = f"{odd} is a link or a device, which git never makes, so flyball runs no git in {path}"
            raise GitError(f"{words}; look where it leads and remove it, then flyball run")
        return Git(
            path,
            pinned={
                "GIT_DIR": str(state),
                "GIT_COMMON_DIR": str(self.common),
                "GIT_WORK_TREE": str(path),
            },
        )

    def check_plain(self, branch: str) -> None:
        """GitError if a branch is anything but the name of one commit: what is done to it would be done to
        whatever it stands for."""
        ref = f"refs/heads/{branch}"
        target = self.git.run("symbolic-ref", "-q", ref)
        odd = next((each for each in (ref, f"logs/{ref}") if (self.common / each).is_symlink()), "")
        if target.ok or odd:
            what = f"a symbolic ref to {target.text}" if target.ok else f"a link ({self.common / odd})"
            words = f"{branch} is {what} instead of a plain branch; flyball leaves it alone"
            way_out = f"look at what its agent did, then remove it: rm {self.common / (odd or ref)}"
            raise GitError(f"{words}; {way_out}")

    def move_branch(self, branch: str, *, old: str | None, new: str) -> None:
        """From where we saw it to another commit; never what it may stand for meanwhile, and not where a
        person has its files."""
        self.check_plain(branch)
        if (place := self.checked_out(branch)) is not None:
            words = f"{branch} is checked out in {place}, so its agent's work cannot come there"
            raise GitError(f"{words}; switch that checkout to another branch, then flyball run")
        self.git("update-ref", "--no-deref", "-m", "flyball", f"refs/heads/{branch}", new, old or "")

    @contextlib.contextmanager
    def worktree_lock(self) -> Iterator[None]:
        """Around everything that changes the list of worktrees: git's own is not safe against itself
        there."""
        lock = LockFile.of(str(self.common / _LOCK), stuck_after_s=_STUCK_S)
        lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def checked_out(self, branch: str, *, outside: Path | None = None) -> Path | None:
        """The folder where a branch is checked out; not below ``outside``. Read from git's own files: it is
        asked for at every landing."""
        wanted = f"ref: refs/heads/{branch}\n"
        if self.common.name == ".git" and _text(self.common / "HEAD") == wanted:
            return self.common.parent
        for state in sorted((self.common / "worktrees").glob("*")):
            folder = _worktree_folder(state)
            # git still lists a folder that was deleted.
            there = folder is not None and folder.is_dir()
            if there and _text(state / "HEAD") == wanted and not _is_below(folder, outside):
                return folder
        return None

    def head_logs(self, *, outside: Path) -> list[str]:
        """What git wrote down about where the checkouts have been, but for those below ``outside``."""
        states = [self.common, *(self.common / "worktrees").glob("*")]
        kept = [state for state in states if not _is_below(_worktree_folder(state), outside)]
        return list(filter(None, (_text(state / "logs" / "HEAD") for state in kept)))

    def checkouts(self) -> list[Checkout]:
        found: list[Checkout] = []
        fields: dict[str, str] = {}
        text = self.git.run("worktree", "list", "--porcelain", "-z").out.decode("utf-8", "surrogateescape")
        for part in text.split("\0"):
            if part:
                key, _, value = part.partition(" ")
                fields[key] = value
            elif fields:
                branch = fields.get("branch")
                name = branch.removeprefix("refs/heads/") if branch else None
                prunable = "prunable" in fields
                found.append(Checkout(Path(fields["worktree"]), fields.get("HEAD", ""), name, prunable))
                fields = {}
        return found

    def agent_branches(self, *, containing: str = "") -> dict[str, str]:
        """Branches of ours and where they stand: all, or those that have a commit."""
        which = [f"--contains={containing}"] if containing else []
        text = self.git(
            "for-each-ref", "--format=%(refname:lstrip=2) %(objectname)", *which, f"refs/heads/{BRANCHES}"
        )
        return dict(line.rsplit(" ", 1) for line in text.splitlines())

    def delete_branch(self, branch: str, *, tip: str) -> None:
        """Delete a branch that still stands where we saw it."""
        with self.worktree_lock():
            if (place := self.checked_out(branch)) is not None:
                raise GitError(f"{branch} is checked out in {place}")
            self.check_plain(branch)
            self.git("update-ref", "--no-deref", "-d", f"refs/heads/{branch}", tip)


def same_folder(one: Path, other: Path) -> bool:
    return one == other or one.resolve() == other.resolve()


def _is_below(path: Path | None, folder: Path | None) -> bool:
    return path is not None and folder is not None and path.resolve().is_relative_to(folder.resolve())


def _worktree_folder(state: Path) -> Path | None:
    """The worktree that git's folder of it belongs to."""
    text = _text(state / "gitdir").strip()
    return Path(os.path.normpath(state / text)).parent if text else None


def _odd_in(state: Path) -> str:
    """The first thing in git's folder of a worktree that is neither a file nor a folder; empty if none."""
    for folder, folders, names in os.walk(state):
        if folder == str(state):
            folders[:] = [name for name in folders if name not in _NOT_GIT]
        for name in (*folders, *names):
            mode = os.lstat(os.path.join(folder, name)).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                return os.path.join(folder, name)
    return ""


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
