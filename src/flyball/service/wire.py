"""What one connection may cost: uvicorn's own protocol with limits that it does not have.

    the head      at most ``HEAD_BYTES`` of request line and headers: 431
    arriving      a request is whole ``ARRIVAL_S`` after its first byte, or after the connection was made: 408
    leaving       somebody who reads nothing for ``READING_S`` while we have something to say is dropped

The body's size is the application's limit. Between two requests uvicorn's keep-alive timer runs.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from flyball.service.problems import MEDIA_TYPE, ProblemError

HEAD_BYTES = 16 * 1024
ARRIVAL_S = 10.0
READING_S = 30.0


class BoundedHttp(HttpToolsProtocol):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._reading_head = True
        self._head_bytes = 0
        self._messages = 0
        self._refused = False
        self._arrival: asyncio.TimerHandle | None = None
        self._leaving: asyncio.TimerHandle | None = None

    # -- arriving -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        if self._reading_head and self._arrival is None:
            self._expect()
        before = self._messages
        super().data_received(data)
        still = self._reading_head and self._messages == before
        self._head_bytes = self._head_bytes + len(data) if still else 0
        if self._head_bytes > HEAD_BYTES:
            self._refuse(431, "too-large", f"the head of the request is larger than {HEAD_BYTES // 1024} KiB")

    def on_headers_complete(self) -> None:
        self._reading_head = False
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > HEAD_BYTES:
            self._refuse(431, "too-large", f"the head of the request is larger than {HEAD_BYTES // 1024} KiB")
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._refused:
            super().on_message_complete()
        self._reading_head = True
        self._messages += 1
        self._arrival = _ended(self._arrival)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 (uvicorn's words are for its own log)
        self._refuse(400, "malformed", "this is no HTTP request")

    def _expect(self) -> None:
        self._arrival = self.loop.call_later(ARRIVAL_S, self._too_slow)

    def _too_slow(self) -> None:
        self._arrival = None
        if self.flow.read_paused:
            # We do not read at the moment: it is not the client who is slow.
            self._expect()
        else:
            self._refuse(408, "too-slow", f"the request was not whole after {ARRIVAL_S:g} s")

    def _refuse(self, status: int, kind: str, detail: str) -> None:
        """Say no and hang up; nothing that still comes is read."""
        self._refused = True
        self._arrival = _ended(self._arrival)
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or not cycle.response_started or cycle.response_complete:
            self.transport.write(_answer(ProblemError(status, kind, detail)))
        self.transport.close()

    # -- leaving ------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._leaving is None:
            self._leaving = self.loop.call_later(READING_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._leaving = _ended(self._leaving)

    def connection_lost(self, exc: Exception | None) -> None:
        self._arrival, self._leaving = _ended(self._arrival), _ended(self._leaving)
        super().connection_lost(exc)


def _ended(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """No timer any more."""
    if timer is not None:
        timer.cancel()
    return None


def _answer(error: ProblemError) -> bytes:
    body = msgspec.json.encode(error.problem)
    head = (
        f"HTTP/1.1 {error.problem.status} {error.problem.title}\r\ncontent-type: {MEDIA_TYPE}\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body
