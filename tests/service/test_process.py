"""``flyball serve`` as a process: how it starts, what it refuses, how it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from flyball.governor.governor import Governor
from flyball.service.tokens import Scope, TokenFile
from tests.service.kit import PROBLEM, Events, Process, Wire
from tests.waiting import until


@pytest.fixture(scope="module")
def served(shared_home: Path) -> Iterator[Process]:
    """One that asks for tokens and writes down every request."""
    TokenFile(shared_home).add("first", Scope.ADMIN)
    with Process(shared_home, "--host", "0.0.0.0", "--access-log") as process:
        yield process


def test_a_public_place_without_a_token_is_refused(home: Path) -> None:
    process = Process(home, "--host", "0.0.0.0")
    assert process.wait() == 2
    said = process.log.read_text()
    assert "on 0.0.0.0, where others can reach it, without a token" in said
    assert "flyball token add" in said
    process.end()


def test_it_starts_on_this_machine_without_a_token_and_ends_in_order(home: Path) -> None:
    with Process(home) as process:
        assert process.url.startswith("http://127.0.0.1:")
        until(lambda: httpx.get(f"{process.url}/readyz").status_code == 200, "ready")
        assert httpx.get(process.url).headers["content-type"].startswith("text/html")
        with Events(process.port) as events:
            process.signal(signal.SIGTERM)
            until(lambda: events.over, "the end of the stream")
            assert events.seen[-1][0] == "end"
            unready = httpx.get(f"{process.url}/readyz")
            assert (unready.status_code, unready.json()["type"]) == (503, "urn:flyball:draining")
        assert process.wait() == 0
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", process.port))


def test_a_killed_server_loses_nothing(home: Path) -> None:
    with Process(home) as process:
        httpx.patch(f"{process.url}/v1/pools/kept", json={"cap": 3})
        process.signal(signal.SIGKILL)
        process.wait()
    governor = Governor(f"sqlite://{home / 'governor.db'}")
    assert [pool.cap for pool in governor.status().pools] == [3]
    governor.close()


def test_elsewhere_a_token_is_needed_and_none_is_ever_logged(served: Process, shared_home: Path) -> None:
    token = TokenFile(shared_home).add("secret", Scope.READ)
    assert httpx.get(f"{served.url}/v1/status").status_code == 401
    for given in (token, "not-" + token):
        httpx.get(f"{served.url}/v1/status", headers={"Authorization": f"Bearer {given}"})
    until(lambda: served.log.read_text().count("/v1/status") >= 3, "the log")
    said = served.log.read_text()
    assert token.removeprefix("flyball_") not in said
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert {"time", "level", "logger", "message"} <= set(lines[-1])
    assert any(line["message"].startswith("GET /v1/status 200") for line in lines)


def test_clients_that_misbehave_do_not_disturb_it(served: Process, shared_home: Path) -> None:
    headers = {"Authorization": f"Bearer {TokenFile(shared_home).add('calm', Scope.ADMIN)}"}
    half = [Wire(served.port) for _ in range(50)]
    for wire in half:
        wire.send(b"PATCH /v1/pools/p HTTP/1.1\r\nHost: x\r\nContent-Length: 50000\r\n\r\n{")
        wire.socket.shutdown(socket.SHUT_WR)
    large = httpx.patch(f"{served.url}/v1/pools/p", content=b" " * 70_000, headers=headers)
    assert (large.status_code, large.headers["content-type"]) == (413, PROBLEM)
    assert httpx.get(f"{served.url}/v1/status", headers=headers).json()["pools"] == []
    for wire in half:
        wire.close()


def test_a_server_shows_the_demo_live_with_nothing_to_set_up(home: Path) -> None:
    with Process(home) as process:
        environment = {**os.environ, "FLYBALL_HOME": str(home)}
        command = [sys.executable, "-m", "flyball", "demo", "--here", "--seconds", "2", "--json"]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as demo:
            seen = until(lambda: _pool(process, "demo"), "a job of the demo runs")
            said = json.loads(demo.communicate()[0])
        assert demo.returncode == 0
        assert {lease["project"] for lease in seen["leases"]} <= {"shop", "blog", "docs"}
        assert said["with"]["score"]["calls_done"] > 0
        until(lambda: not _pool(process, "demo"), "nothing of it is left")


def _pool(process: Process, name: str) -> dict[str, Any]:
    """The pool, while a job holds a slot of it."""
    found = httpx.get(f"{process.url}/v1/status").json()["pools"]
    return next((pool for pool in found if pool["name"] == name and pool["leases"]), {})
