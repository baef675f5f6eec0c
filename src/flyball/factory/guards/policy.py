"""What one agent is kept to: its workspace, its branch, where it may write. Read by the guards beside it.

A policy is written at each launch as ``FLYBALL_HOME/guards/wards/<key>.json`` and named by ``FLYBALL_GUARD``.
Where a tool in between dropped that variable it is found by the folder: the key is made of the worktree's
path. Where there is none, nothing is guarded.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

VARIABLE = "FLYBALL_GUARD"
_PER_WORKTREE = ("refs/bisect/", "refs/worktree/", "refs/rewritten/")


class GuardPolicy(NamedTuple):
    worktree: str
    branch: str
    """Its own, such as ``agent/t-1``."""
    default: str
    common: str
    """Where git keeps the agent's repository."""
    project: str
    """Where it keeps the user's, which an agent changes in no way."""
    writable: list[str]
    kept: list[str]
    """Flyball's own, the user's checkout and git's; never to be written, wherever they lie."""
    remotes: list[str]
    """Addresses that an agent may not push to."""
    settings: list[list[str]]
    """Git settings that stand for the wall."""
    bin: str
    """The folder of the shims."""
    mailboxes: str = ""
    """Where waiting asks are told that it is their turn."""

    def may_write(self, path: str, *, cwd: str) -> bool:
        """The deepest folder that has something to say about it decides, links followed."""
        real = os.path.realpath(os.path.join(cwd, os.path.expanduser(path)))
        may = max((len(each) for each in self.writable if within(real, each)), default=-1)
        not_ = max((len(each) for each in self.kept if within(real, each)), default=-1)
        return may > not_

    def may_move(self, ref: str, common: str) -> bool:
        """May it change this ref of a repository that is guarded?"""
        if os.path.realpath(common) == self.project:
            return False
        own = ref in (f"refs/heads/{self.branch}", "refs/stash") or not ref.startswith("refs/")
        return own or ref.startswith(_PER_WORKTREE)

    def may_change(self, common: str, *, cwd: str) -> bool:
        """Is this a repository of its own making? Where it may write there may be others."""
        real = os.path.realpath(os.path.join(cwd, common))
        shared = (self.common, self.project, *map(os.path.realpath, self.remotes))
        return self.may_write(common, cwd=cwd) and not any(within(real, each) for each in shared)

    def is_guarded(self, common: str) -> bool:
        """Is this its own repository, or the user's?"""
        return os.path.realpath(common) in (self.common, self.project)


def words(text: str) -> frozenset[str]:
    """Words of a list that is easier to read as one line."""
    return frozenset(text.split())


def within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def outside_words(path: str, policy: GuardPolicy) -> str:
    return f"an agent writes in its workspace, {policy.worktree}, and not to {path}"


def policy_key(worktree: str) -> str:
    import hashlib  # a shim has milliseconds, and seldom needs it

    return hashlib.sha256(os.path.realpath(worktree).encode("utf-8", "surrogateescape")).hexdigest()[:24]


def find_policy(folder: str, *, environ: Mapping[str, str], cwd: str) -> GuardPolicy | None:
    """The policy of the calling agent; ``folder`` is where policies lie."""
    named = environ.get(VARIABLE, "")
    if named:
        return load_policy(named)
    here = os.path.realpath(cwd)
    while True:
        file = os.path.join(folder, f"{policy_key(here)}.json")
        if os.path.exists(file):
            return load_policy(file)
        here, last = os.path.dirname(here), here
        if here == last:
            return None


def load_policy(file: str) -> GuardPolicy:
    with open(file, encoding="utf-8", errors="surrogateescape") as opened:
        fields: dict[str, Any] = json.load(opened)
    return GuardPolicy(**fields)


def common_dir(environ: Mapping[str, str], cwd: str) -> str:
    """Where the repository that a git hook runs for keeps what its worktrees share."""
    found = os.path.join(cwd, environ.get("GIT_DIR") or ".git")
    if os.path.isfile(found):
        with open(found, encoding="utf-8", errors="surrogateescape") as opened:
            found = os.path.join(cwd, opened.read().removeprefix("gitdir:").strip())
    try:
        with open(os.path.join(found, "commondir"), encoding="utf-8", errors="surrogateescape") as opened:
            found = os.path.join(found, opened.read().strip())
    except OSError:
        pass
    return os.path.realpath(found)
