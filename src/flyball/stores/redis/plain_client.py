"""A client of one server at a plain address: over TCP or a unix socket, without TLS and without a cluster.

Loading the driver takes a process longer than all else that ``flyball exec`` does before its command starts.
So where nothing is asked of the driver that only it can do, a socket and the parser that it uses itself
(hiredis) take its place. What is here looks like the driver's client, as far as connection.py uses it; errors
have the driver's names, by which errors.py knows them.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import hiredis

from flyball.stores.redis.script_connections import ScriptConnections, pack_command

_PORT = 6379
_READ_BYTES = 65536


class ConnectionError(Exception):
    """There is no connection, or it broke off."""


class ResponseError(Exception):
    """The server says no. ``code`` is its first word."""

    def __init__(self, said: str) -> None:
        self.code, _, words = said.partition(" ")
        super().__init__(words if self.code.isupper() else said)


class NoScriptError(ResponseError):
    """It does not know the script of this hash."""


def _response_error(said: str) -> ResponseError:
    return NoScriptError(said) if said.startswith("NOSCRIPT ") else ResponseError(said)


@dataclass(frozen=True, slots=True)
class PlainAddress:
    path: str
    """Of a unix socket; empty: there is a host."""
    host: str
    port: int
    database: int
    login: tuple[str, ...]
    """The password, or user and password; empty: none."""

    @classmethod
    def parse(cls, url: str) -> PlainAddress:
        """Raises ValueError for a port or a database that is not a number.

        >>> PlainAddress.parse("redis://:p%40ss@example.org/2")
        PlainAddress(path='', host='example.org', port=6379, database=2, login=('p@ss',))
        """
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query))
        unix = parts.scheme == "unix"
        named = options.get("db") or ("" if unix else parts.path.strip("/"))
        login = [unquote(word) for word in (parts.username, parts.password) if word]
        return cls(
            path=unquote(parts.path) if unix else "",
            host="" if unix else parts.hostname or "localhost",
            port=_PORT if unix or parts.port is None else parts.port,
            database=int(named or 0),
            login=tuple(login),
        )

    def connect(self, timeout_s: float) -> socket.socket:
        try:
            if not self.path:
                # As bytes: for a text Python loads what knows names beyond ASCII.
                host = self.host.encode() if self.host.isascii() else self.host
                link = socket.create_connection((host, self.port), timeout_s)  # type: ignore[arg-type]
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                return link
            link = socket.socket(socket.AF_UNIX)
            try:
                link.settimeout(timeout_s)
                link.connect(self.path)
            except BaseException:
                link.close()
                raise
            return link
        except TimeoutError:
            raise
        except OSError as error:
            where = self.path or f"{self.host}:{self.port}"
            raise ConnectionError(f"Error {error.errno} connecting to {where}. {error.strerror}.") from error


class PlainConnection:
    """Used by one thread at a time."""

    def __init__(self, address: PlainAddress, answer_s: float) -> None:
        self._answer_s = answer_s
        self._reader = hiredis.Reader(
            encoding="utf-8", errors="surrogateescape", replyError=_response_error, notEnoughData=Ellipsis
        )
        self._link = address.connect(answer_s)
        try:
            if address.login:
                self._ask("AUTH", *address.login)
            if address.database:
                self._ask("SELECT", address.database)
        except BaseException:
            self._link.close()
            raise

    def _ask(self, *command: object) -> Any:
        self.send_packed_command([pack_command(command)])
        return self.read_response()

    def send_packed_command(self, packed: Sequence[bytes], *, check_health: bool = False) -> None:
        del check_health
        try:
            self._link.settimeout(self._answer_s)
            self._link.sendall(b"".join(packed))
        except TimeoutError:
            raise
        except OSError as error:
            raise ConnectionError(
                f"Error {error.errno} while writing to socket. {error.strerror}."
            ) from error

    def read_response(self) -> Any:
        """The next answer; raised where it is an error."""
        while (answer := self._reader.gets()) is Ellipsis:
            self._reader.feed(self._receive())
        if isinstance(answer, ResponseError):
            try:
                raise answer
            finally:
                # An error that knows its own frame is only freed by the garbage collector, with all it knows.
                del answer
        return answer

    def _receive(self) -> bytes:
        try:
            received = self._link.recv(_READ_BYTES)
        except TimeoutError:
            raise
        except OSError as error:
            raise ConnectionError(f"Error while reading from socket: {error.strerror}") from error
        if not received:
            raise ConnectionError("Connection closed by server.")
        return received

    def can_read(self, timeout: float) -> bool:
        """Is there an answer, or the end of the connection?"""
        if self._link.fileno() < 0:
            raise ConnectionError("Connection closed.")
        if self._reader.has_data():
            return True
        poller = select.poll()
        poller.register(self._link, select.POLLIN)
        return bool(poller.poll(timeout * 1000))

    def __del__(self) -> None:
        """In a forked child too: the parent's end of it stays open."""
        if hasattr(self, "_link"):
            self._link.close()

    def disconnect(self) -> None:
        """A thread that reads is told."""
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_RDWR)
        self._link.close()


