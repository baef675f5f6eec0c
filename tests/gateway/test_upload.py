"""Files and batches on their way to the provider: far longer than any call of a model."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from hashlib import sha256

import pytest

from flyball.gateway import client_connection
from tests.gateway.conftest import RunningGateway
from tests.waiting import LONGEST_S, until

PIECE = bytes(range(256)) * 4096
SIZE = client_connection.BODY_BYTES + len(PIECE)
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
TOO_LARGE = b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 4\r\nconnection: close\r\n\r\nmuch"


class FileServer:
    """Takes one request, as far as it wants to."""

    def __init__(self, *, refuses: bool = False, waits: bool = False) -> None:
        self._refuses = refuses
        self.may_read = threading.Event()
        if not waits:
            self.may_read.set()
        self.head = b""
        self.bytes = 0
        self.digest = sha256()
        self.is_over = threading.Event()
        self._place = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._place.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        client, _ = self._place.accept()
        with client:
            self.may_read.wait(LONGEST_S)
            if self._refuses:
                # What it left unread as it closes could take its answer from the other side.
                self._take(client, most=len(PIECE))
                client.sendall(TOO_LARGE)
            else:
                self._take(client)
                client.sendall(OK)
            self.is_over.set()

    def _take(self, client: socket.socket, *, most: int = SIZE) -> None:
        with client.makefile("rb") as lines:
            while (line := lines.readline()) not in (b"\r\n", b""):
                self.head += line.lower()
            if b"chunked" in self.head:
                while size := int(lines.readline() or b"0", 16):
                    self._note(lines.read(size))
                    lines.readline()
            else:
                while self.bytes < most and (part := lines.read1(65536)):
                    self._note(part)

    def _note(self, part: bytes) -> None:
        self.bytes += len(part)
        self.digest.update(part)

    def close(self) -> None:
        self.may_read.set()
        self._place.close()


@pytest.fixture
def server() -> Iterator[FileServer]:
    server = FileServer()
    yield server
    server.close()


def pieces() -> Iterator[bytes]:
    for _ in range(SIZE // len(PIECE)):
        yield PIECE


@pytest.mark.parametrize("chunked", [False, True])
def test_a_file_that_is_longer_than_any_call_arrives_as_it_was_sent_and_needs_no_slot(
    running: RunningGateway, server: FileServer, chunked: bool
) -> None:
    running.governor.set_pool("127.0.0.1", cap=1, adaptive=False)
    connection = running.connect()
    headers = {} if chunked else {"Content-Length": str(SIZE)}
    with running.governor.slot("127.0.0.1"):
        path = running.path(server.url, "/v1/files")
        connection.request("POST", path, pieces(), headers, encode_chunked=chunked)
        assert connection.getresponse().read() == b"{}"
    assert (server.bytes, b"chunked" in server.head) == (SIZE, chunked)
    assert server.digest.digest() == sha256(b"".join(pieces())).digest()


def test_a_file_is_taken_no_faster_than_its_server_takes_it(running: RunningGateway) -> None:
    server = FileServer(waits=True)
    sent = threading.Event()

    def send() -> None:
        connection = running.connect()
        connection.request(
            "POST", running.path(server.url, "/v1/files"), pieces(), {"Content-Length": str(SIZE)}
        )
        sent.set()
        connection.getresponse().read()

    client = threading.Thread(target=send)
    client.start()
    assert not sent.wait(1.0), "the gateway took all of it although the server does not read"
    server.close()
    client.join(LONGEST_S)
    assert server.bytes == SIZE


def test_a_server_that_refuses_a_file_before_it_has_it_all_is_heard(running: RunningGateway) -> None:
    server = FileServer(refuses=True)
    connection = running.connect()
    path = running.path(server.url, "/v1/files")
    connection.putrequest("POST", path)
    connection.putheader("Content-Length", str(SIZE))
    connection.endheaders(PIECE)
    assert (connection.getresponse().status, server.is_over.wait(LONGEST_S)) == (413, True)
    server.close()


def test_a_client_that_leaves_in_the_middle_of_its_file_leaves_nothing_behind(
    running: RunningGateway, server: FileServer
) -> None:
    connection = running.connect()
    connection.putrequest("POST", running.path(server.url, "/v1/files"))
    connection.putheader("Content-Length", str(SIZE))
    connection.endheaders(PIECE)
    until(lambda: server.bytes, "the server has a part of it")
    connection.close()
    until(server.is_over.is_set, "the server's connection is closed, too")


def test_a_file_for_a_server_that_is_not_there_is_a_502(running: RunningGateway) -> None:
    connection = running.connect()
    connection.putrequest("POST", running.path("http://127.0.0.1:9", "/v1/files"))
    connection.putheader("Content-Length", str(SIZE))
    connection.endheaders()
    assert connection.getresponse().status == 502
