"""One run of the bench ``agents``: real command lines at work against a provider with a hidden limit.

Each agent is a process of its own with a home of its own, started when its turn comes and left alone until
it ends. The provider is a thread of the bench and keeps a log of every call: when it came and went, whether
it was served, and how many were open. Ten times a second the bench looks at the pool, as ``flyball status``
does, and asks the gateway how many calls it has in hand.

Whose call it is stands in the call: each prompt names its agent, and so do those that go to its subagents.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from bench.agents_log import Look, ServedCall
from bench.homes import address, scratch
from flyball.core.signals import REJECTIONS
from flyball.gateway.lifetime import ask_gateway, find_gateway
from flyball.governor.governor import Governor
from flyball.runtimes.port import Ending
from flyball.runtimes.registry import load as runtime_named
from flyball.sim.provider.capacity import Capacity
from flyball.sim.provider.server import Manner, Provider, ProviderCall
from tests.agents.kit import PROMPT, Agent, environment

POOL = "account"
"""Of all four: they call one provider with one key."""
TOKENS = 50
"""In an answer to an agent, whose own limit is far above it."""
RETRIES = 10
"""How often an agent tries a refused call again by itself; opencode has a number of its own."""
PROJECTS = ("blog", "shop", "docs")
FLYBALL = [sys.executable, "-m", "flyball"]
_LOOK_EVERY_S = 0.1
_KINDS = {"claude": "general-purpose", "codex": "worker", "gemini": "generalist", "opencode": "general"}
_ONE_BY_ONE = {"codex": 8, "gemini": 2}
"""What starts its subagents one by one, and how many at most. gemini waits for each."""
_MAY = {
    "claude": ("--allowedTools", "Bash,Agent"),
    "gemini": ("--approval-mode=yolo",),
    "opencode": ("--auto",),
}
"""What lets it run commands and start subagents without a person."""


class Way(Enum):
    """How the agents are started; the value is how the tables name it."""

    CALLS = "flyball exec"
    AGENTS = "flyball exec, counts = agents"
    WITHOUT = "without flyball"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What every run of the bench has to do."""

    agents: Sequence[Agent]
    capacity: str
    subagents: int
    """An agent asks for up to so many at once."""
    rounds: int
    """So often it asks for them."""
    steps: int
    """Tool runs of an agent before each round, and after the last."""
    call_s: float
    tool_s: float
    apart_s: float
    """Between the starts of two agents."""
    retry_after_s: float
    limit_s: float
    programs: Path | None = None
    """Where stand-ins of the command lines are."""


@dataclass(frozen=True, slots=True)
class Life:
    """Of one agent."""

    name: str
    runtime: str
    began_s: float
    ended_s: float
    ending: Ending
    seen: int
    """Refusals that its own output tells of."""


@dataclass(frozen=True, slots=True)
class Outcome:
    through_gateway: bool
    wall_s: float
    """From the first agent's start to the last one's end."""
    calls: tuple[ServedCall, ...]
    lives: tuple[Life, ...]
    looks: tuple[Look, ...]
    refused_clients: int
    """Calls whose client the gateway told to come back later."""

    @property
    def refused(self) -> int:
        return sum(not call.accepted for call in self.calls)


def agent_name(number: int) -> str:
    return f"T-{number + 1:02d}"


def prompt_for(agent: Agent, name: str, load: Load) -> str:
    """Each command its own: some agents take the same tool call again and again for a loop."""

    def run(words: str) -> str:
        return f"errand: run sleep {load.tool_s:g} && echo {name} {words}"

    def delegate(number: int) -> list[str]:
        kind, beside = _KINDS[agent.name], run(f"beside {number}")
        if agent.name not in _ONE_BY_ONE:
            return [f"errand: delegate {load.subagents} and wait {kind} = {beside}"]
        count = min(load.subagents, _ONE_BY_ONE[agent.name])
        return [f"errand: delegate {kind} = {beside} {each}" for each in range(count)]

    lines = [f"Work on {name}, please."]
    for number in range(load.rounds + 1):
        lines += [run(f"part {number} step {step}") for step in range(load.steps)]
        lines += delegate(number) if number < load.rounds else ()
    return "\n".join(lines)


def measure(load: Load, way: Way) -> Outcome:
    over: list[ProviderCall] = []
    manner = Manner(tokens_per_s=TOKENS / load.call_s, retry_after_s=load.retry_after_s)
    with scratch() as home, ExitStack() as stack:
        provider = Provider(Capacity.parse(load.capacity), manner, on_end=over.append)
        stack.enter_context(provider)
        watch = _Watch(home / "state", provider, way)
        stack.callback(watch.close)
        if way is Way.CALLS:
            _flyball(home / "state", "pool", "set", "agents", "--cap", str(len(load.agents)), "--static")
        elif way is Way.AGENTS:
            _flyball(home / "state", "pool", "set", POOL, "--counts", "agents")
        running = [
            _Running(agent, agent_name(number), home, load) for number, agent in enumerate(load.agents)
        ]
        for each in running:
            stack.callback(each.kill)
        lives = _run_all(running, load, way, provider, watch)
        refused_clients = watch.refused_clients()
    names = [each.name for each in running]
    calls = sorted((_call(each, names) for each in over), key=lambda call: call.began_s)
    first = min(life.began_s for life in lives)
    wall_s = max(life.ended_s for life in lives) - first
    return Outcome(way is Way.CALLS, wall_s, tuple(calls), tuple(lives), tuple(watch.looks), refused_clients)


