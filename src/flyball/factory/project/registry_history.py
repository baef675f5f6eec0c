"""What happened to the registry, twice: a line per change in ``audit.jsonl``, and a commit.

The files are the truth; git remembers what they were. So nothing here is needed to read the registry, and
when git fails the files are right all the same: what was not committed then is committed with the next
change.

The repository is named to git explicitly: a damaged one must not make git look for another further up,
since the home may itself be in a repository of the user.
"""

from __future__ import annotations

import getpass
import json
import os
import time
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flyball.errors import GitError, StoreError, StoreReadOnlyError
from flyball.factory.git.git import Git
from flyball.host.lock_file import LockFile

AUDIT = "audit.jsonl"
PROJECTS = "projects"
_STUCK_S = 60.0
_STALE_LOCK_S = 60.0
"""Our own git commands take milliseconds and are never run two at a time."""
_ALWAYS = ("at", "user", "pid", "what")
_NAME = {"NAME": "flyball", "EMAIL": "flyball@localhost"}


@dataclass(frozen=True, slots=True)
class Change:
    """One commit."""

    commit: str
    words: str
    before: Mapping[str, bytes | None]
    """The files of projects that it changed, as they were before; None: not there."""


class RegistryHistory:
    """Of one kind of files in a registry's folder. Every method but ``audit`` may raise GitError. Call them
    in ``changing``, which holds the registry's lock."""

    def __init__(self, folder: Path, *, kind: str = PROJECTS) -> None:
        self.folder, self._kind = folder, kind
        self._git = Git(folder)
        self._env = {
            "GIT_DIR": str(folder / ".git"),
            "GIT_WORK_TREE": str(folder),
            "GIT_LITERAL_PATHSPECS": "1",
            **{f"GIT_{who}_{key}": value for who in ("AUTHOR", "COMMITTER") for key, value in _NAME.items()},
        }

    @contextmanager
    def changing(self) -> Iterator[None]:
        """One change at a time, on this machine. StoreReadOnlyError where nothing can be written."""
        home = self.folder.parent
        try:
            for folder in (home, self.folder, self.folder / self._kind):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = LockFile.of(str(home / "registry.lock"), stuck_after_s=_STUCK_S)
            lock.acquire()
            try:
                yield
            finally:
                lock.release()
        except OSError as error:
            words = f"cannot write in {self.folder} ({error.strerror or error})"
            raise StoreReadOnlyError(f"{words}; set FLYBALL_HOME to a folder you can write to") from error

    def record(self, what: str, message: str, *, skip: Container[str] = (), **fields: Any) -> None:
        """Write a change down that was made: a line of audit, and a commit of all that is not committed yet
        but for the paths to ``skip``."""
        self.audit(what, **fields)
        try:
            self.commit(message, [path for path in self.uncommitted_paths() if path not in skip])
        except GitError as error:
            words = f"done and written to {self.folder}, but not to its git history: "
            raise GitError(words + git_words(error, self.folder), output=error.output) from error

    def audit(self, what: str, **fields: Any) -> None:
        """Append who did what, and when."""
        line = {"at": now_text("milliseconds"), "user": _user(), "pid": os.getpid(), "what": what, **fields}
        path = self.folder / AUDIT
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            with open(descriptor, "r+b", buffering=0) as file:
                file.write(b"\n" * _is_torn(file) + json.dumps(line).encode() + b"\n")
                os.fsync(file.fileno())
        except OSError as error:
            raise StoreError(f"cannot write {path}: {error.strerror}") from error

    def uncommitted_paths(self) -> list[str]:
        """Paths that differ from the last commit, those that the user's git ignores included."""
        self._open()
        where = ("--", self._kind, AUDIT)
        listed = self._run("ls-files", "-z", "--others", "--modified", "--deleted", *where)
        staged = self._run("diff", "--cached", "--name-only", "--no-renames", "-z", *where)
        return sorted({path for path in (*listed.split("\0"), *staged.split("\0")) if path})

    def commit(self, message: str, paths: Sequence[str]) -> None:
        if paths:
            self._run("add", "--force", "--all", "--", *paths)
            self._run("commit", "--quiet", "--no-verify", "--no-gpg-sign", "--message", message, "--", *paths)
            # The one file that git does not keep as private as it was told to.
            (self.folder / ".git" / "COMMIT_EDITMSG").chmod(0o600)

    def last_change(self) -> Change | None:
        """The last commit about projects; None if there has been none."""
        self._open()
        if not self._git.run("rev-parse", "--verify", "--quiet", "HEAD^{commit}", env=self._env).ok:
            return None
        commit, _, words = self._run("log", "-1", "--format=%h %s", "--", PROJECTS).partition(" ")
        if not commit:
            return None
        shown = self._run("show", "-z", "--format=", "--no-renames", "--name-only", commit, "--", PROJECTS)
        before: dict[str, bytes | None] = {}
        for path in filter(None, shown.split("\0")):
            done = self._git.run("cat-file", "blob", f"{commit}^:{path}", env=self._env)
            before[os.path.basename(path)] = done.out if done.ok else None
        return Change(commit, words, before)

    def _open(self) -> None:
        self._drop_stale_locks()
        if not (self.folder / ".git" / "HEAD").is_file():
            # Not --shared as in "with others": it is what makes git's files private.
            self._git("init", "--quiet", "--template=", "--shared=0600")

    def _drop_stale_locks(self) -> None:
        """A git that was killed leaves its lock files behind and would never commit again."""
        for pattern in ("*.lock", "refs/heads/*.lock"):
            for lock in (self.folder / ".git").glob(pattern):
                with suppress(OSError):
                    if time.time() - lock.stat().st_mtime > _STALE_LOCK_S:
                        lock.unlink()

    def _run(self, *args: str) -> str:
        return self._git(*args, env=self._env)


