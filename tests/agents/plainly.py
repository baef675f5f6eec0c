"""An agent that a person starts by hand, with flyball's hooks in its settings."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.agents.bench import FLYBALL, Bench
from tests.agents.kit import PROMPT, Agent, Claude, Codex, Gemini, Opencode

NO_NETWORK = {"npm_config_fetch_retries": "0", "npm_config_fetch_timeout": "500"}
"""With a plugin in its folder opencode fetches a package of its own first; here it cannot."""
KINDS = {"claude": "general-purpose", "codex": "explorer", "gemini": "generalist", "opencode": "general"}
ARGS = {"codex": ("--dangerously-bypass-hook-trust", "-")}
"""Codex asks a person before it runs a hook; read its prompt from a file, as opencode does."""
four = pytest.mark.parametrize(
    "agent", [Claude(), Codex(), Gemini(), Opencode()], ids=lambda agent: agent.name
)
in_the_call = pytest.mark.parametrize("agent", [Claude(), Gemini(), Opencode()], ids=lambda agent: agent.name)
"""Those whose session waits for a subagent in the call that starts it."""
beside = pytest.mark.parametrize("agent", [Claude(), Codex()], ids=lambda agent: agent.name)


class Plainly:
    """An agent that a person starts by hand, after ``flyball hooks install``."""

    def __init__(self, bench: Bench, agent: Agent, *, wait: str = "60s", **env: str) -> None:
        self.bench, self.agent = bench, agent
        self.env = {**bench.environment(agent), **NO_NETWORK, **env}
        self.folder = Path(self.env["HOME"]).parent / "work"
        self.flyball("hooks", "install", agent.name, "--wait", wait)

    def flyball(self, *words: str) -> None:
        subprocess.run([*FLYBALL, *words], env=self.env, capture_output=True, check=True, timeout=60)

    def start(self, prompt: str) -> subprocess.Popen[str]:
        by_file = self.agent.name in ("codex", "opencode")
        words = [prompt if word == PROMPT else word for word in self.agent.argv()]
        argv = [word for word in words if not (by_file and word == prompt)] + list(
            ARGS.get(self.agent.name, ())
        )
        (self.folder / "prompt").write_text(prompt if by_file else "")
        stdin = os.open(self.folder / "prompt", os.O_RDONLY)
        try:
            return self.bench.spawn(argv, env=self.env, folder=self.folder, stdin=stdin)
        finally:
            os.close(stdin)

    def names(self, what: str = "leases") -> list[str]:
        """As status shows them, without the pid of the session."""
        found = [each["name"] for each in self.bench.pool(self.agent.pool).get(what, ())]
        return sorted(name.replace(name.split(" ")[0], self.agent.name) for name in found)


def delegate(agent: Agent, times: int, *, wait: bool = False) -> str:
    word = "delegate and wait" if wait else "delegate"
    return "\n".join(f"errand: {word} {KINDS[agent.name]} = Say that you are done." for _ in range(times))


def calls_of_subagents(heard: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [each for each in heard if "errand:" not in str(each)]
