"""The gateway's process: one for a user and a state, started when it is first needed.

    FLYBALL_HOME/gateway.lock    held by the one that runs
    FLYBALL_HOME/gateway.json    its port and token, kept for the next: addresses given out stay right

A process that needs the gateway holds a connection to it (``Presence``), which its children inherit. While
one is open the gateway stays; after the last it ends by itself. Where the gateway is killed the connection
breaks, and the process that held it starts the next one, on the same port with the same token, so that an
agent's next try succeeds.

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
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flyball.errors import StoreError, UsageError
from flyball.gateway.address import parse_target
from flyball.governor.state_url import home, resolve
from flyball.host.atomic_file import replace_file
from flyball.host.background_thread import start_thread
from flyball.host.install_hints import extra_command
from flyball.host.lock_file import LongLock

if TYPE_CHECKING:
    from flyball.gateway.call import Refusal, Request
    from flyball.gateway.client_connection import ClientConnection
    from flyball.governor.governor import Governor

HOST = "127.0.0.1"
LINGER_S = 60.0
"""How long an unused gateway stays."""
START_S = 15.0
_LOOK_S = 1.0
_FILE, _LOCK = "gateway.json", "gateway.lock"
_BACKLOG = 4096


@dataclass(frozen=True, slots=True)
class Gateway:
    """Where a gateway is."""

    port: int
    token: str

    @property
    def address(self) -> str:
        """With its token: the start of every base address that leads through it."""
        return f"http://{HOST}:{self.port}/{self.token}"


def find_gateway(folder: Path | None = None) -> Gateway | None:
    """The gateway that runs, or ran last; None: there was none yet."""
    try:
        said = json.loads(((folder or home()) / _FILE).read_bytes())
        return Gateway(int(said["port"]), str(said["token"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def ensure_gateway() -> Gateway:
    """The gateway of this user, started if there is none. Raises UsageError where it cannot run."""
    check_installed()
    gateway = find_gateway()
    if gateway is not None and ask_gateway(gateway, "status") is not None:
        return gateway
    import subprocess

    env = {key: value for key, value in os.environ.items() if not key.startswith("FLYBALL_LEASE")}
    folder = home()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(os.open(folder / "gateway.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as log:
        # It forks and lets go of us at once.
        subprocess.run(
            [sys.executable, "-m", "flyball.gateway.server"],
            env={**env, "FLYBALL_URL": resolve(), "FLYBALL_HOME": str(folder)},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            check=False,
        )
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        gateway = find_gateway()
        if gateway is not None and ask_gateway(gateway, "status") is not None:
            return gateway
        time.sleep(0.02)
    raise StoreError(f"the gateway did not start; {folder / 'gateway.log'} says why")


def check_installed() -> None:
    from importlib.util import find_spec

    if find_spec("httptools") is None:
        raise UsageError(f"the gateway needs httptools; install with: {extra_command('serve')}")


def ask_gateway(gateway: Gateway, what: str) -> dict[str, Any] | None:
    """What the gateway says to ``status``, ``stay`` or ``stop``; None: it does not answer."""
    try:
        with _connection(gateway, what) as place, place.makefile("rb") as answer:
            if not answer.readline().startswith(b"HTTP/1.1 200"):
                return None
            length = 0
            while line := answer.readline().strip():
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            said: dict[str, Any] = json.loads(answer.read(length))
            return said
    except (OSError, ValueError):
        return None


def _connection(gateway: Gateway, what: str) -> socket.socket:
    place = socket.create_connection((HOST, gateway.port), timeout=5.0)
    try:
        place.sendall(f"GET /{gateway.token}/-/{what} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
    except OSError:
        place.close()
        raise
    return place


class Presence:
    """Says that this process needs the gateway, and starts the next one when it is gone.

    The connection is inherited by children: a gateway stays as long as an agent that uses it, also where what
    started the agent was killed.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._place = self._hold(gateway)
        self._closed = threading.Event()
        start_thread(self._watch, name="flyball-gateway")

    @staticmethod
    def _hold(gateway: Gateway) -> socket.socket:
        place = _connection(gateway, "presence")
        place.settimeout(None)
        place.set_inheritable(True)
        return place

    def _watch(self) -> None:
        while not self._closed.is_set():
            with contextlib.suppress(OSError):
                while self._place.recv(4096):
                    pass
            if self._closed.is_set():
                return
            try:
                self._place = self._hold(ensure_gateway())
            except (OSError, StoreError, UsageError):
                self._closed.wait(_LOOK_S)

    def close(self) -> None:
        self._closed.set()
        with contextlib.suppress(OSError):
            self._place.shutdown(socket.SHUT_RDWR)


