"""A workspace for every task: a repository of its own outside the user's checkout, where one agent works.

    make        beside its place, with the files of its base, then moved there in one step: it is whole or not
                there
    copy, bootstrap   what a fresh clone lacks: untracked files such as .env, installed packages
    gather      after an agent: what it left uncommitted is committed, and its commits are handed over
    remove      once nothing in it would be lost

Which folders are ours is written down in the project's own state, where an agent in a sandbox cannot write. A
folder that is something else is refused, never cleared. A workspace with uncommitted work is never removed.
Where an agent deleted its folder, the user's repository still has the commits that were handed over.

The branch of a task is in the user's repository and moves there by our hand alone, to the commit that was
handed over. A person may commit to it as well: then the workspace follows, and where both went on it is said.

Whatever git does in a folder where an agent has been, it does *enclosed*, as the agent was (``git.py``).

A reviewer works in another one, at the commit to be reviewed and on no branch. What is changed or committed
there never becomes part of the work: it is made for one review and removed after it. One that a killed engine
left is replaced by the next.

Repositories inside a workspace, submodules and those that an agent made, are entered with care. To see if one
has changed, ``git status``, ``git diff`` and ``git add`` run git in it, with its own settings, and
settings name programs that git runs. So flyball has git look into one only where its settings are those that
git itself writes when it makes or clones a repository.
"""

from __future__ import annotations

import os
import re
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from flyball.errors import GitError, UsageError
from flyball.factory.git import stale_locks
from flyball.factory.git.borrowed_repository import GIT_FOLDER, BorrowedRepository
from flyball.factory.git.git import Git, format_paths
from flyball.factory.git.repository import BRANCHES, Repository, same_folder
from flyball.factory.git.workspace_setup import Preparation
from flyball.factory.state.run_folders import STATE
from flyball.host.atomic_file import replace_file
from flyball.host.child_process import run_apart

Enclose = Callable[[Path], Sequence[str]]
"""What a command begins with that works in a folder where an agent has been."""
_REGISTER = "workspaces"
_MAKING, _REMOVING = ".making-", ".removing-"
REVIEW_PREFIX = ".review-"
_DIFF_LIMIT_BYTES = 4 << 20
_REMOVE_S = 600.0
HANDED_OVER_LIMIT_BYTES = 2 << 30
_PACK = ("pack-objects", "--revs", "--thin", "--stdout", "--delta-base-offset", "-q")


def open_to_all(_folder: Path) -> Sequence[str]:
    """Nothing keeps commands in, as nothing keeps the agent in."""
    return ()


class DirtyError(GitError):
    """There is uncommitted work that would be lost."""


