"""WSGI middleware: serve what the limiter lets in, answer the rest at once with 503 and Retry-After.

    app = Shed(app, limiter)
    app = Shed(app, "web", wait_s=0.2)      # a pool of the machine: all workers together

The slot is held until the server closes the answer, after the last byte or when the client has left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from flyball.errors import RefusedError
from flyball.integrations.gate import Gate, SlotOptions, gate_for
from flyball.integrations.held_slot import Hold
from flyball.integrations.shedding import refusal, status_signal

Environ = dict[str, Any]
StartResponse = Callable[..., Callable[[bytes], object]]
App = Callable[[Environ, StartResponse], Iterable[bytes]]


class Shed:
    """An application behind a gate. ``wait_s`` is how long a request may wait before it is refused."""

    def __init__(self, app: App, gate: Gate | str, *, wait_s: float = 0.0) -> None:
        self.app, self._gate = app, gate_for(gate)
        self._ask: SlotOptions = {"timeout": wait_s}

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        try:
            hold = Hold.of(self._gate, self._ask)
        except RefusedError as error:
            headers, body = refusal(error)
            start_response("503 Service Unavailable", headers)
            return [body]
        answer = _HeldAnswer(hold)
        answer.run(self.app, environ, start_response)
        return answer


class _HeldAnswer:
    """The application's answer, and the slot that is free when it is closed."""

    def __init__(self, hold: Hold) -> None:
        self._hold = hold
        self._status: int | None = None
        self._parts: Iterable[bytes] = ()

    def run(self, app: App, environ: Environ, start_response: StartResponse) -> None:
        def start_and_note(status: str, headers: Any, *exc_info: Any) -> Callable[[bytes], object]:
            self._status = int(status[:3]) if status[:3].isdecimal() else None
            return start_response(status, headers, *exc_info)

        try:
            self._parts = app(environ, start_and_note)
        except BaseException as error:
            self._fail(error)
            raise

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._parts
        except Exception as error:
            self._fail(error)
            raise

    def close(self) -> None:
        try:
            close = getattr(self._parts, "close", None)
            if close is not None:
                close()
        except BaseException as error:
            self._fail(error)
            raise
        if self._hold.held:
            self._hold.tell(status_signal(self._status), news=True)
            self._hold.free()

    def _fail(self, error: BaseException) -> None:
        if isinstance(error, Exception) and self._hold.held:
            self._hold.tell(status_signal(None), news=True)
        self._hold.free(error)

    def __del__(self) -> None:
        self._hold.lose()
