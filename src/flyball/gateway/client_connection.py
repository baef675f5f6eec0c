"""A client's connection: requests in, one after the other, and their answers back.

Where a request leads is known from its first line, so what leads nowhere is refused before its body is read.
A call of a model is read whole before it is passed on, so that it can be sent again if it is refused; other
long requests, such as files, are passed on as they come (``upload.py``). While a call
waits or runs the connection is still read: a client that hangs up gives its place or slot back at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httptools

from flyball.errors import FlyballError
from flyball.gateway.address import ControlRequest, Route
from flyball.gateway.call import GatewayRefusal, Request, dump_refusal
from flyball.gateway.upload import Upload
from flyball.gateway.upstream import UpstreamConnection
from flyball.integrations.model_call import is_model_call

BODY_BYTES = 64 * 1024 * 1024
"""A longer call of a model is refused: providers take less."""
UPLOAD_FROM_BYTES = 1024 * 1024
"""A longer request that no model answers is passed on as it comes."""
HEAD_BYTES = 256 * 1024
STALLED_S = 600.0
"""A client that takes nothing of its answer for so long has hung up for all that can be seen."""
LINGER_S = 5.0
"""So long what a refused client still sends is read and dropped: a closed connection would take its answer
from it."""
_PIPELINED = 8
"""Requests that may come before their turn; more are left with the system."""

Destination = Route | ControlRequest


@dataclass(frozen=True, slots=True)
class RequestHandlers:
    """What answers the requests of all connections."""

    is_foreign: Callable[[Any, Any], bool]
    """Whether a connection between these two addresses is another user's."""
    find: Callable[[str], Destination | GatewayRefusal]
    """Where a request for this path goes."""
    handle: Callable[[Request, Destination, ClientConnection], Awaitable[GatewayRefusal | bool]]
    """Carries a request out: a refusal to be written, or whether the connection is kept."""


