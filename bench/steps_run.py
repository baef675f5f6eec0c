"""One run of the bench ``steps``: clients that make a list of calls, against a provider that counts them.

The provider, every client and the gateway are processes of their own; the state is a fresh store with
untouched pools. The clients are started first, then the provider, whose schedule begins with it; each client
gets the next call of the common list when it is done with its last one. The bench looks at the cap as
``flyball status`` does, and asks the provider for its own count at the end.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from queue import Empty, SimpleQueue

from bench.fleet import BenchError
from bench.homes import address, scratch
from bench.report import caps_over_time
from bench.steps_client import GOVERNED, PLAIN, POOL
from flyball.governor.governor import Governor

HOST = "127.0.0.1"
LIMIT_S = 240.0
END_S = 30.0
LOOK_EVERY_S = 0.25


class Way(Enum):
    """How the clients' calls go out; the value is how the tables name it."""

    WITHOUT = "without flyball"
    GATEWAY = "flyball env"
    CLIENT = "flyball.httpx_client"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one run is made of."""

    capacity: str
    tokens: Sequence[int]
    clients: int
    tokens_per_s: float
    retry_after_s: float
    script: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    tokens: int
    took_s: float
    """From the client's taking it up to the answer, all waits included."""


@dataclass(frozen=True, slots=True)
class Look:
    t_s: float
    cap: int
    in_use: int


@dataclass(frozen=True, slots=True)
class Outcome:
    wall_s: float
    """From the provider's opening to the last answer."""
    refused: int
    """As the provider counted."""
    calls: tuple[Call, ...]
    looks: tuple[Look, ...] = ()

    def caps(self) -> str:
        return caps_over_time((look.t_s, look.cap) for look in self.looks)


def measure(load: Load, way: Way) -> Outcome:
    port = _free_port()
    with scratch() as home, ExitStack() as stack:
        state = home / "state"
        environment = {
            **_environment(),
            "FLYBALL_HOME": str(state),
            "ANTHROPIC_API_KEY": "key-of-a-bench",
            "ANTHROPIC_BASE_URL": f"http://{HOST}:{port}",
        }
        if way is Way.GATEWAY:
            stack.callback(_stop_gateway, environment)
        clients = [stack.enter_context(_client(way, environment)) for _ in range(load.clients)]
        for client in clients:
            if _line(client) != "ready":
                raise BenchError("a client did not start")
        provider = stack.enter_context(_provider(load, port))
        if not _line(provider):
            raise BenchError("the provider did not start")
        began = time.monotonic()
        calls, looks = _make(load, clients, state, began, governed=way is not Way.WITHOUT)
        wall_s = time.monotonic() - began
        with urllib.request.urlopen(f"http://{HOST}:{port}/__fake/tally", timeout=30) as answer:
            refused: int = json.load(answer)["rejected"]
    return Outcome(wall_s, refused, calls, looks)


def _make(
    load: Load, clients: Sequence[subprocess.Popen[str]], state: Path, began: float, *, governed: bool
) -> tuple[tuple[Call, ...], tuple[Look, ...]]:
    left: SimpleQueue[int] = SimpleQueue()
    for tokens in load.tokens:
        left.put(tokens)
    looks: list[Look] = []
    with ThreadPoolExecutor(len(clients)) as threads:
        going: set[Future[list[Call]]] = {threads.submit(_feed, client, left) for client in clients}
        pending = going
        while pending:
            _, pending = wait(pending, LOOK_EVERY_S)
            if governed and pending:
                looks += _look(state, began)
            if time.monotonic() - began > LIMIT_S:
                for client in clients:
                    client.kill()  # its thread reads the end, and says so
    return tuple(call for each in going for call in each.result()), tuple(looks)


def _feed(client: subprocess.Popen[str], left: SimpleQueue[int]) -> list[Call]:
    """Hand one client calls until the list is empty."""
    made: list[Call] = []
    stdin = client.stdin
    while stdin is not None:
        try:
            tokens = left.get_nowait()
        except Empty:
            break
        stdin.write(f"{tokens}\n")
        stdin.flush()
        said = _line(client).split()
        if not said:
            raise BenchError(f"a client ended in the middle of a call, or took more than {LIMIT_S:g} s")
        made.append(Call(tokens, float(said[0])))
    return made


def _look(state: Path, began: float) -> Iterator[Look]:
    if not (state / "governor.db").exists():
        return
    governor = Governor(address(state))
    try:
        status = governor.status()
    finally:
        governor.close()
    for pool in status.pools:
        if pool.name == POOL and pool.cap is not None:
            yield Look(time.monotonic() - began, pool.cap, pool.in_use)


# -- processes ----------------------------------------------------------------------------------------------


@contextmanager
def _client(way: Way, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    through = [sys.executable, "-m", "flyball", "env", "--pool", POOL, "--"] if way is Way.GATEWAY else []
    how = GOVERNED if way is Way.CLIENT else PLAIN
    program = [*through, sys.executable, "-m", "bench.steps_client", how]
    with _started(program, environment) as client:
        yield client


@contextmanager
def _provider(load: Load, port: int) -> Iterator[subprocess.Popen[str]]:
    options = {
        "--port": port,
        "--capacity": load.capacity,
        "--script": load.script,
        "--tokens-per-s": load.tokens_per_s,
        "--retry-after": load.retry_after_s,
    }
    words = [word for name, value in options.items() for word in (name, str(value))]
    with _started([sys.executable, "-m", "flyball.sim.provider.server", *words], _environment()) as provider:
        yield provider
        provider.kill()


@contextmanager
def _started(command: Sequence[str], environment: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    try:
        yield process
    finally:
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()  # a client's end
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _line(process: subprocess.Popen[str]) -> str:
    return process.stdout.readline().strip() if process.stdout is not None else ""


def _stop_gateway(environment: Mapping[str, str]) -> None:
    stop = [sys.executable, "-m", "flyball", "gateway", "stop"]
    subprocess.run(stop, env=environment, check=True, stdout=subprocess.DEVNULL, timeout=60)


def _environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("FLYBALL", "PYTHON", "ANTHROPIC", "OPENAI", "GEMINI", "GOOGLE"))
    }


def _free_port() -> int:
    with socket.socket() as place:
        place.bind((HOST, 0))
        return int(place.getsockname()[1])
