"""Real servers for tests, on a thread of this process or in one of their own; clients that misbehave."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx

from flyball.governor.governor import Governor
from flyball.governor.internals import internals
from flyball.observe.metrics import MetricRegistry
from flyball.service.auth import Access
from flyball.service.middleware import Tracing
from flyball.service.server import bind, serve, server_for, url_of
from flyball.service.state import Service
from flyball.service.store_reader import StoreReader, StoreSnapshot
from flyball.service.tokens import Scope, TokenFile, TokenStore
from flyball.testing import Scene
from tests.waiting import until

PATIENCE_S = 60.0
PROBLEM = "application/problem+json"
T = TypeVar("T")


def seen_in(scene: Scene) -> StoreSnapshot:
    """What a look shows of a store in a simulated world, at its time."""
    governor = Governor("memory:")
    internals(governor)._store = scene.store
    now = scene.world.clock()
    return replace(StoreReader(governor).look(), at=now, time=now)


class Running:
    """A server on a thread: real sockets and all, and its insides at hand."""

    def __init__(
        self,
        governor: Governor,
        home: Path,
        *,
        token_needed: bool = False,
        registry: MetricRegistry | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        self.tokens = TokenFile(home)
        access = Access(TokenStore(self.tokens), token_needed=token_needed)
        self.service = Service(governor, access, registry=registry)
        self.place = bind("127.0.0.1", 0)
        self.url = url_of(self.place).rstrip("/")
        self.server = server_for(self.service, tracing=tracing)
        self._thread = threading.Thread(target=serve, args=(self.place, self.server))
        self._thread.start()
        until(lambda: self.server.started or not self._thread.is_alive(), "the server is up")
        self.client = httpx.Client(base_url=self.url, timeout=PATIENCE_S)

    @property
    def port(self) -> int:
        return int(urlsplit(self.url).port or 0)

    def as_token(self, name: str, scope: Scope) -> httpx.Client:
        """A client with a token of its own."""
        headers = {"Authorization": f"Bearer {self.tokens.add(name, scope)}"}
        return httpx.Client(base_url=self.url, timeout=PATIENCE_S, headers=headers)

    def ready(self) -> Running:
        until(lambda: self.client.get("/readyz").status_code == 200, "ready")
        return self

    def __enter__(self) -> Running:
        return self.ready()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()
        self.server.should_exit = True
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the server does not end"


class Process:
    """``flyball serve`` as people start it."""

    def __init__(self, home: Path, *words: str, environment: Mapping[str, str] | None = None) -> None:
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("FLYBALL_", "OTEL_"))
        }
        env = {**kept, "FLYBALL_HOME": str(home), "FLYBALL_HOST_AGENT": "off", **(environment or {})}
        self.log = home.parent / f"{home.name}.log"
        command = [sys.executable, "-m", "flyball", "serve", "--port", "0", "--json", *words]
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=env)
        assert self._process.stdout is not None
        # The first line comes when it listens; none, when it does not.
        self.said = self._process.stdout.readline().decode()
        self.url = json.loads(self.said)["url"].rstrip("/") if self.said.startswith('{"url"') else ""

    @property
    def port(self) -> int:
        return int(urlsplit(self.url).port or 0)

    def signal(self, number: int = signal.SIGTERM) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        return self._process.wait(PATIENCE_S)

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(PATIENCE_S)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def __enter__(self) -> Process:
        assert self.url, self.said + self.log.read_text()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


class Wire:
    """A connection on which a test writes what it likes."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read_all(self) -> bytes:
        """Everything until the other side closes."""
        found = b""
        try:
            while part := self.socket.recv(65536):
                found += part
        except ConnectionResetError:
            pass
        return found

    def quiet(self) -> bool:
        """Nothing to read, and not closed."""
        return not select.select([self.socket], [], [], 0)[0]

    def close(self) -> None:
        self.socket.close()


class Events:
    """The events of one stream, as a list that a thread fills."""

    def __init__(self, port: int, headers: Mapping[str, str] | None = None) -> None:
        self.seen: list[tuple[str, Any, str]] = []
        """Name, data, id; the name is empty for a comment."""
        self.over = False
        self._connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        self._connection.request("GET", "/v1/events", headers=dict(headers or {}))
        self._socket = self._connection.sock
        self._response = self._connection.getresponse()
        self.status = self._response.status
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        block: dict[str, str] = {}
        with suppress(OSError, HTTPException):
            while line := self._response.readline():
                self._line(line.decode().rstrip("\r\n"), block)
        self.over = True

    def _line(self, line: str, block: dict[str, str]) -> None:
        if line:
            name, _, value = line.partition(":")
            block[name] = value.lstrip()
            return
        if "data" in block:
            self.seen.append((block.get("event", ""), json.loads(block["data"]), block.get("id", "")))
        elif "" in block:
            self.seen.append(("", block[""], ""))
        block.clear()

    def named(self, name: str) -> list[Any]:
        return [data for event, data, _ in list(self.seen) if event == name]

    def about(self, name: str, pool: str) -> list[Any]:
        """What a kind of event said about one pool."""
        if name == "state":
            told = [found for state in self.named(name) for found in state["pools"]]
            return [found for found in told if found["name"] == pool]
        return [data for data in self.named(name) if data["pool"] == pool]

    def wait_for(self, name: str, count: int = 1) -> list[Any]:
        return until(lambda: found if len(found := self.named(name)) >= count else [], f"{count} x {name}")

    def __enter__(self) -> Events:
        self.wait_for("state")
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(PATIENCE_S)
        self._response.close()
        self._connection.close()
