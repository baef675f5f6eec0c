"""Who is asking, when the caller did not say."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from flyball.core.settings import NAME_LIMIT


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


def default_name() -> str:
    """The running program and its pid."""
    return name_of(sys.argv[0] if sys.argv and sys.argv[0] not in ("", "-c", "-m") else "python")


def name_of(program: str) -> str:
    """A program's name and our pid."""
    return f"{_named(Path(program))[: NAME_LIMIT - 12]}-{os.getpid()}"
