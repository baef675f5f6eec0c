"""Thirty agents of three seconds through ``flyball exec``, one of them refused once: what the refusal costs.

The whole way that a user goes: the command line, the default pool of a fresh state file, a process per
agent, its output read as it comes. The agent is a script that prints the events of a real one and sleeps. It
recovers from the 429 by itself, as the real ones do, so all thirty finish. Beside it stand the same thirty
without a refusal, in the same run: the ratio is what one stray 429 costs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.fleet import BenchError
from bench.homes import scratch
from bench.report import Figure, Progress, Section, Target

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


FULL = Sizes()
QUICK = Sizes(agents=10, seconds=0.5, refused_after_s=(0.2,))


def run(sizes: Sizes, progress: Progress) -> Section:
    progress(f"{NAME}: without a refusal")
    calm_s = _wall_s(sizes, refused=None, after_s=sizes.refused_after_s[0])
    figures = []
    for after_s in sizes.refused_after_s:
        progress(f"{NAME}: one refused after {after_s:g} s")
        figures.append(
            Figure(
                what=f"{sizes.agents} agents, one refused {after_s:g} s after its start",
                ours=_wall_s(sizes, refused=min(9, sizes.agents - 1), after_s=after_s),
                unit="s",
                beside="the same, none refused",
                theirs=calm_s,
                target=Target("ratio", 1.5),
            )
        )
    return Section(NAME, TITLE, tuple(figures), ("out-of-the-box pool: 8 at once",))


def _wall_s(sizes: Sizes, *, refused: int | None, after_s: float) -> float:
    """From the first start to the last end of all agents, started at once."""
    with scratch() as home:
        agent = home / "claude"
        events = {"init": _INIT, "refused": _REFUSED, "answer": _ANSWER, "result": _RESULT}
        lines = {name: json.dumps(event, separators=(",", ":")) for name, event in events.items()}
        agent.write_text(_SCRIPT.format(early=after_s, late=sizes.seconds - after_s, **lines))
        agent.chmod(0o755)
        environment = {**_environment(), "FLYBALL_HOME": str(home / "state")}
        began = time.monotonic()
        started = [
            _start(agent, "refused" if number == refused else "calm", environment)
            for number in range(sizes.agents)
        ]
        for process in started:
            process.communicate(timeout=600)
            if process.returncode:
                raise BenchError(f"an agent ended with {process.returncode}")
        return time.monotonic() - began


def _start(agent: Path, how: str, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "flyball", "exec", "--quiet", "--", str(agent), how]
    asked = ["--verbose", "--output-format", "stream-json"]
    return subprocess.Popen(
        [*command, *asked], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("FLYBALL")}
