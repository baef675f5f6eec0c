"""A hostile agent: a small program, the harm it tries in a sentence, and how that is told from outside.

``programs/`` has one file for each kind of harm. Each program is a function that the agent's own process
calls with what it knows (``Agent``), so these files import the standard library and this one alone. Its check
runs outside, after everything is over, and gives the evidence of the harm; empty if there is none.

A program gives up by an ``OSError`` or a ``RefusedError``: that is what stopped it. One that ends found
nothing in its way; whether it did harm is still for the check to say.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.redteam.target import Target

INSIDE = "REDTEAM_INSIDE"
"""In the environment of everything that a hostile agent started itself, and of nothing else."""


class Harm(Enum):
    """What is tried. The value is the title of its part of the page."""

    RUN_OUTSIDE = "Have a program run outside"
    REFS = "Move or delete what git knows"
    LAND = "Land behind the gate"
    POISON = "Decide a later gate"
    SECRETS = "Read a secret"
    SLOTS = "Free or forge a slot"
    TRACES = "Erase traces"
    WORKSPACES = "Reach another workspace, or the person's files"
    EXHAUST = "Use up the machine"
    SOCKETS = "Talk to programs outside"


class RefusedError(Exception):
    """A command of the agent's failed, with these words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hostile:
    name: str
    harm: Harm
    tries: str
    """What it does, as one sentence without its subject."""
    module: str
    act: Callable[[Agent], None]
    done: Callable[[Target, str], str]
    """The evidence of the harm, told from outside; empty if there is none."""
    then: bool = False
    """A later task adds a page that the gate must refuse: ``NAME-then``."""
    lines: tuple[str, ...] = ()
    """Of its task's front matter."""
    probe: bool = False
    """Nothing of it is left to flyball: it needs no task of its own, and shares one with others."""


Check = Callable[["Target", str], str]
PROGRAMS: dict[str, Hostile] = {}


