"""A linked worktree of a small repository, and an agent launched in it as the factory launches one.

What it prints goes to files. Into a pipe gemini loses the end of a long output when it exits.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flyball.core.signals import Signal
from flyball.runtimes.port import Assignment, Ending, Launch
from flyball.runtimes.registry import load
from tests.agents.bench import Bench, finished, until
from tests.agents.kit import Agent


@dataclass(frozen=True)
class Told:
    """A run that is over, as its reader sees it."""

    ending: Ending
    signals: list[Signal]
    stdout: bytes
    stderr: bytes
    heard: list[Mapping[str, Any]]
    """What the provider was asked meanwhile."""

    @property
    def asked_first(self) -> str:
        """The conversation that its first request carried, as one text."""
        body = self.heard[0]
        return json.dumps(body.get("messages") or body.get("input") or body.get("contents"))


class Site:
    def __init__(self, bench: Bench, agent: Agent, *, retries: int = 0) -> None:
        self.bench, self.agent = bench, agent
        self.runtime = load(agent.name)
        self.env = bench.environment(agent, retries=retries)
        self.folder = bench.folder
        self.repository = bench.folder / "repository"
        self.tree = bench.folder / "trees" / "t-1"
        make_repository(self.repository)
        git("worktree", "add", "-q", "-b", "agent/t-1", str(self.tree), folder=self.repository)

    def launch(self, **asked: Any) -> Launch:
        args = (*self.agent.args, *asked.pop("args", ()))
        return self.runtime.launch(Assignment(**{"model": self.agent.model, **asked}, args=args))

    def start(self, prompt: str, **asked: Any) -> subprocess.Popen[str]:
        launch = self.launch(**asked)
        (self.folder / "prompt").write_text(prompt, encoding="utf-8")
        with (
            (self.folder / "prompt").open("rb") as stdin,
            (self.folder / "stdout").open("wb") as stdout,
            (self.folder / "stderr").open("wb") as stderr,
        ):
            return self.bench.spawn(
                launch.argv,
                env={**launch.env, **self.env},
                folder=self.tree,
                stdin=stdin.fileno(),
                stdout=stdout.fileno(),
                stderr=stderr.fileno(),
            )

    def run(self, prompt: str, **asked: Any) -> Told:
        before = len(self.bench.heard)
        return self.told(self.start(prompt, **asked), since=before)

    def kill_at_request(self, number: int, prompt: str) -> Told:
        """SIGKILL to it and all its children while it waits for the answer to that request."""
        self.bench.closes_after, before = number - 1, len(self.bench.heard)
        process = self.start(prompt)
        until(lambda: len(self.bench.heard) - before >= number, f"request {number}", while_runs=process)
        os.killpg(process.pid, signal.SIGKILL)
        self.bench.closes_after = None
        self.bench.door.set()
        return self.told(process, since=before)

    def told(self, process: subprocess.Popen[str], *, since: int) -> Told:
        code, reader = finished(process).code, self.runtime.reader()
        stdout, stderr = ((self.folder / name).read_bytes() for name in ("stdout", "stderr"))
        wall_s = time.time()
        signals = reader.feed(stdout, wall_s=wall_s) + reader.feed_stderr(stderr, wall_s=wall_s)
        ending = reader.finish(code, wall_s=wall_s)
        return Told(ending, signals, stdout, stderr, self.bench.heard[since:])

    def written(self, name: str) -> str | None:
        path = self.tree / name
        return path.read_text() if path.exists() else None

    def head(self) -> str:
        return git("rev-parse", "HEAD", folder=self.tree)


def make_repository(folder: Path) -> None:
    """One commit on main, by a teammate."""
    folder.mkdir(parents=True)
    git("init", "-q", "-b", "main", folder=folder)
    git("config", "user.name", "A Test", folder=folder)
    git("config", "user.email", "test@example.com", folder=folder)
    (folder / "README.md").write_text("# A repository\n")
    git("add", ".", folder=folder)
    git("commit", "-q", "-m", "One", folder=folder)


def git(*words: str, folder: Path) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()
