"""An agent's repository: one of its own, which borrows the objects of the user's and shares nothing else.

    objects    its own, and beside them those of the user's repository, read through git's alternates
    refs       its own: the branch it works on, and copies of the user's branches, remotes and tags
    settings   copied from the user's by name: how files are written, who commits, filters. None that names a
               login or moves git elsewhere
    hooks      the user's own, by their path

Nothing that an agent does to it moves a branch, changes a setting or adds an object of the user's. What it
made comes over as data: git, kept where the agent was kept, writes the objects into a pack, which is one
stream of bytes; git in the user's repository takes it in, compares every object with its name, checks its
form and that nothing it refers to is missing (``Repository.take_in``).

``check`` looks at the folder before git runs there: what git makes as files and folders must be that, and the
settings are written anew. Where agents are kept in a sandbox git runs there too, so this is for the person
who looks inside afterwards, with a git of theirs.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from flyball.errors import GitError
from flyball.factory.git.git import Git
from flyball.factory.git.repository import BRANCHES, Repository
from flyball.governor.ask import BORROWED_FROM

GIT_FOLDER = ".git"
_COPIED = re.compile(
    r"core\.(autocrlf|eol|filemode|symlinks|ignorecase|precomposeunicode|longpaths|safecrlf|quotepath|whitespace"
    r"|abbrev|bigfilethreshold|compression|attributesfile|excludesfile)"
    r"|(user|author|committer|i18n|gpg|commit|rerere|rebase|apply|lfs|blame)\..*|(filter|diff|merge)\..*"
    r"|remote\.[^.]*\.(url|fetch|promisor|partialclonefilter)|submodule\..*\.(url|active|update)"
    r"|extensions\.(objectformat|partialclone)|core\.repositoryformatversion",
    re.IGNORECASE | re.DOTALL,
)
_LOGIN = re.compile(r"://[^/\s]*@")
"""An address with a user, and maybe a password, in it."""
_OVERRIDING = ("commondir", "config.worktree")
"""Files that would have git look for its branches or its settings elsewhere."""
_NOT_WALKED = frozenset({"objects", "modules", "lfs"})


@dataclass(frozen=True, slots=True)
class BorrowedRepository:
    repository: Repository
    """The user's."""
    folder: Path

    @property
    def state(self) -> Path:
        return self.folder / GIT_FOLDER

    def git(self, enclosure: Sequence[str]) -> Git:
        """git in it, which finds the repository by no word of an agent's."""
        names = {"GIT_DIR": self.state, "GIT_COMMON_DIR": self.state, "GIT_WORK_TREE": self.folder}
        return Git(self.folder, {key: str(path) for key, path in names.items()}, enclosure=enclosure)

    # -- making ------------------------------------------------------------------------------------------

    def make(self, commit: str, branch: str | None) -> None:
        """In an empty folder: its files as they are in ``commit``, on ``branch`` or on none."""
        source = self.repository
        kind = source.git("rev-parse", "--show-object-format")
        words = ("--quiet", "--template=", f"--object-format={kind}", f"--initial-branch={branch or 'none'}")
        Git(self.folder)("init", *words, ".")
        (self.state / "objects/info/alternates").write_text(f"{source.objects}\n", encoding="utf-8")
        (self.state / BORROWED_FROM).write_text(f"{source.root}\n", encoding="utf-8")
        with suppress(FileNotFoundError):
            (self.state / "shallow").write_bytes((source.common / "shallow").read_bytes())
        (self.state / "config").write_text(self._settings(), encoding="utf-8", errors="surrogateescape")
        (self.state / "packed-refs").write_text(self._refs(), encoding="utf-8", errors="surrogateescape")
        git = Git(self.folder, {"GIT_DIR": str(self.state), "GIT_WORK_TREE": str(self.folder)})
        if branch is None:
            (self.state / "HEAD").write_text(f"{commit}\n", encoding="ascii")
        else:
            git("update-ref", f"refs/heads/{branch}", commit)
        git("reset", "--quiet", "--hard")

    def _refs(self) -> str:
        """Every branch but those of other agents, every remote's, every tag."""
        text = self.repository.git(
            "for-each-ref",
            "--sort=refname",
            "--format=%(objectname) %(refname)",
            "refs/heads",
            "refs/remotes",
            "refs/tags",
        )
        others = f" refs/heads/{BRANCHES}"
        lines = [line for line in text.splitlines() if others not in line and not line.endswith("/HEAD")]
        return "".join(f"{line}\n" for line in ["# pack-refs with: sorted ", *lines])

    def _settings(self) -> str:
        hooks = self.repository.git.run("config", "core.hooksPath")
        own = {
            "core.bare": "false",
            "core.logallrefupdates": "true",
            "core.hooksPath": os.path.expanduser(hooks.text)
            if hooks.ok
            else str(self.repository.common / "hooks"),
            # Its objects are few, and tidying them up takes longer than it saves.
            "gc.auto": "0",
            "maintenance.auto": "false",
        }
        return "".join(_setting(key, value) for key, value in [*self._copied(), *own.items()])

    def _copied(self) -> Iterator[tuple[str, str]]:
        listed = self.repository.git.run("config", "--local", "--includes", "--list", "-z")
        for entry in listed.out.decode("utf-8", "surrogateescape").split("\0"):
            key, _, value = entry.partition("\n")
            if _COPIED.fullmatch(key) and not _LOGIN.search(value):
                yield key, value

    # -- once an agent was there -------------------------------------------------------------------------

    def check(self) -> None:
        """GitError unless it is a repository as git makes one; its settings are ours again."""
        try:
            self._check()
        except OSError as error:
            words = f"{self.state} cannot be read or written ({error.strerror})"
            raise GitError(f"{words}; look at it and remove it, then flyball run") from error

    def _check(self) -> None:
        if odd := find_odd(self.state):
            words = f"{odd} is not what git makes there, so flyball runs no git in {self.folder}"
            raise GitError(f"{words}; look at it and remove it, then flyball run")
        folder = os.open(self.state, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            for name in _OVERRIDING:
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=folder)
            _write_again("config", self._settings().encode("utf-8", "surrogateescape"), folder)
        finally:
            os.close(folder)

    def rebased_branch(self) -> str | None:
        """The branch that a rebase which has not ended is about; empty if it is about none. None: there is no
        rebase."""
        for name in ("rebase-merge", "rebase-apply"):
            if os.path.lexists(self.state / name):
                return read_plain(self.state / name / "head-name").strip().removeprefix("refs/heads/")
        return None


