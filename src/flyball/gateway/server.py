"""The gateway's process: one for a user and a state, started when it is first needed (``lifetime.py``).

    FLYBALL_HOME/gateway.lock    held by the one that runs

Nothing of a call is stored or logged: no key, no header, no body.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import socket
import sys
import time
from dataclasses import asdict, replace
from hmac import compare_digest
from pathlib import Path
from typing import Any

from flyball.errors import StoreError, UsageError
from flyball.gateway.address import ControlRequest, parse_target
from flyball.gateway.agents_pool import agents_pool
from flyball.gateway.call import Calls, GatewayRefusal, Request
from flyball.gateway.client_connection import ClientConnection, Destination, RequestHandlers
from flyball.gateway.lifetime import GATEWAY_FILE, Gateway, find_gateway, gateway_folder
from flyball.governor.family_pools import REFRESH_S, FamilyPools
from flyball.governor.governor import Governor
from flyball.governor.internals import internals
from flyball.host.atomic_file import replace_file
from flyball.host.lock_file import LongLock
from flyball.host.loopback_port import bind_port
from flyball.host.open_files import allow_open_files
from flyball.host.process import alive, here
from flyball.host.socket_peer import find_peer

LINGER_S = 60.0
"""How long an unused gateway stays."""
OPEN_FILES = 24_000
"""Two for a call, more calls than wait in line, and some to spare."""
_LOCK = "gateway.lock"
_BACKLOG = 4096


class GatewayServer:
    """Answers on one port, until it is not needed any more or is told to stop."""

    def __init__(self, governor: Governor, gateway: Gateway, *, linger_s: float | None = LINGER_S) -> None:
        self._gateway, self._linger_s = gateway, linger_s
        self._governor, self._families = governor, FamilyPools(governor)
        self.calls = Calls(governor, self._families)
        self._agents_live = False
        self._connections: set[ClientConnection] = set()
        self._needed_at = time.monotonic()
        self.stopped = asyncio.Event()

    async def serve(self, place: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        service = RequestHandlers(self._is_foreign, self._find, self._handle)
        server = await loop.create_server(
            lambda: ClientConnection(service, self._connections), sock=place, backlog=_BACKLOG
        )
        with contextlib.suppress(StoreError):
            await asyncio.to_thread(self._governor.reap)  # the calls of one that was killed
        with contextlib.suppress(asyncio.CancelledError):
            while not self.stopped.is_set() and not self._is_idle():
                with contextlib.suppress(StoreError):
                    await asyncio.to_thread(self._read_state)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.stopped.wait(), REFRESH_S)
        server.close()
        for connection in tuple(self._connections):
            connection.transport.abort()
        self.calls.close()

    def _read_state(self) -> None:
        """What calls need to know of the pools, and whether agents live whose calls come here: one that works
        for long without a call has no connection to us, and what started it may be gone."""
        self._families.refresh()
        state = internals(self._governor)
        holders = state.store.holders(agents_pool(state.address))
        self._agents_live = any(here(holder) and alive(holder) for holder in holders)

    def _is_idle(self) -> bool:
        now = time.monotonic()
        if self._connections or self._agents_live or self._linger_s is None:
            self._needed_at = now
            return False
        return now - self._needed_at > self._linger_s

    def _is_foreign(self, ours: tuple[str, int] | None, theirs: tuple[str, int] | None) -> bool:
        """Another user's process, which may have seen the token in a list of processes."""
        if os.getuid() == 0 or ours is None or theirs is None:
            return False
        peer = find_peer(ours, theirs)
        return peer is not None and peer.uid not in (0, os.getuid())

    def _find(self, target: str) -> Destination | GatewayRefusal:
        try:
            found = parse_target(target, self._gateway.token)
        except PermissionError as error:
            return GatewayRefusal(403, f"{error}; `flyball env` prints the right one")
        except UsageError as error:
            return GatewayRefusal(404, str(error))
        if isinstance(found, ControlRequest):
            proof = self._gateway.proof("ask", found.what, found.nonce)
            if not compare_digest(proof.encode(), found.proof.encode()):
                return GatewayRefusal(403, "only flyball itself asks this of the gateway")
        return found

    async def _handle(
        self, request: Request, destination: Destination, client: ClientConnection
    ) -> GatewayRefusal | bool:
        if isinstance(destination, ControlRequest):
            return self._control(destination, client)
        return await self.calls.pass_on(request, destination, client)

    def _control(self, asked: ControlRequest, client: ClientConnection) -> GatewayRefusal | bool:
        match asked.what:
            case "presence":
                client.is_presence = True
            case "stay":
                self._linger_s = None
            case "stop":
                self.stopped.set()
            case "status":
                pass
            case _:
                return GatewayRefusal(404, f"the gateway does not know {asked.what!r}")
        said = {**self._status(client), "proof": self._gateway.proof("answer", asked.nonce)}
        body = json.dumps(said).encode()
        client.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
        client.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        return True

    def _status(self, asker: ClientConnection) -> dict[str, Any]:
        others = self._connections - {asker}
        users = sum(connection.is_presence for connection in others)
        return {
            "pid": os.getpid(),
            "connections": len(others) - users,
            "users": users,
            "calls": self.calls.under_way,
            "waiting": self.calls.slots.waiting,
            "refused": self.calls.refused,
            "away": str(self.calls.slots.health.error or "") or None,
        }


def open_place(folder: Path, port: int | None = None) -> tuple[socket.socket, Gateway]:
    """A listening socket, on the port of the last time where that is free, and what is known of it."""
    before = find_gateway(folder)
    wanted = port if port is not None else before.port if before is not None else 0
    try:
        place = bind_port(wanted)
    except OSError:
        if port is not None:
            raise
        place = bind_port(0)
    gateway = before or Gateway(0, secrets.token_urlsafe(24), secrets.token_urlsafe(24))
    gateway = replace(gateway, port=place.getsockname()[1])
    place.listen(_BACKLOG)
    replace_file(folder / GATEWAY_FILE, json.dumps(asdict(gateway)).encode())
    return place, gateway


def run_gateway(*, port: int | None = None, linger_s: float | None = LINGER_S, on_ready: Any = None) -> bool:
    """Serve until it is not needed any more. False: another gateway runs already."""
    folder = gateway_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = LongLock(folder / _LOCK)
    if not lock.take():
        return False
    allow_open_files(OPEN_FILES)
    governor = Governor()
    place, gateway = open_place(folder, port)

    async def serve() -> None:
        server = GatewayServer(governor, gateway, linger_s=linger_s)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, server.stopped.set)
        if on_ready is not None:
            on_ready(gateway)
        await server.serve(place)

    try:
        _run(serve())
    finally:
        governor.close()
        lock.release()
    return True


def _run(main: Any) -> None:
    try:
        import uvloop
    except ImportError:
        asyncio.run(main)
    else:
        uvloop.run(main)


def main() -> int:
    # The thread that started this process may block signals, and this process inherited that.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    if os.fork():
        os._exit(0)
    os.setsid()
    run_gateway()
    return 0


if __name__ == "__main__":
    sys.exit(main())
