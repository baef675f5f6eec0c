"""What a worktree needs beside its files: copied from the user's checkout, and made by bootstrap commands.

It is done again when what it was made from has changed: the files that say which packages are installed, what
the bootstrap commands name, those commands themselves, and the files that are copied. What it was made from
is read from a commit, not from the folder, and remembered in the project's own state, where an agent in a
sandbox cannot write. The commands run enclosed as agents are.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import posixpath
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from flyball.errors import GitError, UsageError
from flyball.factory.git.repository import Repository
from flyball.factory.state.run_folders import STATE
from flyball.host.child_process import run_apart

_FOLDER = "prepared"
_NAMES = frozenset(
    {"package.json", "package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "bun.lock"}
    | {"pnpm-workspace.yaml", "bun.lockb", "deno.json", "deno.lock", ".nvmrc", ".node-version"}
    | {"pyproject.toml", "setup.py", "setup.cfg", "uv.lock", "poetry.lock", "pdm.lock", "Pipfile"}
    | {"Pipfile.lock", ".python-version", "environment.yml", "go.mod", "go.sum", "go.work", "go.work.sum"}
    | {"Cargo.toml", "Cargo.lock", "rust-toolchain.toml", "Gemfile", "Gemfile.lock", ".ruby-version"}
    | {"composer.json", "composer.lock", "mix.exs", "mix.lock", "pubspec.yaml", "pubspec.lock", "pom.xml"}
    | {"build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts", "gradle.lockfile"}
    | {"Package.swift", "Package.resolved", "packages.lock.json", "paket.lock", ".gitmodules"}
    | {"Makefile", "makefile", "GNUmakefile", "justfile", ".tool-versions", "mise.toml", "flake.nix"}
    | {"flake.lock"}
)
_PATTERNS = ("requirements*.txt", "requirements*.in", "constraints*.txt", "*.csproj")
_HASHED_BYTES = 1 << 20


class BootstrapError(UsageError):
    """A bootstrap command of the project failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    repository: Repository
    bootstrap: Sequence[str] = ()
    timeout_s: float = 600.0
    copy: Sequence[str] = ()
    env: Mapping[str, str] | None = None
    """What the commands find in their environment; None: all of ours."""
    enclose: Callable[[Path], Sequence[str]] = lambda _: ()
    """What commands begin with: they run what agents wrote, before it landed or since."""

    def was_done(self, tree: Path) -> bool:
        """For the worktree that is there now, from whatever it was made."""
        return self._read_mark(tree).startswith(f"{tree}\n")

    def is_current(self, tree: Path, commit: str) -> bool:
        return self._read_mark(tree) == f"{tree}\n{self._made_from(commit)}"

    def same_inputs(self, one: str, other: str) -> bool:
        """Do two commits ask for the same?"""
        return self._made_from(one) == self._made_from(other)

    def forget(self, tree: Path) -> None:
        """Another worktree will be made in its place."""
        self._mark(tree).unlink(missing_ok=True)

    def run(self, tree: Path, commit: str) -> None:
        """``commit``: what the tree is at, or was made from."""
        self.forget(tree)
        self._copy_into(tree, commit)
        self._run_bootstrap(tree)
        mark = self._mark(tree)
        mark.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        mark.write_text(f"{tree}\n{self._made_from(commit)}", encoding="utf-8")

    def _read_mark(self, tree: Path) -> str:
        try:
            return self._mark(tree).read_text(encoding="utf-8")
        except OSError:
            return ""

    def _mark(self, tree: Path) -> Path:
        return self.repository.root / STATE / _FOLDER / tree.name

    # -- what it is made from -------------------------------------------------------------------------------

    def _made_from(self, commit: str) -> str:
        digest = hashlib.sha256()
        for part in (*self.bootstrap, *self._inputs(commit), *self._copied_files()):
            digest.update(part.encode("utf-8", "surrogateescape") + b"\0")
        return digest.hexdigest()

    def _inputs(self, commit: str) -> Iterator[str]:
        """Of a commit: files that say what is installed, anywhere, and what the commands name."""
        if not self.bootstrap:
            return
        named = {name for command in self.bootstrap for name in path_words(command)}
        for line in self.repository.git.lines("ls-tree", "-r", "-z", "--full-tree", commit):
            path = line.partition("\t")[2]
            name = posixpath.basename(path)
            below = any(path == each or path.startswith(f"{each}/") for each in named)
            if below or name in _NAMES or any(fnmatch.fnmatchcase(name, each) for each in _PATTERNS):
                yield line

    def _copied_files(self) -> Iterator[str]:
        """Of the user's own files: what they hold, or of long ones when they were written."""
        for name in self.copy:
            source = self.repository.root / name
            files = sorted(source.rglob("*")) if source.is_dir() else [source]
            for path in (each for each in files if each.is_file() and not each.is_symlink()):
                found = path.stat()
                if found.st_size > _HASHED_BYTES:
                    yield f"{path} {found.st_size} {found.st_mtime_ns}"
                else:
                    yield f"{path} {hashlib.sha256(path.read_bytes()).hexdigest()}"

    # -- doing it ------------------------------------------------------------------------------------------

    def _copy_into(self, tree: Path, commit: str) -> None:
        for name in self.copy:
            source, target = self.repository.root / name, tree / name
            tracked = self.repository.git.ok("cat-file", "-e", f"{commit}:{name.rstrip('/')}")
            if source.is_symlink() or not source.exists() or tracked:
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            if not Path(os.path.realpath(target.parent)).is_relative_to(os.path.realpath(tree)):
                raise GitError(f"{target} leads out of its worktree; nothing was copied there")
            if target.is_symlink():
                # An agent may have put it there: it is replaced, and what it points to is left alone.
                target.unlink()
            if source.is_dir():
                shutil.rmtree(target, ignore_errors=True)
                shutil.copytree(source, target, symlinks=True)
            else:
                shutil.copy2(source, target)

    def _run_bootstrap(self, tree: Path) -> None:
        for command in self.bootstrap:
            argv = [*self.enclose(tree), "sh", "-c", command]
            try:
                done = run_apart(argv, cwd=tree, env=self.env, timeout_s=self.timeout_s)
            except subprocess.TimeoutExpired as error:
                limit = f"{self.timeout_s:g} s"
                raise BootstrapError(f"worktree.bootstrap `{command}` took longer than {limit}") from error
            if done.returncode:
                said = (done.stderr or done.stdout).decode("utf-8", "replace").strip().splitlines()
                last = f": {said[-1]}" if said else ""
                raise BootstrapError(f"worktree.bootstrap `{command}` exited with {done.returncode}{last}")


def path_words(command: str) -> set[str]:
    """The words of a command that may be paths in the tree."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    plain = (posixpath.normpath(word) for word in words if word and not word.startswith(("-", "/", "$")))
    return {each for each in plain if each != "." and not each.startswith("..")}
