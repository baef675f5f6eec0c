"""The load for the service's bench: HTTP/1.1 by hand on one event loop, because a client must cost less than
the server it measures; and servers as people start them, each on a store of its own.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import psutil

from tests.postgres_server import PostgresServer
from tests.redis_server import RedisServer
from tests.service.kit import Process

STORES = ("sqlite", "redis", "postgres")


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    took_s: float
    at: float

    @property
    def json(self) -> dict[str, object]:
        return msgspec.json.decode(self.body, type=dict[str, object])


class Wire:
    """One connection that is kept open."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def to(cls, url: str) -> Wire:
        where = urlsplit(url)
        return cls(*await asyncio.open_connection(where.hostname, where.port))

    async def ask(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Answer:
        began = time.perf_counter()
        extra = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{extra}Content-Length: {len(body)}\r\n\r\n"
        self._writer.write(head.encode() + body)
        found = await self._reader.readuntil(b"\r\n\r\n")
        said = b""
        for line in found.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                said = await self._reader.readexactly(int(line.partition(b":")[2]))
        now = time.perf_counter()
        return Answer(int(found[9:12]), said, now - began, now)

    async def close(self) -> None:
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()


async def wires(url: str, many: int) -> list[Wire]:
    found: list[Wire] = []
    for start in range(0, many, 200):
        found += await asyncio.gather(*(Wire.to(url) for _ in range(start, min(many, start + 200))))
    return found


async def close_all(links: list[Wire]) -> None:
    await asyncio.gather(*(link.close() for link in links))


@dataclass(frozen=True, slots=True)
class Served:
    url: str
    store: str
    redis: RedisServer | None
    pid: int

    def store_calls(self) -> Calls:
        """Counts what the store is asked from now on."""
        assert self.redis is not None
        return Calls(self.redis)

    def rss_bytes(self) -> int:
        return int(psutil.Process(self.pid).memory_info().rss)


@dataclass(frozen=True, slots=True)
class Heard:
    """Calls to the store: how many, and how many in the busiest 10 ms."""

    many: int
    peak: int


class Calls:
    """What clients send to Redis; what scripts do inside is told apart and not counted."""

    def __init__(self, server: RedisServer) -> None:
        self._link = socket.socket(socket.AF_UNIX)
        self._link.connect(str(server.folder / "s"))
        self._link.sendall(b"MONITOR\r\n")
        self._link.recv(5)
        self._heard = bytearray()
        self._thread = threading.Thread(target=self._hear)
        self._thread.start()

    def _hear(self) -> None:
        while part := self._link.recv(1 << 16):
            self._heard += part

    def end(self) -> Heard:
        """What there was."""
        time.sleep(0.05)  # what is still on its way
        self._link.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._link.close()
        said = [line for line in bytes(self._heard).splitlines() if line.startswith(b"+")]
        at = [float(line[1:].split(b" ", 1)[0]) for line in said if b" lua] " not in line]
        return Heard(len(at), max(Counter(int(when * 100) for when in at).values(), default=0))


@contextmanager
def served(store: str) -> Iterator[Served]:
    """``flyball serve`` on a fresh store."""
    with tempfile.TemporaryDirectory(prefix="fb-bench-") as folder:
        server = RedisServer() if store == "redis" else None
        postgres = PostgresServer() if store == "postgres" else None
        url = server.url if server else postgres.url if postgres else f"sqlite://{folder}/governor.db"
        try:
            with Process(Path(folder) / "home", environment={"FLYBALL_URL": url}) as process:
                yield Served(process.url, store, server, process._process.pid)
        finally:
            for started in (server, postgres):
                if started is not None:
                    started.close()


@contextmanager
def locked(redis_url: str, *, jittered: bool) -> Iterator[str]:
    """The lock-and-count baseline behind HTTP; its address."""
    with _beside("bench.service_baseline", redis_url, "jittered" if jittered else "fixed") as said:
        yield said


@contextmanager
def flooding(url: str, *, many: int, hold_s: float) -> Iterator[None]:
    """An org that starts as many runs as it can."""
    with _beside("bench.service_flood", url, str(many), str(hold_s)):
        yield


@contextmanager
def _beside(module: str, *arguments: str) -> Iterator[str]:
    """A process beside ours; the first line that it says."""
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=dict(os.environ)) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().decode().strip()
        finally:
            process.kill()
