"""The agent in bubblewrap: it sees everything, and writes only where it may.

    read-only   everything
    its own     its workspace with a repository of its own, the agent's own folders, ``guard.writable``
    empty       temporary folders, shared memory and terminals are new ones of its own; folders of sockets,
                where programs outside take orders from all who can reach them, are not to be seen;
                sockets that lie elsewhere and on which a program listens are covered
    read-only   again, where those contain it: FLYBALL_HOME, the user's checkout and repository, the settings
                of its own repository, and of the agent's own folders the settings that name programs

The network stays: an agent without its provider is none. It has a process namespace of its own, so nothing of
it outlives it and it cannot reach into processes outside.

Commands of flyball's own that work on files which an agent wrote run behind the same wall
(``SandboxedCommands``): git without a network, bootstrap commands with one.

A process stands before bubblewrap, and one behind it (``sandbox_process.py``): so that a signal reaches the
agent alone, and that the agent has pipes where it would have the files that its output is kept in.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from flyball.errors import AgentError, UsageError
from flyball.factory.guards import sandbox_process
from flyball.factory.guards.policy import GuardPolicy, within

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
"""What a runtime writes to, where no other folder is named."""
_SETTINGS: Mapping[str, tuple[str, ...]] = {
    "claude": (
        *("settings.json", "settings.local.json", "CLAUDE.md"),
        *("hooks", "plugins", "agents", "commands", "skills"),
    ),
    "codex": ("config.toml", "AGENTS.md", "AGENTS.override.md", "prompts", "rules", "skills"),
    "gemini": ("settings.json", "GEMINI.md", ".env", "extensions", "commands"),
    "opencode": (
        *("opencode.json", "opencode.jsonc", "AGENTS.md"),
        *("plugin", "plugins", "agent", "command", "tool"),
    ),
}
"""In those folders: what the person's own next session runs, or is told."""
_MUST_BE_THERE: Mapping[str, tuple[str, str]] = {
    "claude": ("settings.json", "{}\n"),
    "codex": ("config.toml", ""),
    "gemini": ("settings.json", "{}\n"),
}
"""Settings that an agent could make where the person has none yet, and their text then."""
_OF_THE_KERNEL = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus")
"""Settings of the whole machine, which root may write to in a namespace of its own too."""
_TEMPORARY = "/tmp"  # noqa: S108 - it is replaced by an empty one


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
        "--dev",
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


def sandbox_command(
    argv: Sequence[str], policy: GuardPolicy, *, env: Mapping[str, str], runtime: str, folders: Sequence[str]
) -> list[str]:
    """The command line that runs an agent inside. ``folders`` are the agent's own."""
    program = shutil.which(argv[0], path=env.get("PATH"))
    if program is None:
        raise AgentError(f"cannot run {argv[0]}: it was not found on PATH")
    beside = [sys.executable, "-I", "-S", sandbox_process.__file__]
    return [
        *beside,
        "outside",
        BWRAP,
        *_NAMESPACES,
        *_binds(policy, env, argv, runtime, folders),
        "--setenv",
        "TMPDIR",
        _TEMPORARY,
        "--chdir",
        policy.worktree,
        "--",
        *beside,
        "inside",
        *argv,
    ]


def _binds(
    policy: GuardPolicy, env: Mapping[str, str], argv: Sequence[str], runtime: str, folders: Sequence[str]
) -> list[str]:
    """In order of depth: what lies deeper is said later, and holds."""
    empty = _empty_folders(policy, env)
    own = {os.path.realpath(each) for each in (*policy.writable, *folders) if os.path.exists(each)}
    # What a git that a person runs there would believe.
    settings = os.path.join(policy.common, "config")
    kept = [each for each in (*policy.kept, settings) if each != policy.common and os.path.exists(each)]
    binds = {
        **dict.fromkeys(empty, "--tmpfs"),
        **dict.fromkeys(_needed_paths(env, argv, empty), "--ro-bind"),
        # A folder that something is mounted on cannot be moved away and put there anew, with other settings.
        **dict.fromkeys([*(own - set(empty)), policy.common], "--bind"),
        **dict.fromkeys([*_agent_settings(runtime, folders), *kept], "--ro-bind"),
    }
    return _bind_words(binds)