@dataclass(frozen=True, slots=True)
class Workspace:
    path: Path
    branch: str
    base: str
    """The commit the branch was made from, or was last brought onto."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspaces:
    """The workspaces of one project."""

    repository: Repository
    folder: Path
    bootstrap: Sequence[str] = ()
    bootstrap_timeout_s: float = 600.0
    copy: Sequence[str] = ()
    env: Mapping[str, str] | None = None
    """What bootstrap commands find in their environment; None: all of ours."""
    enclose: Enclose = open_to_all
    """For git, which needs no network."""
    enclose_bootstrap: Enclose = open_to_all

    def path(self, task_id: str) -> Path:
        return self.folder / task_id

    def git_in(self, path: Path) -> Git:
        """git in a workspace of ours, once it was seen to be a repository as git makes one."""
        borrowed = BorrowedRepository(self.repository, path)
        borrowed.check()
        return borrowed.git(self.enclose(path))

    def ensure(self, task_id: str, *, recorded: str = "", pull: bool = False) -> Workspace:
        """The task's workspace on its branch: the one that is there, or a new one.

        ``recorded``: what the branch was made from. ``pull``: its work is to become a pull request.
        """
        branch, path = f"{BRANCHES}{task_id}", self.path(task_id)
        tips = self.repository.tips(branch)
        base = self.repository.base_among(tips).commit
        start = tips.remote or base if pull else base
        there = self._adopt(path, branch)
        if not there:
            self._make(path, tips.branch or start, branch)
        since = start
        if tips.branch is not None or there:
            tip = self.repository.tip(branch) or base
            since = self.repository.own_since(tip, known=base, recorded=recorded)
        self.fill(path, since)
        return Workspace(path, branch, since)

    # -- making ------------------------------------------------------------------------------------------

    def _adopt(self, path: Path, branch: str) -> bool:
        """Is it there and ours? A foreign thing at its place is refused."""
        if not path.exists():
            return False
        if not self.is_ours(path):
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()
                return False
            if any(same_folder(each.path, path) for each in self.repository.checkouts()):
                self._retire_worktree(path)
                return False
            raise UsageError(f"{path} exists and is not a workspace of {self.repository.root}; move it away")
        git = self.git_in(path)
        self._undo_rebase(git, path, branch)
        self._take_in(git, path, branch)
        self._follow_branch(git, path, branch)
        self._show_news(git)
        return True

    def _retire_worktree(self, path: Path) -> None:
        """Flyball 0.1 made worktrees of the user's repository here: what they hold is on the branch."""
        if uncommitted_paths(self.repository.git_in(path), copied=self.copy):
            words = f"{path} is a worktree that an earlier flyball made, with uncommitted work"
            raise DirtyError(f"{words}; commit or drop it there, then flyball run")
        with self.repository.worktree_lock():
            self.repository.git("worktree", "remove", "--force", str(path))

    def _make(self, path: Path, commit: str, branch: str | None) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.preparation.forget(path)
        making = path.with_name(f"{_MAKING}{path.name}")
        remove_tree(making)
        making.mkdir()
        BorrowedRepository(self.repository, making).make(commit, branch)
        if branch is not None and self.repository.tip(branch) is None:
            self.repository.move_branch(branch, old=None, new=commit)
        self._register(path, commit)
        making.rename(path)

    def make_detached(self, path: Path, commit: str) -> None:
        """A prepared one on no branch, for what is thrown away after it."""
        self._make(path, commit, None)
        self.fill(path, commit)

    def _undo_rebase(self, git: Git, path: Path, branch: str) -> None:
        """Undo a rebase whose git was killed: the branch still stands where it stood before."""
        stale_locks.clear(path / GIT_FOLDER)
        if BorrowedRepository(self.repository, path).rebased_branch() == branch:
            git("rebase", "--quit")
            git("checkout", "--quiet", "--force", branch)

    def _follow_branch(self, git: Git, path: Path, branch: str) -> None:
        """A person went on with the task's branch in their own checkout: the workspace goes there too."""
        tip, head = self.repository.tip(branch), git("rev-parse", "HEAD")
        if tip is None or tip == head:
            return
        if not git.run("reset", "--quiet", "--keep", tip).ok:
            raise GitError(
                f"{branch} has moved on in {self.repository.root}, and {path} has changes in its way"
            )
        self._register(path, tip)

    def _show_news(self, git: Git) -> None:
        """The default branch as it stands now, for an agent that looks at it or rebases onto it."""
        tips, name = self.repository.tips(), self.repository.default
        news = {f"refs/heads/{name}": tips.local, f"refs/remotes/origin/{name}": tips.remote}
        words = [f"update {ref} {commit}\n" for ref, commit in news.items() if commit]
        git.run("update-ref", "--no-deref", "--stdin", stdin="".join(words).encode())

    @property
    def preparation(self) -> Preparation:
        return Preparation(
            repository=self.repository,
            bootstrap=self.bootstrap,
            timeout_s=self.bootstrap_timeout_s,
            copy=self.copy,
            env=self.env,
            enclose=self.enclose_bootstrap,
        )

    def fill(self, path: Path, commit: str) -> None:
        """Prepare what is there as ``commit`` asks for, unless that was done."""
        if not self.preparation.is_current(path, commit):
            self.preparation.run(path, commit)

    def put_back(self, task_id: str, commit: str) -> None:
        """The branch and the files of a task as they were at ``commit``. What came after it stays in the
        reflog."""
        branch, path = f"{BRANCHES}{task_id}", self.path(task_id)
        git = self.git_in(path)
        git("checkout", "--quiet", "--force", "-B", branch, commit)
        git("clean", "--quiet", "-fd", *[f"--exclude={name}" for name in self.copy])
        self._move_branch(path, branch, commit)

    # -- after an agent ----------------------------------------------------------------------------------

    def gather(self, task_id: str, message: str, *, base: str, commit: bool) -> bool:
        """Bring what an agent left onto its branch, uncommitted work too where ``commit`` says so.

        True if the branch now has something of its own. An agent may have left its branch, or deleted its
        folder.
        """
        branch, path = f"{BRANCHES}{task_id}", self.path(task_id)
        self.repository.check_plain(branch)
        if path.exists() and self.is_ours(path):
            git = self.git_in(path)
            stale_locks.clear(path / GIT_FOLDER)
            left = self._commit_all(git, path, message) if commit else False
            self._take_in(git, path, branch, sign=left)
        elif commit and not self.has_commits(task_id, base):
            raise GitError(f"the agent deleted its workspace, {path}, with all that it had done there")
        return self.has_commits(task_id, base)

    def take_in(self, task_id: str) -> None:
        """Bring the task's branch to what was committed in its workspace, by its agent or a person."""
        path = self.path(task_id)
        if path.exists() and self.is_ours(path):
            self._take_in(self.git_in(path), path, f"{BRANCHES}{task_id}")

    def has_commits(self, task_id: str, base: str) -> bool:
        """Has the task's branch moved since it was made from ``base``, or brought onto it?"""
        tips = self.repository.tips(f"{BRANCHES}{task_id}")
        return tips.branch not in (None, base, tips.local, tips.remote)

    def _commit_all(self, git: Git, path: Path, message: str) -> bool:
        """True if there was something to commit."""
        index = read_index(git)
        if unsolved := index.unsolved:
            raise GitError(
                f"the agent left {path} in the middle of a merge: {format_paths(unsolved)} is not solved"
            )
        if BorrowedRepository(self.repository, path).rebased_branch() is not None:
            raise GitError(f"the agent left {path} in the middle of a rebase; finish it there, or abort it")
        # Files that were written in the same second as the index count as changed: `git add` would store them
        # anew where it cannot touch the objects that are borrowed.
        git.run("update-index", "-q", "--refresh")
        self._add_all(git, index.inner)
        merging = os.path.lexists(path / GIT_FOLDER / "MERGE_HEAD")
        if not merging and git.ok("diff-index", "--cached", "--quiet", "HEAD", "--"):
            return False
        # It is signed where that is wanted once it was handed over: no key can be used in a sandbox.
        plain = ("--quiet", "--no-verify", "--no-gpg-sign", "--cleanup=whitespace", "--file=-")
        git("commit", *plain, stdin=message.encode())
        return True

    def _add_all(self, git: Git, inside: Sequence[str]) -> None:
        """``git add --all``, but git never enters a repository in the workspace to see if it has changed: its
        settings are the agent's."""
        # What we copied in is the user's own and secret as like as not: it is not part of the work.
        # git refuses a pathspec that names what is ignored anyway, also one that leaves it out.
        copied = [name for name in self.copy if not git.ok("check-ignore", "--quiet", "--", name)]
        kept_out = [f":(exclude,literal){name}" for name in (*copied, *inside)]
        given = "\0".join([".", *kept_out]).encode("utf-8", "surrogateescape")
        git("add", "--all", "--pathspec-from-file=-", "--pathspec-file-nul", stdin=given)
        if inside:
            given = "\0".join(inside).encode("utf-8", "surrogateescape")
            git("update-index", "--add", "--remove", "--replace", "-z", "--stdin", stdin=given)

    # -- handing over ------------------------------------------------------------------------------------

    def _take_in(self, git: Git, path: Path, branch: str, *, sign: bool = False) -> None:
        """Bring the task's branch in the user's repository to where the work in a workspace stands."""
        head, known = self._work(git, path, branch), self.repository.tip(branch)
        if head == known:
            return
        if known is not None and known not in self._known(path):
            if self.repository.commit(head) is not None and self.repository.contains(known, head):
                return  # A person's commits on top of what was handed over.
            raise GitError(
                f"{branch} has moved both in {self.repository.root} and in {path}; bring them together"
            )
        if not self.repository.has_all_of(head):
            self._hand_over(git, path, head, known)
        if sign and (signed := self.repository.signed_again(head)) != head:
            git("reset", "--quiet", "--soft", signed)
            head = signed
        self._move_branch(path, branch, head)

    def _work(self, git: Git, path: Path, branch: str) -> str:
        """The commit that the work stands at. An agent, or a person, may have left the branch: its own
        commits come along if they build on it."""
        ref = f"refs/heads/{branch}"
        found = git("for-each-ref", "--format=%(objectname)%(HEAD)", ref)
        head = own = found.rstrip("*")
        rebased = bool(own) and BorrowedRepository(self.repository, path).rebased_branch() == branch
        if not found.endswith("*") and not rebased:
            head = git("rev-parse", "--verify", "HEAD^{commit}")
            at = git.run("symbolic-ref", "--quiet", "HEAD").text
            builds = not own or git.ok("merge-base", "--is-ancestor", own, head)
            if not builds or uncommitted_paths(git, copied=self.copy):
                where = at.removeprefix("refs/heads/") or "a detached commit"
                raise GitError(
                    f"{path} stands on {where} instead of {branch}, with work that is not on {branch}"
                )
            git("checkout", "--quiet", "-B", branch)
        if not re.fullmatch(r"[0-9a-f]{40}([0-9a-f]{24})?", head):
            raise GitError(f"git names no commit in {path}: {head[:80]!r}")
        return head

    def _hand_over(self, git: Git, path: Path, head: str, known: str | None) -> None:
        """One commit and what it needs, as data: what git outside reads is this stream and nothing else."""
        there = [f"^{commit}\n" for commit in {known, *self._known(path)} if commit]
        asked = "".join([f"{head}\n", *there]).encode()
        with tempfile.TemporaryFile(dir=self.repository.root / STATE) as pack:
            packed = git.run(*_PACK, stdin=asked, stdout=pack)
            if not packed.ok:
                raise GitError(f"the commits in {path} could not be handed over: {packed.err.strip()[-300:]}")
            if (size := pack.seek(0, os.SEEK_END)) > HANDED_OVER_LIMIT_BYTES:
                raise GitError(
                    f"the commits in {path} are {size >> 20} MB, too much to take over; look at them"
                )
            self.repository.take_in(pack)
        if not self.repository.has_all_below(head):
            raise GitError(f"{path} did not hand over all that {head[:12]} refers to; look at it")

    def _move_branch(self, path: Path, branch: str, to: str) -> None:
        known = self.repository.tip(branch)
        # Before it moves: a kill in between must not look like a person's commit.
        self._register(path, *filter(None, (known, to)))
        if known != to:
            self.repository.move_branch(branch, old=known, new=to)

    # -- which are ours ----------------------------------------------------------------------------------

    def is_ours(self, path: Path) -> bool:
        return self._read_register(path)[:1] == [str(path)]

    def registered(self) -> Iterator[Path]:
        """All that were made and not removed by us."""
        folder = self.repository.root / STATE / _REGISTER
        for name in sorted(os.listdir(folder)) if folder.is_dir() else ():
            path = self.folder / name
            if self.is_ours(path):
                yield path

    def _known(self, path: Path) -> list[str]:
        """Where the branch stood when we moved it last, and where to."""
        return self._read_register(path)[1:]

    def _read_register(self, path: Path) -> list[str]:
        try:
            return self._register_file(path).read_text("utf-8", "surrogateescape").splitlines()
        except OSError:
            return []

    def _register(self, path: Path, *commits: str) -> None:
        file = self._register_file(path)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(file, "\n".join([str(path), *commits]).encode("utf-8", "surrogateescape"))

    def _register_file(self, path: Path) -> Path:
        return self.repository.root / STATE / _REGISTER / path.name

    # -- looking and removing ----------------------------------------------------------------------------

    def uncommitted(self, path: Path) -> list[str]:
        """Paths with work that is not committed, without what we copied in."""
        return uncommitted_paths(self.git_in(path), copied=self.copy)

    def unsaved(self, path: Path) -> str:
        """What would be lost with a workspace, in words; empty if nothing."""
        if not path.exists() or path.name.startswith(REVIEW_PREFIX):
            return ""
        if not (path / GIT_FOLDER).is_dir():
            return "its .git is gone, so flyball cannot tell what is in it; look at it"
        git = self.git_in(path)
        if words := uncommitted_words(uncommitted_paths(git, copied=self.copy)):
            return words
        head = git.run("rev-parse", "--verify", "--quiet", "HEAD").text
        if not self.repository.is_on_a_branch(head):
            return f"it stands on commits that no branch has: {head[:12]}"
        return ""

    def refresh(self, tree: Workspace, *, pull: bool = False) -> Workspace:
        """Bring its own commits, and no others, onto where such work starts now. It stays as it is where they
        clash there, or where what is uncommitted would."""
        base = self.repository.pull_base() if pull else self.repository.base()
        tip = self.repository.tip(tree.branch)
        if tip is None or self.repository.contains(tip, base):
            return tree
        moved = self.repository.git.lines("diff", "-z", "--name-only", "--no-renames", tree.base, base, "--")
        git = self.git_in(tree.path)
        if not set(uncommitted_paths(git, copied=self.copy)).isdisjoint(moved):
            return tree
        if git.run("rebase", "--quiet", "--autostash", "--onto", base, tree.base).ok:
            self._take_in(git, tree.path, tree.branch)
            self.fill(tree.path, base)
            return Workspace(tree.path, tree.branch, base)
        git.run("rebase", "--abort")
        return tree

    def remove(self, task_id: str) -> None:
        """Remove a workspace, if nothing in it is uncommitted. Its branch stays."""
        path = self.path(task_id)
        if path.exists() and self.is_ours(path) and self.uncommitted(path):
            raise DirtyError(f"{path} has uncommitted work; it was left as it is")
        self.discard(path)

    def discard(self, path: Path) -> None:
        """Remove a workspace of ours, whatever is in it."""
        if not self.is_ours(path):
            return
        if os.path.lexists(path):
            away = path.with_name(f"{_REMOVING}{path.name}-{secrets.token_hex(4)}")
            try:
                path.rename(away)
            except OSError as error:
                raise DirtyError(f"{path} could not be removed ({error.strerror})") from error
            remove_tree(away)
        self.preparation.forget(path)
        self._register_file(path).unlink(missing_ok=True)