@dataclass(frozen=True, slots=True)
class AuditLine:
    """Who did what, and when, as it was written."""

    record: Mapping[str, Any]

    @property
    def at(self) -> str:
        return str(self.record.get("at", ""))

    @property
    def user(self) -> str:
        return str(self.record.get("user", ""))

    @property
    def what(self) -> str:
        return str(self.record.get("what", ""))

    @property
    def about(self) -> str:
        told = {name: value for name, value in self.record.items() if name not in _ALWAYS}
        return " ".join(str(value) if name == "id" else f"{name}={value}" for name, value in told.items())

    def names(self, word: str) -> bool:
        return word == self.user or word in self.what.split() or word in map(str, self.record.values())


def read_audit(folder: Path) -> tuple[list[AuditLine], int]:
    """All lines of a registry's audit log, oldest first, and how many there are that cannot be read."""
    path = folder / AUDIT
    try:
        written = path.read_bytes().splitlines()
    except FileNotFoundError:
        return [], 0
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
    records = [_record(line) for line in written if line.strip()]
    good = [AuditLine(record) for record in records if record is not None]
    return good, len(records) - len(good)


def _record(line: bytes) -> dict[str, Any] | None:
    """None for a line whose writer was killed over it."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def git_words(error: GitError, folder: Path) -> str:
    """What is wrong with the history, and what to do about it."""
    fatal = [line.removeprefix("fatal: ") for line in error.output.splitlines() if line.startswith("fatal: ")]
    aside = f"if it is damaged, put {folder / '.git'} aside and the next change begins a new one"
    return f"{fatal[0].rstrip('.') if fatal else error}; {aside}"


def _is_torn(file: Any) -> bool:
    """Was a process killed in the middle of a line?"""
    size = file.seek(0, os.SEEK_END)
    if not size:
        return False
    file.seek(size - 1)
    return bool(file.read(1) != b"\n")


def now_text(precision: str = "seconds") -> str:
    """The wall clock, for people."""
    return datetime.now(UTC).isoformat(timespec=precision)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a uid without a name, as in many containers
        return str(os.getuid())
