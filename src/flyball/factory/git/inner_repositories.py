"""Repositories inside a worktree: submodules, and what an agent made itself.

To see whether one has changed, ``git status``, ``git diff`` and ``git add`` run git in it, with its own
settings, and settings name programs that git runs. So flyball has git look into one only where its settings
are none but those that git itself writes when it makes or clones a repository.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from flyball.factory.git.git import Git

_GITLINK = "160000 "
_HARMLESS = re.compile(
    r"core\.(repositoryformatversion|filemode|bare|logallrefupdates|worktree|symlinks|ignorecase"
    r"|precomposeunicode)|remote\.[^.]+\.(url|fetch)|branch\..+\.(remote|merge)|submodule\..+\.(url|active)",
    re.IGNORECASE,
)


def inner_repositories(git: Git) -> list[str]:
    """Paths in the index that stand for a commit of another repository."""
    listed = (line.partition("\t") for line in git.lines("ls-files", "-z", "--stage"))
    return [path for staged, _, path in listed if staged.startswith(_GITLINK)]


def untrusted_repositories(git: Git) -> list[str]:
    """Those of them that git must not look into."""
    return [path for path in inner_repositories(git) if not _is_plain(git.folder / path)]


def _is_plain(folder: Path) -> bool:
    """Is there no repository, or one with nothing but git's own settings and no further one inside?"""
    state = folder / ".git"
    if not os.path.lexists(state):
        return True
    if state.is_file():
        state = Path(os.path.normpath(folder / state.read_text("utf-8", "replace").partition(":")[2].strip()))
    config = state / "config"
    odd = (state, config, state / "commondir", state / "config.worktree")
    if not config.is_file() or any(each.is_symlink() for each in odd) or any(map(os.path.exists, odd[2:])):
        return False
    asked = ("config", "--file", str(config), "--no-includes", "--list", "--name-only", "-z")
    # In the root folder, which is in no repository: settings are read there, and none of them is believed.
    keys = Git(Path("/")).run(*asked)
    if not keys.ok or not all(_HARMLESS.fullmatch(key) for key in keys.text.strip("\0").split("\0")):
        return False
    return not inner_repositories(Git(folder, pinned={"GIT_DIR": str(state), "GIT_WORK_TREE": str(folder)}))
