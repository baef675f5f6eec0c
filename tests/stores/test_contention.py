"""Threads that really compete: the seed's own list of what must hold under contention."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from flyball.core.pool.model import Phase
from flyball.core.pool.verdict import Verdict
from flyball.testing import FakeWorld, MakeStore, Scene, make_postgres, make_redis, make_sqlite


def at_once(number: int, work: Callable[[int], Verdict]) -> list[Verdict]:
    """Run it in so many threads, all started together."""
    barrier = threading.Barrier(number)

    def start(n: int) -> Verdict:
        barrier.wait()
        return work(n)

    with ThreadPoolExecutor(number) as threads:
        return list(threads.map(start, range(number)))


def test_exactly_one_trial_wins_under_contention(scene: Scene) -> None:
    scene.pool(cap=1, cap_ceiling=4)
    scene.throttle()
    scene.wait(300)
    asks = [scene.ask(project) for project in "abcdefgh"]
    verdicts = at_once(8, lambda n: scene.store.admit(asks[n], park=False)[0])
    assert [verdict.granted for verdict in verdicts].count(True) == 1


def test_the_cap_is_never_exceeded_under_contention(scene: Scene) -> None:
    scene.static(5)
    asks = [scene.ask("abc"[n % 3]) for n in range(16)]
    verdicts = at_once(16, lambda n: scene.store.admit(asks[n], park=False)[0])
    assert [verdict.granted for verdict in verdicts].count(True) == 5


def test_two_pools_never_breach_either_cap(scene: Scene) -> None:
    scene.static(2, "p")
    scene.static(3, "q")
    asks = [scene.ask(pool="pq"[n % 2]) for n in range(16)]
    verdicts = at_once(16, lambda n: scene.store.admit(asks[n], park=False)[0])
    assert Counter(verdict.pool for verdict in verdicts if verdict.granted) == {"p": 2, "q": 3}


def test_strict_shares_hold_under_contention(scene: Scene) -> None:
    scene.static(6, share="strict")
    for project in "abc":
        scene.demand(project)
    asks = [scene.ask("abc"[n % 3]) for n in range(15)]
    verdicts = at_once(15, lambda n: scene.store.admit(asks[n], park=False)[0])
    granted = Counter(ask.project for ask, verdict in zip(asks, verdicts, strict=True) if verdict.granted)
    assert granted == {"a": 2, "b": 2, "c": 2}


def test_a_burst_of_throttles_from_many_threads_cuts_once(scene: Scene) -> None:
    scene.pool(cap=16, controller="koryph")
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: scene.throttle("a", "t-1"), range(8)))
    assert (scene.snapshot().cap, scene.snapshot().memory.cap.throttle_count) == (8, 8)


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def make_shared(request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
    """Handles of their own over one state, as two processes have."""
    if request.param == "redis":
        url, space = request.getfixturevalue("redis_server").url, tmp_path.name
        return lambda world: make_redis(world, url, space=space)
    if request.param == "postgres":
        place, space = request.getfixturevalue("postgres_server").url, os.urandom(8).hex()
        return lambda world: make_postgres(world, place, space=space)
    return lambda world: make_sqlite(world, tmp_path / "governor.db")


def test_two_handles_over_one_state_share_one_adaptive_cap(make_shared: MakeStore) -> None:
    world = FakeWorld()
    first, second = Scene(make_shared, world), Scene(make_shared, world)
    first.pool(controller="koryph")
    first.throttle()
    assert second.snapshot().cap == 4
    for _ in range(4):
        second.take()
    assert not first.nowait().granted
    first.wait(121)
    second.throttle()
    assert (first.snapshot().cap, first.snapshot().phase) == (second.snapshot().cap, Phase.CLOSED)
    first.close()
    second.close()


def test_two_handles_over_one_state_never_exceed_its_cap(make_shared: MakeStore) -> None:
    world = FakeWorld()
    scenes = [Scene(make_shared, world) for _ in range(4)]
    scenes[0].static(5)
    asks = [scenes[0].ask() for _ in range(16)]
    verdicts = at_once(16, lambda n: scenes[n % 4].store.admit(asks[n], park=False)[0])
    assert [verdict.granted for verdict in verdicts].count(True) == 5
    for scene in scenes:
        scene.close()


def test_two_handles_over_one_state_let_one_trial_win(make_shared: MakeStore) -> None:
    world = FakeWorld()
    scenes = [Scene(make_shared, world) for _ in range(2)]
    scenes[0].pool(cap=1)
    scenes[0].throttle()
    scenes[0].wait(300)
    asks = [scenes[0].ask() for _ in range(8)]
    verdicts = at_once(8, lambda n: scenes[n % 2].store.admit(asks[n], park=False)[0])
    assert [verdict.granted for verdict in verdicts].count(True) == 1
    for scene in scenes:
        scene.close()
