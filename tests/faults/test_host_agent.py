"""Leases on a server whose launcher was killed: another process of the host still looks after them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flyball import Governor
from flyball.core.pool.settings import LEASE_BACKSTOP_S
from flyball.governor import host_agent
from flyball.governor.internals import internals
from flyball.host.process import identify, me
from tests.redis_server import RedisServer
from tests.waiting import until

POOL = "p"


@pytest.fixture
def gov(redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Governor]:
    monkeypatch.setenv("FLYBALL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FLYBALL_URL", f"{redis_server.url}?space={os.urandom(6).hex()}")
    monkeypatch.delenv(host_agent.VARIABLE, raising=False)
    governor = Governor()
    governor.set_pool(POOL, cap=1, adaptive=False)
    yield governor
    governor.close()
    for pid in host_agents(tmp_path):
        os.kill(pid, signal.SIGKILL)


def host_agents(tmp_path: Path) -> list[int]:
    """Host agents that work for this test's home."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            env = (entry / "environ").read_bytes()
        except OSError:
            continue
        if b"flyball.governor.host_agent" in words and str(tmp_path).encode() in env:
            found.append(int(entry.name))
    return found


def held(gov: Governor) -> int:
    return len(internals(gov).store.census().claims)


def test_a_slot_comes_back_though_launcher_and_agent_were_killed(gov: Governor, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "flyball", "exec", "--pool", POOL, "--", "sleep", "600"]
    launcher = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    until(
        lambda: held(gov) == 1 and internals(gov).store.census().claims[0].holder.pid != launcher.pid,
        "the lease",
    )
    until(lambda: host_agents(tmp_path), "a host agent")
    launcher.kill()
    launcher.wait()
    agent = internals(gov).store.census().claims[0].holder.pid
    time.sleep(1.0)
    assert held(gov) == 1
    os.kill(agent, signal.SIGKILL)
    until(lambda: held(gov) == 0, "the slot to come back")
    assert host_agents(tmp_path)


def test_there_is_one_per_host_and_server(gov: Governor, tmp_path: Path) -> None:
    with gov.slot(POOL):
        until(lambda: host_agents(tmp_path), "a host agent")
        for _ in range(3):
            host_agent.ensure(gov.address)
        until(lambda: len(host_agents(tmp_path)) == 1, "the others to end")


def test_it_is_not_started_where_it_is_not_wanted(
    gov: Governor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(host_agent.VARIABLE, "off")
    host_agent.ensure(gov.address)
    assert host_agents(tmp_path) == []


def test_it_ends_when_its_server_and_its_state_folder_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = RedisServer()
    home = tmp_path / "home"
    monkeypatch.setenv("FLYBALL_HOME", str(home))
    monkeypatch.delenv(host_agent.VARIABLE, raising=False)
    host_agent.ensure(server.url)
    until(lambda: host_agents(tmp_path), "a host agent")
    server.close()
    shutil.rmtree(home)
    until(lambda: not host_agents(tmp_path), "its end")


def test_it_gives_up_on_a_server_that_has_given_its_leases_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLYBALL_HOME", str(tmp_path / "home"))
    server = RedisServer()
    governor = Governor(server.url)
    watching = host_agent.HostAgent(internals(governor).store, me())  # type: ignore[arg-type]
    try:
        governor.acquire(POOL)
        assert watching.look(0.0)
    finally:
        server.close()
    assert watching.look(10.0)
    assert not watching.look(10.0 + LEASE_BACKSTOP_S)
    governor.close()


def test_it_knows_when_its_host_holds_nothing_any_more(gov: Governor) -> None:
    watching = host_agent.HostAgent(internals(gov).store, me())  # type: ignore[arg-type]
    assert not watching.look(0.0)
    lease = gov.acquire(POOL)
    assert watching.look(10.0)
    lease.release()
    assert not watching.look(20.0)


def test_it_leaves_what_other_hosts_hold_alone(gov: Governor) -> None:
    gov.acquire(POOL)
    elsewhere = identify(os.getpid())
    watching = host_agent.HostAgent(internals(gov).store, type(elsewhere)("elsewhere", "b", 0, 1, 1))  # type: ignore[arg-type]
    assert not watching.look(0.0)
    assert held(gov) == 1
