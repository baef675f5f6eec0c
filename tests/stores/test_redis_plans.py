"""Scripts on a server: round trips, ids, and plans that several make at once."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from flyball.core.pool.verdict import Reason
from flyball.core.signals import Bucket
from flyball.errors import StoreError, StoreUnreadableError
from flyball.stores.redis import id_blocks
from flyball.stores.redis.connection import RedisConnections
from flyball.stores.redis.scripts import LAYOUT
from flyball.testing import FakeWorld, Scene, make_redis
from tests.redis_server import RedisServer


@pytest.fixture
def scene(redis_server: RedisServer) -> Iterator[Scene]:
    scene = Scene(lambda world: make_redis(world, redis_server.url))
    yield scene
    scene.close()


def test_a_server_that_forgot_the_scripts_gets_them_again(scene: Scene, redis_server: RedisServer) -> None:
    scene.static(2)
    lease = scene.take()
    link = RedisConnections(redis_server.url)
    link.ask("SCRIPT", "FLUSH")
    scene.take()
    link.ask("SCRIPT", "FLUSH")
    scene.release(lease)
    scene.take()
    link.close()


def test_a_grant_and_an_end_are_one_round_trip_each(scene: Scene) -> None:
    scene.static(2)
    scene.release(scene.take())
    asked = counting(scene.store)
    scene.release(scene.take())
    assert asked == ["EVALSHA", "EVALSHA"]


def test_an_ask_that_is_parked_and_handed_a_slot_is_one_round_trip_each(scene: Scene) -> None:
    scene.static(1)
    first = scene.take()
    scene.release(first)
    lease = scene.take()
    for _ in range(2):
        scene.park(holder=scene.stranger())
    asked = counting(scene.store)
    scene.park(holder=scene.stranger())
    scene.release(lease)
    assert asked == ["EVALSHA", "EVALSHA"]


def test_a_waiter_in_the_same_process_is_handed_a_slot_in_one_round_trip(scene: Scene) -> None:
    scene.static(1)
    lease = scene.take()
    scene.park(holder=scene.world.here)
    asked = counting(scene.store)
    scene.release(lease)
    assert asked == ["EVALSHA"]


def test_a_handover_within_a_host_is_one_more_round_trip_however_many_wait(scene: Scene) -> None:
    """Only the host can tell whether the next in line is stopped."""
    scene.static(3)
    lease = scene.take(slots=3)
    for _ in range(5):
        scene.park()
    asked = counting(scene.store)
    scene.release(lease)
    assert asked == ["EVALSHA", "EVALSHA"]
    assert sum(claim.held for claim in scene.store.census().claims) == 3


@pytest.fixture(autouse=True)
def without_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks for a newer layout come by the clock, and are no part of what is counted."""
    monkeypatch.setattr(id_blocks, "LOOK_EVERY_S", math.inf)


def counting(store: Any) -> list[str]:
    """The commands that go to the server from now on."""
    server = store._server
    client = server._ready()
    asked: list[str] = []

    def counting(run: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*command: Any) -> Any:
            asked.append(command[0])
            return run(*command)

        return counted

    client.execute_command, server._send = counting(client.execute_command), counting(server._send)
    return asked


def test_keys_of_a_pool_share_one_hash_tag_whatever_its_name(scene: Scene, redis_server: RedisServer) -> None:
    link = RedisConnections(redis_server.url)
    for pool in ("plain", "a}b", "}", "{x}", "100%", "ü 🚀"):
        scene.static(1, pool)
        lease = scene.take(pool=pool)
        verdict, _ = scene.store.admit(scene.ask(pool=pool), park=True)
        assert verdict.words().startswith(f"waiting: {pool} 1 of 1 in use")
        scene.release(lease)
    store: Any = scene.store
    space = store._registry._space
    tags = {key[key.index("{") :].rpartition(":")[0] for key in link.ask("KEYS", f"{space}:*") if "{" in key}
    assert len(tags) == 6
    link.close()


def test_ids_go_on_when_a_pool_has_used_its_block_up(scene: Scene) -> None:
    scene.static(3000)
    ids = [scene.take() for _ in range(1100)]
    assert len(set(ids)) == 1100
    assert scene.is_held(ids[-1])
    scene.release(ids[-1])
    assert not scene.is_held(ids[-1])


def test_a_thousand_idle_projects_are_not_kept(scene: Scene) -> None:
    for n in range(1300):
        scene.release(scene.take(f"project-{n}"))
    store: Any = scene.store
    assert store._server.ask("HLEN", f"{store._registry.pool_key('p')}pool") < 1100


