"""A client's connection: requests in, one after the other, and their answers back.

A request is read whole before it is passed on, so that it can be sent again if it is refused. While a call
waits or runs the connection is still read: a client that hangs up gives its place or slot back at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

import httptools

from flyball.gateway.call import Refusal, Request, dump_refusal
from flyball.gateway.upstream import UpstreamConnection

BODY_BYTES = 64 * 1024 * 1024
"""A longer request is refused: providers take less."""
_PIPELINED = 8
"""Requests that may come before their turn; more are left with the system."""

Handle = Callable[[Request, "ClientConnection"], Awaitable[Refusal | bool]]
"""Carries a request out: a refusal to be written, or whether the connection is kept."""


class ClientConnection(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, handle: Handle, connections: set[ClientConnection]) -> None:
        self._handle, self._connections = handle, connections
        self.transport: asyncio.Transport = None  # type: ignore[assignment]  # until connection_made
        self._parser = httptools.HttpRequestParser(self)
        self._target, self._headers, self._body = b"", list[tuple[bytes, bytes]](), bytearray()
        self._requests: deque[Request] = deque()
        self._task: asyncio.Task[None] | None = None
        self._source: UpstreamConnection | None = None
        self._stuffed = False
        self.is_presence = False
        """It is held open by a process that needs the gateway, and carries nothing."""

    # -- asyncio.Protocol ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._refuse(Refusal(400, "the gateway speaks HTTP/1.1, and this is not a request of it"))

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        self._connections.discard(self)
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        self._stuffed = True
        if self._source is not None:
            self._source.transport.pause_reading()

    def resume_writing(self) -> None:
        self._stuffed = False
        if self._source is not None:
            self._source.transport.resume_reading()

    # -- for a call ------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        self.transport.write(data)

    def follow(self, source: UpstreamConnection | None) -> None:
        if self._source is not None and self._stuffed and self._source.is_open:
            self._source.transport.resume_reading()
        self._source = source
        if source is not None and self._stuffed:
            source.transport.pause_reading()

    # -- the parser's ----------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._target, self._headers, self._body = b"", [], bytearray()

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        expects = any(name.lower() == b"expect" for name, _ in self._headers)
        if expects and self._task is None:
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._body += body
        if len(self._body) > BODY_BYTES:
            self._refuse(Refusal(413, f"a request is at most {BODY_BYTES // 2**20} MiB long"))

    def on_message_complete(self) -> None:
        request = Request(
            self._parser.get_method().decode("latin-1"),
            self._target.decode("latin-1"),
            self._headers,
            bytes(self._body),
            keep_alive=self._parser.should_keep_alive(),
        )
        self._body = bytearray()
        self._requests.append(request)
        if len(self._requests) >= _PIPELINED:
            self.transport.pause_reading()
        if self._task is None:
            self._task = asyncio.ensure_future(self._serve())

    async def _serve(self) -> None:
        try:
            while self._requests and not self.transport.is_closing():
                request = self._requests.popleft()
                done = await self._handle(request, self)
                if isinstance(done, Refusal):
                    self.write(dump_refusal(done))
                    done = True
                if not (done and request.keep_alive):
                    self.transport.close()
                    return
                self.transport.resume_reading()
        finally:
            self._task = None

    def _refuse(self, refusal: Refusal) -> None:
        if not self.transport.is_closing():
            self.write(dump_refusal(refusal))
            self.transport.close()
