"""A gateway on an event loop in a thread, over a pool in a file of the test's own."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flyball import Governor
from flyball.gateway.address import base_address
from flyball.gateway.server import GatewayServer, open_place
from flyball.governor.status import PoolStatus
from flyball.sim.provider.capacity import Capacity
from flyball.sim.provider.server import Manner, Provider
from tests.gateway.machine import Machine

CALL = {"max_tokens": 10, "model": "m", "messages": []}


class RunningGateway:
    """What tests use of it. ``base`` leads to a provider."""

    def __init__(self, folder: Path, url: str) -> None:
        self.governor = Governor(url)
        self._place, self.gateway = open_place(folder)
        self._connections: list[http.client.HTTPConnection] = []
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        self._started.wait(10)

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.server = GatewayServer(self.governor, self.gateway, linger_s=None)
        self._started.set()
        await self.server.serve(self._place)

    def path(self, provider: str, rest: str, *, name: str = "t-1", priority: int = 0) -> str:
        base = base_address(self.gateway.address, provider, project="blog", name=name, priority=priority)
        return base.partition(f":{self.gateway.port}")[2] + rest

    def connect(self) -> http.client.HTTPConnection:
        self._connections.append(http.client.HTTPConnection("127.0.0.1", self.gateway.port, timeout=60))
        return self._connections[-1]

    def call(
        self,
        provider: str,
        *,
        body: Any = CALL,
        headers: dict[str, str] | None = None,
        connection: http.client.HTTPConnection | None = None,
        rest: str = "/v1/messages",
        priority: int = 0,
    ) -> tuple[int, dict[str, str], bytes]:
        place = connection or self.connect()
        sent = {"content-type": "application/json", "x-api-key": "k", **(headers or {})}
        place.request("POST", self.path(provider, rest, priority=priority), json.dumps(body), sent)
        with place.getresponse() as answer:
            content = answer.read()
        return answer.status, {name.lower(): value for name, value in answer.headers.items()}, content

    def pool(self, name: str = "127.0.0.1") -> PoolStatus:
        return next(pool for pool in self.governor.status().pools if pool.name == name)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.server.stopped.set)
        self._thread.join(30)
        for connection in self._connections:
            connection.close()
        self.governor.close()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningGateway]:
    gateway = RunningGateway(tmp_path, f"sqlite:///{tmp_path}/governor.db")
    yield gateway
    gateway.close()


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider(Capacity.parse("20"), Manner(tokens_per_s=100)) as provider:
        yield provider


@pytest.fixture
def machine(tmp_path: Path, provider: Provider) -> Iterator[Machine]:
    machine = Machine(tmp_path, provider)
    yield machine
    machine.close()


class ScriptedServer:
    """A server that notes each request as it came and answers with the bytes it is told to."""

    def __init__(self, *answers: bytes) -> None:
        self._answers = list(answers)
        self.heard: list[bytes] = []
        self.connections = 0
        self._place = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._place.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while self._answers:
            try:
                client, _ = self._place.accept()
            except OSError:
                return
            self.connections += 1
            with client:
                while self._answers and (request := _read_request(client)):
                    self.heard.append(request)
                    answer = self._answers.pop(0)
                    first, *later = answer.removesuffix(b"<close>").split(b"<pause>")
                    client.sendall(first)
                    for part in later:
                        time.sleep(0.05)
                        client.sendall(part)
                    if answer.endswith(b"<close>"):
                        break

    def close(self) -> None:
        self._place.close()


def _read_request(client: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        part = client.recv(65536)
        if not part:
            return b""
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    lowered = head.lower()
    if b"content-length:" in lowered:
        length = int(lowered.partition(b"content-length:")[2].partition(b"\r\n")[0])
        while len(body) < length:
            body += client.recv(65536)
    elif b"chunked" in lowered:
        while not body.endswith(b"0\r\n\r\n"):
            body += client.recv(65536)
    return head + b"\r\n\r\n" + body