class PlainClient:
    """Safe to use from many threads: each takes a connection for itself."""

    def __init__(self, address: PlainAddress, answer_s: float) -> None:
        self._address, self._answer_s, self._pid = address, answer_s, os.getpid()
        self._all: weakref.WeakSet[PlainConnection] = weakref.WeakSet()
        self._closed = False
        self.execute_command = ScriptConnections(self)

    def get_connection(self) -> PlainConnection:
        opened = PlainConnection(self._address, self._answer_s)
        self._all.add(opened)
        if self._closed:
            opened.disconnect()
            raise ConnectionError("the client was closed")
        return opened

    def release(self, connection: PlainConnection) -> None:
        self._all.discard(connection)

    def time(self) -> Any:
        return self.execute_command("TIME")

    def info(self, *section: str) -> dict[str, str]:
        lines = str(self.execute_command("INFO", *section)).splitlines()
        return {name: value for name, colon, value in (line.partition(":") for line in lines) if colon}

    def execute_all(self, commands: Sequence[Sequence[object]]) -> list[Any]:
        """In one round trip; the first error is raised when all are answered."""
        line = self.get_connection()
        try:
            line.send_packed_command([pack_command(command) for command in commands])
            answers: list[Any] = []
            failed: ResponseError | None = None
            for _ in commands:
                try:
                    answers.append(line.read_response())
                except ResponseError as error:
                    failed = failed or error
        finally:
            line.disconnect()
        if failed is not None:
            try:
                raise failed
            finally:
                del failed
        return answers

    def pubsub(self) -> PlainListener:
        return PlainListener(self.get_connection())

    def close(self) -> None:
        """Nothing is opened any more."""
        self._closed = True
        if self._pid == os.getpid():
            for connection in list(self._all):
                connection.disconnect()


def open_plain(url: str, answer_s: float) -> PlainClient:
    """Nothing is sent before it is first used."""
    return PlainClient(PlainAddress.parse(url), answer_s)


class PlainListener:
    """Listens to channels over a connection of its own."""

    def __init__(self, connection: PlainConnection) -> None:
        self._connection = connection

    def subscribe(self, *channels: str) -> None:
        self._connection.send_packed_command([pack_command(("SUBSCRIBE", *channels))])

    def get_message(self, *, timeout: float) -> dict[str, Any] | None:
        """The next one; None: none came in time."""
        if not self._connection.can_read(timeout):
            return None
        kind, *_, data = self._connection.read_response()
        return {"type": kind, "data": data}

    def ping(self) -> None:
        self._connection.send_packed_command([pack_command(("PING",))])

    def close(self) -> None:
        self._connection.disconnect()
