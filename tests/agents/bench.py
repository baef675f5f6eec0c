"""A bench for a real agent: its home, the provider it talks to, and flyball around it.

What the provider serves waits at a door, so that a test decides when an answer comes; refusals do not wait.
``environment`` is all that a process needs to run one agent here, itself or through something of flyball's.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flyball.core.signals import SignalKind
from flyball.sim.provider.capacity import Capacity
from flyball.sim.provider.script import ScriptStep
from flyball.sim.provider.server import Manner, Provider, ProviderCall
from tests.agents.kit import Agent, environment

LONGEST_S = 100.0
_PROMPT_TO_REFUSE = Manner(reject_s=0.0)
FLYBALL = [sys.executable, "-m", "flyball"]


class Bench:
    """``counts``: what the agents' pools count. With ``agents`` what they print is all that is known.

    With ``paced`` there is no door, and an answer takes the provider's usual time.
    """

    def __init__(
        self,
        folder: Path,
        script: str,
        capacity: str,
        *,
        counts: str = "agents",
        paced: bool = False,
        manner: Manner = _PROMPT_TO_REFUSE,
        on_end: Callable[[ProviderCall], None] | None = None,
    ) -> None:
        self.folder, self.counts = folder, counts
        self.door = threading.Event()
        self.closes_after: int | None = None
        """The door closes behind that many requests."""
        self.refuses: Callable[[Mapping[str, Any]], bool] | None = None
        """Requests that are told that their key is bad."""
        self.heard: list[Mapping[str, Any]] = []
        self.provider = Provider(
            Capacity.parse(capacity),
            manner,
            script=script,
            sleep=time.sleep if paced else self._wait_at_door,
            on_request=self._hear,
            on_end=on_end,
        )
        self._started: list[subprocess.Popen[str]] = []
        self._homes = 0

    def _hear(self, body: Mapping[str, Any]) -> ScriptStep | None:
        self.heard.append(body)
        if self.closes_after is not None and len(self.heard) > self.closes_after:
            self.door.clear()
        refused = self.refuses is not None and self.refuses(body)
        return ScriptStep(SignalKind.AUTH) if refused else None

    def _wait_at_door(self, for_s: float) -> None:
        if for_s > 0:
            self.door.wait(LONGEST_S)

    def flyball(self, *arguments: str) -> str:
        env = {**os.environ, "FLYBALL_HOME": str(self.folder / "flyball")}
        done = subprocess.run([*FLYBALL, *arguments], env=env, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def pool(self, name: str) -> dict[str, Any]:
        """The pool as ``flyball status --json`` shows it; empty before it is there."""
        pools = json.loads(self.flyball("status", "--json"))["pools"]
        return next((each for each in pools if each["name"] == name), {})

    def environment(self, agent: Agent, *, retries: int = 0) -> dict[str, str]:
        """A home of its own for an agent, the way to our provider, and one flyball for all."""
        if self._homes == 0 and self.counts != "auto":
            self.flyball("pool", "set", agent.pool, "--counts", self.counts)
        self._homes += 1
        place = self.folder / f"{agent.name}-{self._homes}"
        env = environment(agent, place, self.provider.url, retries=retries)
        return {**env, "FLYBALL_HOME": str(self.folder / "flyball")}

    def start(self, agent: Agent, *options: str, retries: int = 0) -> subprocess.Popen[str]:
        """``flyball exec`` around an agent, which may start at once."""
        env = self.environment(agent, retries=retries)
        argv = [*FLYBALL, "exec", *options, "--", *agent.argv()]
        return self.spawn(argv, env=env, folder=Path(env["HOME"]).parent / "work")

    def spawn(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        folder: Path,
        stdin: int = subprocess.DEVNULL,
        stdout: int = subprocess.PIPE,
        stderr: int = subprocess.PIPE,
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            argv,
            env=env,
            cwd=folder,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            text=True,
            start_new_session=True,
        )
        self._started.append(process)
        return process

    def run(self, agent: Agent, *options: str, retries: int = 0) -> Done:
        return finished(self.start(agent, *options, retries=retries))

    def close(self) -> None:
        """Nothing that was started is left, whatever it started itself."""
        self.door.set()
        self.flyball("gateway", "stop")
        for process in self._started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@dataclass(frozen=True)
class Done:
    """A run that is over."""

    code: int
    stdout: str
    stderr: str

    @property
    def said(self) -> list[str]:
        """What flyball said, among what the agent did."""
        return [line for line in self.stderr.splitlines() if line.startswith("flyball: ")]


def finished(process: subprocess.Popen[str]) -> Done:
    stdout, stderr = process.communicate(timeout=LONGEST_S)
    return Done(process.returncode, stdout or "", stderr or "")


def until(condition: Callable[[], object], what: str, *, while_runs: subprocess.Popen[str]) -> None:
    """Wait for it; an agent that ends meanwhile will never bring it about."""
    end = time.monotonic() + LONGEST_S
    while not condition():
        assert while_runs.poll() is None, f"it ended before {what}: {finished(while_runs).stderr}"
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.05)


Benches = Callable[..., Bench]
