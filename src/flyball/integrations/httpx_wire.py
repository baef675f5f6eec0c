"""The libraries of the httpx family on the wire.

``httpx2`` carries the official anthropic (1.0 on) and openai (3.0 on) packages, ``httpx`` the older ones and
many others. One text for both; ``httpx_transport.py`` and ``httpx2_transport.py`` bind it to their library's
classes.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from flyball.integrations.exchange import Call, Rules, is_repeat
from flyball.integrations.outcome import JudgedResponse, broken_signal, judge_http, no_answer_signal
from flyball.integrations.response_stream import (
    DEAF,
    AsyncRelay,
    Relay,
    StreamHead,
    listener_for,
    read_opening,
    read_opening_async,
)

ERROR_BODY_BYTES = 64 * 1024
"""How many bytes of an error are read to understand it. The rest stays for the caller."""
_UNREAD: StreamHead[Any] = StreamHead((), None)


class HttpxWire:
    """``library`` is httpx or httpx2."""

    def __init__(self, library: Any, *, is_async: bool) -> None:
        self.is_async = is_async
        self._late: type[Exception] = library.TimeoutException
        self._our_own: type[Exception] = library.PoolTimeout
        self._refused: type[Exception] = library.ConnectError
        self._broken = (library.ReadError, library.WriteError, library.RemoteProtocolError)
        self._resendable: type = library.ByteStream
        self._response = library.Response
        kinds = (AsyncRelay, library.AsyncByteStream) if is_async else (Relay, library.SyncByteStream)
        self._relay: Any = type(kinds[0].__name__, kinds, {})

    def call(self, request: Any) -> Call:
        url = request.url
        return Call(
            request.method,
            url,
            url.host,
            url.path,
            repeats=is_repeat(request.headers),
            resendable=isinstance(request.stream, self._resendable),
            body=lambda: request.content if isinstance(request.stream, self._resendable) else b"",
        )

    def judge_error(self, error: Exception) -> JudgedResponse | None:
        if isinstance(error, self._our_own):
            return None
        if isinstance(error, (self._late, self._refused)):
            return JudgedResponse(no_answer_signal(error))
        return JudgedResponse(broken_signal(error)) if isinstance(error, self._broken) else None

    def is_error(self, response: Any) -> bool:
        return bool(response.status_code >= 400)

    def read_error(self, response: Any) -> Any:
        if response.is_closed:
            return _nothing_async() if self.is_async else _UNREAD
        return (read_opening_async if self.is_async else read_opening)(response.stream, ERROR_BODY_BYTES)

    def judge_answer(self, response: Any, body: StreamHead[Any] | None) -> JudgedResponse:
        status, headers = response.status_code, response.headers
        plain = None
        if status >= 400:
            raw = b"".join(body.head) if body is not None else b""
            try:
                plain = response.content if response.is_closed else self._decode(status, headers, raw)
            except Exception:  # an encoding that the library cannot read, or one cut short
                plain = raw
        return judge_http(status, headers.multi_items(), plain)

    def _decode(self, status: int, headers: Any, raw: bytes) -> bytes:
        content: bytes = self._response(status, headers=headers, content=raw).content
        return content

    def close(self, response: Any) -> Any:
        return response.stream.aclose() if self.is_async else response.stream.close()

    def hand_over(
        self, response: Any, body: StreamHead[Any] | None, hold: Any, rules: Rules
    ) -> Generator[Any, Any, Any]:
        good = response.status_code < 400
        listener = listener_for(response.headers) if good else DEAF
        if response.is_closed and good:
            listener.hear(response.content)
            listener.end()
            hold.settle(listener.used)
        opening = StreamHead((), response.stream) if body is None else body
        if response.is_closed or opening.rest is None:
            yield hold.free()
        if not response.is_closed:
            response.stream = self._relay(
                opening,
                response.stream,
                hold,
                self._late,
                listener,
                stops_at_last_event=rules.stops_at_last_event,
            )
        return response


async def _nothing_async() -> StreamHead[Any]:
    return _UNREAD
