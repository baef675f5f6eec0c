"""Who is asking, when the caller did not say."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from flyball.core.settings import DEFAULT_POOL, NAME_LIMIT


def default_project(folder: Path | None = None) -> str:
    """The name of the repository around a folder, else of the folder. A worktree counts as its repository."""
    here = (folder or Path.cwd()).absolute()
    for place in (here, *here.parents):
        git = place / ".git"
        if git.is_dir():
            return _named(place)
        if git.is_file():
            return _named(_main_worktree(git) or place)
    return _named(here)


def _main_worktree(git_file: Path) -> Path | None:
    """``gitdir: /repo/.git/worktrees/x`` -> ``/repo``."""
    try:
        pointed = git_file.read_text(errors="replace").removeprefix("gitdir:").strip()
    except OSError:
        return None
    before, found, _ = os.path.normpath(git_file.parent / pointed).partition("/.git/worktrees/")
    return Path(before) if found else None


def _named(folder: Path) -> str:
    """A folder's name as something that can be stored and shown, whatever it is made of."""
    name = folder.name.encode("utf-8", "backslashreplace").decode()
    shown = "".join(char if char.isprintable() else "?" for char in name)
    return shown[:NAME_LIMIT] or "root"


_POOL_OF = {"claude": "anthropic", "codex": "openai", "gemini": "google"}


def default_pool(argv: Sequence[str]) -> str:
    """The pool a command line belongs to, by the agent it runs.

    >>> default_pool(["/usr/bin/codex", "exec"]), default_pool(["opencode", "run", "-m", "openai/gpt-5.5"])
    ('openai', 'openai')
    """
    program = os.path.basename(argv[0]) if argv else ""
    if program == "opencode":
        return _opencode_provider(argv) or DEFAULT_POOL
    return _POOL_OF.get(program, DEFAULT_POOL)


def _opencode_provider(argv: Sequence[str]) -> str:
    """opencode names its model ``provider/model``."""
    for flag, value in zip(argv, [*argv[1:], ""], strict=True):
        named = value if flag in ("-m", "--model") else flag.removeprefix("--model=") if "=" in flag else ""
        if "/" in named and not named.startswith("-"):
            return named.partition("/")[0]
    return ""


def default_name() -> str:
    """The running program and its pid."""
    return name_of(sys.argv[0] if sys.argv and sys.argv[0] not in ("", "-c", "-m") else "python")


def name_of(program: str) -> str:
    """A program's name and our pid."""
    return f"{_named(Path(program))[: NAME_LIMIT - 12]}-{os.getpid()}"
