"""The provider over real HTTP. Its sleep is ours, so that a request stays open until the test says so."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from flyball.core.provider.http_response import from_http
from flyball.core.signals import SignalKind
from flyball.sim.provider.capacity import Capacity
from flyball.sim.provider.server import Manner, Provider

Answer = tuple[int, Mapping[str, str], dict[str, object]]


def post(url: str, body: bytes = b'{"max_tokens": 30, "model": "m"}') -> Answer:
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=10) as reply:
            return reply.status, dict(reply.headers), json.load(reply)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), json.load(error)


class Doors:
    """Requests that are being served wait here; refusals do not."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self.entered = threading.Semaphore(0)
        self.leave = threading.Event()

    def sleep(self, for_s: float) -> None:
        self.slept.append(for_s)
        if for_s > 0.2:
            self.entered.release()
            assert self.leave.wait(10)


@contextmanager
def busy(capacity: str, requests: int) -> Iterator[tuple[Provider, Doors]]:
    """A provider with that many requests inside."""
    doors = Doors()
    with Provider(Capacity.parse(capacity), sleep=doors.sleep) as provider, ThreadPoolExecutor(8) as clients:
        served = [clients.submit(post, f"{provider.url}/v1/messages") for _ in range(requests)]
        for _ in served:
            assert doors.entered.acquire(timeout=10)
        try:
            yield provider, doors
        finally:
            doors.leave.set()
        assert [future.result()[0] for future in served] == [200] * requests


def test_a_request_within_the_capacity_gets_a_message() -> None:
    with Provider(Capacity.parse("1"), sleep=lambda _: None) as provider:
        status, _, body = post(f"{provider.url}/v1/messages")
    assert status == 200
    assert (body["type"], body["role"], body["model"]) == ("message", "assistant", "m")
    assert body["usage"] == {"input_tokens": 200, "output_tokens": 30}


def test_a_request_beyond_the_capacity_gets_429_with_retry_after() -> None:
    with busy("2", 2) as (provider, _):
        status, headers, body = post(f"{provider.url}/v1/messages")
        tally = provider.tally()
    assert status == 429
    assert isinstance(body["error"], dict)
    assert body["error"]["type"] == "rate_limit_error"
    assert (tally.accepted, tally.rejected, tally.inside, tally.peak_inside) == (2, 1, 2, 2)
    signal = from_http(status, headers)
    assert (signal.kind, signal.retry_after_s) == (SignalKind.THROTTLED, 1.0)


def test_a_provider_may_say_429_and_no_more() -> None:
    doors = Doors()
    with Provider(Capacity.parse("0"), Manner(retry_after_s=None), sleep=doors.sleep) as provider:
        status, headers, _ = post(f"{provider.url}/v1/messages")
    assert from_http(status, headers).retry_after_s is None


def test_the_tokens_that_are_asked_for_decide_how_long_it_takes() -> None:
    slept: list[float] = []
    with Provider(Capacity.parse("1"), Manner(tokens_per_s=50), sleep=slept.append) as provider:
        post(f"{provider.url}/v1/messages", b'{"max_tokens": 100}')
    assert slept == [2.0]


def test_a_client_that_goes_away_gives_its_seat_back() -> None:
    doors = Doors()
    with Provider(Capacity.parse("1"), sleep=doors.sleep) as provider:
        host, port = provider.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as client:
            client.sendall(b"POST /v1/messages HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}")
            assert doors.entered.acquire(timeout=10)
        doors.leave.set()
        # The answer goes nowhere; the next one does not.
        while provider.tally().inside:
            pass
        assert post(f"{provider.url}/v1/messages")[0] == 200


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [("/v1/messages", b"{", 400), ("/v1/messages", b"[]", 400), ("/v2/other", b"{}", 404)],
)
def test_nonsense_is_refused_and_not_counted(path: str, body: bytes, status: int) -> None:
    with Provider(Capacity.parse("1"), sleep=lambda _: None) as provider:
        assert post(f"{provider.url}{path}", body)[0] == status
        assert provider.tally().accepted == 0


def test_the_tally_can_be_looked_at() -> None:
    with busy("2", 1) as (provider, _), urllib.request.urlopen(f"{provider.url}/__fake/tally") as reply:
        found = json.load(reply)
    assert (found["capacity"], found["inside"], found["accepted"]) == (2, 1, 1)


def test_it_cannot_be_reached_from_outside_this_machine() -> None:
    with Provider(Capacity.parse("1")) as provider:
        assert provider.url.startswith("http://127.0.0.1:")


@pytest.mark.faults
def test_it_runs_by_itself_until_ctrl_c_and_then_says_what_it_counted() -> None:
    command = [sys.executable, "-m", "flyball.sim.provider.server", "--capacity", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert post(f"{url}/v1/messages")[0] == 429
        process.send_signal(signal.SIGINT)
        tally = json.loads(process.stdout.readline())
    assert (process.returncode, tally["rejected"]) == (0, 1)
