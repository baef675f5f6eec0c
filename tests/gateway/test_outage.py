"""Calls through a gateway whose store is away: stopped, killed, or locked by a process that stands still."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flyball.sim.provider.server import Provider
from tests.gateway.machine import CALL, Machine
from tests.postgres_server import PostgresServer
from tests.redis_server import RedisServer
from tests.waiting import until

pytestmark = pytest.mark.faults
CAP = 3
CLIENTS = 7
CALLS = 12
TOKENS = 20
DURABLE = ("--appendonly", "yes", "--appendfsync", "always")
LOCK = """
import fcntl, os, signal, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
fcntl.lockf(fd, fcntl.LOCK_EX)
print("locked", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""


Server = RedisServer | PostgresServer


@pytest.fixture(params=["redis", "postgres"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server of the test's own, which keeps its data."""
    running = RedisServer(*DURABLE) if request.param == "redis" else PostgresServer(quick=False)
    yield running
    running.close()


@pytest.fixture
def on_server(machine: Machine, server: Server) -> Machine:
    mark = "&" if "?" in server.url else "?"
    machine.env["FLYBALL_URL"] = f"{server.url}{mark}socket_timeout=1"
    return machine


class Clients:
    """Programs that call one after the other, more of them than there are slots."""

    def __init__(self, machine: Machine, provider: Provider, *, cap: int = CAP) -> None:
        self.machine, self.provider, self.cap = machine, provider, cap
        machine.run("pool", "set", "127.0.0.1", "--cap", str(cap), "--static")
        program = [sys.executable, "-c", CALL, str(TOKENS), str(CALLS)]
        self.runs = [machine.start("env", "--", *program) for _ in range(CLIENTS)]
        self.go_on(2 * cap)

    def go_on(self, calls: int) -> None:
        """Until so many more calls were served."""
        served = self.provider.tally().accepted
        until(lambda: self.provider.tally().accepted >= served + calls, f"{calls} more calls are served")

    def end(self) -> None:
        """Each call was served, never more at once than the cap, and all slots are there again."""
        said = [run.communicate(timeout=120) for run in self.runs]
        assert [out.split() for out, _ in said] == [["200"] * CALLS] * CLIENTS, said
        assert self.provider.tally().peak_open == self.cap
        slots = ("--slots", str(self.cap), "--wait", "30s")
        whole = self.machine.run("exec", "--pool", "127.0.0.1", *slots, "--", "true")
        assert whole.returncode == 0, whole.stderr


def test_calls_go_on_with_the_slots_that_were_held_when_the_server_was_stopped(
    on_server: Machine, provider: Provider, server: Server
) -> None:
    clients = Clients(on_server, provider)
    server.pause()
    try:
        clients.go_on(4 * CAP)
    finally:
        server.resume()
    clients.end()


def test_calls_go_on_while_the_server_is_dead_and_stand_in_its_line_when_it_is_back(
    on_server: Machine, provider: Provider, server: Server
) -> None:
    clients = Clients(on_server, provider)
    server.kill()
    clients.go_on(4 * CAP)
    server.start()
    clients.end()


def test_calls_go_on_while_a_stopped_process_holds_the_lock_of_the_file(
    machine: Machine, provider: Provider
) -> None:
    clients = Clients(machine, provider)
    lock = machine.folder / "flyball" / "governor.db.lock"
    with held(lock):
        clients.go_on(4 * CAP)
        said = machine.run("gateway", "status").stdout
        assert "its state does not answer: calls go on with the slots they had" in said
    clients.end()


class held:  # noqa: N801
    """A process that took the lock and was stopped."""

    def __init__(self, lock: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", LOCK, str(lock)], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "locked\n"

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.communicate()
