"""Connections to providers: one request out, one answer back, and the connection kept for the next.

The bytes of an answer are not changed: they reach the client as they came, framing and all. A parser reads
along to know the status, the headers and where the answer ends, and gives the body to a listener.

An answer's first part is held until the call has decided to hand it over (``relay_to``): a refused call may
be tried again, and then the client sees nothing of the refusal. Of an error a bounded part of the body is
read before that decision, of a good answer nothing.

    send -> head known (good), or the error's body is there -> relay_to(client) -> done
                                                            -> drop: not handed over
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from typing import Protocol

import httptools

from flyball.core.signals import Signal
from flyball.gateway.address import Upstream
from flyball.gateway.outbound_proxy import find_proxy, open_tunnel
from flyball.gateway.upload import Upload
from flyball.integrations.response_stream import DEAF, ResponseListener, listener_for

CONNECT_S = 10.0
ERROR_BODY_BYTES = 64 * 1024
"""How many bytes of an error are read to understand it."""
HEAD_BYTES = 256 * 1024
IDLE_S = 30.0
"""An unused connection is kept this long: less than providers keep theirs."""
_KEPT = 100
"""Unused connections to one server."""


class AnswerError(Exception):
    """No whole answer came. ``started``: the server had begun to answer, or may have begun to work."""

    def __init__(self, words: str, *, started: bool) -> None:
        super().__init__(words)
        self.started = started


class Sink(Protocol):
    """Where an answer goes."""

    def write(self, data: bytes) -> None: ...


class Answer:
    """One answer, as far as it has come."""

    __slots__ = (
        "_raw",
        "_said",
        "_sink",
        "_tell",
        "body",
        "done",
        "headers",
        "keeps_connection",
        "listener",
        "ready",
        "status",
        "to_end_of_connection",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = bytearray()
        """The beginning of an error's body: what is needed to understand it."""
        self.ready: asyncio.Future[None] = loop.create_future()
        """The head of a good answer is there, or enough of an error."""
        self.done: asyncio.Future[None] = loop.create_future()
        self.listener: ResponseListener = DEAF
        self.keeps_connection = True
        self.to_end_of_connection = False
        self._raw: list[bytes] = []
        self._said: list[Signal] = []
        self._tell: Callable[[Signal], None] | None = None
        self._sink: Sink | None = None

    def header_map(self) -> dict[str, str]:
        return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self.headers}

    def take_raw(self, data: bytes) -> None:
        if self._sink is not None:
            self._sink.write(data)
        else:
            self._raw.append(data)

    def relay_to(self, sink: Sink, tell: Callable[[Signal], None]) -> None:
        """Hand over what has come and tell what it said, and everything that follows as it comes."""
        held, self._raw, self._sink = self._raw, [], sink
        if held:
            sink.write(b"".join(held))
        self._tell = tell
        for said in self._said:
            tell(said)

    def note(self, said: Signal | None) -> None:
        """An error that the body tells of; it may have come together with the head."""
        if said is None:
            return
        if self._tell is not None:
            self._tell(said)
        else:
            self._said.append(said)

    def fail(self, error: AnswerError) -> None:
        for future in (self.ready, self.done):
            if not future.done():
                future.set_exception(error)
                future.exception()  # whether or not the call still wants to know


