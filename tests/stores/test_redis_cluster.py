"""The same suite on a cluster: the keys of a pool stay together, and no script touches two pools."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis import Redis
from redis._parsers.commands import CommandsParser

from flyball.errors import StoreError
from flyball.governor import acquisition
from flyball.governor.governor import Governor
from flyball.stores.redis.connection import RedisConnections
from flyball.testing import FLEET_CHECKS, FakeWorld, Scene, make_redis
from tests.redis_server import RedisServer, valkey_executable
from tests.waiting import LONGEST_S, until

DESCRIPTIONS: dict[str, dict[str, Any]] = {}


def valkey() -> str:
    found = valkey_executable()
    if found is None:
        pytest.skip("no valkey-server: no cluster of Valkey was tested")
    return found


@pytest.fixture(scope="module", params=["redis", "valkey"])
def cluster(request: pytest.FixtureRequest) -> Iterator[str]:
    """Two nodes with half of the slots each: neither lets a script touch a key of the other."""
    program = valkey() if request.param == "valkey" else ""
    options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
    nodes = [RedisServer(*options, tcp=True, program=program) for _ in range(2)]
    links = [RedisConnections(node.url) for node in nodes]
    for number, link in enumerate(links):
        link.ask("CLUSTER", "ADDSLOTS", *range(number * 8192, (number + 1) * 8192))
    links[0].ask("CLUSTER", "MEET", "127.0.0.1", nodes[1].port)
    deadline = time.monotonic() + 30
    while not all("cluster_state:ok" in str(link.ask("CLUSTER", "INFO")) for link in links):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    for link in links:
        link.close()
    yield nodes[0].url.replace("redis://", "redis+cluster://")
    for node in nodes:
        node.close()


@pytest.fixture(autouse=True)
def one_description_of_all_commands(cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each client of a cluster reads one when it connects, which takes longer than most checks."""
    read: Callable[..., None] = CommandsParser.initialize

    def initialize(parser: CommandsParser, link: Redis) -> None:
        if cluster not in DESCRIPTIONS:
            read(parser, link)
            DESCRIPTIONS[cluster] = parser.commands
        parser.commands = DESCRIPTIONS[cluster]

    monkeypatch.setattr(CommandsParser, "initialize", initialize)


@pytest.fixture
def scene(cluster: str) -> Iterator[Scene]:
    scene = Scene(lambda world: make_redis(world, cluster))
    yield scene
    scene.close()


@pytest.mark.parametrize("check", FLEET_CHECKS, ids=lambda check: check.__name__)
def test(check: Callable[[Scene], None], scene: Scene) -> None:
    check(scene)


def test_a_waiter_on_a_cluster_is_told(cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # None looks by itself in the time of this test.
    monkeypatch.setattr(acquisition, "_NET_STEP_S", 10 * LONGEST_S)
    monkeypatch.setattr(acquisition, "_NET_LIMIT_S", 10 * LONGEST_S)
    gov = Governor(f"{cluster}?space=told")
    gov.set_pool("p", cap=1, adaptive=False)
    lease = gov.acquire("p")
    served: list[str] = []

    def wait() -> None:
        with gov.slot("p", timeout=5 * LONGEST_S):
            served.append("it")

    threads = [threading.Thread(target=wait) for _ in range(2)]
    for number, thread in enumerate(threads, start=1):
        thread.start()
        until(lambda number=number: gov.status().pools[0].waiting == number)  # type: ignore[misc]
    lease.release()
    for thread in threads:
        thread.join(LONGEST_S)
    gov.close()
    assert len(served) == 2


def test_a_share_of_a_pool_on_any_node_gets_slots(cluster: str) -> None:
    gov = Governor(f"{cluster}?space=shares")
    pools = [f"p{number}" for number in range(4)]
    ready = []
    for pool in pools:
        gov.set_pool(pool, cap=3, adaptive=False, heartbeat_s=0.1)
        with gov.share(pool) as share:
            ready.append(share.wait_ready(timeout=15))
    gov.close()
    assert ready == [True] * len(pools)


def test_a_server_without_its_slots_says_so() -> None:
    server = RedisServer("--cluster-enabled", "yes", tcp=True)
    store = make_redis(FakeWorld(), server.url)
    with pytest.raises(StoreError, match="cluster"):
        store.set_pool("p", {"cap": 2})
    store.close()
    server.close()