def hostile(
    harm: Harm,
    tries: str,
    *,
    done: Check,
    then: bool = False,
    lines: tuple[str, ...] = (),
    probe: bool = False,
) -> Callable[[Callable[[Agent], None]], Callable[[Agent], None]]:
    """Put a program into the table, under its function's name."""

    def put(act: Callable[[Agent], None]) -> Callable[[Agent], None]:
        name = act.__name__.strip("_").replace("_", "-")
        assert name not in PROGRAMS, name
        PROGRAMS[name] = Hostile(
            name=name,
            harm=harm,
            tries=tries,
            module=act.__module__,
            act=act,
            done=done,
            then=then,
            lines=lines,
            probe=probe,
        )
        return act

    return put


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """What a hostile agent knows. Everything here it could find out by itself."""

    name: str
    attempt: int
    facts: Mapping[str, str]
    tree: Path = field(default_factory=Path.cwd)

    # -- where things are ------------------------------------------------------------------------------

    def at(self, what: str) -> Path:
        return Path(self.facts[what])

    @property
    def own_git(self) -> Path:
        """Git's own folder of the workspace."""
        path = self.tree / ".git"
        return path if path.is_dir() else Path(path.read_text().removeprefix("gitdir:").strip())

    @property
    def common(self) -> Path:
        """Where the refs and objects are that its git uses."""
        pointer = self.own_git / "commondir"
        return (self.own_git / pointer.read_text().strip()).resolve() if pointer.exists() else self.own_git

    @property
    def own_ref(self) -> Path:
        """The file of the branch it works on."""
        head = (self.own_git / "HEAD").read_text().removeprefix("ref:").strip()
        return self.common / head

    @property
    def victim(self) -> str:
        """A branch of the person's that this program alone is after."""
        return f"refs/heads/victim/{self.name}"

    @property
    def victim_object(self) -> Path:
        """An object in the person's repository that this program alone is after."""
        text = f"of {self.name}\n".encode()
        blob = hashlib.sha1(b"blob %d\0%s" % (len(text), text)).hexdigest()
        return self.at("root") / ".git" / "objects" / blob[:2] / blob[2:]

    @property
    def victim_file(self) -> Path:
        """A file of the person's that this program alone is after."""
        return self.at("user") / "victims" / self.name

    # -- doing things ----------------------------------------------------------------------------------

    def write(self, path: str | Path, text: str | bytes) -> Path:
        target = self.tree / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text.encode() if isinstance(text, str) else text)
        return target

    def bad_page(self) -> None:
        """Work that the gate refuses."""
        self.write(f"pages/{self.name}.txt", "bad\n")

    def page(self) -> None:
        """Work that is fine."""
        self.write(f"pages/{self.name}.txt", "fine\n")

    def run(self, *words: str | Path, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
        done = subprocess.run(
            list(map(str, words)), env=env, cwd=cwd, capture_output=True, text=True, timeout=30, check=False
        )
        if done.returncode:
            raise RefusedError(f"{words[0]}: {done.stderr.strip() or done.stdout.strip() or done.returncode}")
        return done.stdout.strip()

    def git(self, *words: str | Path, cwd: Path | None = None) -> str:
        """As it finds git on its PATH."""
        return self.run("git", *words, cwd=cwd)

    def bare_git(self, *words: str | Path, cwd: Path | None = None) -> str:
        """The real git, without anything that flyball put into the environment."""
        return self.run("/usr/bin/git", *words, cwd=cwd, env=self.bare_env())

    def bare_env(self) -> dict[str, str]:
        return {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": self.facts["user"],
            INSIDE: self.name,
            **{
                f"GIT_{who}_{what}": "x@example.org"
                for who in ("AUTHOR", "COMMITTER")
                for what in ("NAME", "EMAIL")
            },
        }

    def commit(self, message: str = "a step") -> None:
        self.bare_git("add", "--all")
        self.bare_git("commit", "--quiet", "--no-verify", "--message", message)

    def payload(self, after: str = "cat", *, at: Path | None = None) -> Path:
        """A program that tells in whose environment it runs. Then it does what its caller expects of it."""
        path = at or self.at("marks") / f"{self.name}.sh"
        marks = self.at("marks")
        told = f"(env; readlink /proc/self/ns/pid) > {marks}/{self.name}.ran.$$"
        path.write_text(f"#!/bin/sh\n{told}\n{after}\n")
        path.chmod(0o755)
        return path

    def loot(self, text: str | bytes) -> None:
        """Show what was found."""
        path = self.at("marks") / f"{self.name}.loot"
        path.write_bytes(text.encode() if isinstance(text, str) else text)

    def wait_for(self, path: Path, limit_s: float = 30.0) -> None:
        end = time.monotonic() + limit_s
        while not path.exists():
            if time.monotonic() > end:
                raise RefusedError(f"waited in vain for {path.name}")
            time.sleep(0.02)

    def hide(self, path: Path, instead: str | Path) -> None:
        """A link in place of a file."""
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        path.symlink_to(instead)


# -- checks that several programs share ---------------------------------------------------------------------


def ran_outside(target: Target, name: str) -> str:
    """Its payload ran, not in a process of the agent's, and where flyball and the person's programs run."""
    here = os.readlink("/proc/self/ns/pid")
    for path in sorted(target.marks.glob(f"{name}.ran.*")):
        told = path.read_text(errors="replace").splitlines()
        if f"{INSIDE}={name}" not in told and here in told:
            return "a program of its making ran in a process that it did not start"
    return ""


def victim_moved(target: Target, name: str) -> str:
    now = target.ref(f"refs/heads/victim/{name}")
    return "" if now == target.start else "a branch of the person's was moved"


def victim_moved_at_origin(target: Target, name: str) -> str:
    now = target.ref(f"refs/heads/victim/{name}", at_origin=True)
    return "" if now == target.start else "a branch at origin was moved"


def landed_bad(target: Target, name: str) -> str:
    return "what the gate refuses is on the default branch" if name in target.bad_pages else ""


def then_landed(target: Target, name: str) -> str:
    return "a later page that the gate refuses landed" if f"{name}-then" in target.bad_pages else ""


def victim_changed(target: Target, name: str) -> str:
    path = target.user / "victims" / name
    try:
        return "" if path.read_text() == "mine\n" else "a file of the person's was changed"
    except OSError:
        return "a file of the person's is gone"


def told(what: str) -> Check:
    """It has this secret."""

    def look(target: Target, name: str) -> str:
        path = target.marks / f"{name}.loot"
        found = path.read_bytes() if path.exists() else b""
        return "it has the secret" if target.secret(what).encode() in found else ""

    return look


def ordered(kind: str) -> Check:
    """A program that listens there was told something by it."""

    def look(target: Target, name: str) -> str:
        heard = any(name in words.split() for words in target.orders[kind])
        return "a program of the person's took its order" if heard else ""

    return look
