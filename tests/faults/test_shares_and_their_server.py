"""Share leases of real processes whose server dies, forgets, hangs: no node starts what is not its own."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from flyball import Governor
from flyball.errors import StoreError
from tests.faults.conftest import SOAK
from tests.faults.share_fleet import POOL, Fleet
from tests.faults.test_shares import BEAT_S, CAP, ends_well
from tests.postgres_server import PostgresServer
from tests.redis_server import RedisServer

SPACE = "fleet"

AnyServer = RedisServer | PostgresServer
SERVERS: dict[str, Callable[[], AnyServer]] = {
    "forgets": RedisServer,
    "keeps": lambda: RedisServer("--appendonly", "yes", "--appendfsync", "always"),
    "postgres": PostgresServer,
}


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[AnyServer]:
    server = SERVERS[request.param]()
    yield server
    server.close()


@pytest.fixture
def gov(server: AnyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Governor]:
    monkeypatch.setenv("FLYBALL_HOME", str(tmp_path / "home"))
    governor = Governor(f"{server.url}?socket_timeout=1&space={SPACE}")
    prepare(governor)
    yield governor
    governor.close()


def prepare(governor: Governor) -> None:
    governor.set_pool(POOL, cap=CAP, adaptive=False, heartbeat_s=BEAT_S)


@pytest.fixture
def fleet(gov: Governor) -> Iterator[Fleet]:
    with tempfile.TemporaryDirectory(prefix="fb-") as short:
        fleet = Fleet(gov.address, Path(short))
        yield fleet
        fleet.close()


@pytest.mark.parametrize("server", SERVERS, indirect=True)
def test_a_server_that_is_killed_and_comes_back(fleet: Fleet, gov: Governor, server: AnyServer) -> None:
    nodes = [fleet.start(name) for name in "ab"]
    fleet.works(*nodes)
    for pause_s in (0.1, 6 * BEAT_S) * (5 if SOAK else 1):
        server.kill()
        time.sleep(pause_s)
        server.start()
        # What a server forgot has to be told to it again; only then is there something to divide.
        prepare(gov)
        fleet.works(*nodes)
    fleet.stop(*nodes)
    ends_well(fleet, gov)


@pytest.mark.parametrize("server", ["forgets", "postgres"] if SOAK else ["forgets"], indirect=True)
def test_a_server_that_is_flushed_under_live_holders(fleet: Fleet, gov: Governor, server: AnyServer) -> None:
    nodes = [fleet.start(name) for name in "ab"]
    fleet.works(*nodes)
    flush(server, gov)
    prepare(gov)
    joiner = fleet.start("c")
    fleet.works(*nodes, joiner)
    fleet.stop(*nodes, joiner)
    ends_well(fleet, gov)


def flush(server: AnyServer, gov: Governor) -> None:
    if isinstance(server, PostgresServer):
        server.run(f"DROP SCHEMA {SPACE} CASCADE")
        # The first caller gets the error; the next makes it anew.
        with contextlib.suppress(StoreError):
            prepare(gov)
        return
    with redis.Redis(unix_socket_path=str(server.folder / "s")) as client:
        client.flushall()


@pytest.mark.parametrize("server", ["forgets", "postgres"], indirect=True)
def test_a_server_that_is_paused(fleet: Fleet, gov: Governor, server: AnyServer) -> None:
    nodes = [fleet.start(name) for name in "ab"]
    fleet.works(*nodes)
    server.pause()
    fleet.until(
        lambda: all("fenced" in fleet.observer.words.get(node.pid, ()) for node in nodes), "both to be fenced"
    )
    before = fleet.observer.work
    time.sleep(2 * BEAT_S)
    assert fleet.observer.work == before
    server.resume()
    fleet.works(*nodes)
    fleet.stop(*nodes)
    ends_well(fleet, gov)
