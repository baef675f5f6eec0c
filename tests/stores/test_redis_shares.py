"""Share leases on a server: round trips, lives of the server, and plans that are made while others renew."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from flyball.core.share_lease.renewal import CallCounts, Renewal
from flyball.errors import StoreError
from flyball.stores.redis.connection import RedisConnections
from flyball.stores.redis.store import RedisStore, channel_prefix
from flyball.testing import FakeWorld, Scene, make_redis
from flyball.testing.store_checks.share_leases import Node, let_learn, settle
from tests.redis_server import RedisServer


@pytest.fixture
def pair(redis_server: RedisServer) -> Iterator[tuple[Scene, Scene]]:
    """Two handles over one state, which knows that no node holds anything."""
    world, space = FakeWorld(), os.urandom(6).hex()
    scenes = [Scene(lambda w: make_redis(w, redis_server.url, space=space), world) for _ in range(2)]
    scenes[0].static(6)
    let_learn(scenes[0])
    yield scenes[0], scenes[1]
    for scene in scenes:
        scene.close()


@pytest.fixture
def scene(pair: tuple[Scene, Scene]) -> Scene:
    return pair[0]


def pool_field(scene: Scene, field: str, value: str | None = None) -> str:
    store: Any = scene.store
    key = f"{store._registry.pool_key('p')}pool"
    if value is not None:
        store._server.ask("HSET", key, field, value)
    return str(store._server.ask("HGET", key, field))


def trips(scene: Scene) -> list[str]:
    """The scripts that run from now on, but for mere looking."""
    store: Any = scene.store
    run, ran = store._server.run, []

    def counted(script: Any, key: str, *arguments: str) -> Any:
        if not script.name.startswith("read"):
            ran.append(script.name)
        return run(script, key, *arguments)

    store._server.run = counted
    return ran


def while_planning(scene: Scene, work: Callable[[], object]) -> None:
    """Do this once, after this handle was told what a plan is made from and before it has made it."""
    store: Any = scene.store
    run = store._server.run

    def interrupted(script: Any, key: str, *arguments: str) -> Any:
        reply = run(script, key, *arguments)
        if type(reply) is not str:
            store._server.run = run
            work()
        return reply

    store._server.run = interrupted


# -- round trips ------------------------------------------------------------------------------------------


def test_a_renewal_that_changes_nothing_is_one_round_trip(scene: Scene) -> None:
    nodes = [Node(scene, name, wants=3) for name in "ab"]
    settle(*nodes)
    ran = trips(scene)
    for node in nodes:
        scene.wait(0.3)
        assert node.renew() == 3
    assert ran == ["do_renew"] * 2


def test_a_renewal_looks_at_no_other_row(scene: Scene) -> None:
    """Whatever else there is: rows that cannot be read make no difference to it."""
    a, b = Node(scene, "a", wants=2), Node(scene, "b", wants=2)
    settle(a, b)
    store: Any = scene.store
    key = f"{store._registry.pool_key('p')}shares"
    store._server.ask("HSET", key, f"b\x1f{b.holding.incarnation}", "nonsense")
    scene.wait(0.3)
    assert a.give(a.renewal()).slots >= 2


# -- lives of a server --------------------------------------------------------------------------------------


def test_a_pool_that_is_new_on_a_server_that_knows_everything_need_not_learn(scene: Scene) -> None:
    scene.static(4, "q")
    assert Node(scene, "a", wants=9, pool="q").renew() == 4


def test_a_server_that_lost_its_data_learns_in_every_pool(pair: tuple[Scene, Scene]) -> None:
    one, _ = pair
    store: Any = one.store
    for key in store._server.ask("KEYS", f"{store._registry._space}:*"):
        store._server.ask("DEL", key)
    for pool in ("p", "q"):
        one.static(4, pool)
        assert Node(one, "a", wants=9, pool=pool).renew() == 0


@pytest.fixture
def server() -> Iterator[RedisServer]:
    running = RedisServer("--appendonly", "yes", "--appendfsync", "always")
    yield running
    running.close()


def renewal(seq: int, **rest: Any) -> Renewal:
    return Renewal(node="a", incarnation="i", seq=seq, holds=0, in_flight=0, wants=3, **rest)


def test_a_server_that_was_started_anew_with_its_data_learns_again(server: RedisServer) -> None:
    """It may have lost the last of it. The only sign of that is its own run id."""
    store = RedisStore(RedisConnections(server.url), FakeWorld().ports())
    store.set_pool("p", {"cap": 4, "adaptive": False, "heartbeat_s": 0.05})
    assert store.renew("p", renewal(1))[0].learning
    time.sleep(0.25)
    assert not store.renew("p", renewal(2))[0].learning
    server.kill()
    server.start()
    assert store.renew("p", renewal(3))[0].learning
    time.sleep(0.25)
    assert store.renew("p", renewal(4))[0].slots == 4
    store.close()


def test_a_server_that_was_promoted_learns_again(server: RedisServer) -> None:
    store = RedisStore(RedisConnections(server.url), FakeWorld().ports())
    store.set_pool("p", {"cap": 4, "adaptive": False, "heartbeat_s": 0.05})
    store.renew("p", renewal(1))
    time.sleep(0.25)
    assert not store.renew("p", renewal(2))[0].learning
    link = RedisConnections(server.url)
    link.ask("REPLICAOF", "127.0.0.1", "1")
    link.ask("REPLICAOF", "NO", "ONE")
    link.close()
    assert store.renew("p", renewal(3))[0].learning
    store.close()


# -- telling ------------------------------------------------------------------------------------------------


def test_which_nodes_should_renew_is_told_by_the_script_itself(
    scene: Scene, redis_server: RedisServer
) -> None:
    link = RedisConnections(redis_server.url)
    ears = link.listener()
    ears.subscribe(f"{channel_prefix(scene.store)}x")
    assert ears.get_message(timeout=5)["type"] == "subscribe"
    a, b = Node(scene, "a", wants=9), Node(scene, "b", wants=9)
    scene.store.renew("p", _with_mailbox(a, f"{channel_prefix(scene.store)}x#7"))
    scene.wait(0.1)
    b.renew()
    message = ears.get_message(timeout=5)
    assert (message["type"], message["data"]) == ("message", "7"), "no claim is named: look"
    ears.close()
    link.close()


def _with_mailbox(node: Node, mailbox: str) -> Renewal:
    return replace(node.renewal(), mailbox=mailbox)


# -- plans that are made while others renew -----------------------------------------------------------------


def test_what_renewals_change_while_a_plan_is_made_stays(pair: tuple[Scene, Scene]) -> None:
    one, other = pair
    a, b, c = Node(one, "a", wants=9), Node(other, "b", wants=2), Node(one, "c", wants=1)
    a.renew()
    one.wait(0.1)
    given_up = replace(a.renewal(), holds=2, in_flight=2, wants=2)

    def meanwhile() -> None:
        other.store.renew("p", given_up)
        b.renew()

    while_planning(one, meanwhile)
    c.renew()
    seen = {share.node: share for share in one.snapshot().shares if share.slots or share.wants}
    assert (seen["a"].in_flight, seen["a"].wants) == (2, 2)
    assert seen["b"].wants == 2
    assert one.store.miscounts() == []
    assert one.snapshot().in_use == sum(share.slots for share in one.snapshot().shares)
    assert pool_field(one, "pot:dirty") != "0", "who came meanwhile is planned for next"


def test_a_node_that_renews_while_a_plan_evicts_it_stays(pair: tuple[Scene, Scene]) -> None:
    one, other = pair
    late, b = Node(one, "late", wants=6), Node(one, "b", wants=9)
    late.renew()
    one.wait(late.terms.lease_s + 0.1)
    late.scene = other
    while_planning(one, late.renew)
    b.renew()
    held = {share.node: share.slots for share in one.snapshot().shares if share.slots}
    assert held["late"] == 6, "it runs, and the store knows it"
    assert sum(held.values()) == one.snapshot().in_use <= 6
    assert one.store.miscounts() == []
    assert "share" not in one.fact_kinds(), "and no fact says that it was taken back"


def test_while_one_node_plans_the_others_go_on_with_what_there_is(pair: tuple[Scene, Scene]) -> None:
    one, other = pair
    a, b = Node(one, "a", wants=3), Node(other, "b", wants=3)
    settle(a, b)
    one.wait(0.3)
    a.wants, b.wants, ran = 5, 5, trips(other)
    while_planning(one, b.renew)
    a.renew()
    assert ran == ["do_renew"], "though it has something to say that changes who should get how much"
    one.wait(0.3)
    b.renew()
    assert ran == ["do_renew"] * 3


def test_a_planner_that_died_is_not_waited_for_for_long(pair: tuple[Scene, Scene]) -> None:
    one, other = pair
    a, b = Node(one, "a", wants=9), Node(other, "b", wants=9)
    a.renew()
    one.wait(0.1)

    def die() -> None:
        raise StoreError("killed")

    while_planning(one, die)
    a.wants = 0
    a.end(6)
    with pytest.raises(StoreError):
        a.renew()
    b.renew()
    assert pool_field(one, "pot:dirty") != "0"
    one.wait(0.3)
    b.renew()
    assert pool_field(one, "pot:dirty") == "0"
    assert one.store.miscounts() == []


def test_refusals_told_by_a_node_that_died_right_after_are_heard_once(pair: tuple[Scene, Scene]) -> None:
    one, other = pair
    one.pool(adaptive=True, controller="koryph", cap=6)
    a = Node(one, "a", wants=6)
    a.renew()
    before = one.snapshot().memory.cap.throttle_count

    def die() -> None:
        raise StoreError("killed")

    a.tally = CallCounts(throttles=1)
    one.wait(1.0)
    while_planning(one, die)
    with pytest.raises(StoreError):
        a.renew()
    a.scene = other
    a.renew()
    assert other.snapshot().memory.cap.throttle_count == before + 1


# -- the doctor ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["pot:held", "pot:busy", "pot:active", "pot:nodes", "in_use"])
def test_the_doctor_counts_share_leases_again(scene: Scene, field: str) -> None:
    a = Node(scene, "a", wants=4)
    a.renew()
    right = pool_field(scene, field)
    pool_field(scene, field, "17")
    assert [wrong.kept for wrong in scene.store.miscounts()] == [17]
    scene.store.recount()
    assert pool_field(scene, field) == right
    assert scene.store.miscounts() == []


@pytest.mark.parametrize("change", ["reset", "set", "import"])
def test_what_people_change_leaves_shares_alone(scene: Scene, change: str) -> None:
    a = Node(scene, "a", wants=4)
    a.renew()
    if change == "reset":
        scene.store.reset_pool("p")
    elif change == "set":
        scene.static(5)
    else:
        scene.store.import_pool("p", {"cap": 5}, scene.snapshot().memory)
    assert [share.slots for share in scene.snapshot().shares if share.slots] == [6]
    assert scene.snapshot().in_use == 6
    scene.wait(0.1)
    assert a.renew() == 4
    assert scene.store.miscounts() == []
