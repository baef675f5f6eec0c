"""A real PgBouncer in front of a PostgreSQL server, and a small pooler that does the same on the wire.

Both give a client another session of the server for each transaction, or (``session``) one for as long as it
stays. As PgBouncer does, the small one tells every client a process id of its own making.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import pwd
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from tests.postgres_server import PostgresServer

READY_S = 20.0


class PgBouncer:
    """The program itself, which refuses to run as root."""

    def __init__(self, server: PostgresServer, mode: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fb-bouncer-"))
        self.port = _free_port()
        (self.folder / "users").write_text(f'"{getpass.getuser()}" ""\n')
        (self.folder / "ini").write_text(
            f"[databases]\n* = host={server.folder} port={server.port}\n[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\nauth_type = trust\n"
            f"auth_file = {self.folder}/users\npool_mode = {mode}\n"
        )
        uid = pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None
        self.folder.chmod(0o755)
        with (self.folder / "log").open("wb") as log:
            command = [program(), str(self.folder / "ini")]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, user=uid)
        end = time.monotonic() + READY_S
        while not _answers(self.port):
            assert self._process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < end, (self.folder / "log").read_text()
            time.sleep(0.01)

    @property
    def url(self) -> str:
        return f"postgresql://127.0.0.1:{self.port}/postgres"

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self.folder)


class SmallPooler:
    """One session of the server for all clients, lent for one transaction (or, ``session``, one for each)."""

    def __init__(self, server: PostgresServer, mode: str) -> None:
        self._place = str(server.folder / f".s.PGSQL.{server.port}")
        self._alone = mode == "session"
        self._shared: _Session | None = None
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"postgresql://127.0.0.1:{self._listening.getsockname()[1]}/postgres"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                self._open.append(client)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError):
            session = self._session(_startup(client))
            client.sendall(session.welcome)
            while True:
                kind, message = _message(client)
                if kind == b"X":
                    return
                with session.lock:
                    session.link.sendall(message)
                    idle = False
                    while not idle:
                        while kind not in (b"Q", b"S"):
                            kind, message = _message(client)
                            session.link.sendall(message)
                        idle = _relay(session.link, client)
                        kind = b""

    def _session(self, startup: bytes) -> _Session:
        with self._lock:
            session = None if self._alone else self._shared
            if session is None:
                session = self._shared = _Session(self._place, startup)
                self._open.append(session.link)
            return session

    def close(self) -> None:
        self._listening.close()
        for link in self._open:
            link.close()


class _Session:
    """One connection to the server. What a client is told at first has another process id."""

    def __init__(self, place: str, startup: bytes) -> None:
        self.lock = threading.Lock()
        self.link = socket.socket(socket.AF_UNIX)
        self.link.connect(place)
        self.link.sendall(startup)
        self.welcome, kind = b"", b""
        while kind != b"Z":
            kind, message = _message(self.link)
            if kind == b"K":
                message = message[:5] + struct.pack("!I", 1) + message[9:]
            self.welcome += message


def _relay(server: socket.socket, client: socket.socket) -> bool:
    """What the server says, until it is ready again; whether no transaction is open then."""
    while True:
        kind, message = _message(server)
        client.sendall(message)
        if kind == b"Z":
            return message[5:] == b"I"


def _startup(client: socket.socket) -> bytes:
    """The client's first words; asked for encryption before, the answer is no."""
    while True:
        length = _read(client, 4)
        words = length + _read(client, struct.unpack("!I", length)[0] - 4)
        if words[4:8] not in (struct.pack("!I", 80877103), struct.pack("!I", 80877104)):
            return words
        client.sendall(b"N")


def _message(link: socket.socket) -> tuple[bytes, bytes]:
    head = _read(link, 5)
    return head[:1], head + _read(link, struct.unpack("!I", head[1:])[0] - 4)


def _read(link: socket.socket, number: int) -> bytes:
    found = b""
    while len(found) < number:
        more = link.recv(number - len(found))
        if not more:
            raise EOFError
        found += more
    return found


def program() -> str:
    return shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
        return True
    return False


def _free_port() -> int:
    with socket.socket() as link:
        link.bind(("127.0.0.1", 0))
        port: int = link.getsockname()[1]
        return port
