"""A launch with its guards: the command line, the environment and the policy of one agent.

Everything here is done before the agent's process is started, and again for each one.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from flyball.errors import UsageError
from flyball.factory.git.repository import Repository
from flyball.factory.guards.install import Guards
from flyball.factory.guards.policy import VARIABLE, GuardPolicy
from flyball.factory.guards.sandbox import check_sandbox, own_folders, sandbox_command
from flyball.factory.project.config import GuardPart
from flyball.host.atomic_file import replace_file

NO_PUSH = "flyball-refuses-to-push:"
CLAUDE_SETTINGS = "claude-settings.json"
_GitSettings = list[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedLaunch:
    argv: Sequence[str]
    env: Mapping[str, str]
    mended: Sequence[str] = ()
    """Files of the guards that had been changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedLauncher:
    """What keeps the agents of one project. Blocking: call it off the loop."""

    guards: Guards
    part: GuardPart
    repository: Repository
    state: Path
    runtime: str
    config_dir: Path | None = None

    def guard(
        self, argv: Sequence[str], env: Mapping[str, str], *, tree: Path, branch: str, folder: Path
    ) -> GuardedLaunch:
        """The launch of one agent, kept to its worktree as far as the project's file says."""
        check_sandbox(self.part.sandbox)
        if not self.part.hooks and self.part.sandbox == "none":
            return GuardedLaunch(argv=argv, env=env)
        asked = self._git_settings()
        policy = self._policy(tree, branch, env, asked)
        mended: list[str] = []
        if self.part.hooks:
            mended = self.guards.install()
            # Where the project's own hooks are, for commits in this worktree.
            named = [value for key, value in asked if key == "core.hookspath"]
            hooks = tree / Path(named[-1]).expanduser() if named else self.repository.common / "hooks"
            env = self._environment(env, policy, self.guards.write_policy(policy), str(hooks))
            argv = self._with_hooks(argv, folder)
        if self.part.sandbox == "bwrap":
            own = own_folders(self.runtime, self.config_dir)
            argv = sandbox_command(argv, policy, env=env, runtime=self.runtime, folders=own)
        return GuardedLaunch(argv=argv, env=env, mended=mended)

    def _policy(self, tree: Path, branch: str, env: Mapping[str, str], asked: _GitSettings) -> GuardPolicy:
        writable: list[str | Path] = [
            tree,
            env.get("TMPDIR") or tempfile.gettempdir(),
            "/tmp",  # noqa: S108 - agents may use it
            *(self.repository.root / Path(each).expanduser() for each in self.part.writable),
        ]
        kept: list[str | Path] = [
            self.guards.home,
            self.repository.root,
            self.state,
            self.repository.common,
            tree / ".git",
        ]
        remotes = sorted({value for key, value in asked if key != "core.hookspath"})
        return GuardPolicy(
            worktree=os.path.realpath(tree),
            branch=branch,
            default=self.repository.default,
            common=os.path.realpath(tree / ".git"),
            project=os.path.realpath(self.repository.common),
            writable=sorted({os.path.realpath(each) for each in writable}),
            kept=sorted({os.path.realpath(each) for each in kept}),
            remotes=remotes,
            settings=self._settings(remotes),
            bin=str(self.guards.bin),
            mailboxes=os.path.realpath(self.guards.home / "wake"),
        )

    def _git_settings(self) -> _GitSettings:
        """What git's settings say of remotes and hooks, ours for our own git left out."""
        wanted = r"^(core\.hookspath|remote\..*\.(push)?url)$"
        parts = self.repository.git.run("config", "-z", "--show-scope", "--get-regexp", wanted).text.split(
            "\0"
        )
        found = zip(parts[::2], parts[1::2], strict=False)
        pairs = (text.partition("\n") for scope, text in found if scope != "command")
        return [(key, value) for key, _, value in pairs]

    # -- the fence ----------------------------------------------------------------------------------------

    def _environment(
        self, env: Mapping[str, str], policy: GuardPolicy, file: Path, hooks: str
    ) -> dict[str, str]:
        settings = policy.settings
        numbered = {
            f"GIT_CONFIG_{what}_{number}": text
            for number, pair in enumerate(settings)
            for what, text in zip(("KEY", "VALUE"), pair, strict=True)
        }
        return {
            **env,
            "PATH": os.pathsep.join([str(self.guards.bin), env.get("PATH", os.defpath)]),
            VARIABLE: str(file),
            "FLYBALL_GUARD_COMMON": policy.common,
            "FLYBALL_GUARD_HOOKS": hooks,
            "GIT_CONFIG_COUNT": str(len(settings)),
            **numbered,
        }

    def _settings(self, remotes: Sequence[str]) -> list[list[str]]:
        """The wall inside git, for whatever way it is called."""
        return [
            ["core.hooksPath", str(self.guards.hooks)],
            ["gc.auto", "0"],
            ["maintenance.auto", "false"],
            *([f"url.{NO_PUSH}.pushInsteadOf", address] for address in remotes),
        ]

    def _with_hooks(self, argv: Sequence[str], folder: Path) -> Sequence[str]:
        """Claude Code is told to ask; settings that the project names itself are kept beside ours."""
        if self.runtime != "claude":
            return argv
        words, named = _without_settings(argv)
        if not named:
            return [*words, "--settings", str(self.guards.settings)]
        merged = _merge_settings(_read_settings(named), self.guards.claude_settings())
        path = folder / CLAUDE_SETTINGS
        replace_file(path, json.dumps(merged).encode())
        return [*words, "--settings", str(path)]


def _without_settings(argv: Sequence[str]) -> tuple[list[str], str]:
    words, named, skip = [], "", False
    for word, value in zip(argv, [*argv[1:], ""], strict=True):
        if skip:
            skip = False
        elif word == "--settings":
            named, skip = value, True
        elif word.startswith("--settings="):
            named = word.removeprefix("--settings=")
        else:
            words.append(word)
    return words, named


def _read_settings(named: str) -> dict[str, object]:
    try:
        text = (
            named if named.lstrip().startswith("{") else Path(named).expanduser().read_text(encoding="utf-8")
        )
        found = json.loads(text)
    except (OSError, ValueError) as error:
        raise UsageError(f"agent.args: cannot read the settings that --settings names ({error})") from error
    if not isinstance(found, dict):
        raise UsageError("agent.args: --settings must name a JSON object")
    return found


def _merge_settings(theirs: dict[str, object], ours: dict[str, object]) -> dict[str, object]:
    hooks = theirs.get("hooks")
    kept = dict(hooks) if isinstance(hooks, dict) else {}
    own = ours["hooks"]
    before = kept.get("PreToolUse")
    asked = own["PreToolUse"] if isinstance(own, dict) else []
    kept["PreToolUse"] = [*asked, *(before if isinstance(before, list) else [])]
    return {**theirs, "disableAllHooks": False, "hooks": kept}
