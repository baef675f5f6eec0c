"""Both ends of the bench of the gateway: a server of endless streams, and a client that times them.

The server answers ``POST ...?chunks=10&bytes=100&gap_ms=500`` with so many server-sent pieces, the first one
at once. It takes next to no time of its own, so what stands between is what is measured. It is a process of
its own: ``python -m bench.gateway_wire PORT``.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

HOST = "127.0.0.1"
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_FIRST = b'event: message_start\ndata: {"type": "message_start"}\n\n'
_EVENT = b'event: content_block_delta\ndata: {"type": "content_block_delta", "delta": {"text": "%b"}}\n\n'
_LAST = b'event: message_stop\ndata: {"type": "message_stop"}\n\n'


@dataclass(frozen=True, slots=True)
class Stream:
    """What one answer is made of."""

    chunks: int
    bytes: int
    gap_ms: float = 0.0

    @property
    def length_s(self) -> float:
        return self.chunks * self.gap_ms / 1000

    @property
    def query(self) -> str:
        return f"chunks={self.chunks}&bytes={self.bytes}&gap_ms={self.gap_ms:g}"


class Server(asyncio.Protocol):
    """One connection of the provider."""

    def __init__(self) -> None:
        self._seen = b""
        self._writable = asyncio.Event()
        self._writable.set()
        self._answering: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._seen += data
        end = self._seen.find(b"\r\n\r\n")
        if end < 0:
            return
        length = _LENGTH.search(self._seen, 0, end)
        if len(self._seen) < end + 4 + (int(length[1]) if length else 0):
            return
        target = self._seen.split(b" ", 2)[1].decode()
        self._seen = b""
        said = {name: float(values[0]) for name, values in parse_qs(urlsplit(target).query).items()}
        stream = Stream(int(said.get("chunks", 1)), int(said.get("bytes", 100)), said.get("gap_ms", 0.0))
        self._answering = asyncio.ensure_future(self._answer(stream))

    async def _answer(self, stream: Stream) -> None:
        piece = _chunk(_EVENT % (b"x" * stream.bytes))
        self._transport.write(_HEAD + _chunk(_FIRST))
        for _ in range(stream.chunks):
            if stream.gap_ms:
                await asyncio.sleep(stream.gap_ms / 1000)
            await self._writable.wait()
            self._transport.write(piece)
        self._transport.write(_chunk(_LAST) + b"0\r\n\r\n")

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, _error: Exception | None) -> None:
        if self._answering is not None:
            self._answering.cancel()


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@dataclass(frozen=True, slots=True)
class Door:
    """One way to the server: ``path`` is what stands before ``/v1/messages``."""

    name: str
    port: int
    path: str = ""
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class Load:
    """What one load has measured."""

    first_byte_s: list[float] = field(default_factory=list)
    bytes: int = 0
    seconds: float = 0.0
    failed: int = 0
    """Streams that could not begin, broke off, or had not ended when the time for it was over."""


class _Reader(asyncio.Protocol):
    """One connection of the client; a request at a time."""

    def __init__(self) -> None:
        self.began: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self.done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.bytes = 0
        self._head, self._in_body, self._tail = b"", False, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if not self._in_body:
            self._head += data
            end = self._head.find(b"\r\n\r\n")
            if end < 0 or len(self._head) == end + 4:
                return
            self._in_body = True
            data = self._head[end + 4 :]
            if not self.began.done():
                self.began.set_result(time.perf_counter())
        self.bytes += len(data)
        self._tail = (self._tail + data)[-7:]
        if self._tail.endswith(b"\r\n0\r\n\r\n"[-7:]) and not self.done.done():
            self.done.set_result(b" 200 " in self._head[:20])

    def connection_lost(self, _error: Exception | None) -> None:
        for future, value in ((self.began, float("nan")), (self.done, False)):
            if not future.done():
                future.set_result(value)  # type: ignore[arg-type]


async def load(
    door: Door, stream: Stream, *, at_once: int, for_s: float, ramp_s: float, within_s: float
) -> Load:
    """So many clients, one stream after the other each, until the time is over; the last ones end in peace.
    ``for_s`` 0: one stream each. ``ramp_s``: they begin spread over this time. What has not ended
    ``within_s`` after the end of what was planned has failed, so a door that hangs ends the load, too."""
    seen, end = Load(), time.perf_counter() + for_s
    body = json.dumps({"model": "claude-x", "max_tokens": 100, "stream": True, "messages": []}).encode()
    headers = "".join(f"{name}: {value}\r\n" for name, value in door.headers)
    request = (
        f"POST {door.path}/v1/messages?{stream.query} HTTP/1.1\r\nHost: {HOST}:{door.port}\r\n"
        f"Content-Type: application/json\r\nx-api-key: k\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body

    async def client(delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        while True:
            _, reader = await asyncio.get_running_loop().create_connection(_Reader, HOST, door.port)
            sent = time.perf_counter()
            reader.transport.write(request)
            try:
                began, whole = await reader.began, await reader.done
            finally:
                reader.transport.abort()
            seen.bytes += reader.bytes
            if whole:
                seen.first_byte_s.append(began - sent)
            else:
                seen.failed += 1
            if time.perf_counter() >= end:
                return

    started = time.perf_counter()
    clients = [asyncio.ensure_future(client(ramp_s * number / at_once)) for number in range(at_once)]
    _, late = await asyncio.wait(clients, timeout=for_s + ramp_s + stream.length_s + within_s)
    for each in late:
        each.cancel()
    ends = await asyncio.gather(*clients, return_exceptions=True)
    seen.failed += sum(isinstance(each, OSError | asyncio.CancelledError) for each in ends)
    seen.seconds = time.perf_counter() - started
    return seen


async def serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Server, HOST, port, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
