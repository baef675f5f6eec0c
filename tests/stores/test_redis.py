"""What only a server has: servers that must be refused, and answers that are lost."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import redis

from flyball.errors import (
    FlyballError,
    StoreBusyError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
    UsageError,
)
from flyball.stores.redis.connection import RedisConnections, without_password
from flyball.stores.redis.store import RedisStore
from flyball.testing import FakeWorld, Scene, make_redis
from flyball.testing.store_checks.share_leases import Node
from tests.redis_server import RedisServer


@pytest.fixture
def scene(redis_server: RedisServer) -> Iterator[Scene]:
    scene = Scene(lambda world: make_redis(world, redis_server.url))
    yield scene
    scene.close()


@contextmanager
def server(*options: str, tcp: bool = False) -> Iterator[RedisServer]:
    running = RedisServer(*options, tcp=tcp)
    try:
        yield running
    finally:
        running.close()


def refusal(url: str) -> FlyballError:
    """What is said when a store at this address is first used."""
    store = make_redis(FakeWorld(), url)
    with pytest.raises(FlyballError) as raised:
        store.snapshot()
    store.close()
    assert "s3cret" not in str(raised.value)
    return raised.value


# -- servers that cannot be used ---------------------------------------------------------------------


def test_a_wrong_password_is_refused_and_not_repeated() -> None:
    with server("--requirepass", "right", tcp=True) as running:
        for user in ("", "nobody"):
            error = refusal(f"redis://{user}:s3cret@127.0.0.1:{running.port}")
            assert isinstance(error, StoreError)
            assert "FLYBALL_URL" in str(error)
            assert "password" in str(error)
        assert "password" in str(refusal(running.url)), "and so is none"


def test_a_server_that_is_not_there_is_named() -> None:
    error = refusal("redis://user:s3cret@127.0.0.1:1/0")
    assert "127.0.0.1:1" in str(error)
    assert "is it running" in str(error)


def test_a_server_that_speaks_no_tls_is_named() -> None:
    with server(tcp=True) as running:
        assert "TLS" in str(refusal(f"rediss://:s3cret@127.0.0.1:{running.port}?socket_timeout=2"))


def test_a_follower_is_refused_with_the_way_out() -> None:
    with server("--replicaof", "127.0.0.1", "1") as running:
        error = refusal(running.url)
    assert isinstance(error, StoreReadOnlyError)
    assert "primary" in str(error)


def test_a_server_that_drops_keys_is_refused() -> None:
    with server("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru") as running:
        assert "maxmemory-policy noeviction" in str(refusal(running.url))


def test_an_old_server_is_refused(monkeypatch: pytest.MonkeyPatch, redis_server: RedisServer) -> None:
    monkeypatch.setattr(
        "flyball.stores.redis.connection._infos", lambda client: [{"redis_version": "6.0.16"}]
    )
    assert "6.2 or newer" in str(refusal(redis_server.url))


def test_a_server_without_memory_is_full_and_nothing_is_half_done() -> None:
    with server("--maxmemory", "2mb") as running:
        scene = Scene(lambda world: make_redis(world, running.url))
        scene.static(5)
        lease = scene.take()
        link = RedisConnections(running.url)
        for size in (10_000, 100, 1):
            with pytest.raises(StoreFullError, match="maxmemory"):
                fill(link, size)
        with pytest.raises(StoreFullError):
            take_and_release(scene, 5)
        link.ask("DEL", "theirs")
        scene.release(lease)
        scene.release(scene.take())
        assert scene.snapshot().in_use == 0
        assert scene.store.miscounts() == []
        link.close()
        scene.close()


def fill(link: RedisConnections, size: int) -> None:
    while True:
        link.ask("RPUSH", "theirs", "x" * size)


def take_and_release(scene: Scene, times: int) -> None:
    for _ in range(times):
        scene.release(scene.take())


def test_a_user_without_rights_is_told_which() -> None:
    with server(tcp=True) as running:
        admin = RedisConnections(running.url)
        admin.ask("ACL", "SETUSER", "weak", "on", ">s3cret", "~*", "+@all", "-evalsha", "-eval")
        error = refusal_of_admit(f"redis://weak:s3cret@127.0.0.1:{running.port}")
        admin.close()
    assert "evalsha" in str(error)
    assert ":* +@all" in str(error)


def refusal_of_admit(url: str) -> FlyballError:
    scene = Scene(lambda world: make_redis(world, url))
    with pytest.raises(FlyballError) as raised:
        scene.take()
    scene.close()
    assert "s3cret" not in str(raised.value)
    return raised.value


@pytest.mark.parametrize("option", ["no_such_option=1", "socket_timeout=often", "socket_timeout=0"])
def test_an_option_that_makes_no_sense_is_refused(redis_server: RedisServer, option: str) -> None:
    with pytest.raises(UsageError, match="FLYBALL_URL"):
        make_redis(FakeWorld(), f"{redis_server.url}?{option}").snapshot()


def test_an_address_is_shown_without_anything_secret() -> None:
    shown = without_password("redis://user:s3cret@box:6379/2?password=s3cret&ssl_cert_reqs=none")
    assert shown == "redis://box:6379/2"


# -- answers that are lost ---------------------------------------------------------------------------


def losing_answers(store: Any, *names: str) -> Callable[[], None]:
    """The server does what it is told, but what it says is lost; call the result to mend that."""
    run = store._server.run

    def lost(script: Any, key: str, *arguments: str) -> Any:
        answer = run(script, key, *arguments)
        if script.name in names:
            error = StoreError("the answer was lost")
            error.maybe_done = True
            raise error
        return answer

    store._server.run = lost

    def mend() -> None:
        store._server.run = run

    return mend


def test_a_grant_whose_answer_was_lost_is_given_back_by_the_next_step(scene: Scene) -> None:
    scene.static(1)
    mend = losing_answers(scene.store, "do_admit")
    with pytest.raises(StoreError):
        scene.take()
    mend()
    assert scene.snapshot().in_use == 1, "no caller knows of this lease"
    scene.take()
    assert scene.snapshot().in_use == 1


def test_a_release_whose_answer_was_lost_counts_once(scene: Scene) -> None:
    from flyball.core.pool.model import Outcome
    from flyball.stores.port import Release

    scene.pool(cap=8, controller="koryph")
    release = Release(scene.take(), Outcome.THROTTLED)
    mend = losing_answers(scene.store, "do_end")
    with pytest.raises(StoreError):
        scene.store.release(release)
    mend()
    scene.store.remember(release)
    scene.take()
    assert scene.snapshot().in_use == 1
    assert scene.snapshot().memory.cap.throttle_count == 1


def test_what_arrives_after_its_sender_gave_up_changes_nothing(redis_server: RedisServer) -> None:
    world = FakeWorld()
    store = RedisStore(RedisConnections(redis_server.url), world.ports(), space=os.urandom(6).hex())
    scene = Scene(lambda _: store, world)
    scene.static(1)
    store._server.deadline = lambda: time.time() - 1.0  # type: ignore[method-assign]
    key = store._registry.pool_key("p")
    before = store._server.ask("HGETALL", f"{key}pool")
    reply = store._run(
        "do_admit", "p", store._context(), "1\ta\tt\t1\t1\t0\t\ttag\ta\tt\th\tb\t1\t1\t1\t1\t0\t\t\t1"
    )
    assert reply[:2] == ["kind", "late"]
    assert store._server.ask("HGETALL", f"{key}pool") == before
    scene.close()


def test_a_server_whose_clock_was_set_is_followed(redis_server: RedisServer) -> None:
    world = FakeWorld()
    store = RedisStore(RedisConnections(redis_server.url), world.ports(), space=os.urandom(6).hex())
    scene = Scene(lambda _: store, world)
    scene.static(2)
    store._server.note_time(time.time() - 3600.0)
    scene.take()
    store._server.note_time(time.time() + 3600.0)
    scene.take()
    scene.close()


def test_a_paused_server_is_reported_in_time_and_nothing_it_was_told_then_happens_later() -> None:
    with server() as running:
        store = RedisStore(RedisConnections(f"{running.url}?socket_timeout=0.3"), FakeWorld().ports())
        scene = Scene(lambda _: store)
        scene.static(1)
        running.pause()
        with pytest.raises(StoreBusyError, match=r"did not answer within 0\.3 s"):
            scene.take()
        time.sleep(0.4)
        running.resume()
        scene.take()
        assert scene.snapshot().in_use == 1
        scene.close()


# -- removing a pool -----------------------------------------------------------------------------------


def test_a_removed_pool_leaves_no_key_behind(redis_server: RedisServer) -> None:
    scene = Scene(lambda world: make_redis(world, redis_server.url, space="removing"))
    store = scene.store
    assert isinstance(store, RedisStore)
    scene.static(1, windows={"requests": "9/min"}, share="strict")
    kept, _ = store.admit(replace(scene.ask(), key="k", ttl_s=60.0), park=False)
    waiting = scene.park("b")
    scene.throttle()
    scene.demand("c")
    resting, _ = store.pause(scene.ask(), for_s=60.0, why="limited")
    store.beat("p", look_s=1.0)
    node = Node(scene, "a", wants=1)
    node.renew()
    for claim_id in (waiting, kept.claim_id, resting):
        scene.release(claim_id)
    scene.wait(node.terms.lease_s + 1)
    with redis.Redis.from_url(redis_server.url.removeprefix("redis+"), decode_responses=True) as client:
        before = set(client.scan_iter("removing:{p}:*"))
        store.remove_pool("p")
        after = set(client.scan_iter("removing:{p}:*"))
    assert {key.rpartition(":")[2] for key in before} >= {"pool", "demands", "hosts", "receipts", "shares"}
    assert after == set()
    scene.close()
