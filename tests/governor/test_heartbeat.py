"""Leases on a server are looked after by their own hosts; silence alone never takes one back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from flyball import Governor
from flyball.cli.ui.pool_status import elsewhere_words
from flyball.core.pool.holder import Holder
from flyball.core.pool.settings import LEASE_BACKSTOP_S
from flyball.errors import StoreError
from flyball.governor import acquisition
from flyball.governor.heartbeat import BEAT_S, LOOK_S, Heartbeat, SharedStore
from flyball.governor.internals import internals
from flyball.governor.state_url import on_server
from flyball.governor.status import SILENT_S, LeaseStatus, status_from
from flyball.testing import FakeWorld, Scene, make_postgres, make_redis
from flyball.testing.world import HERE
from tests.governor.people import pool
from tests.waiting import until

ELSEWHERE = replace(HERE, host="elsewhere")
POOL = "p"


class Fleet:
    """Two hosts over one pool, in one simulated time."""

    def __init__(self, make: Callable[[FakeWorld], SharedStore]) -> None:
        self.world = FakeWorld()
        self.scene = Scene(make, self.world)
        other = FakeWorld(here=ELSEWHERE)
        other.clock = self.world.clock
        self.other = make(other)

    def gone(self, claim_id: int) -> bool:
        (claim,) = [claim for claim in self.scene.store.pool_census(POOL).claims if claim.id == claim_id]
        return acquisition.is_gone(claim, self.scene.store.now())

    def shown(self) -> LeaseStatus:
        return status_from(self.scene.store.snapshot(), "").pools[0].leases[0]


@pytest.fixture(params=["redis", "postgres"])
def fleet(request: pytest.FixtureRequest) -> Iterator[Fleet]:
    url: str = request.getfixturevalue(f"{request.param}_server").url
    make = make_redis if request.param == "redis" else make_postgres
    space = f"fleet-{time.monotonic_ns()}"
    fleet = Fleet(lambda world: make(world, url, space=space))
    yield fleet
    fleet.scene.close()
    fleet.other.close()


def on(host: Holder, pid: int = 7) -> Holder:
    return replace(host, pid=pid, start=pid)


def test_a_lease_that_is_not_confirmed_stays_until_the_backstop(fleet: Fleet) -> None:
    lease = fleet.scene.take(holder=on(ELSEWHERE))
    fleet.scene.wait(LEASE_BACKSTOP_S - 1)
    assert not fleet.gone(lease)
    fleet.scene.wait(2)
    assert fleet.gone(lease)


def test_a_lease_whose_host_is_there_outlives_the_backstop(fleet: Fleet) -> None:
    lease = fleet.scene.take(holder=on(ELSEWHERE))
    fleet.scene.wait(LEASE_BACKSTOP_S)
    fleet.other.beat(POOL, look_s=LOOK_S)
    fleet.scene.wait(LEASE_BACKSTOP_S - 1)
    assert not fleet.gone(lease)
    fleet.scene.wait(2)
    assert fleet.gone(lease), "a day after the last word from its host"


def test_a_host_says_nothing_about_another_boot_of_itself(fleet: Fleet) -> None:
    lease = fleet.scene.take(holder=on(replace(ELSEWHERE, boot="boot-0")))
    fleet.scene.wait(LEASE_BACKSTOP_S + 1)
    fleet.other.beat(POOL, look_s=LOOK_S)
    assert fleet.gone(lease)


def test_one_process_of_a_host_looks_at_a_time(fleet: Fleet) -> None:
    turns = [fleet.other.beat(POOL, look_s=10) for _ in range(3)]
    fleet.scene.wait(10)
    assert [*turns, fleet.other.beat(POOL, look_s=10)] == [True, False, False, True]


def test_status_says_what_is_known_of_another_host(fleet: Fleet) -> None:
    fleet.scene.take(holder=on(ELSEWHERE))
    assert elsewhere_words(fleet.shown()) == ", cannot be checked from here"
    fleet.other.beat(POOL, look_s=LOOK_S)
    fleet.scene.wait(SILENT_S)
    assert elsewhere_words(fleet.shown()) == ""
    fleet.scene.wait(300 - SILENT_S)
    assert elsewhere_words(fleet.shown()) == ", not heard of for 5 min"
    assert SILENT_S == 4 * BEAT_S


# -- the thread -----------------------------------------------------------------------------------------


class Recorder:
    """A store that only notes who beats."""

    def __init__(self) -> None:
        self.beaten: list[str] = []
        self.heard = threading.Event()
        self.fails = False

    def beat(self, pool: str, *, look_s: float) -> bool:
        self.beaten.append(f"{pool} in {threading.current_thread().name}")
        self.heard.set()
        if self.fails:
            raise StoreError("gone")
        return False

    def wait(self) -> None:
        self.heard.clear()
        assert self.heard.wait(10)


@pytest.fixture
def store() -> Recorder:
    return Recorder()


@pytest.fixture
def heart(store: Recorder) -> Iterator[Heartbeat]:
    beating: Any = store
    heart = Heartbeat(beating, (), beat_s=0.005)
    yield heart
    heart.close()


def test_it_beats_for_the_pools_it_holds_leases_of_in_a_thread_of_its_own(
    heart: Heartbeat, store: Recorder
) -> None:
    for name in ("a", "a", "b"):
        heart.keep(name)
    until(lambda: {"a in flyball-heartbeat", "b in flyball-heartbeat"} <= set(store.beaten))
    heart.let_go("a")
    heart.let_go("b")
    store.wait()
    store.beaten.clear()
    store.wait()
    assert set(store.beaten) == {"a in flyball-heartbeat"}, "one lease of it is left"


def test_a_server_that_is_gone_is_tried_again(heart: Heartbeat, store: Recorder) -> None:
    store.fails = True
    heart.keep("a")
    store.wait()
    store.wait()


def test_a_release_that_could_not_be_written_is_beaten_for_until_it_was(
    heart: Heartbeat, store: Recorder
) -> None:
    store.fails = True
    heart.keep("a")
    heart.let_go("a")
    heart.owe("a")
    store.wait()
    store.wait()
    store.fails = False
    store.wait()
    until(lambda: not heart._owed)


def test_a_governor_beats_only_on_a_server(gov: Governor, url: str) -> None:
    with gov.slot("p"):
        assert (internals(gov)._heart is not None) is on_server(url)
        if internals(gov)._heart is not None:
            until(lambda: pool(gov).leases[0].confirmed_s_ago is not None)
