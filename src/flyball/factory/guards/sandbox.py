"""The agent in bubblewrap: it sees everything, and writes only where it may. A wall, not a fence.

    read-only   everything
    its own     the worktree but for its ``.git``, the temporary folder, the agent's own folders,
                ``guard.writable``, and of git what a commit needs: objects, the worktree's index and HEAD,
                the folder of agents' branches and their logs
    read-only   again, where those contain it: FLYBALL_HOME, the user's checkout, git's settings and hooks,
                every other branch

The network stays: an agent without its provider is none. It has a process namespace of its own, so nothing of
it outlives it and it cannot reach into processes outside.

bubblewrap stands between the keeper and the agent and would end at the first TERM, taking the agent with it
before it could tidy up. So it is started deaf to that (``doorway.py``), and the agent hears again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from flyball.errors import AgentError, UsageError
from flyball.factory.guards import doorway
from flyball.factory.guards.ward import Ward

BWRAP = "bwrap"
_TRY_S = 20.0
_WAY_OUT = 'install bubblewrap (apt install bubblewrap), or set guard.sandbox = "none"'
_OWN_FOLDERS: Mapping[str, tuple[str, ...]] = {
    "claude": ("~/.claude", "~/.claude.json", "~/.cache/claude-cli-nodejs"),
    "codex": ("~/.codex",),
    "gemini": ("~/.gemini",),
    "opencode": (
        "~/.local/share/opencode",
        "~/.local/state/opencode",
        "~/.config/opencode",
        "~/.cache/opencode",
    ),
}
"""What a runtime writes to, where nobody named another folder."""


def check_sandbox(kind: str) -> None:
    """UsageError if agents are to be kept by something that is not here."""
    if kind == BWRAP and (problem := sandbox_problem()):
        raise UsageError(f'guard.sandbox = "bwrap": {problem}; {_WAY_OUT}')


@lru_cache(maxsize=1)
def sandbox_problem() -> str:
    """What keeps bubblewrap from working here; empty if nothing does."""
    found = shutil.which(BWRAP)
    if found is None:
        return "bwrap was not found"
    asked = [
        found,
        *_NAMESPACES,
        "--ro-bind",
        "/",
        "/",
        "--proc",
        "/proc",
        "--dev-bind",
        "/dev",
        "/dev",
        "true",
    ]
    try:
        done = subprocess.run(asked, capture_output=True, timeout=_TRY_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bwrap does not run here ({error})"
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return f"bwrap does not work here ({said[-1] if said else done.returncode})" if done.returncode else ""


_NAMESPACES = ("--unshare-user", "--unshare-pid", "--unshare-ipc", "--die-with-parent")


def own_folders(runtime: str, config_dir: Path | None) -> list[str]:
    """Where an agent keeps its sessions and settings."""
    if config_dir is not None:
        return [str(config_dir)]
    return [os.path.expanduser(each) for each in _OWN_FOLDERS.get(runtime, ())]


def wrapped(argv: Sequence[str], ward: Ward, *, env: Mapping[str, str], folders: Sequence[str]) -> list[str]:
    """The command line that runs an agent inside. ``folders`` are the agent's own."""
    program = shutil.which(argv[0], path=env.get("PATH"))
    if program is None:
        raise AgentError(f"cannot run {argv[0]}: it was not found on PATH")
    deaf = [sys.executable, "-I", "-S", doorway.__file__]
    inside = [*deaf, "hear", *argv]
    return [
        *deaf,
        "deaf",
        BWRAP,
        *_NAMESPACES,
        *_binds(ward, folders),
        "--chdir",
        ward.worktree,
        "--",
        *inside,
    ]


def _binds(ward: Ward, folders: Sequence[str]) -> list[str]:
    """In order of depth: what lies deeper is said later, and holds."""
    writable = {os.path.realpath(each): True for each in (*ward.writable, *folders) if os.path.exists(each)}
    writable |= dict.fromkeys(_of_git(ward), True)
    kept = {each: False for each in ward.kept if os.path.exists(each)}
    binds = ["--ro-bind", "/", "/", "--proc", "/proc", "--dev-bind", "/dev", "/dev"]
    for path, may in sorted({**writable, **kept}.items()):
        binds += ["--bind" if may else "--ro-bind", path, path]
    return binds


def _of_git(ward: Ward) -> list[str]:
    """What ``git commit`` writes. A branch's lock lies beside it, so agents' branches are one folder."""
    common = Path(ward.common)
    branches = Path(ward.branch).parent
    shared = [common / "objects", common / "refs/heads" / branches, common / "logs/refs/heads" / branches]
    for folder in shared:
        folder.mkdir(parents=True, exist_ok=True)
    text = (Path(ward.worktree) / ".git").read_text(encoding="utf-8", errors="surrogateescape")
    own = Path(os.path.normpath(Path(ward.worktree) / text.removeprefix("gitdir:").strip()))
    return [str(each) for each in (*shared, own)]
