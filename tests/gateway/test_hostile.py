"""Requests that are made to confuse, and other users of the machine."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from flyball.gateway import client_connection
from flyball.gateway.lifetime import Gateway, GatewayConnection, ask_gateway, find_gateway
from flyball.gateway.server import open_place
from flyball.host.loopback_port import bind_port, reserve_port
from flyball.host.socket_peer import Peer, find_peer
from tests.gateway.conftest import RunningGateway, ScriptedServer

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps a port for a user")
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
NOBODY = 65534


@pytest.fixture
def scripted() -> Iterator[Callable[..., ScriptedServer]]:
    servers: list[ScriptedServer] = []

    def make(*answers: bytes) -> ScriptedServer:
        servers.append(ScriptedServer(*answers))
        return servers[-1]

    yield make
    for server in servers:
        server.close()


def send(running: RunningGateway, *parts: bytes) -> bytes:
    """All that comes back until the gateway closes the connection, as it does after ``Connection: close``."""
    with socket.create_connection(("127.0.0.1", running.gateway.port), timeout=30) as client:
        for part in parts:
            client.sendall(part)
        answer = b""
        while piece := client.recv(65536):
            answer += piece
    return answer


def request(
    running: RunningGateway, url: str, *lines: str, method: str = "POST", rest: str = "/v1/messages"
) -> bytes:
    return "\r\n".join((f"{method} {running.path(url, rest)} HTTP/1.1", "Host: x", *lines, "", "")).encode()


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


# -- requests --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lines",
    [
        ("Content-Length: 5", "Transfer-Encoding: chunked"),
        ("Content-Length: 2", "Content-Length: 3"),
        ("Content-Length: 2", "X-Folded: a", " b"),
        ("Content-Length: 2", "X-Return: a\rTransfer-Encoding: chunked"),
        ("Content-Length: 2", "X-Nul: a\0b"),
        ("Transfer-Encoding: chunked, identity",),
    ],
)
def test_a_request_whose_end_two_readers_could_see_differently_reaches_no_server(
    running: RunningGateway, scripted: Callable[..., ScriptedServer], lines: tuple[str, ...]
) -> None:
    server = scripted(OK)
    assert status(send(running, request(running, server.url, *lines) + b"0\r\n\r\nGET / HTTP/1.1\r\n")) == 400
    assert server.heard == []


def test_a_chunked_body_stays_chunked_wherever_its_header_stands(
    running: RunningGateway, scripted: Callable[..., ScriptedServer]
) -> None:
    server = scripted(OK)
    lines = ("Connection: close", "Transfer-Encoding: identity", "Transfer-Encoding: chunked")
    assert status(send(running, request(running, server.url, *lines) + b"2\r\n{}\r\n0\r\n\r\n")) == 200
    assert server.heard[0].endswith(b"\r\n\r\n2\r\n{}\r\n0\r\n\r\n")


def test_a_trailer_does_not_become_a_header(
    running: RunningGateway, scripted: Callable[..., ScriptedServer]
) -> None:
    server = scripted(OK)
    lines = ("Connection: close", "Transfer-Encoding: chunked")
    body = b"2\r\n{}\r\n0\r\nX-Late: 1\r\n\r\n"
    assert status(send(running, request(running, server.url, *lines) + body)) == 200
    assert b"x-late" not in server.heard[0].lower()


@pytest.mark.parametrize(
    "path",
    [
        "/+/two%0alines/n/http/HOST/v1/messages",
        "/+/{long}/n/http/HOST/v1/messages",
        "/+///http/HOST/v1/messages",
        "/+!high/p/n/http/HOST/v1/messages",
        "/+!99999999999999999999/p/n/http/HOST/v1/messages",
        "/a%00b/p/n/http/HOST/v1/messages",
        "/+/p/n/http/{long}.example/v1/messages",
        "/+/p/n/http/../v1/messages",
        "/+/p/n/http/HOST%0d%0aX-Evil:%20y/v1/messages",
        "/+/p/n/http/a%20b/v1/messages",
        "/+/p/n/gopher/HOST/v1/messages",
    ],
)
def test_an_address_that_makes_no_sense_is_refused_and_never_left_without_an_answer(
    running: RunningGateway, scripted: Callable[..., ScriptedServer], path: str
) -> None:
    server = scripted(OK)
    path = path.replace("HOST", server.url.removeprefix("http://")).format(long="a" * 300)
    head = f"POST /{running.gateway.token}{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    answer = send(running, head.encode() + b"Content-Length: 2\r\n\r\n{}")
    assert status(answer) in (400, 404)
    assert b"X-Flyball: gateway" in answer
    assert server.heard == []


def test_a_websocket_is_declined_by_the_answer_after_which_codex_calls_over_http(
    running: RunningGateway,
) -> None:
    lines = (
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Key: eA==",
        "Sec-WebSocket-Version: 13",
    )
    asked = request(running, "http://127.0.0.1:9", *lines, method="GET", rest="/v1/responses")
    assert status(send(running, asked)) == 426


def test_a_wish_for_http_2_is_ignored(
    running: RunningGateway, scripted: Callable[..., ScriptedServer]
) -> None:
    server = scripted(OK)
    lines = (
        "Connection: Upgrade, HTTP2-Settings",
        "Upgrade: h2c",
        "HTTP2-Settings: AAA",
        "Content-Length: 2",
    )
    with socket.create_connection(("127.0.0.1", running.gateway.port), timeout=30) as client:
        client.sendall(request(running, server.url, *lines) + b"{}")
        assert client.recv(65536) == OK
    head, _, body = server.heard[0].partition(b"\r\n\r\n")
    assert body == b"{}"
    assert b"upgrade" not in head.lower()


def test_a_client_of_http_1_0_is_not_answered_in_chunks_because_its_server_is_told(
    running: RunningGateway, scripted: Callable[..., ScriptedServer]
) -> None:
    server = scripted(b"HTTP/1.0 200 OK\r\n\r\nall of it<close>")
    path = running.path(server.url, "/v1/messages")
    answer = send(running, f"POST {path} HTTP/1.0\r\nContent-Length: 2\r\n\r\n{{}}".encode())
    assert answer == b"HTTP/1.0 200 OK\r\n\r\nall of it"
    assert server.heard[0].startswith(b"POST /v1/messages HTTP/1.0\r\n")


def test_a_whole_address_in_the_first_line_is_taken_as_its_path(
    running: RunningGateway, scripted: Callable[..., ScriptedServer]
) -> None:
    server = scripted(OK)
    asked = request(running, server.url, "Connection: close", "Content-Length: 2").replace(
        b"POST /", f"POST http://127.0.0.1:{running.gateway.port}/".encode()
    )
    assert status(send(running, asked + b"{}")) == 200
    assert server.heard[0].startswith(b"POST /v1/messages HTTP/1.1\r\n")


def test_a_head_without_an_end_is_refused(running: RunningGateway) -> None:
    asked = request(running, "http://127.0.0.1:9").removesuffix(b"\r\n")
    line = b"X-More: " + b"x" * 8000 + b"\r\n"
    assert status(send(running, asked, *[line] * (client_connection.HEAD_BYTES // len(line) + 1))) == 431


def test_a_body_that_is_too_long_is_refused_before_it_is_sent_and_the_client_learns_it(
    running: RunningGateway,
) -> None:
    size = 100 * 1024 * 1024
    asked = request(running, "http://127.0.0.1:9", f"Content-Length: {size}")
    assert status(send(running, asked)) == 413
    assert status(send(running, asked, bytes(size))) == 413


def test_a_body_without_the_token_is_not_even_read(running: RunningGateway) -> None:
    asked = request(running, "http://127.0.0.1:9", "Content-Length: 1000", "Expect: 100-continue")
    answer = send(running, asked.replace(running.gateway.token.encode(), b"guess"))
    assert status(answer) == 403


def test_nonsense_behind_a_call_is_answered_after_the_call(
    running: RunningGateway, scripted: Callable[..., ScriptedServer]
) -> None:
    server = scripted(OK)
    answer = send(running, request(running, server.url, "Content-Length: 2") + b"{}nonsense\r\n\r\n")
    assert answer.startswith(OK + b"HTTP/1.1 400 ")


# -- answers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [OK, b"nonsense"])
def test_a_server_that_sends_more_than_it_was_asked_for_answers_nothing_else(
    running: RunningGateway, scripted: Callable[..., ScriptedServer], more: bytes
) -> None:
    evil, good = scripted(OK + more), scripted(OK.replace(b"{}", b"[]"))
    asked = request(running, evil.url, "Content-Length: 2") + b"{}"
    asked += request(running, good.url, "Content-Length: 2", "Connection: close") + b"{}"
    answer = send(running, asked)
    assert answer.count(b"{}") <= 1
    assert running.pool().in_use == 0


# -- other users -----------------------------------------------------------------------------------------


def as_another(code: str, *words: str) -> str:
    """What a process of another user prints. It uses what is loaded already: our files are not its own."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import os, socket, sys, encodings.idna\nos.setuid({NOBODY})\n{code}",
            *words,
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


