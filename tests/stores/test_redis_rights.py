"""The rights of a user on a Redis server: one that lacks some is refused before anything is counted."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flyball import Governor
from flyball.errors import StoreError
from flyball.governor.internals import internals
from flyball.stores.redis.connection import RedisConnections
from tests.redis_server import RedisServer, executable, valkey_executable

# Since Redis 7 a new user may use no channel; before, the server has to be told so.
NO_CHANNELS = ("--acl-pubsub-default", "resetchannels")
SERVERS = [found for found in (executable(), valkey_executable()) if found]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLYBALL_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("FLYBALL_URL", raising=False)


@pytest.fixture(scope="module", params=SERVERS, ids=lambda program: Path(program).name)
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    server = RedisServer(*NO_CHANNELS, tcp=True, program=request.param)
    yield server
    server.close()


def governor(server: RedisServer, *rights: str, space: str = "") -> Governor:
    """As a user with these rights."""
    link = RedisConnections(server.url)
    link.ask("ACL", "SETUSER", "u", "reset", "on", ">secret", *rights)
    link.close()
    url = server.url.replace("redis://", "redis://u:secret@")
    return Governor(f"{url}?space={space}" if space else url)


def test_a_user_without_channels_is_refused_with_the_rights_it_needs(server: RedisServer) -> None:
    gov = governor(server, "~*", "+@all")
    with pytest.raises(StoreError, match=r"~flyball:\* &flyball:\*"):
        gov.set_pool("p", cap=1)
    gov.close()


def test_a_user_without_its_spaces_channels_is_told_their_name(server: RedisServer) -> None:
    gov = governor(server, "~team1:*", "&flyball:*", "+@all", space="team1")
    with pytest.raises(StoreError, match=r"&team1:\*"):
        gov.set_pool("p", cap=1)
    gov.close()


@pytest.mark.parametrize("space", ["flyball", "team1", "te.a-m%(1)"])
def test_the_rights_that_are_asked_for_are_enough(server: RedisServer, space: str) -> None:
    gov = governor(
        server, f"~{space}:*", f"&{space}:*", "+@all", "-@admin", "-@dangerous", "+info", space=space
    )
    gov.set_pool("p", cap=1, adaptive=False, heartbeat_s=0.1)
    lease = gov.acquire("p")
    served = threading.Event()

    def wait() -> None:
        with gov.slot("p", timeout=60):
            served.set()

    waiters = [threading.Thread(target=wait) for _ in range(2)]
    for number, waiter in enumerate(waiters, start=1):
        waiter.start()
        while gov.status().pools[0].waiting < number:
            time.sleep(0.005)
    lease.release()
    for waiter in waiters:
        waiter.join(60)
    with gov.share("p") as share:
        ready = share.wait_ready(30)
    wrong = internals(gov).store.miscounts()
    gov.close()
    assert served.is_set()
    assert ready
    assert wrong == []
