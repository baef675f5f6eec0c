"""Share leases of real processes that are killed, paused, restarted and sent away: the bound always holds.

An observer outside counts what is in flight; every test ends with all slots accounted for.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flyball import Governor, RefusedError
from flyball.governor.internals import internals
from tests.faults.conftest import SOAK
from tests.faults.share_fleet import POOL, Fleet
from tests.postgres_server import PostgresServer
from tests.redis_server import RedisServer

CAP = 4
BEAT_S = 0.25


@pytest.fixture(params=["sqlite", "redis", "postgres"] if SOAK else ["sqlite", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("FLYBALL_HOME", str(tmp_path / "home"))
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        return f"{server.url}?space={os.urandom(6).hex()}"
    if request.param == "postgres":
        postgres: PostgresServer = request.getfixturevalue("postgres_server")
        return f"{postgres.url}?space={postgres.space()}"
    return f"sqlite://{tmp_path / 'governor.db'}"


@pytest.fixture
def gov(url: str) -> Iterator[Governor]:
    governor = Governor(url)
    governor.set_pool(POOL, cap=CAP, adaptive=False, heartbeat_s=BEAT_S)
    yield governor
    governor.close()


@pytest.fixture
def fleet(gov: Governor) -> Iterator[Fleet]:
    with tempfile.TemporaryDirectory(prefix="fb-") as short:
        fleet = Fleet(gov.address, Path(short))
        yield fleet
        fleet.close()


def all_free(gov: Governor) -> bool:
    """Is the whole cap to be had again, and are the counts right?"""
    leases = []
    try:
        for _ in range(CAP):
            leases.append(gov.acquire_nowait(POOL))  # noqa: PERF401 - kept even if the next is refused
    except RefusedError:
        return False
    finally:
        for lease in leases:
            lease.release()
    return internals(gov).store.miscounts() == []


def leased(gov: Governor) -> int:
    pool = next(pool for pool in gov.status().pools if pool.name == POOL)
    return sum(share.slots for share in pool.shares)


def ends_well(fleet: Fleet, gov: Governor) -> None:
    assert 0 < fleet.observer.most <= CAP
    fleet.until(lambda: all_free(gov), "all slots to be accounted for")


def test_nodes_that_join_and_leave(fleet: Fleet, gov: Governor) -> None:
    first = fleet.start("a")
    fleet.works(first)
    others = [fleet.start(name) for name in "bc"]
    fleet.works(first, *others)
    fleet.stop(first)
    fleet.works(*others)
    fleet.stop(*others)
    ends_well(fleet, gov)


def test_nodes_that_are_killed(fleet: Fleet, gov: Governor) -> None:
    nodes = [fleet.start(name) for name in "abc"]
    fleet.works(*nodes)
    fleet.kill(nodes[0])
    fleet.kill(nodes[1])
    fleet.until(lambda: fleet.observer.limits.get(nodes[2].pid) == CAP, "the third to have it all")
    fleet.stop(nodes[2])
    ends_well(fleet, gov)


def test_a_node_that_is_killed_and_restarted_under_its_name(fleet: Fleet, gov: Governor) -> None:
    other, node = fleet.start("a"), fleet.start("b")
    for _ in range(2):
        fleet.works(other, node)
        fleet.kill(node)
        node = fleet.start("b")
    fleet.works(other, node)
    fleet.stop(other, node)
    ends_well(fleet, gov)


def test_two_nodes_of_one_name(fleet: Fleet, gov: Governor) -> None:
    nodes = [fleet.start("same"), fleet.start("same")]
    fleet.works(*nodes)
    fleet.stop(*nodes)
    ends_well(fleet, gov)


def test_a_node_that_was_paused_goes_on_only_with_what_is_its_own(fleet: Fleet, gov: Governor) -> None:
    """What it had in flight when it was paused is covered by the grace; nothing else may start."""
    gov.set_pool(POOL, grace_s=2.0)
    paused, other = fleet.start("a"), fleet.start("b")
    fleet.works(paused, other)
    paused.send_signal(signal.SIGSTOP)
    # Longer than its lease: the store gives its slots away.
    fleet.until(lambda: fleet.observer.limits.get(other.pid) == CAP, "the other to have it all")
    fleet.observer.gone(paused.pid)
    fleet.observer.anew()
    paused.send_signal(signal.SIGCONT)
    fleet.works(paused, other)
    fleet.stop(paused, other)
    ends_well(fleet, gov)


def test_a_pause_shorter_than_the_lease_costs_nothing(fleet: Fleet, gov: Governor) -> None:
    paused, other = fleet.start("a"), fleet.start("b")
    fleet.works(paused, other)
    for _ in range(3):
        paused.send_signal(signal.SIGSTOP)
        time.sleep(BEAT_S)
        paused.send_signal(signal.SIGCONT)
        fleet.works(paused, other, pieces=5)
    fleet.stop(paused, other)
    ends_well(fleet, gov)


def test_the_cap_goes_up_and_down_under_load(fleet: Fleet, gov: Governor) -> None:
    nodes = [fleet.start(name) for name in "ab"]
    fleet.works(*nodes)
    for cap in (1, 3, 2):
        gov.set_pool(POOL, cap=cap)
        fleet.until(lambda cap=cap: sum(fleet.observer.limits.values()) == cap, f"a cap of {cap}")  # type: ignore[misc]
        # A lease gets smaller when what is in flight fits, so no more than these ever is from then on.
        fleet.until(lambda cap=cap: leased(gov) <= cap, "work to drain")  # type: ignore[misc]
        fleet.observer.anew()
        before = fleet.observer.work
        fleet.until(lambda before=before: fleet.observer.work > before + 20, "more work")  # type: ignore[misc]
        assert fleet.observer.most <= cap
    gov.set_pool(POOL, cap=CAP)
    fleet.works(*nodes)
    fleet.stop(*nodes)
    ends_well(fleet, gov)
