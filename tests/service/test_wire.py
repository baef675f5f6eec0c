"""Clients that misbehave cost a bounded amount: slow, oversized, half-closed, gone."""

from __future__ import annotations

import itertools
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from flyball.governor.governor import Governor
from flyball.service import server as limits
from tests.service.kit import PROBLEM, Running, Wire
from tests.waiting import until

HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture
def hasty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Running:
    """A server with little patience."""
    monkeypatch.setattr(limits, "ARRIVAL_S", 0.3)
    monkeypatch.setattr(limits, "READING_S", 0.5)
    return Running(Governor("memory:"), tmp_path)


SLOW = [
    b"",
    b"G",
    b"\r\n",
    HEAD,
    HEAD + b"X-Slow: yes",
    b"PATCH /v1/pools/p HTTP/1.1\r\nHost: localhost\r\nContent-Length: 11\r\n\r\n",
    b'PATCH /v1/pools/p HTTP/1.1\r\nHost: localhost\r\nContent-Length: 11\r\n\r\n{"cap',
    b"PATCH /v1/pools/p HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
]


def test_a_client_that_does_not_finish_is_hung_up_on(hasty: Running) -> None:
    with hasty as server:
        wires = [Wire(server.port) for _ in SLOW]
        for wire, sent in zip(wires, SLOW, strict=True):
            wire.send(sent)
        answers = [wire.read_all() for wire in wires]
        for wire in wires:
            wire.close()
        assert all(answer.startswith(b"HTTP/1.1 408") for answer in answers), answers
        assert all(PROBLEM.encode() in answer for answer in answers)
        assert server.client.get("/v1/pools").json() == {"pools": []}, "half a body sets nothing"


def test_a_trickle_does_not_buy_time(hasty: Running) -> None:
    with hasty as server:
        wire = Wire(server.port)
        wire.send(HEAD)
        sent = 0
        try:
            while wire.quiet():
                wire.send(b"X-%d: a\r\n" % sent)
                sent += 1
                assert sent < 100_000
            answer = wire.read_all()
        except ConnectionError:
            # A line that crossed the server's answer on the way: the reset takes the answer with it.
            answer = b""
        assert answer == b"" or answer.startswith((b"HTTP/1.1 408", b"HTTP/1.1 431"))
        wire.close()


def test_the_next_request_on_a_connection_has_its_own_time(hasty: Running) -> None:
    with hasty as server:
        wire = Wire(server.port)
        for _ in range(3):
            wire.send(HEAD + b"\r\n")
            until(lambda: not wire.quiet(), "an answer")
            assert wire.socket.recv(65536).startswith(b"HTTP/1.1 200")
        wire.send(b"GET /he")
        assert wire.read_all().startswith(b"HTTP/1.1 408")
        wire.close()


def test_a_stream_that_is_not_read_is_dropped(hasty: Running) -> None:
    with hasty as server:
        governor = server.service.governor
        for number in range(100):
            governor.set_pool(f"pool-{number}", cap=2)
        # Small buffers on the way, so that a few states fill them.
        server.place.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        lazy = socket.socket()
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.connect(("127.0.0.1", server.port))
        lazy.sendall(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        until(lambda: len(server.service.watch.streams) == 1, "it watches")
        caps = itertools.count(2)

        def gone() -> bool:
            governor.set_pool("more", cap=next(caps))
            return not len(server.service.watch.streams)

        until(gone, "it is dropped")
        lazy.close()


@pytest.mark.parametrize("size", [limits.HEAD_BYTES + 1, 200_000, 2_000_000])
def test_a_head_that_is_too_large_is_refused(running: Running, size: int) -> None:
    wire = Wire(running.port)
    with suppress(ConnectionError):
        wire.send(HEAD + b"X-Large: " + b"a" * size + b"\r\n\r\n")
    answer = wire.read_all()
    wire.close()
    # What it still sends when the answer is there may make the system reset the connection.
    assert answer == b"" or answer.startswith(b"HTTP/1.1 431"), answer


def test_many_headers_are_a_large_head(running: Running) -> None:
    wire = Wire(running.port)
    wire.send(HEAD + b"".join(b"X-%d: a\r\n" % number for number in range(3000)) + b"\r\n")
    assert wire.read_all().startswith(b"HTTP/1.1 431")
    wire.close()


def test_a_long_address_is_a_large_head(running: Running) -> None:
    wire = Wire(running.port)
    wire.send(b"GET /" + b"a" * limits.HEAD_BYTES + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert wire.read_all().startswith(b"HTTP/1.1 431")
    wire.close()


@pytest.mark.parametrize("told", [True, False])
def test_a_body_that_is_too_large_is_refused(running: Running, told: bool) -> None:
    body = b'{"cap": 3, "x": "' + b"a" * 70_000 + b'"}'
    content = body if told else (body[place : place + 8192] for place in range(0, len(body), 8192))
    answer = running.client.patch("/v1/pools/large", content=content)
    assert (answer.status_code, answer.headers["content-type"]) == (413, PROBLEM)
    assert running.client.get("/v1/pools/large").status_code == 404


def test_a_body_just_below_the_limit_is_read(running: Running) -> None:
    body = b'{"cap": 3' + b" " * (64 * 1024 - 10) + b"}"
    assert running.client.patch("/v1/pools/just", content=body).status_code == 200


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"HELO example\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET / HTTP/1.1\r\nbad header\r\n\r\n",
        b"\x00" * 100,
    ],
)
def test_what_is_not_http_is_refused(running: Running, sent: bytes) -> None:
    wire = Wire(running.port)
    wire.send(sent)
    wire.socket.shutdown(socket.SHUT_WR)
    answer = wire.read_all()
    wire.close()
    assert answer == b"" or (answer.startswith(b"HTTP/1.1 400") and PROBLEM.encode() in answer), answer
    assert running.client.get("/healthz").status_code == 200


def test_a_request_to_change_the_protocol_is_not_followed(running: Running) -> None:
    wire = Wire(running.port)
    wire.send(HEAD + b"Connection: Upgrade, close\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n")
    assert b"101" not in wire.read_all()[:20]
    wire.close()


def test_a_client_that_closes_one_half_is_gone(running: Running) -> None:
    before = len(running.service.watch.streams)
    wire = Wire(running.port)
    wire.send(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    until(lambda: len(running.service.watch.streams) == before + 1, "it watches")
    wire.socket.shutdown(socket.SHUT_WR)
    wire.read_all()
    until(lambda: len(running.service.watch.streams) == before, "it is gone")
    wire.close()


def test_a_body_that_ends_in_the_middle_sets_nothing(running: Running) -> None:
    wire = Wire(running.port)
    wire.send(b'PATCH /v1/pools/half HTTP/1.1\r\nHost: localhost\r\nContent-Length: 12\r\n\r\n{"cap": 3')
    wire.socket.shutdown(socket.SHUT_WR)
    wire.read_all()
    wire.close()
    assert running.client.get("/v1/pools/half").status_code == 404


def test_requests_sent_in_one_go_are_answered_in_order(running: Running) -> None:
    wire = Wire(running.port)
    asked = [HEAD + b"\r\n"] * 4 + [
        b"GET /v1/whoami HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    ]
    wire.send(b"".join(asked))
    answers = wire.read_all()
    wire.close()
    assert answers.count(b"HTTP/1.1 200 OK") == 5
    assert answers.endswith(b'"version":"0.1.0"}')
