"""The connections that scripts go over: kept, and never used again once something went wrong on them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flyball.errors import StoreBusyError, StoreError
from flyball.stores.redis.connection import RedisConnections
from flyball.stores.redis.scripts import Script
from tests.redis_server import RedisServer

ECHO = Script("echo", "return ARGV[1]")


@pytest.fixture
def own_server() -> Iterator[RedisServer]:
    running = RedisServer()
    yield running
    running.close()


@pytest.fixture
def link(own_server: RedisServer) -> Iterator[RedisConnections]:
    link = RedisConnections(f"{own_server.url}?socket_timeout=0.3")
    link.run(ECHO, "key", "first")
    yield link
    link.close()


def test_scripts_one_after_the_other_share_a_connection(link: RedisConnections) -> None:
    before = int(link.ask("INFO", "stats")["total_connections_received"])
    assert [link.run(ECHO, "key", str(n)) for n in range(20)] == [str(n) for n in range(20)]
    assert int(link.ask("INFO", "stats")["total_connections_received"]) == before


def test_an_answer_that_comes_too_late_is_not_the_next_calls(
    link: RedisConnections, own_server: RedisServer
) -> None:
    own_server.pause()
    try:
        with pytest.raises(StoreBusyError):
            link.run(ECHO, "key", "asked before")
    finally:
        own_server.resume()
    assert link.run(ECHO, "key", "asked after") == "asked after"


def test_a_server_that_was_started_anew_is_connected_to_again(
    link: RedisConnections, own_server: RedisServer
) -> None:
    own_server.kill()
    with pytest.raises(StoreError):
        link.run(ECHO, "key", "this is not heard")
    own_server.start()
    assert link.run(ECHO, "key", "here again") == "here again"


def test_a_restart_between_two_calls_is_not_noticed(link: RedisConnections, own_server: RedisServer) -> None:
    own_server.kill()
    own_server.start()
    assert link.run(ECHO, "key", "as if nothing was") == "as if nothing was"


def test_a_refusal_leaves_its_connection_as_good_as_before(link: RedisConnections) -> None:
    wrong = Script("wrong", "return redis.error_reply('no')")
    with pytest.raises(StoreError, match="no"):
        link.run(wrong, "key")
    before = int(link.ask("INFO", "stats")["total_connections_received"])
    assert link.run(ECHO, "key", "fine") == "fine"
    assert int(link.ask("INFO", "stats")["total_connections_received"]) == before