BIND = """
place = socket.socket()
for option in sys.argv[2:]:
    place.setsockopt(socket.SOL_SOCKET, getattr(socket, option), 1)
try:
    place.bind(("127.0.0.1", int(sys.argv[1])))
    place.listen()
    print("bound")
except OSError as error:
    print(error.strerror)
"""


@on_linux
@as_root
@pytest.mark.parametrize(
    "options", [(), ("SO_REUSEADDR",), ("SO_REUSEPORT",), ("SO_REUSEADDR", "SO_REUSEPORT")]
)
def test_while_a_process_keeps_the_port_no_other_user_can_have_it_and_callers_are_refused(
    options: tuple[str, ...],
) -> None:
    with bind_port(0) as server:
        port = server.getsockname()[1]
        server.listen()
        kept = reserve_port(port)
        assert kept is not None
        with socket.create_connection(("127.0.0.1", port)), closing(server.accept()[0]):
            pass
    with kept:
        assert as_another(BIND, str(port), *options) == "Address already in use"
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        with bind_port(port) as again:
            again.listen()
            socket.create_connection(("127.0.0.1", port)).close()


@on_linux
def test_a_port_that_is_listened_on_is_not_shared(tmp_path: Path) -> None:
    place, gateway = open_place(tmp_path)
    with place:
        other, second = open_place(tmp_path)
        other.close()
    assert second.port != gateway.port
    assert second.token == gateway.token


