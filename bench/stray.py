"""Thirty agents of three seconds through ``flyball exec``, one of them refused once: what the refusal costs.

The whole way that a user goes: the command line, the default pool of a fresh state file, a process per
agent, its output read as it comes. The agent is a script that prints the events of a real one and sleeps. It
recovers from the 429 by itself, as the real ones do, so all thirty finish. Beside it stands the ideal: the
same thirty under ``xargs -P 8``, without flyball. What flyball costs without a refusal is a figure of its
own; most of it is thirty interpreters that start at once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.fleet import BenchError
from bench.homes import scratch
from bench.report import Progress, Section, Target, beside

NAME = "stray"
TITLE = "one stray 429 among thirty agents of three seconds"
_SESSION = {"session_id": "00000000-0000-4000-8000-000000000000"}
_INIT = {"type": "system", "subtype": "init", "model": "claude-sonnet-5-5", **_SESSION}
_RETRY = {"type": "system", "subtype": "api_retry", "attempt": 1, "max_retries": 10, "retry_delay_ms": 500}
_REFUSED = {**_RETRY, "error_status": 429, "error": "rate_limit", **_SESSION}
_MESSAGE = {"id": "m1", "model": "claude-sonnet-5-5", "content": [{"type": "text", "text": "Done."}]}
_ANSWER = {"type": "assistant", "message": _MESSAGE, **_SESSION}
_RESULT = {"type": "result", "subtype": "success", "is_error": False, "result": "Done.", **_SESSION}
_SCRIPT = """#!/bin/sh
echo '{init}'
sleep {early:.2f}
[ "$1" = refused ] && echo '{refused}'
sleep {late:.2f}
echo '{answer}'
echo '{result}'
"""


@dataclass(frozen=True, slots=True)
class Sizes:
    agents: int = 30
    seconds: float = 3.0
    refused_after_s: tuple[float, ...] = (0.5, 1.5)
    rounds: int = 5


FULL = Sizes()
QUICK = Sizes(agents=10, seconds=0.5, refused_after_s=(0.2,), rounds=1)
AT_ONCE = 8
"""What an untouched pool lets run: the ideal has as many."""
IDEAL = f"xargs -P {AT_ONCE}, without flyball"


@dataclass(frozen=True, slots=True)
class FakeAgent:
    """A script in the place of ``claude``, which is told ``calm`` or ``refused`` by its first argument."""

    script: str
    options: tuple[str, ...]
    ends: frozenset[int] = frozenset({0})
    """How ``flyball exec`` may end with it."""

    def write(self, folder: Path) -> Path:
        file = folder / "claude"
        file.write_text(self.script)
        file.chmod(0o755)
        return file


def run(sizes: Sizes, progress: Progress) -> Section:
    calm = f"{sizes.agents} agents, none refused"
    refused = {
        f"{sizes.agents} agents, one refused {after_s:g} s after its start": after_s
        for after_s in sizes.refused_after_s
    }
    ideal: list[float] = []
    ours: dict[str, list[float]] = {what: [] for what in (calm, *refused)}
    for number in range(sizes.rounds):
        progress(f"{NAME}: round {number + 1} of {sizes.rounds}")
        early = _agent(sizes, after_s=sizes.refused_after_s[0])
        ideal.append(ideal_s(early, ["calm"] * sizes.agents))
        ours[calm].append(wall_s(early, ["calm"] * sizes.agents))
        for what, after_s in refused.items():
            told = one_refused(sizes.agents)
            ours[what].append(wall_s(_agent(sizes, after_s=after_s), told))
    figures = [
        beside(what, took, ideal, unit="s", name=IDEAL, target=None if what == calm else Target("ratio", 1.5))
        for what, took in ours.items()
    ]
    return Section(NAME, TITLE, tuple(figures), (f"out-of-the-box pool: {AT_ONCE} at once",))


def one_refused(agents: int) -> list[str]:
    """What each agent is told: the tenth is the one."""
    return ["refused" if number == min(9, agents - 1) else "calm" for number in range(agents)]


def ideal_s(agent: FakeAgent, told: Sequence[str]) -> float:
    """The same agents without flyball, as many at once as an untouched pool lets run."""
    with scratch() as home:
        limited = ["xargs", "-P", str(AT_ONCE), "-n", "1", str(agent.write(home))]
        began = time.monotonic()
        # xargs ends with 123 where an agent ended with an error.
        subprocess.run(limited, input="\n".join(told).encode(), stdout=subprocess.DEVNULL, timeout=600)
        return time.monotonic() - began


def wall_s(agent: FakeAgent, told: Sequence[str]) -> float:
    """From the first start to the last end of all agents, started at once."""
    with scratch() as home:
        command = [sys.executable, "-m", "flyball", "exec", "--quiet", "--", str(agent.write(home))]
        environment = {**_environment(), "FLYBALL_HOME": str(home / "state")}
        began = time.monotonic()
        started = [
            subprocess.Popen(
                [*command, how, *agent.options],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
            )
            for how in told
        ]
        for process in started:
            process.communicate(timeout=600)
            if process.returncode not in agent.ends:
                raise BenchError(f"an agent ended with {process.returncode}")
        return time.monotonic() - began


def _agent(sizes: Sizes, *, after_s: float) -> FakeAgent:
    events = {"init": _INIT, "refused": _REFUSED, "answer": _ANSWER, "result": _RESULT}
    lines = {name: json.dumps(event, separators=(",", ":")) for name, event in events.items()}
    script = _SCRIPT.format(early=after_s, late=sizes.seconds - after_s, **lines)
    return FakeAgent(script, ("--verbose", "--output-format", "stream-json"))


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("FLYBALL", "PYTHON"))}
