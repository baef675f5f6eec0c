"""The server process: bind, serve, and end in order.

    SIGTERM, Ctrl-C   not ready any more (503), every event stream gets its last event and ends
    a moment later    the port closes; what was asked is still answered
    then              the watch stops, the store is let go, exit 0

A second signal does not wait. Nothing here holds state that a restart would lose, but the history.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import resource
import socket
import sys
from collections.abc import Callable
from types import FrameType

import uvicorn

from flyball.errors import UsageError
from flyball.service.access import Access
from flyball.service.app import build
from flyball.service.front import Tracing
from flyball.service.serving import Service
from flyball.service.tokens import Keyring
from flyball.service.wire import BoundedHttp

DRAIN_S = 1.0
"""How long the port stays open after the signal: so long those who look at /readyz have to notice."""
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


def access_for(place: socket.socket, keyring: Keyring, *, host: str, require_token: bool) -> Access:
    """Who may come in. A public place without a token is refused."""
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
    _allow_many_files()
    sys.setswitchinterval(SWITCH_S)
    place.listen(_BACKLOG)
    server.run(sockets=[place])


def _allow_many_files() -> None:
    """Every connection is one; what a process may open is often less than what it may ask for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * CONNECTIONS if hard == resource.RLIM_INFINITY else min(hard, 2 * CONNECTIONS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