def test_reports_from_many_threads_are_all_heard(scene: Scene) -> None:
    scene.pool(cap=16, controller="koryph")
    threads = [threading.Thread(target=scene.throttle, args=("a", "t-1")) for _ in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    scene.take()
    assert scene.snapshot().memory.cap.throttle_count == 24


def test_what_was_said_by_a_caller_that_died_right_after_is_heard(scene: Scene) -> None:
    scene.pool(cap=8, controller="koryph")
    scene.take()
    store: Any = scene.store
    run = store._server.run
    said: list[str] = []

    def dying(script: Any, key: str, *arguments: str) -> Any:
        if said and script.name == "do_report":
            raise StoreError("gone")
        said.append(script.name)
        return run(script, key, *arguments)

    store._server.run = dying
    with pytest.raises(StoreError):
        scene.throttle()
    store._server.run = run
    scene.take()
    assert scene.snapshot().memory.cap.throttle_count == 1
    assert scene.snapshot().cap == 4


# -- several at once ------------------------------------------------------------------------------------


@pytest.fixture
def pair(redis_server: RedisServer) -> Iterator[tuple[Scene, Scene]]:
    """Two handles over one state."""
    world, space = FakeWorld(), os.urandom(6).hex()
    scenes = [Scene(lambda w: make_redis(w, redis_server.url, space=space), world) for _ in range(2)]
    yield scenes[0], scenes[1]
    for scene in scenes:
        scene.close()


def meanwhile(scene: Scene, work: Callable[[], object]) -> None:
    """Do this once, after the next change of this handle has read the pool and before it is swapped in."""
    store: Any = scene.store
    state = store._read_state

    def interrupted(pool: str) -> Any:
        found = state(pool)
        store._read_state = state
        work()
        return found

    store._read_state = interrupted


def test_two_who_set_a_pool_at_once_both_have_their_way(pair: tuple[Scene, Scene]) -> None:
    one, other = pair
    one.static(4)
    meanwhile(one, lambda: other.pool(reserve=1))
    one.pool(ageing_s=7.0)
    assert (one.snapshot().settings.reserve, one.snapshot().settings.ageing_s) == (1, 7.0)


def test_what_is_spent_while_a_plan_is_made_stays_spent(pair: tuple[Scene, Scene]) -> None:
    one, other = pair
    one.static(9, windows={"requests": "60/min"})
    one.take()
    meanwhile(one, lambda: [other.take() for _ in range(3)])
    one.pool(windows={"requests": "120/min"})
    (window,) = one.snapshot().windows
    assert (window.limit, window.level, window.spent) == (120.0, 116.0, 4.0)


def test_successes_counted_while_a_plan_is_made_count_in_the_next(pair: tuple[Scene, Scene]) -> None:
    one, other = pair
    one.pool(cap=2, cap_ceiling=4, controller="article")
    leases = [one.take(), one.take()]
    one.release(leases[0], oks=1)
    other.take()
    meanwhile(one, lambda: other.release(leases[1], oks=2))
    one.pool(ageing_s=7.0)
    store: Any = one.store
    assert store._server.ask("HGET", f"{store._registry.pool_key('p')}pool", "bound_oks") == "2"


def test_a_window_from_headers_that_comes_while_a_plan_is_made_is_not_overlooked(
    pair: tuple[Scene, Scene],
) -> None:
    one, other = pair
    one.static(9)
    lease = one.take()
    said = (Bucket("requests", 10.0, 1.0, 30.0),)
    meanwhile(one, lambda: other.finish_call(lease, buckets=said))
    one.pool(ageing_s=7.0)
    one.expect_refusal(Reason.WINDOW)


def test_a_newer_layout_is_refused_and_left_alone(scene: Scene, redis_server: RedisServer) -> None:
    scene.take()
    store: Any = scene.store
    key, space = store._registry._key, store._registry._space
    assert store._server.ask("HGET", key, "layout") == str(LAYOUT)
    store._server.ask("HSET", key, "layout", str(LAYOUT + 1))
    newer = make_redis(FakeWorld(), redis_server.url, space=space)
    for _ in range(2):
        with pytest.raises(StoreUnreadableError, match="newer flyball"):
            newer.snapshot()
    newer.close()


def test_a_newer_layout_is_noticed_by_a_process_that_runs(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = scene.take()
    monkeypatch.setattr(id_blocks, "LOOK_EVERY_S", 0.0)
    store: Any = scene.store
    store._server.ask("HSET", store._registry._key, "layout", str(LAYOUT + 1))
    for work in (scene.take, scene.snapshot, lambda: scene.release(lease)):
        with pytest.raises(StoreUnreadableError, match="newer flyball"):
            work()
