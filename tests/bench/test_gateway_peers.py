"""A peer of the gateway's bench that does not answer."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from bench.gateway import TINY, Bench, Between
from bench.gateway_wire import HOST, Door, Stream, load
from bench.report import Figure

SIZES = replace(TINY, patience_s=0.5)


@pytest.fixture
def silent() -> Iterator[Door]:
    """It takes connections, and says nothing."""
    with socket.create_server((HOST, 0)) as place:
        yield Door("silence", place.getsockname()[1])


@pytest.fixture
def direct() -> Iterator[Door]:
    command = [sys.executable, "-m", "bench.gateway_wire", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        yield Door("direct", int(server.stdout.readline()))
        server.kill()


def test_a_load_ends_though_its_door_never_answers(silent: Door) -> None:
    took = asyncio.run(load(silent, Stream(1, 10), at_once=3, for_s=0.0, ramp_s=0.0, within_s=0.2))
    assert (took.failed, took.first_byte_s) == (3, [])


def test_a_load_ends_though_nothing_listens() -> None:
    with socket.socket() as place:
        place.bind((HOST, 0))
        door = Door("nothing", place.getsockname()[1])
        took = asyncio.run(load(door, Stream(1, 10), at_once=2, for_s=0.0, ramp_s=0.0, within_s=60.0))
    assert took.failed == 2


def test_a_peer_that_does_not_answer_is_named_and_not_asked_again(direct: Door, silent: Door) -> None:
    us, peer = Between(direct, (), 2), Between(silent, (), 2)
    bench = Bench(SIZES, lambda _: None, us, us, [peer], [])

    def measure(other: Between) -> Iterator[Figure]:
        took = bench.load(other, SIZES.stream, at_once=other.streams)
        yield Figure(what=other.door.name, ours=took.bytes, unit="")

    for what in ("first", "second"):
        assert [figure.what for figure in bench.beside_each(what, measure)] == ["direct"]
    assert [note.startswith("first: 2 streams of 2 at once through silence") for note in bench.notes] == [
        True
    ]