_NAMED = 3


def uncommitted_words(changed: Sequence[str]) -> str:
    """Empty where nothing has changed."""
    more = f" and {len(changed) - _NAMED} more" if len(changed) > _NAMED else ""
    return f"it has uncommitted work: {', '.join(changed[:_NAMED])}{more}" if changed else ""


def is_half(name: str) -> bool:
    """Is it what a kill left of a workspace that was being made or removed?"""
    return name.startswith((_MAKING, _REMOVING))


def remove_tree(path: Path) -> None:
    """A folder and all below it, however deep, whatever its owner may not enter. DirtyError if it stays."""
    for words in (["rm", "-rf"], ["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
        if not os.path.lexists(path):
            return
        run_apart([*words, "--", str(path)], timeout_s=_REMOVE_S)
    if os.path.lexists(path):
        raise DirtyError(f"{path} could not be removed; remove it by hand")


def uncommitted_paths(git: Git, *, copied: Sequence[str]) -> list[str]:
    """Changed and untracked paths, whatever the user's own settings hide; not what flyball copied in. A
    repository inside that git must not look into counts as changed."""
    odd = untrusted_repositories(git)
    inside = "dirty" if odd else "none"
    flags = ("--porcelain", "-z", "--no-renames", "--untracked-files=all", f"--ignore-submodules={inside}")
    ours = tuple(f"{name.rstrip('/')}/" for name in copied)
    names = (line[3:] for line in git.lines("status", *flags))
    return [*odd, *(name for name in names if not f"{name}/".startswith(ours))]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewFiles:
    """Files in the workspace, for the reviewer."""

    answer: Path
    diff: Path
    """What is to be reviewed: some agents may read files and not run git."""


@dataclass(frozen=True, slots=True)
class ReviewWorkspace:
    workspaces: Workspaces
    task_id: str

    @property
    def path(self) -> Path:
        return self.workspaces.folder / f"{REVIEW_PREFIX}{self.task_id}"

    def make(self, *, base: str, commit: str) -> ReviewFiles:
        """A fresh one, with what a reviewer needs in it."""
        self.remove()
        self.workspaces.make_detached(self.path, commit)
        # No commit can have files of these names: they are made up here.
        name = f".flyball-review-{secrets.token_hex(8)}"
        files = ReviewFiles(answer=self.path / f"{name}.json", diff=self.path / f"{name}.diff")
        git, diff = self.workspaces.repository.git, ("diff", "--no-ext-diff", "--no-textconv")
        shown = git.run(*diff, f"{base}...{commit}").out
        if len(shown) > _DIFF_LIMIT_BYTES:
            changed = git.run(*diff, "--name-status", f"{base}...{commit}").out
            shown = _cut(shown, changed, f"git diff {base}...HEAD")
        files.diff.write_bytes(shown)
        return files

    def remove(self) -> None:
        self.workspaces.discard(self.path)


def _cut(diff: bytes, changed: bytes, command: str) -> bytes:
    """As much of a diff as a reviewer is given, with what it leaves out said in front: every changed file."""
    words = (
        f"THIS DIFF IS CUT: its first {_DIFF_LIMIT_BYTES} of {len(diff)} bytes follow. "
        f"All of it is shown by: {command}\nEvery file that it changes:\n"
    )
    return b"%b%b\n%b\n" % (words.encode(), changed[:_DIFF_LIMIT_BYTES], diff[:_DIFF_LIMIT_BYTES])


_GITLINK = "160000 "


@dataclass(frozen=True, slots=True)
class Index:
    """What git's index of a workspace says beside its files."""

    inner: Sequence[str]
    """Paths that stand for a commit of another repository."""
    unsolved: Sequence[str]
    """Paths of a merge that is not solved."""


def read_index(git: Git) -> Index:
    inner, unsolved = [], set()
    for line in git.lines("ls-files", "-z", "--stage"):
        staged, _, path = line.partition("\t")
        if not staged.endswith(" 0"):
            unsolved.add(path)
        elif staged.startswith(_GITLINK):
            inner.append(path)
    return Index(inner, sorted(unsolved))


_HARMLESS = re.compile(
    r"core\.(repositoryformatversion|filemode|bare|logallrefupdates|worktree|symlinks|ignorecase"
    r"|precomposeunicode)|remote\.[^.]+\.(url|fetch)|branch\..+\.(remote|merge)|submodule\..+\.(url|active)",
    re.IGNORECASE,
)


def untrusted_repositories(git: Git) -> list[str]:
    """Those of them that git must not look into."""
    return [path for path in read_index(git).inner if not _is_plain(git.folder / path, git)]


def _is_plain(folder: Path, git: Git) -> bool:
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
    pinned = {"GIT_DIR": str(state), "GIT_WORK_TREE": str(folder)}
    return not read_index(Git(folder, pinned, enclosure=git.enclosure)).inner