def _call(call: ProviderCall, names: Sequence[str]) -> ServedCall:
    said = json.dumps(call.body)
    owner = next((name for name in names if name in said), "")
    return ServedCall(owner, call.began_s, call.ended_s, call.accepted, call.open)


def _run_all(
    running: Sequence[_Running], load: Load, way: Way, provider: Provider, watch: _Watch
) -> list[Life]:
    provider.open()
    waiting, alive, lives = list(running), list[_Running](), list[Life]()
    while waiting or alive:
        now_s = provider.t_s
        if waiting and now_s >= (len(running) - len(waiting)) * load.apart_s:
            waiting[0].start(provider.url, way, now_s)
            alive.append(waiting.pop(0))
        for each in alive:
            if each.process.poll() is not None:
                lives.append(each.life(now_s))
            elif now_s > load.limit_s:
                each.kill()
        alive = [each for each in alive if each.process.returncode is None]
        watch.look()
        time.sleep(max(0.0, _LOOK_EVERY_S - (provider.t_s - now_s)))
    return lives


class _Running:
    """One agent and its process."""

    process: subprocess.Popen[bytes]

    def __init__(self, agent: Agent, name: str, home: Path, load: Load) -> None:
        self.agent, self.name, self._load = agent, name, load
        self._folder, self._state = home / name, home / "state"
        self._began_s = 0.0

    def start(self, url: str, way: Way, now_s: float) -> None:
        prompt = prompt_for(self.agent, self.name, self._load)
        argv = [prompt if word == PROMPT else word for word in self.agent.argv()]
        argv += _MAY.get(self.agent.name, ())
        env = environment(self.agent, self._folder, url, retries=RETRIES)
        if self._load.programs is not None:
            env["PATH"] = f"{self._load.programs}:{env['PATH']}"
        if way is not Way.WITHOUT:
            env["FLYBALL_HOME"] = str(self._state)
            project = PROJECTS[int(self.name.partition("-")[2]) % len(PROJECTS)]
            argv = [*FLYBALL, "exec", "--pool", POOL, "--project", project, "--name", self.name, "--", *argv]
        self._began_s = now_s
        with (self._folder / "out").open("wb") as out, (self._folder / "err").open("wb") as err:
            self.process = subprocess.Popen(
                argv,
                env=env,
                cwd=self._folder / "work",
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    def life(self, now_s: float) -> Life:
        reader, wall_s = runtime_named(self.agent.name).reader(), time.time()
        signals = [
            *reader.feed((self._folder / "out").read_bytes(), wall_s=wall_s),
            *reader.feed_stderr((self._folder / "err").read_bytes(), wall_s=wall_s),
        ]
        seen = sum(each.kind in REJECTIONS for each in signals)
        ending = reader.finish(self.process.returncode, wall_s=wall_s)
        return Life(self.name, self.agent.name, self._began_s, now_s, ending, seen)

    def kill(self) -> None:
        if hasattr(self, "process"):
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


class _Watch:
    """Looks at the pool and the gateway, and is not seen by either."""

    def __init__(self, state: Path, provider: Provider, way: Way) -> None:
        self._state, self._provider, self._way = state, provider, way
        self._governor: Governor | None = None
        self.looks: list[Look] = []

    def look(self) -> None:
        if self._way is Way.WITHOUT or not (self._state / "governor.db").exists():
            return
        if self._governor is None:
            self._governor = Governor(address(self._state))
        at_s = self._provider.t_s
        gateway = find_gateway(self._state) if self._way is Way.CALLS else None
        said = ask_gateway(gateway, "status") if gateway is not None else None
        for pool in self._governor.status().pools:
            if pool.name == POOL and pool.cap is not None:
                in_hand = said["calls"] if said is not None else pool.in_use + pool.waiting
                self.looks.append(Look(at_s, pool.cap, pool.in_use, in_hand))

    def refused_clients(self) -> int:
        gateway = find_gateway(self._state)
        said = ask_gateway(gateway, "status") if gateway is not None else None
        return int(said["refused"]) if said is not None else 0

    def close(self) -> None:
        if self._governor is not None:
            self._governor.close()
        if self._way is Way.CALLS:
            _flyball(self._state, "gateway", "stop")


def _flyball(state: Path, *words: str) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("FLYBALL")}
    env["FLYBALL_HOME"] = str(state)
    subprocess.run([*FLYBALL, *words], env=env, check=True, stdout=subprocess.DEVNULL, timeout=60)