class GatewayServer:
    """Answers on one port, until it is not needed any more or is told to stop."""

    def __init__(self, governor: Governor, gateway: Gateway, *, linger_s: float | None = LINGER_S) -> None:
        from flyball.gateway.call import Calls

        self._token, self._linger_s = gateway.token, linger_s
        self.calls = Calls(governor)
        self._connections: set[ClientConnection] = set()
        self._needed_at = time.monotonic()
        self.stopped = asyncio.Event()

    async def serve(self, place: socket.socket) -> None:
        from flyball.gateway.client_connection import ClientConnection

        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: ClientConnection(self._handle, self._connections), sock=place, backlog=_BACKLOG
        )
        with contextlib.suppress(asyncio.CancelledError):
            while not self.stopped.is_set() and not self._is_idle():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.stopped.wait(), _LOOK_S)
        server.close()
        for connection in tuple(self._connections):
            connection.transport.abort()
        self.calls.connections.close()

    def _is_idle(self) -> bool:
        now = time.monotonic()
        if self._connections or self._linger_s is None:
            self._needed_at = now
            return False
        return now - self._needed_at > self._linger_s

    async def _handle(self, request: Request, client: ClientConnection) -> Refusal | bool:
        from flyball.gateway.call import Refusal

        try:
            route = parse_target(request.target, self._token)
        except PermissionError as error:
            return Refusal(403, f"{error}; `flyball env` prints the right one")
        except UsageError as error:
            return Refusal(404, str(error))
        if isinstance(route, str):
            return self._control(route, client)
        return await self.calls.pass_on(request, route, client)

    def _control(self, what: str, client: ClientConnection) -> Refusal | bool:
        from flyball.gateway.call import Refusal

        match what:
            case "presence":
                client.is_presence = True
            case "stay":
                self._linger_s = None
            case "stop":
                self.stopped.set()
            case "status":
                pass
            case _:
                return Refusal(404, f"the gateway does not know {what!r}")
        body = json.dumps(self._status(client)).encode()
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
            "waiting": self.calls.waiting,
        }


def open_place(folder: Path, port: int | None = None) -> tuple[socket.socket, Gateway]:
    """A listening socket, on the port of the last time where that is free, and what is known of it."""
    before = find_gateway(folder)
    token = before.token if before is not None else secrets.token_urlsafe(24)
    wanted = port if port is not None else before.port if before is not None else 0
    place = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        place.bind((HOST, wanted))
    except OSError:
        if port is not None:
            place.close()
            raise
        place.bind((HOST, 0))
    gateway = Gateway(place.getsockname()[1], token)
    place.listen(_BACKLOG)
    replace_file(folder / _FILE, json.dumps({"port": gateway.port, "token": token}).encode())
    return place, gateway


def run_gateway(*, port: int | None = None, linger_s: float | None = LINGER_S, on_ready: Any = None) -> bool:
    """Serve until it is not needed any more. False: another gateway runs already."""
    from flyball.governor.governor import Governor

    folder = home()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = LongLock(folder / _LOCK)
    if not lock.take():
        return False
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