@on_linux
def test_the_port_stays_taken_as_long_as_a_process_needs_the_gateway(tmp_path: Path) -> None:
    running = RunningGateway(tmp_path, f"sqlite:///{tmp_path}/governor.db")
    connection = GatewayConnection(running.gateway)
    assert ask_gateway(running.gateway, "status") == {
        "pid": os.getpid(),
        "connections": 0,
        "users": 1,
        "calls": 0,
        "waiting": 0,
        "refused": 0,
        "away": None,
    }
    running.close()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", running.gateway.port))
    connection.close()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", running.gateway.port))


@on_linux
@as_root
def test_the_kernel_says_whose_a_connection_is() -> None:
    with bind_port(0) as server:
        server.listen()
        address = server.getsockname()
        call = "c = socket.socket(); c.connect(('127.0.0.1', int(sys.argv[1]))); c.recv(1)"
        caller = threading.Thread(target=as_another, args=(call, str(address[1])))
        caller.start()
        connection, theirs = server.accept()
        with connection:
            peer = find_peer(address, theirs)
            assert peer is not None
            assert peer.uid == NOBODY
        caller.join()
        with socket.create_connection(address) as client, closing(server.accept()[0]):
            peer = find_peer(address, client.getsockname())
            assert peer is not None
            assert peer.uid == 0


def test_a_connection_of_another_user_is_refused_whatever_it_knows(
    running: RunningGateway, scripted: Callable[..., ScriptedServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = scripted(OK)
    monkeypatch.setattr("os.getuid", lambda: 1000)  # root's gateway is for all that root gave the address to
    monkeypatch.setattr("flyball.gateway.server.find_peer", lambda *_: Peer(uid=1001, inode=1))
    assert status(send(running, request(running, server.url, "Content-Length: 2") + b"{}")) == 403
    assert server.heard == []


def test_what_took_the_port_of_a_dead_gateway_learns_nothing_and_is_not_believed(tmp_path: Path) -> None:
    place, gateway = open_place(tmp_path)
    heard: list[bytes] = []

    def pose() -> None:
        client, _ = place.accept()
        with client:
            heard.append(client.recv(65536))
            said = json.dumps({"pid": 1, "proof": "guess"}).encode()
            client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(said), said))

    poser = threading.Thread(target=pose)
    poser.start()
    with place:
        assert ask_gateway(gateway, "status") is None
        poser.join()
    assert gateway.token.encode() not in heard[0]
    assert gateway.secret.encode() not in heard[0]


def test_only_what_knows_the_secret_can_stop_the_gateway(running: RunningGateway, tmp_path: Path) -> None:
    guess = Gateway(running.gateway.port, running.gateway.token, "guess")
    assert ask_gateway(guess, "stop") is None
    assert not running.server.stopped.is_set()
    found = find_gateway(tmp_path)
    assert found is not None
    assert ask_gateway(found, "stop") is not None
    assert running.server.stopped.is_set()
