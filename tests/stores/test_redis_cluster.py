"""The same suite on a cluster: the keys of a pool stay together, and no script touches two pools."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from flyball.errors import StoreError
from flyball.governor.governor import Governor
from flyball.stores.redis.server import Server
from flyball.testing import FLEET_CHECKS, FakeWorld, Scene, make_redis
from tests.redis_server import RedisServer


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisServer]:
    """A cluster of one: it has all slots, and refuses commands whose keys are not in the same."""
    server = RedisServer("--cluster-enabled", "yes", "--cluster-node-timeout", "500", tcp=True)
    link = Server(server.url)
    link.ask("CLUSTER", "ADDSLOTS", *range(16384))
    deadline = time.monotonic() + 20
    while "cluster_state:ok" not in str(link.ask("CLUSTER", "INFO")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    link.close()
    yield server
    server.close()


@pytest.fixture
def scene(cluster: RedisServer) -> Iterator[Scene]:
    url = cluster.url.replace("redis://", "redis+cluster://")
    scene = Scene(lambda world: make_redis(world, url))
    yield scene
    scene.close()


@pytest.mark.parametrize("check", FLEET_CHECKS, ids=lambda check: check.__name__)
def test(check: Callable[[Scene], None], scene: Scene) -> None:
    check(scene)


def test_who_waits_on_a_cluster_is_told(cluster: RedisServer) -> None:
    gov = Governor(f"{cluster.url.replace('redis://', 'redis+cluster://')}?space=told")
    gov.set_pool("p", cap=1, adaptive=False)
    lease = gov.acquire("p")
    took: list[float] = []

    def wait() -> None:
        with gov.slot("p", timeout=30):
            took.append(time.monotonic())

    threads = [threading.Thread(target=wait) for _ in range(2)]
    for number, thread in enumerate(threads, start=1):
        thread.start()
        while gov.status().pools[0].waiting < number:
            time.sleep(0.005)
    time.sleep(0.5)
    began = time.monotonic()
    lease.release()
    for thread in threads:
        thread.join()
    gov.close()
    assert max(took) - began < 1.0


def test_a_server_without_its_slots_says_so() -> None:
    server = RedisServer("--cluster-enabled", "yes", tcp=True)
    store = make_redis(FakeWorld(), server.url)
    with pytest.raises(StoreError, match="cluster"):
        store.set_pool("p", {"cap": 2})
    store.close()
    server.close()
