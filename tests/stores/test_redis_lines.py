"""The connections that scripts go over: kept, and never used again once something went wrong on them."""

from __future__ import annotations

import subprocess
import sys
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
    before = int(link._ready().info("stats")["total_connections_received"])
    assert [link.run(ECHO, "key", str(n)) for n in range(20)] == [str(n) for n in range(20)]
    assert int(link._ready().info("stats")["total_connections_received"]) == before


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
    before = int(link._ready().info("stats")["total_connections_received"])
    assert link.run(ECHO, "key", "fine") == "fine"
    assert int(link._ready().info("stats")["total_connections_received"]) == before


def test_a_plain_address_needs_no_driver_and_others_have_it(own_server: RedisServer) -> None:
    def loads_driver(query: str, *absent: str) -> bool:
        command = [sys.executable, "-c", _LOADED_BY, f"{own_server.url}{query}", *absent]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout.strip() == "True"

    assert not loads_driver("")
    assert not loads_driver("?db=3&socket_timeout=2")
    assert loads_driver("?client_name=web-1")
    assert loads_driver("", "hiredis")


_LOADED_BY = """\
import sys
sys.modules.update(dict.fromkeys(sys.argv[2:]))  # cannot be imported
from flyball.stores.redis.connection import RedisConnections

link = RedisConnections(sys.argv[1])
link.ask("SET", "k", "1")
assert link.ask_all([("GET", "k"), ("ECHO", "x")]) == ["1", "x"]
link.listener().subscribe("c")
link.close()
print("redis" in sys.modules)
"""


def test_a_database_of_an_address_is_apart_from_the_others(own_server: RedisServer) -> None:
    first, third = (RedisConnections(f"{own_server.url}{query}") for query in ("", "?db=3"))
    first.ask("SET", "k", "in the first")
    assert third.ask("GET", "k") is None
    first.close()
    third.close()


def test_of_several_commands_the_first_refusal_is_raised_and_the_next_call_is_well(
    link: RedisConnections,
) -> None:
    link.ask("SET", "text", "t")
    with pytest.raises(StoreError, match="not an integer"):
        link.ask_all([("PING",), ("INCR", "text"), ("PING",)])
    assert link.ask_all([("PING",), ("GET", "text")]) == ["PONG", "t"]


def test_names_beyond_ascii_and_bytes_that_are_no_text_come_back_as_they_went(link: RedisConnections) -> None:
    for name in ("ü 🚀", "\udcff"):
        link.ask("SET", "k", name)
        assert link.ask("GET", "k") == name
