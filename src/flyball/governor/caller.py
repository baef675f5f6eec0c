"""Who is asking, when the caller did not say."""

from __future__ import annotations

import os
import sys
from pathlib import Path


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
    before, found, _ = pointed.partition("/.git/worktrees/")
    return Path(before) if found else None


def _named(folder: Path) -> str:
    # A name with undecodable bytes is shown the way Python escapes it, so that it can be stored and printed.
    return folder.name.encode("utf-8", "backslashreplace").decode() or "root"


def default_name() -> str:
    """The running program and its pid."""
    program = Path(sys.argv[0] if sys.argv and sys.argv[0] not in ("", "-c", "-m") else "python").name
    return f"{_named(Path(program))}-{os.getpid()}"