class UpstreamConnection(asyncio.Protocol):
    """A connection to one server, for one request at a time."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport = None  # type: ignore[assignment]  # until connection_made
        self.idle_since = 0.0
        self.used = False
        """It has brought an answer before: if it turns out to be closed, this request was not read."""
        self._answer: Answer | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._head = b""
        self._head_only = False
        self._complete = False
        self._has_more = False
        """A second answer begins where the first one ends; the next caller must not get it."""
        self._got_bytes = False
        self._writable: asyncio.Future[None] | None = None
        """Set while the server does not take what is sent."""

    @property
    def is_open(self) -> bool:
        return not self.transport.is_closing()

    def send(self, request: bytes, *, head_only: bool = False) -> Answer:
        self._answer = answer = Answer(asyncio.get_running_loop())
        self._parser = httptools.HttpResponseParser(self)
        self._head, self._head_only = b"", head_only
        self._complete = self._has_more = self._got_bytes = False
        self.transport.write(request)
        return answer

    async def send_body(self, upload: Upload, *, chunked: bool) -> None:
        """The rest of the request, no faster than the server takes it."""
        try:
            async for part in upload.parts():
                if not self.is_open:
                    return
                self.transport.write(b"%x\r\n%b\r\n" % (len(part), part) if chunked else part)
                if self._writable is not None:
                    await self._writable
            if chunked:
                self.transport.write(b"0\r\n\r\n")
        except ConnectionError:
            self.transport.abort()

    # -- asyncio.Protocol ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        if answer is None or self._is_complete():
            self.transport.close()  # nothing was asked for
            return
        self._got_bytes = True
        try:
            if answer.status == 0:
                rest = self._read_head(answer, data)
                if rest is None:
                    return
                data = rest
            if data and self._is_complete():
                answer.keeps_connection = False  # what comes behind the answer is dropped
            elif data:
                self._parser.feed_data(data)
                if self._has_more:
                    self._fail(answer, "it sent more than one answer")
                    return
                answer.take_raw(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(answer, f"its answer is not HTTP/1.1: {error}")
            return
        if self._is_complete():
            self._finish(answer)
        elif not answer.ready.done() and len(answer.body) >= ERROR_BODY_BYTES:
            answer.ready.set_result(None)

    def pause_writing(self) -> None:
        self._writable = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        if self._writable is not None:
            self._writable.set_result(None)
            self._writable = None

    def connection_lost(self, error: Exception | None) -> None:
        self.resume_writing()
        answer = self._answer
        if answer is None or answer.done.done():
            return
        if answer.to_end_of_connection and error is None:
            answer.keeps_connection = False
            self._finish(answer)
        else:
            why = "it closed the connection" if error is None else f"the connection broke: {error}"
            self._fail(answer, why)

    # -- reading ---------------------------------------------------------------------------------------

    def _read_head(self, answer: Answer, data: bytes) -> bytes | None:
        """The first bytes of the body once the head is there; interim answers (1xx) are passed over."""
        self._head += data
        while True:
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                if len(self._head) > HEAD_BYTES:
                    self._fail(answer, "its answer has no end of headers")
                return None
            head, rest = self._head[: end + 4], self._head[end + 4 :]
            self._parser.feed_data(head)
            status = self._parser.get_status_code()
            if status >= 200:
                break
            self._parser, self._head, answer.headers, self._complete = (
                httptools.HttpResponseParser(self),
                rest,
                [],
                False,
            )
        self._head = b""
        answer.status = status
        answer.keeps_connection = self._parser.should_keep_alive()
        answer.take_raw(head)
        headers = answer.header_map()
        if self._head_only or status in (204, 304):
            self._complete = True
        elif "content-length" not in headers and "transfer-encoding" not in headers:
            answer.to_end_of_connection, answer.keeps_connection = not self._complete, False
        if status < 400:
            answer.listener = listener_for(headers)
            answer.ready.set_result(None)
        return rest

    def on_message_begin(self) -> None:
        self._has_more = self._complete

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._answer is not None:
            self._answer.headers.append((name, value))

    def on_body(self, body: bytes) -> None:
        answer = self._answer
        if answer is None:
            return
        if answer.status >= 400:
            if not answer.ready.done():
                answer.body += body
        else:
            answer.note(answer.listener.hear(body))

    def on_message_complete(self) -> None:
        self._complete = True

    def _is_complete(self) -> bool:
        return self._complete

    def _finish(self, answer: Answer) -> None:
        self.used = True
        if answer.status < 400:
            answer.note(answer.listener.end())
        for future in (answer.ready, answer.done):
            if not future.done():
                future.set_result(None)

    def _fail(self, answer: Answer, words: str) -> None:
        started = self._got_bytes or not self.used
        self._complete = True
        self.transport.abort()
        answer.fail(AnswerError(words, started=started))


class UpstreamConnections:
    """Open connections by server; the one used last is used first."""

    def __init__(self) -> None:
        self._idle: dict[Upstream, list[UpstreamConnection]] = {}
        self._tls: ssl.SSLContext | None = None

    async def connection(self, upstream: Upstream, *, fresh: bool = False) -> UpstreamConnection:
        """Raises OSError or TimeoutError where the server cannot be reached."""
        idle = self._idle.get(upstream, [])
        while idle and not fresh:
            kept = idle.pop()
            if kept.is_open and time.monotonic() - kept.idle_since < IDLE_S:
                return kept
            kept.transport.close()
        if upstream.scheme == "https" and self._tls is None:
            self._tls = ssl.create_default_context()
        tls = self._tls if upstream.scheme == "https" else None
        connection, proxy = UpstreamConnection(), find_proxy(upstream)
        async with asyncio.timeout(CONNECT_S):
            if proxy is not None and tls is not None:
                await open_tunnel(proxy, upstream, connection, tls)
            else:
                await asyncio.get_running_loop().create_connection(
                    lambda: connection, upstream.host, upstream.port, ssl=tls
                )
        return connection

    def give_back(self, upstream: Upstream, connection: UpstreamConnection) -> None:
        idle = self._idle.setdefault(upstream, [])
        if len(idle) >= _KEPT or not connection.is_open:
            connection.transport.close()
            return
        connection.idle_since = time.monotonic()
        idle.append(connection)

    def close(self) -> None:
        for idle in self._idle.values():
            for connection in idle:
                connection.transport.close()
        self._idle.clear()
