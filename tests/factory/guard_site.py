"""A repository with a bare origin, a workspace of a task, and the guards around it, all of them real.

``fenced`` runs a line of shell as an agent's tool would: through the shims and the wall. ``asked`` is what
the hook of Claude Code answers before that.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from flyball.factory.git.repository import Repository
from flyball.factory.git.workspace import Workspaces
from flyball.factory.guards.guard import Guard
from flyball.factory.guards.guarded_launch import GuardedLaunch, GuardedLauncher
from flyball.factory.guards.install import Guards
from flyball.factory.guards.policy import VARIABLE, load_policy
from flyball.factory.project.config import GuardPart

BRANCH = "agent/t-1"


@dataclass(frozen=True, slots=True)
class Standing:
    """Everything that an agent must not change."""

    refs: tuple[str, ...]
    own: tuple[str, ...]
    """Of the agent's own repository, but for its own branch."""
    origin: tuple[str, ...]
    settings: str
    worktrees: tuple[str, ...]
    outside: tuple[str, ...]
    checkout: tuple[str, ...]


class Site:
    def __init__(self, place: Path, part: GuardPart | None = None) -> None:
        self.place = place
        self.root, self.home, self.origin = place / "blog", place / "home", place / "origin.git"
        self.tree, self.folder = self.home / "worktrees" / "blog" / "t-1", place / "run"
        self.outside = place.parent / f"{place.name}-outside"
        for folder in (self.root, self.folder, place / "user", self.outside, self.home):
            folder.mkdir(parents=True)
        (place / "user" / ".gitconfig").write_text(
            "[user]\nname = Someone\nemail = s@example.org\n[init]\ndefaultBranch = main\n"
            "[alias]\nship = push\n"
        )
        kept = {k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "TMPDIR")}
        self.env = {**kept, "HOME": str(place / "user")}
        self._make_repository()
        self.repository = Repository(self.root)
        self.workspaces = Workspaces(repository=self.repository, folder=self.tree.parent)
        self.workspaces.ensure(self.tree.name)
        self._go_on()
        # It hears of that, and stays where it was.
        self.workspaces.ensure(self.tree.name)
        self.part = part or GuardPart()
        self.fence = GuardedLauncher(
            guards=Guards(self.home),
            part=self.part,
            repository=self.repository,
            state=self.root / ".flyball",
            runtime="claude",
        )
        self.around = self.launch("true")

    def _make_repository(self) -> None:
        self.git("init", "--quiet")
        (self.root / "page.txt").write_text("one\n")
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "start")
        self.git("clone", "--quiet", "--bare", str(self.root), str(self.origin))
        self.git("remote", "add", "origin", str(self.origin))
        self.git("fetch", "--quiet", "origin")
        self.git("branch", "other")
        self.git("tag", "v1")

    def _go_on(self) -> None:
        """A person's commit that the workspace has not."""
        (self.root / "news.txt").write_text("news\n")
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "news")

    def launch(self, *argv: str) -> GuardedLaunch:
        return self.fence.guard(argv, self.env, tree=self.tree, branch=BRANCH, folder=self.folder)

    def git(self, *words: str, cwd: Path | None = None) -> str:
        done = subprocess.run(
            ["git", *words], cwd=cwd or self.root, env=self.env, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def standing(self) -> Standing:
        common = self.root / ".git"
        free = (f"heads/{BRANCH} ", f"refs/heads/{BRANCH} ", "stash ", "remotes/origin/main ")
        return Standing(
            refs=tuple(_refs(common)),
            own=tuple(ref for ref in _refs(self.tree / ".git") if not ref.startswith(free)),
            origin=tuple(_refs(self.origin)),
            settings=(common / "config").read_text() + (self.tree / ".git/config").read_text(),
            worktrees=tuple(sorted(path.name for path in (common / "worktrees").glob("*"))),
            outside=tuple(sorted(path.name for path in self.outside.iterdir())),
            checkout=tuple(sorted(path.name for path in self.root.iterdir())),
        )

    def fenced(self, line: str, *, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """As an agent's shell would run it, without asking the hook first."""
        return subprocess.run(
            ["sh", "-c", line],
            cwd=self.tree,
            env={
                **self.around.env,
                "OUT": str(self.outside),
                "ORIGIN": str(self.origin),
                "ROOT": str(self.root),
                **(env or {}),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def asked(self, tool: str, **given: str) -> str:
        """What the guard says against a tool; empty if nothing."""
        ward = load_policy(self.around.env[VARIABLE])
        guard = Guard(ward, environ=self.around.env, cwd=str(self.tree))
        return guard.tool_refusal(tool, given) or ""

    def hook(self, tool: str, **given: str) -> subprocess.CompletedProcess[str]:
        """The same as Claude Code asks it: a command from its settings, the call on stdin."""
        settings = json.loads(self.fence.guards.settings.read_text())
        return subprocess.run(
            ["sh", "-c", settings["hooks"]["PreToolUse"][0]["hooks"][0]["command"]],
            cwd=self.tree,
            env=dict(self.around.env),
            input=json.dumps({"tool_name": tool, "tool_input": given, "cwd": str(self.tree)}),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


def _refs(git_dir: Path) -> list[str]:
    """Every ref and where it stands, read from git's files: asked for very often."""
    loose = [path for path in (git_dir / "refs").rglob("*") if path.is_file()]
    packed = git_dir / "packed-refs"
    return [
        *sorted(f"{path.relative_to(git_dir / 'refs')} {path.read_text().strip()}" for path in loose),
        packed.read_text() if packed.exists() else "",
    ]
