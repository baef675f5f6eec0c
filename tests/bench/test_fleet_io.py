"""The bench of shares would notice a slot that talks to a server."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from bench.fleet_shares import io_per_pair


def test_a_slot_that_sends_something_is_found_out() -> None:
    here, there = socket.socketpair()

    @contextmanager
    def talking() -> Iterator[None]:
        here.send(b"!")
        yield

    with here, there:
        assert io_per_pair(talking, 10)[0] == 1


def test_a_slot_that_keeps_to_itself_is_not() -> None:
    @contextmanager
    def silent() -> Iterator[None]:
        yield

    assert io_per_pair(silent, 10) == (0, 0)
