"""``aiohttp``: every request of a session takes a slot, before the session's own timeouts begin to run.

Its answers are fed by the event loop, whether they are read or not. So a slot ends when the last byte is
there, or when the connection is let go of: both are told by callbacks. What ends then is awaited by the
answer's own ``read`` and by the end of its ``async with`` block.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Generator
from typing import Any

import aiohttp
from aiohttp import ClientResponse, ClientSession
from aiohttp.streams import StreamReader

from flyball.core.signals import Signal
from flyball.errors import UsageError
from flyball.integrations.exchange import Call, Exchange, Rules, is_repeat
from flyball.integrations.held_slot import AsyncHold
from flyball.integrations.outcome import JudgedResponse, broken_signal, judge_http, no_answer_signal
from flyball.integrations.response_stream import ResponseListener, listener_for
from flyball.integrations.urllib3_body import plain_headers

_BROKEN = (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError, aiohttp.ClientPayloadError)
Request = tuple[str, Any, dict[str, Any]]
"""Method, address and options, as ``ClientSession._request`` takes them."""


class AiohttpWire:
    """Sends a call with aiohttp, and reads its answer."""

    is_async = True

    def __init__(self, session: ClientSession) -> None:
        self._session = session

    def call(self, request: Request) -> Call:
        method, given, options = request
        url = self._session._build_url(given)
        data, body = options.get("data"), options.get("json")
        headers = {
            str(name).lower(): str(value) for name, value in dict(options.get("headers") or {}).items()
        }
        return Call(
            method.upper(),
            url,
            url.host or "",
            url.path,
            repeats=is_repeat(headers),
            resendable=data is None or isinstance(data, bytes | str | dict),
            body=lambda: _bytes(data if body is None else json.dumps(body)),
        )

    def judge_error(self, error: Exception) -> JudgedResponse | None:
        if isinstance(error, aiohttp.ClientResponseError):  # raise_for_status
            return judge_http(error.status, list((error.headers or {}).items()))
        if isinstance(error, aiohttp.ClientSSLError):
            return None
        if isinstance(error, asyncio.TimeoutError | aiohttp.ClientConnectorError):
            return JudgedResponse(no_answer_signal(error))
        return JudgedResponse(broken_signal(error)) if isinstance(error, _BROKEN) else None

    def is_error(self, response: ClientResponse) -> bool:
        return response.status >= 400

    async def read_error(self, response: ClientResponse) -> bytes:
        return await response.read()

    def judge_answer(self, response: ClientResponse, body: bytes | None) -> JudgedResponse:
        return judge_http(response.status, list(response.headers.items()), body)

    async def close(self, response: ClientResponse) -> None:
        response.close()

    def hand_over(
        self,
        response: ClientResponse,
        body: bytes | None,
        hold: AsyncHold,
        rules: Rules,  # noqa: ARG002 - the port
    ) -> Generator[Any, Any, ClientResponse]:
        dropped = response.connection is None and not response.content.is_eof()
        if body is not None or dropped:
            yield hold.free()
            return response
        ending = _AnswerEnd(hold, listener_for(plain_headers(response.headers)), response.content)
        ending.hear(b"".join(response.content._buffer))
        if response.content.is_eof():
            ending.at_end()
            yield ending.wait()
            return response
        response.content.__class__ = type(
            "HeardReader", (_HeardReader,), {"__slots__": (), "feed_data": _feeder(ending)}
        )
        response.content.on_eof(ending.at_end)
        if response.connection is not None:
            response.connection.add_callback(ending.at_release)
        response.__class__ = type("HeldResponse", (_HeldResponse, type(response)), {"ending": ending})
        return response


class _AnswerEnd:
    """How one answer's slot ends: what was made out is told first, in order, then it is given back."""

    def __init__(self, hold: AsyncHold, listener: ResponseListener, content: StreamReader) -> None:
        self._hold, self._listener, self._content = hold, listener, content
        self._told: list[asyncio.Task[None]] = []
        self._over: asyncio.Future[None] | None = None

    def hear(self, part: bytes) -> None:
        self._tell(self._listener.hear(part) if part else None)

    def _tell(self, said: Signal | None) -> None:
        if said is not None and self._hold.held:
            self._told.append(asyncio.ensure_future(self._hold.tell(said, news=True)))

    def at_end(self) -> None:
        """The last byte is there."""
        if self._hold.held and self._over is None:
            self._tell(self._listener.end())
            self._hold.settle(self._listener.used)
            self._over = self._hold.free_soon(after=self._told)

    def at_release(self) -> None:
        """The connection is let go of: before the end, or at it, which is told later than this."""
        if self._content.is_eof():
            self.at_end()
        elif self._hold.held and self._over is None:
            self._over = self._hold.free_soon(after=self._told)

    async def late(self, error: Exception) -> None:
        if self._hold.held:
            await self._hold.tell(no_answer_signal(error), news=True)

    async def wait(self) -> None:
        if self._over is not None:
            await asyncio.shield(self._over)


class _HeardReader(StreamReader):
    __slots__ = ()


def _feeder(ending: _AnswerEnd) -> Any:
    def feed_data(self: StreamReader, data: bytes, *size: int) -> Any:
        ending.hear(data)
        return StreamReader.feed_data(self, data, *size)

    return feed_data


class _HeldResponse(ClientResponse):
    """An answer whose slot is free once it was read, or its block has ended."""

    ending: _AnswerEnd

    async def read(self) -> bytes:
        try:
            return await super().read()
        except TimeoutError as error:
            await self.ending.late(error)
            raise
        finally:
            await self.ending.wait()

    async def wait_for_close(self) -> None:
        await super().wait_for_close()
        await self.ending.wait()


def _bytes(data: object) -> bytes:
    return data.encode() if isinstance(data, str) else data if isinstance(data, bytes) else b""


def change(session: ClientSession, rules: Rules) -> None:
    """Govern a session."""
    if "_request" in vars(session):
        raise UsageError("this session is governed already; a call would take two slots")
    exchange, send = Exchange(AiohttpWire(session), rules), session._request

    async def governed_request(method: str, url: Any, **options: Any) -> ClientResponse:
        headers = {str(name).lower() for name in dict(options.get("headers") or {})}
        if "sec-websocket-key" in headers:
            return await send(method, url, **options)
        answer: ClientResponse = await exchange.send_async(
            (method, url, options), lambda request: send(request[0], request[1], **request[2])
        )
        return answer

    # ClientSession asks not to be written to; it is what ``session.get`` and the others call.
    object.__setattr__(session, "_request", governed_request)


def ensure(session: ClientSession, rules: Rules) -> None:
    """``change`` for one that may be governed already."""
    if "_request" not in vars(session):
        change(session, rules)
