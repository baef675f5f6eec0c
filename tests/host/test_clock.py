"""A clock that goes on after a reboot, cannot be set back, and believes the wall clock only so far."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.core.pool.verdict import Reason
from flyball.host.clock import OFF_LIMIT_S, boot_seconds, clock_offset
from flyball.stores.sqlite.clock import SEEN_EVERY_S, StoreClock
from flyball.stores.sqlite.store import SqliteStore
from flyball.testing import FakeWorld, Scene


class Machine:
    """A machine that can be switched off, with a wall clock that may be wrong."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.boot, self.up_s, self.wall = 1, 50.0, 1_700_000_000.0

    def run(self, seconds: float) -> None:
        self.up_s += seconds
        self.wall += seconds

    def reboot(self, *, off_s: float, up_s: float = 20.0) -> None:
        self.boot, self.up_s, self.wall = self.boot + 1, up_s, self.wall + off_s

    def store(self, *, read_only: bool = False) -> SqliteStore:
        clock = StoreClock(boot_s=lambda: self.up_s, wall=lambda: self.wall, boot=lambda: f"boot-{self.boot}")
        return SqliteStore(self.path, FakeWorld().ports(clock), clock, read_only=read_only)

    def scene(self) -> Scene:
        return Scene(lambda _: self.store())


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "governor.db")


def _after_reboot(machine: Machine, off_s: float) -> float:
    """How far the store's clock moved from its last step before the reboot to the first after it."""
    store = machine.store()
    store.set_pool("p", {})
    before = store.now()
    store.close()
    machine.reboot(off_s=off_s)
    after = machine.store()
    moved = after.now() - before
    after.close()
    return moved


def test_within_a_boot_it_counts_what_the_system_counts(machine: Machine) -> None:
    store, other = machine.store(), machine.store()
    before = store.now()
    machine.run(12.5)
    assert store.now() - before == 12.5
    assert other.now() == store.now()


def test_a_wall_clock_that_is_set_means_nothing_within_a_boot(machine: Machine) -> None:
    store = machine.store()
    before = store.now()
    machine.wall -= 3600
    assert store.now() == before
    assert machine.store().now() == before


def test_after_a_reboot_it_goes_on_by_as_long_as_the_machine_was_off(machine: Machine) -> None:
    assert _after_reboot(machine, 600.0) == pytest.approx(600.0)


def test_a_wall_clock_set_back_counts_as_no_time(machine: Machine) -> None:
    assert _after_reboot(machine, -3600.0) == pytest.approx(0.0)


def test_a_wall_clock_set_far_ahead_counts_as_the_limit(machine: Machine) -> None:
    assert _after_reboot(machine, 400 * 86_400.0) == pytest.approx(OFF_LIMIT_S)


def test_many_reboots_never_turn_time_back(machine: Machine) -> None:
    seen = []
    for off_s in (10.0, -9999.0, 0.0, 86_400.0, -1.0):
        store = machine.store()
        machine.run(100.0)
        store.set_pool("p", {})
        seen.append(store.now())
        store.close()
        machine.reboot(off_s=off_s)
    assert seen == sorted(seen)


def test_at_most_the_time_since_it_was_last_seen_is_lost(machine: Machine) -> None:
    store = machine.store()
    for _ in range(100):
        machine.run(7.0)
        store.set_pool("p", {})
    before = store.now()
    store.close()
    machine.reboot(off_s=-10_000.0)
    assert before - SEEN_EVERY_S <= machine.store().now() <= before


def test_a_break_goes_on_after_a_reboot(machine: Machine) -> None:
    scene = machine.scene()
    scene.pool(cap=1)
    scene.throttle()
    scene.close()
    machine.reboot(off_s=100.0)
    scene = machine.scene()
    assert scene.expect_refusal(Reason.BREAKER).look_again_s == pytest.approx(200.0)
    machine.run(200.0)
    scene.take()
    scene.close()


def test_a_reader_goes_on_after_a_reboot_too_and_writes_nothing(machine: Machine) -> None:
    store = machine.store()
    store.set_pool("p", {})
    before = store.now()
    store.close()
    machine.reboot(off_s=60.0)
    content = machine.path.read_bytes()
    assert machine.store(read_only=True).now() - before == pytest.approx(60.0)
    assert machine.path.read_bytes() == content


def test_the_first_to_open_the_file_decides_for_every_process(machine: Machine) -> None:
    machine.store().close()
    machine.reboot(off_s=500.0)
    first = machine.store()
    machine.wall += 9999
    assert machine.store().now() == first.now()


def test_the_moment_is_noted_now_and_then_not_at_every_step(machine: Machine) -> None:
    store = machine.store()
    with sqlite3.connect(machine.path) as connection:
        noted = set()
        for _ in range(100):
            machine.run(1.0)
            store.set_pool("p", {})
            noted.add(connection.execute("SELECT seen_at FROM clock").fetchone()[0])
    connection.close()
    assert len(noted) <= 5


@given(
    seen_at=st.floats(0, 1e8),
    seen_wall=st.floats(0, 4e9),
    wall=st.floats(0, 4e9),
    boot_s=st.floats(0, 1e7),
)
def test_whatever_the_wall_says_time_goes_on_within_reason(
    seen_at: float, seen_wall: float, wall: float, boot_s: float
) -> None:
    now = clock_offset(seen_at=seen_at, seen_wall=seen_wall, wall=wall, boot_s=boot_s) + boot_s
    assert seen_at - 1e-3 <= now <= seen_at + OFF_LIMIT_S + 1e-3


def test_the_systems_clock_moves_forwards() -> None:
    before = boot_seconds()
    assert boot_seconds() >= before > 0
