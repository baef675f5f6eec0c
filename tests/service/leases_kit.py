"""Asking over HTTP in tests: a server on each kind of store, and clients that ask, wait, and leave."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from flyball.governor.governor import Governor
from tests.service.kit import PATIENCE_S, Running, Wire
from tests.waiting import until

STORES = ("memory", "sqlite", "redis", "postgres")
_numbers = count(1)


@contextmanager
def serving_on(kind: str, request: pytest.FixtureRequest, folder: Path) -> Iterator[Running]:
    """A server whose state is in a store of this kind."""
    with Running(Governor(url_for(kind, request, folder)), folder) as server:
        yield server


def url_for(kind: str, request: pytest.FixtureRequest, folder: Path) -> str:
    if kind == "redis":
        return str(request.getfixturevalue("redis_server").url)
    if kind == "postgres":
        return str(request.getfixturevalue("postgres_server").url)
    return "memory:" if kind == "memory" else f"sqlite://{folder / 'governor.db'}"


class Desk:
    """One pool of a server, of a test's own."""

    def __init__(
        self, server: Running, cap: int = 1, *, client: httpx.Client | None = None, **settings: object
    ) -> None:
        self.server, self.client = server, client or server.client
        self.pool = f"pool-{next(_numbers)}"
        self.path = f"/v1/pools/{self.pool}"
        made = self.client.put(self.path, json={"cap": cap, "adaptive": False, **settings})
        assert made.status_code == 200, made.text

    def ask(
        self, *, key: str | None = None, prefer: str | None = None, path: str | None = None, **body: Any
    ) -> httpx.Response:
        headers = {"Idempotency-Key": key, "Prefer": prefer}
        sent = {name: value for name, value in headers.items() if value is not None}
        return self.client.post(path or f"{self.path}/leases", json=body, headers=sent)

    def lease(self, **body: Any) -> dict[str, Any]:
        answer = self.ask(**body)
        assert answer.status_code == 201, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def ticket(self, **body: Any) -> dict[str, Any]:
        answer = self.ask(wait=True, **body)
        assert answer.status_code == 202, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def act(self, lease: dict[str, Any], verb: str, **body: Any) -> httpx.Response:
        """Renew, release, signals: with the lease's token."""
        return self.client.post(
            f"/v1/leases/{lease['id']}/{verb}", json=body, headers={"Lease-Token": lease["token"]}
        )

    def release(self, lease: dict[str, Any], **body: Any) -> None:
        assert self.act(lease, "release", **body).status_code == 204

    def look(self, ticket: dict[str, Any], **headers: str) -> httpx.Response:
        return self.client.get(f"/v1/tickets/{ticket['id']}", headers=headers)

    @property
    def now(self) -> dict[str, Any]:
        found: dict[str, Any] = self.client.get(self.path).json()
        return found

    def until_waiting(self, many: int) -> None:
        until(lambda: self.now["waiting"] == many, f"{many} wait")

    def hold_open(self, *, key: str = "", wait_s: int = 30) -> Wire:
        """A client that waits for its answer, until the test closes its connection."""
        wire = Wire(self.server.port)
        key_line = f"Idempotency-Key: {key}\r\n" if key else ""
        head = f"POST {self.path}/leases HTTP/1.1\r\nHost: localhost\r\nPrefer: wait={wait_s}\r\n{key_line}"
        wire.send(f"{head}Content-Length: 2\r\n\r\n{{}}".encode())
        return wire


class Later:
    """An answer that comes some time."""

    def __init__(self, send: Any, *args: Any, **kwargs: Any) -> None:
        self._found: list[httpx.Response] = []
        self._thread = threading.Thread(target=lambda: self._found.append(send(*args, **kwargs)))
        self._thread.start()

    @property
    def answer(self) -> httpx.Response:
        self._thread.join(PATIENCE_S)
        assert self._found, "no answer came"
        return self._found[0]


def together(send: Any, many: int) -> list[httpx.Response]:
    """The answers to requests that are sent at once."""
    return [later.answer for later in [Later(send, number) for number in range(many)]]
