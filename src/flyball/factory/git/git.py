"""Running git, and nothing else: what to run is decided elsewhere.

Every command has a time limit, never asks a person, speaks English, and is kept from the caller's own
``GIT_*`` variables: flyball may itself have been started by a hook. What flyball commits of its own runs
no hooks, since the gate is what decides, and has an author even where none is configured.

A git command can outlive its engine: kill -9 ends the engine and not the git it has just started: that one
would check out, commit or delete in the middle of what the next engine does. So every git command holds a
descriptor of one locked file. The lock belongs to the open file, which children share: it is free when the
engine *and* its last git are gone.

What talks to a remote is left out: credential helpers stay behind on purpose, and a push that goes out late
is found out by looking. Patience has an end all the same.

In a repository that an agent could write to, git runs *enclosed*: behind a command that keeps it there
(``factory/guards/sandbox.py``), without our descriptors, and with next to nothing of our environment.
"""

from __future__ import annotations

import errno
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import IO, BinaryIO

from flyball.errors import GitError, StoreFullError
from flyball.host.child_process import run_apart
from flyball.host.lock_file import LongLock

TIMEOUT_S = 300.0
OWN = tuple(
    word
    for setting in (
        "core.hooksPath=/dev/null",
        # Files that are not committed yet must be seen before a worktree is removed.
        "status.showUntrackedFiles=normal",
        "advice.detachedHead=false",
        # A daemon per worktree, which would outlive it.
        "core.fsmonitor=false",
        # Housekeeping in the middle of a landing is not wanted, and asking whether it is due costs a process.
        "gc.auto=0",
        "maintenance.auto=false",
        # Housekeeping by another git may hold the lock of all branches for longer than git's one second.
        "core.packedRefsTimeout=20000",
        "core.filesRefLockTimeout=5000",
    )
    for word in ("-c", setting)
)
_KEPT = frozenset({"GIT_SSH", "GIT_SSH_COMMAND", "GIT_ASKPASS", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"})
_HARMLESS = frozenset(
    {
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "LANG",
        "TZ",
        "XDG_CONFIG_HOME",
        "GIT_CONFIG_GLOBAL",
        "GIT_CONFIG_SYSTEM",
    }
)
"""All that git finds in its environment where an agent has been."""
_OUTPUT_LIMIT = 4000
_REMOTE = frozenset({"fetch", "push", "ls-remote"})
inherited: set[int] = set()
"""Descriptors that every local git command is given, for processes that wait for its end without being its
parent."""


@dataclass(frozen=True, slots=True)
class Done:
    code: int
    out: bytes
    err: str

    @property
    def ok(self) -> bool:
        return self.code == 0

    @property
    def text(self) -> str:
        return self.out.decode("utf-8", "surrogateescape").strip()


_LOCKED = re.compile(r"[Uu]nable to create '(.+\.lock)': File exists")
_FULL = os.strerror(errno.ENOSPC)


@dataclass(frozen=True, slots=True)
class Git:
    """git in one folder. Blocking; safe to share between threads."""

    folder: Path
    pinned: Mapping[str, str] = field(default_factory=dict)
    """Variables that name the repository, where git must not believe what the folder says of itself."""
    enclosure: Sequence[str] | None = None
    """What the command begins with where an agent could have written what git reads; empty: nothing keeps git
    in, as nothing kept the agent in. None: the repository is the user's own."""

    def __call__(
        self,
        *args: str,
        env: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> str:
        """Run it; its output without the last line's end. GitError if it fails."""
        done = self.run(*args, env=env, stdin=stdin, timeout_s=timeout_s)
        if not done.ok:
            raise GitError(_words(args, self.folder, done), output=done.err[-_OUTPUT_LIMIT:], code=done.code)
        return done.text

    def run(
        self,
        *args: str,
        env: Mapping[str, str] | None = None,
        stdin: bytes | BinaryIO | None = None,
        timeout_s: float = TIMEOUT_S,
        stdout: IO[bytes] | None = None,
    ) -> Done:
        """Run it, however it ends. What it prints goes to ``stdout`` where that is given."""
        ours = self.enclosure is None
        try:
            # Ctrl-C is meant for us: we drain, and a git that it killed would look like a conflict.
            done = run_apart(
                [*(self.enclosure or ()), "git", *OWN, *args],
                cwd=self.folder,
                env={**_environment(_is_kept if ours else _is_harmless), **self.pinned, **(env or {})},
                stdin=stdin,
                timeout_s=timeout_s,
                pass_fds=() if self.enclosure or args[0] in _REMOTE else tuple(inherited),
                stdout=stdout,
            )
        except subprocess.TimeoutExpired as error:
            raise GitError(f"git {args[0]} took longer than {timeout_s:g} s in {self.folder}") from error
        except FileNotFoundError as error:
            if not self.folder.is_dir():
                raise GitError(f"there is no folder {self.folder}") from error
            raise GitError("git was not found; install it and try again") from error
        said = done.stderr.decode("utf-8", "replace")
        if done.returncode and _FULL in said:
            # A full disk is not a conflict: the caller can go on once there is room.
            raise StoreFullError(f"{full_words(self.folder)} (git {args[0]})")
        return Done(done.returncode, done.stdout, said)

    def ok(self, *args: str) -> bool:
        return self.run(*args).ok

    def lines(self, *args: str) -> list[str]:
        """The parts of an output that was asked for with ``-z``."""
        done = self.run(*args)
        if not done.ok:
            raise GitError(_words(args, self.folder, done), output=done.err[-_OUTPUT_LIMIT:], code=done.code)
        return [part.decode("utf-8", "surrogateescape") for part in done.out.split(b"\0") if part]


def full_words(folder: Path) -> str:
    return f"no room on the disk of {folder}; make some, then run `flyball run` to go on"


def format_paths(paths: Iterable[str]) -> str:
    """Paths for a person to read. Not every name in a repository is text."""
    return ", ".join(path.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for path in paths)


def _is_kept(name: str) -> bool:
    return not name.startswith("GIT_") or name in _KEPT


def _is_harmless(name: str) -> bool:
    return name in _HARMLESS or name.startswith("LC_")


def _environment(passes: Callable[[str], bool]) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if passes(k)}
    return {**kept, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_EDITOR": "true", **_author()}


@lru_cache(maxsize=1)
def _author() -> Mapping[str, str]:
    """A name to commit under, where the user has none: git would refuse to commit at all."""
    env = {k: v for k, v in os.environ.items() if _is_kept(k)}
    try:
        asked = subprocess.run(["git", "config", "user.email"], env=env, capture_output=True, check=False)
    except OSError:
        return {}
    if asked.returncode == 0 and asked.stdout.strip():
        return {}
    names = {"NAME": "flyball", "EMAIL": "flyball@localhost"}
    return {f"GIT_{who}_{key}": value for who in ("AUTHOR", "COMMITTER") for key, value in names.items()}


def _words(args: tuple[str, ...], folder: Path, done: Done) -> str:
    if (found := _LOCKED.search(done.err)) is not None:
        held = f"{found[1]} exists: another git is at work there, or one that was killed left it"
        return (
            f"git {args[0]} failed in {folder}: {held}; flyball doctor says which, and with --fix removes it"
        )
    said = (done.err.strip() or done.text).splitlines()
    last = said[-1] if said else f"exit status {done.code}"
    return f"git {args[0]} failed in {folder}: {last.removeprefix('fatal: ').removeprefix('error: ')}"


FILE_NAME = "git.lock"
_PATIENCE_S = 10.0
_LOOK_EVERY_S = 0.02


class GitLock:
    """Held by one engine and its git commands, from here to ``release``."""

    def __init__(self, state: Path) -> None:
        self._lock = LongLock(state / FILE_NAME, inherited=True)

    def take(self, *, patience_s: float = _PATIENCE_S) -> bool:
        """Wait for the orphans of an engine before us; False if one of them does not end."""
        end = time.monotonic() + patience_s
        while not (taken := self._lock.take()) and time.monotonic() < end:
            time.sleep(_LOOK_EVERY_S)
        if self._lock.fd is not None:
            inherited.add(self._lock.fd)
        return taken

    def release(self) -> None:
        if self._lock.fd is not None:
            inherited.discard(self._lock.fd)
        self._lock.release()
