"""ASGI middleware: serve what the limiter lets in, answer the rest at once with 503 and Retry-After.

    app = Shed(app, limiter)
    app = Shed(app, "web", wait_s=0.2)      # a pool of the machine: all workers together

The slot is held until the application returns, which is after its last byte and its background work.
Lifespan and websockets pass through.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from flyball.errors import RefusedError
from flyball.integrations.gate import Gate, SlotOptions, gate_for
from flyball.integrations.held_slot import AsyncHold
from flyball.integrations.shedding import refusal, status_signal

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Shed:
    """An application behind a gate. ``wait_s`` is how long a request may wait before it is refused."""

    def __init__(self, app: App, gate: Gate | str, *, wait_s: float = 0.0) -> None:
        self.app, self._gate = app, gate_for(gate)
        self._ask: SlotOptions = {"timeout": wait_s}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            hold = await AsyncHold.of(self._gate, self._ask)
        except RefusedError as error:
            await _refuse(send, error)
            return
        status: int | None = None

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, send_and_note)
        except BaseException as error:
            try:
                if isinstance(error, Exception):  # being cancelled says nothing about the application
                    await hold.tell(status_signal(None), news=True)
            finally:
                await hold.free(error)
            raise
        try:
            await hold.tell(status_signal(status), news=True)
        finally:
            await hold.free()


async def _refuse(send: Send, error: RefusedError) -> None:
    headers, body = refusal(error)
    raw = [(name.encode(), value.encode()) for name, value in headers]
    await send({"type": "http.response.start", "status": 503, "headers": raw})
    await send({"type": "http.response.body", "body": body})