def find_odd(state: Path) -> str:
    """The first thing in a git folder that is neither a file nor a folder; empty if there is none."""
    if not stat.S_ISDIR(_mode(state)):
        return str(state)
    for folder, folders, names in os.walk(state):
        for name in (*folders, *names):
            mode = _mode(os.path.join(folder, name))
            if mode and not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                return os.path.join(folder, name)
        if folder == str(state):
            folders[:] = [name for name in folders if name not in _NOT_WALKED]
    return ""


def _mode(path: str | Path) -> int:
    try:
        return os.lstat(path).st_mode
    except FileNotFoundError:
        return 0


def read_plain(path: Path) -> str:
    """A file of a folder that an agent could write to: never a link, a pipe or a device."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    with open(file, encoding="utf-8", errors="surrogateescape") as opened:
        return opened.read(4096) if stat.S_ISREG(os.fstat(file).st_mode) else ""


def _write_again(name: str, wanted: bytes, folder: int) -> None:
    """Unless it says that already."""
    with suppress(FileNotFoundError):
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder)
        with open(file, "rb") as opened:
            if opened.read(len(wanted) + 1) == wanted:
                return
        os.unlink(name, dir_fd=folder)
    with open(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=folder), "wb") as opened:
        opened.write(wanted)


def _setting(key: str, value: str) -> str:
    """One setting as a file has it: ``filter.lfs.clean`` is ``[filter "lfs"] clean``."""
    section, _, rest = key.partition(".")
    inner, _, name = rest.rpartition(".")
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    inner = inner.replace("\\", "\\\\").replace('"', '\\"')
    head = f'[{section} "{inner}"]' if inner else f"[{section}]"
    return f'{head}\n\t{name} = "{escaped}"\n'