class ClientConnection(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, service: RequestHandlers, connections: set[ClientConnection]) -> None:
        self._service, self._connections = service, connections
        self.transport: asyncio.Transport = None  # type: ignore[assignment]  # until connection_made
        self._parser = httptools.HttpRequestParser(self)
        self._target, self._headers, self._body = b"", list[tuple[bytes, bytes]](), bytearray()
        self._request: Request | None = None
        """The one that is read now, once its head is there; its body comes last."""
        self._destination: Destination | None = None
        self._upload: Upload | None = None
        self._head_bytes, self._head_is_over = 0, False
        self._requests: deque[tuple[Request, Destination] | GatewayRefusal] = deque()
        self._task: asyncio.Task[None] | None = None
        self._source: UpstreamConnection | None = None
        self._stalled: asyncio.TimerHandle | None = None
        """Set while the client does not take what is written."""
        self._is_refused = self._has_answered = False
        self.is_presence = False
        """It is held open by a process that needs the gateway, and carries nothing."""

    # -- asyncio.Protocol ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self._connections.add(self)
        if self._service.is_foreign(
            transport.get_extra_info("sockname"), transport.get_extra_info("peername")
        ):
            self._refuse(GatewayRefusal(403, "this gateway is another user's"))

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        if not self._head_is_over:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._decline_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self._refuse(GatewayRefusal(400, "the gateway speaks HTTP/1.1, and this is not a request of it"))
        if not self._head_is_over and self._head_bytes > HEAD_BYTES:
            self._refuse(
                GatewayRefusal(431, f"the head of a request is at most {HEAD_BYTES // 1024} KiB long")
            )

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        self._connections.discard(self)
        if self._stalled is not None:
            self._stalled.cancel()
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        self._stalled = asyncio.get_running_loop().call_later(STALLED_S, self.transport.abort)
        if self._source is not None:
            self._source.transport.pause_reading()

    def resume_writing(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
        if self._source is not None:
            self._source.transport.resume_reading()

    # -- for a call ------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        self._has_answered = True
        self.transport.write(data)

    def follow(self, source: UpstreamConnection | None) -> None:
        if self._source is not None and self._stalled is not None and self._source.is_open:
            self._source.transport.resume_reading()
        self._source = source
        if source is not None and self._stalled is not None:
            source.transport.pause_reading()

    # -- the parser's ----------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._target, self._headers, self._body = b"", [], bytearray()
        self._request = self._destination = None
        self._head_is_over = False

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._head_is_over:  # a trailer is not a header
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._head_bytes, self._head_is_over = 0, True
        self._request = request = Request(
            self._parser.get_method().decode("latin-1"),
            self._headers,
            version=self._parser.get_http_version(),
            keep_alive=self._parser.should_keep_alive(),
        )
        if self._is_refused or self._parser.should_upgrade():
            return
        found = self._service.find(self._target.decode("latin-1"))
        if isinstance(found, GatewayRefusal):
            self._refuse(found)
            return
        self._destination = found
        length = int(request.header(b"content-length") or 0)
        is_long = length > UPLOAD_FROM_BYTES or request.is_chunked
        is_upload = is_long and isinstance(found, Route) and not is_model_call(request.method, found.path)
        if length > BODY_BYTES and not is_upload:
            self._refuse_body()
            return
        if request.header(b"expect") and self._task is None:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if is_upload:
            self._upload = request.upload = Upload(self.transport)
            self._put((request, found))

    def on_body(self, body: bytes) -> None:
        if self._is_refused:
            return
        if self._upload is not None:
            self._upload.feed(body)
        else:
            self._body += body
            if len(self._body) > BODY_BYTES:
                self._refuse_body()

    def on_message_complete(self) -> None:
        if self._is_refused or self._request is None or self._destination is None:
            return
        if self._upload is not None:
            self._upload.end()
            self._upload = None
            return
        self._request.body, self._body = bytes(self._body), bytearray()
        self._put((self._request, self._destination))

    def _decline_upgrade(self, rest: bytes) -> None:
        """What the client would rather speak. A server may ignore that, and then the request is read like any
        other; to a websocket there is nothing to be said in HTTP/1.1."""
        method = self._parser.get_method()
        wished = "" if self._request is None else self._request.header(b"upgrade")
        if method == b"CONNECT":
            self._refuse(GatewayRefusal(400, "the gateway is a base address, and not a proxy"))
        elif wished.strip().lower() == "websocket":
            self._refuse(GatewayRefusal(426, "the gateway has no websockets; call over HTTP"))
        else:
            kept = [pair for pair in self._headers if pair[0].lower() not in (b"upgrade", b"connection")]
            version = self._parser.get_http_version().encode()
            first = b"%b %b HTTP/%b" % (method, self._target, version)
            lines = [first, *(b"%b: %b" % pair for pair in kept)]
            self._parser = httptools.HttpRequestParser(self)
            self.data_received(b"\r\n".join((*lines, b"", rest)))

    # -- requests in their order -----------------------------------------------------------------------

    def _put(self, item: tuple[Request, Destination] | GatewayRefusal) -> None:
        self._requests.append(item)
        if len(self._requests) >= _PIPELINED:
            self.transport.pause_reading()
        if self._task is None:
            self._task = asyncio.ensure_future(self._serve())

    async def _serve(self) -> None:
        try:
            while self._requests and not self.transport.is_closing():
                item = self._requests.popleft()
                if isinstance(item, GatewayRefusal):
                    self._write_last(item)
                    return
                request, destination = item
                is_kept = await self._carry_out(request, destination) and request.keep_alive
                if request.upload is not None and not request.upload.is_whole:
                    self._end()
                    return
                if not is_kept:
                    self.transport.close()
                    return
                self.transport.resume_reading()
        finally:
            self._task = None

    async def _carry_out(self, request: Request, destination: Destination) -> bool:
        """Whether the connection is kept. Whatever fails, the client is not left without an end."""
        self._has_answered = False
        try:
            done = await self._service.handle(request, destination, self)
        except FlyballError as error:
            done = GatewayRefusal(400, str(error))
        except Exception:
            logging.getLogger("flyball").exception("a request could not be carried out")
            done = GatewayRefusal(500, "the gateway failed; gateway.log in its folder says how")
        if not isinstance(done, GatewayRefusal):
            return done
        if self._has_answered:
            return False
        self.write(dump_refusal(done))
        return True

    def _refuse(self, refusal: GatewayRefusal) -> None:
        """When its turn has come. Nothing that the client sends is looked at any more."""
        if not self._is_refused:
            self._is_refused, self._body = True, bytearray()
            self._put(refusal)
            if self._upload is not None:
                self._upload.break_off()

    def _refuse_body(self) -> None:
        self._refuse(GatewayRefusal(413, f"a request is at most {BODY_BYTES // 2**20} MiB long"))

    def _write_last(self, refusal: GatewayRefusal) -> None:
        self.write(dump_refusal(refusal))
        self._end()

    def _end(self) -> None:
        """The answer is written; what still comes is dropped."""
        self._is_refused = True
        if self.transport.is_closing():
            return
        self.transport.write_eof()
        self.transport.resume_reading()
        asyncio.get_running_loop().call_later(LINGER_S, self.transport.abort)
