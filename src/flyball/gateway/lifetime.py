"""Where this user's gateway is, starting it, and keeping it there as long as it is needed.

    FLYBALL_HOME/gateway.json    its port, token and secret, kept for the next: addresses given out stay right
                 gateway.log     why the last one could not start

For a state on a server these are in a folder of their own, ``gateway-HASH``.

A process that needs the gateway holds a connection to it (``GatewayConnection``), which its children
inherit. While one is open the gateway stays; after the last it ends by itself. Where the gateway is killed
the connection breaks, and the process that held it starts the next one, on the same port with the same token,
so that an agent's next try succeeds. Until then the port stays taken (``host/loopback_port.py``): agents go
on calling it with their keys, and another user of the machine must not be the one who answers.

Light to import: every ``flyball exec`` of an agent with a key does.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flyball.errors import StoreError
from flyball.gateway.environment import VENDORS
from flyball.governor.state_url import home, mail_home, on_server, resolve
from flyball.host.background_thread import start_thread
from flyball.host.loopback_port import HOST, reserve_port

START_S = 15.0
_ANSWER_S, _ANSWER_BYTES = 5.0, 64 * 1024
GATEWAY_FILE = "gateway.json"
_LOOK_S = 1.0
_STARTS = 5


@dataclass(frozen=True, slots=True)
class Gateway:
    """Where a gateway is."""

    port: int
    token: str
    secret: str
    """What both sides prove to know; it is in no address."""

    def proof(self, *words: str) -> str:
        import hmac

        said = " ".join((str(self.port), *words))
        return hmac.new(self.secret.encode(), said.encode(), "sha256").hexdigest()

    @property
    def address(self) -> str:
        """What every base address that leads through it begins with, its token included."""
        return f"http://{HOST}:{self.port}/{self.token}"


def gateway_folder() -> Path:
    """Where the gateway of the state that ``FLYBALL_URL`` names is noted: each state has one of its own."""
    address = resolve()
    if not on_server(address):
        return mail_home(address)
    from hashlib import sha256

    return home() / f"gateway-{sha256(address.encode()).hexdigest()[:12]}"


def find_gateway(folder: Path | None = None) -> Gateway | None:
    """The gateway that runs, or ran last; None: there was none yet."""
    try:
        said = json.loads(((folder or gateway_folder()) / GATEWAY_FILE).read_bytes())
        return Gateway(int(said["port"]), str(said["token"]), str(said["secret"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def ensure_gateway() -> Gateway:
    """The gateway of this user, started if there is none."""
    gateway = find_gateway()
    if gateway is not None and ask_gateway(gateway, "status") is not None:
        return gateway
    import subprocess

    # It needs no key of its own, and keeps no one else's in its environment.
    unneeded = {"FLYBALL_LEASE", *(key for vendor in VENDORS for key in vendor.keys)}
    env = {key: value for key, value in os.environ.items() if key not in unneeded}
    folder = gateway_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(os.open(folder / "gateway.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as log:
        # It forks and lets go of us at once.
        subprocess.run(
            [sys.executable, "-m", "flyball.gateway.server"],
            env={**env, "FLYBALL_URL": resolve(), "FLYBALL_HOME": str(home())},
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


def ask_gateway(gateway: Gateway, what: str) -> dict[str, Any] | None:
    """What the gateway says to ``status``, ``stay`` or ``stop``; None: it does not answer."""
    try:
        place, said = _ask(gateway, what)
    except OSError:
        return None
    place.close()
    return said


def _ask(gateway: Gateway, what: str) -> tuple[socket.socket, dict[str, Any]]:
    """Its answer and the connection that it came over. Raises OSError where no gateway answers, or one that
    does not prove to be this user's."""
    nonce, end = os.urandom(16).hex(), time.monotonic() + _ANSWER_S
    place = socket.create_connection((HOST, gateway.port), timeout=_ANSWER_S)
    try:
        path = f"/-/{what}/{nonce}/{gateway.proof('ask', what, nonce)}"
        place.sendall(f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
        answer = b""
        while not answer.endswith(b"}"):
            part = place.recv(4096)
            if not part or len(answer) > _ANSWER_BYTES or time.monotonic() > end:
                raise OSError(f"no answer on port {gateway.port}")
            answer += part
        said = json.loads(answer.partition(b"\r\n\r\n")[2])
        if said.pop("proof") != gateway.proof("answer", nonce):
            raise OSError(f"what answers on port {gateway.port} is not this user's gateway")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        place.close()
        raise OSError(f"what answers on port {gateway.port} is not a gateway") from error
    except BaseException:
        place.close()
        raise
    return place, said


class GatewayConnection:
    """Says that this process needs the gateway, and starts the next one when it is gone.

    The connection is inherited by children: a gateway stays as long as an agent that uses it, also where what
    started the agent was killed. So is what keeps the port for this user.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._place = self._hold_or_start(gateway)
        self._reserved = reserve_port(gateway.port)
        self._closed = threading.Event()
        self._watched = False

    def watch(self) -> None:
        """From now on start the next gateway when this one is gone. Children are forked before."""
        if self._watched:
            return
        self._watched = True
        start_thread(self._watch, name="flyball-gateway")

    def _hold_or_start(self, gateway: Gateway) -> socket.socket:
        """One that was killed since it answered is followed by the next. Raises StoreError if none stays."""
        for _ in range(_STARTS):
            try:
                return self._hold(gateway)
            except OSError:
                gateway = ensure_gateway()
        raise StoreError(f"the gateway was ended {_STARTS} times as it started; try again")

    @staticmethod
    def _hold(gateway: Gateway) -> socket.socket:
        place, _ = _ask(gateway, "presence")
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
            except (OSError, StoreError):
                self._closed.wait(_LOOK_S)

    def close(self) -> None:
        self._closed.set()
        with contextlib.suppress(OSError):
            self._place.shutdown(socket.SHUT_RDWR)
        self._place.close()
        if self._reserved is not None:
            self._reserved.close()
