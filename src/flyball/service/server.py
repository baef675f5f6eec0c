"""The server process: bind, serve, bound what one connection may cost, and end in order.

    SIGTERM, Ctrl-C   not ready any more (503), every event stream gets its last event and ends
    a moment later    the port closes; what was asked is still answered
    then              the monitor stops, the store is closed, exit 0

A second signal does not wait. A restart loses nothing but the history.

A connection is uvicorn's own protocol with limits that it does not have:

    the head      at most ``HEAD_BYTES`` of request line and headers: 431
    arriving      a request is whole ``ARRIVAL_S`` after its first byte, or after the connection was made: 408
    leaving       a client that reads nothing for ``READING_S`` while there is something to send is dropped

The body's size is the application's limit. Between two requests uvicorn's keep-alive timer runs.

The log goes to stderr, plain or as JSON. No token or header is in it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import socket
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from types import FrameType
from typing import Any

import msgspec
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from flyball.errors import UsageError
from flyball.host.open_files import allow_open_files
from flyball.service.app import build
from flyball.service.auth import Access
from flyball.service.middleware import Tracing
from flyball.service.problems import MEDIA_TYPE, ProblemError
from flyball.service.state import Service
from flyball.service.tokens import TokenStore

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
        self._arrival = _cancel(self._arrival)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 (uvicorn's words are for its own log)
        self._refuse(400, "malformed", "this is not an HTTP request")

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
        """Answer with an error and close; nothing that still comes is read."""
        self._refused = True
        self._arrival = _cancel(self._arrival)
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
        self._leaving = _cancel(self._leaving)

    def connection_lost(self, exc: Exception | None) -> None:
        self._arrival, self._leaving = _cancel(self._arrival), _cancel(self._leaving)
        super().connection_lost(exc)


def _cancel(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """End a timer, if there is one; what replaces it."""
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


DRAIN_S = 1.0
"""How long the port stays open after the signal, so that load balancers can notice /readyz."""
ANSWERING_S = 10
SWITCH_S = 0.0005
"""How long a thread that looks at the store may keep the loop from going on, instead of Python's 5 ms."""
CONNECTIONS = 12_000
_BACKLOG = 1024
_log = logging.getLogger("flyball.service")


def bind(host: str, port: int) -> socket.socket:
    """A listening place; errors name the way out."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise UsageError(
            f"cannot find the host {host!r} ({error.strerror}); --host 127.0.0.1 works"
        ) from error
    place = socket.socket(family, kind, protocol)
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        place.bind(address)
    except OSError as error:
        place.close()
        raise UsageError(
            f"cannot listen on {host} port {port} ({error.strerror}); --port names another"
        ) from error
    return place


def is_loopback(place: socket.socket) -> bool:
    """Can only this machine reach it?"""
    return ipaddress.ip_address(place.getsockname()[0].partition("%")[0]).is_loopback


def url_of(place: socket.socket) -> str:
    host, port = place.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def access_for(place: socket.socket, keyring: TokenStore, *, host: str, require_token: bool) -> Access:
    """Which requests are let in. Serving other machines without a token is refused."""
    needed = require_token or not is_loopback(place)
    if needed and not keyring.tokens():
        why = "with --require-token" if is_loopback(place) else f"on {host}, where others can reach it,"
        raise UsageError(
            f"cannot serve {why} without a token; make one first: flyball token add NAME --scope admin"
        )
    return Access(keyring, token_needed=needed, host=host)


class Server(uvicorn.Server):
    """uvicorn with our way to end."""

    def __init__(self, config: uvicorn.Config, service: Service, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._service, self._on_ready = service, on_ready
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 (uvicorn's signature)
        """Called between any two instructions: leave the work to the loop."""
        if self._loop is None:
            self.should_exit = True
        else:
            self._loop.call_soon_threadsafe(self.begin_to_end)

    def begin_to_end(self) -> None:
        if self._service.draining or self._loop is None:
            self.should_exit = self.force_exit = True
            return
        _log.info("ending: not ready any more")
        self._service.drain()
        self._loop.call_later(DRAIN_S, self._close_port)

    def _close_port(self) -> None:
        self.should_exit = True


def server_for(
    service: Service, *, tracing: Tracing | None = None, on_ready: Callable[[], None] = lambda: None
) -> Server:
    """A server, to be run with the places that ``bind`` made."""
    config = uvicorn.Config(
        build(service, tracing=tracing),
        http=BoundedHttp,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=ANSWERING_S,
    )
    return Server(config, service, on_ready)


def serve(place: socket.socket, server: Server) -> None:
    """Serve until told to end."""
    # Every connection is an open file; a process may often open fewer than it may ask for.
    allow_open_files(2 * CONNECTIONS)
    sys.setswitchinterval(SWITCH_S)
    place.listen(_BACKLOG)
    server.run(sockets=[place])


class JsonLines(logging.Formatter):
    """One object a line."""

    def format(self, record: logging.LogRecord) -> str:
        said = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            said["exception"] = self.formatException(record.exc_info)
        return json.dumps(said, ensure_ascii=False)


def set_up(*, as_json: bool, access_log: bool) -> None:
    """Logging of the whole process: all errors, what the service reports, and each request if asked for."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        JsonLines() if as_json else logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    )
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("flyball").setLevel(logging.INFO)
    logging.getLogger("flyball.access").setLevel(logging.INFO if access_log else logging.WARNING)
    # It warns of every request that is not HTTP: any client could fill a disk with that.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