def _bind_words(binds: Mapping[str, str]) -> list[str]:
    seen = [path for path, how in binds.items() if how != "--ro-bind"]
    words = ["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]
    for path in _OF_THE_KERNEL:
        words += ["--ro-bind-try", path, path]
    words += [sandbox_process.COVERED, os.pathsep.join(seen)]
    for path, how in sorted(binds.items()):
        words += [how, path] if how == "--tmpfs" else [how, path, path]
    return words


def writable_folders(named: Sequence[str], root: Path) -> list[str]:
    """``guard.writable``: folders that agents, and commands about their work, may write to."""
    return [os.path.realpath(root / Path(each).expanduser()) for each in named]


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxedCommands:
    """What flyball's own commands begin with where they work on files that an agent wrote."""

    objects: Path
    """The user's repository, whose objects are borrowed."""
    home: Path
    """Flyball's own."""
    writable: Sequence[str] = ()

    def of_git(self, folder: Path) -> list[str]:
        """git in a workspace: it writes there alone, and reaches no network."""
        words = [BWRAP, *_NAMESPACES, "--unshare-net", *self._binds(folder, ()), "--"]
        return sandbox_process.cover_sockets(words)

    def of_bootstrap(self, folder: Path) -> list[str]:
        """Commands that install packages: caches of theirs are new each time, but for ``writable``."""
        binds = self._binds(folder, self.writable)
        return sandbox_process.cover_sockets([BWRAP, *_NAMESPACES, *binds, *_cache_words(_TEMPORARY), "--"])

    def of_gate(self, folder: Path, cache: Path) -> list[str]:
        """Commands of the gate: caches of theirs are in ``cache``."""
        binds = self._binds(folder, (*self.writable, str(cache)))
        beside = [sys.executable, "-I", "-S", sandbox_process.__file__]
        words = [BWRAP, *_NAMESPACES, *binds, *_cache_words(str(cache)), "--"]
        return [*beside, "outside", *words, *beside, "inside"]

    def _binds(self, folder: Path, writable: Sequence[str]) -> list[str]:
        top, lent = os.path.realpath(folder), os.path.realpath(self.objects)
        empty = _socket_folders(os.environ, str(self.home / "wake"), (top, lent))
        linked = [each for each in (os.path.join(top, ".git"),) if os.path.isfile(each)]
        binds = {
            **dict.fromkeys(empty, "--tmpfs"),
            **dict.fromkeys({lent, *_needed_paths(os.environ, (), empty)}, "--ro-bind"),
            **dict.fromkeys([each for each in writable if os.path.exists(each)], "--bind"),
            top: "--bind",
            # Of a linked worktree it says which repository it belongs to.
            **dict.fromkeys(linked, "--ro-bind"),
        }
        return [*_bind_words(binds), "--chdir", top]


def _cache_words(folder: str) -> list[str]:
    """Where tools keep what they can make again; the home is read-only."""
    named = {
        "XDG_CACHE_HOME": f"{folder}/cache",
        "npm_config_cache": f"{folder}/npm",
        "GOMODCACHE": f"{folder}/go-modules",
        "TMPDIR": _TEMPORARY,
    }
    return [word for key, value in named.items() for word in ("--setenv", key, value)]


def _empty_folders(policy: GuardPolicy, env: Mapping[str, str]) -> list[str]:
    return _socket_folders(env, policy.mailboxes, (policy.worktree, *policy.kept))


def _socket_folders(env: Mapping[str, str], mailboxes: str, used: Sequence[str]) -> list[str]:
    """Folders where sockets of other programs lie: of terminals, desktops, agents of keys, waiting asks."""
    temporary = [env.get("TMPDIR", ""), tempfile.gettempdir(), env.get("XDG_RUNTIME_DIR", "")]
    found = {os.path.realpath(each) for each in temporary if each}
    # A temporary folder that is a person's home stays as it is.
    lived_in = [os.path.realpath(env.get("HOME") or "/"), *used]
    found = {each for each in found if not any(within(place, each) for place in lived_in)}
    always = {os.path.realpath(each) for each in (_TEMPORARY, "/run/user", mailboxes) if each}
    return sorted(each for each in found | always if os.path.isdir(each))


def _needed_paths(env: Mapping[str, str], argv: Sequence[str], empty: Sequence[str]) -> set[str]:
    """What is needed to run at all, where it lies in a folder that is emptied: no more of that is seen."""
    programs = [*env.get("PATH", "").split(os.pathsep), sys.prefix, sys.base_prefix, sandbox_process.__file__]
    named = [env.get("HOME", ""), *(word for word in argv if os.path.isabs(word))]
    there = [each for each in (*programs, *named) if each and os.path.exists(each)]
    paths = {*map(os.path.realpath, there), *map(os.path.abspath, there)}
    lost = {path for path in paths if path not in empty and any(within(path, each) for each in empty)}
    return {path for path in lost if not any(path != each and within(path, each) for each in lost)}


def _agent_settings(runtime: str, folders: Sequence[str]) -> list[str]:
    tops = [Path(os.path.realpath(each)) for each in folders if os.path.isdir(each)]
    if tops and runtime in _MUST_BE_THERE:
        name, text = _MUST_BE_THERE[runtime]
        with suppress(FileExistsError), open(tops[0] / name, "x", encoding="utf-8") as file:
            file.write(text)
    found = (top / name for top in tops for name in _SETTINGS.get(runtime, ()))
    return [os.path.realpath(each) for each in found if each.exists()]
