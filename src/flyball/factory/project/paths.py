"""Where a project is, seen from any folder in it.

A linked worktree is another view of its repository, so its project is the one of the main worktree: there are
the state and the tasks. This holds for the factory's own worktrees too, where agents ask.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from flyball.errors import UsageError
from flyball.factory.project.config import FILE_NAME
from flyball.governor.ask import main_worktree, worktree_around


def find_root(start: Path) -> Path:
    """The nearest folder upwards with a ``flyball.toml``."""
    here = start.resolve()
    for folder in (*_in_main_worktree(here), here, *here.parents):
        if os.path.lexists(folder / FILE_NAME):
            return folder
    raise UsageError(
        f"no {FILE_NAME} in {here} or above; go to a folder of the project, or make one with flyball init"
    )


def _in_main_worktree(here: Path) -> Iterator[Path]:
    """The same folder and those above it in the repository's main worktree, if we are in a linked one."""
    top = worktree_around(here)
    main = None if top is None else main_worktree(top)
    if top is None or main is None:
        return
    same = main / here.relative_to(top)
    for folder in (same, *same.parents):
        yield folder
        if folder == main:
            return
