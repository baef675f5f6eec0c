"""Mistakes found in the system the seed describes (FACTS 1), each as the behaviour that excludes it."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from flyball.core.pool.model import Outcome, Phase
from flyball.core.pool.settings import DEMAND_TTL_S, LEASE_BACKSTOP_S
from flyball.core.pool.verdict import Reason
from flyball.core.signals import SignalKind
from flyball.errors import FlyballError, StoreUnreadableError
from flyball.stores.sqlite.clock import StoreClock
from flyball.stores.sqlite.store import SqliteStore
from flyball.testing import FakeWorld, Scene, make_sqlite

POOL = "p"


def _half_open(s: Scene) -> None:
    s.pool(cap=1, cap_ceiling=4)
    s.throttle()
    s.wait(300)


def test_throttled_work_that_asks_again_passes_admission(scene: Scene) -> None:
    """Mistake 1: every requeue bypassed admission, even while the breaker was open."""
    scene.pool(controller="koryph")
    scene.pool(cap=1)
    scene.release(scene.take(), Outcome.THROTTLED)
    scene.expect_refusal(Reason.BREAKER)
    again = scene.park(priority=10)
    scene.wait(299)
    assert not scene.poll(again).granted


def test_a_healthy_trial_that_runs_for_hours_closes_the_breaker_after_its_clean_period(scene: Scene) -> None:
    """Mistake 2: a trial longer than its timeout re-opened the breaker, and blocked the pool until then."""
    scene.pool(controller="koryph")
    _half_open(scene)
    trial = scene.take()
    waiting = scene.park()
    scene.wait(120)
    assert not scene.poll(waiting).granted
    assert scene.snapshot().phase is Phase.CLOSED
    scene.wait(1800)
    scene.poll(waiting)
    assert scene.is_held(waiting)
    assert scene.is_held(trial)
    assert scene.snapshot().memory.breaker.reopens == 0


def _grown_to_nine(s: Scene) -> None:
    for _ in range(8):
        s.take()
    waiting = s.park()
    while s.snapshot().cap == 8:
        s.wait(30)
        s.poll(waiting)


def test_a_throttle_right_after_an_increase_undoes_it(scene: Scene) -> None:
    """Mistake 3: settle after an increase ignored the throttles it caused (10 in 50 s, cap unmoved)."""
    scene.pool(controller="koryph")
    _grown_to_nine(scene)
    for task in range(10):
        scene.wait(5)
        scene.throttle("a", f"t-{task}")
    assert scene.snapshot().cap == 8


@pytest.mark.parametrize("cap", [2, 3, 4])
def test_two_throttles_in_one_second_do_not_open_the_breaker_of_a_small_pool(scene: Scene, cap: int) -> None:
    """Mistake 4: at caps of 2-4 settle protected nothing."""
    scene.pool(cap=cap)
    scene.throttle("a", "t-1")
    scene.wait(0.5)
    scene.throttle("b", "t-2")
    assert scene.snapshot().phase is Phase.CLOSED


def test_an_idle_pool_does_not_grow(scene: Scene) -> None:
    """Mistake 5: the cap grew while idle, 8 -> 64 in 8 hours."""
    scene.pool(cap=8, cap_ceiling=64)
    for _ in range(8 * 12):
        scene.wait(300)
        scene.release(scene.take())
    assert scene.snapshot().cap == 8


def test_after_an_outage_the_cap_is_back_within_minutes(scene: Scene) -> None:
    """Mistake 6: recovery 1 -> 8 took 47 minutes."""
    scene.pool(controller="koryph")
    for _ in range(3):
        scene.throttle()
        scene.wait(121)
    scene.wait(300)
    scene.release(scene.take())
    assert scene.snapshot().cap == 1
    waiting = [scene.store.admit(scene.ask(), park=True)[0].claim_id for _ in range(20)]
    minutes: dict[int, int] = {}
    for minute in range(1, 30):
        scene.wait(60)
        scene.poll(waiting[-1])
        minutes.setdefault(scene.snapshot().cap, minute)
    assert minutes[7] <= 10
    assert minutes[8] <= 20


# The same mistakes under the controller that is the default: it measures, so its numbers are others.


def test_a_trial_that_runs_for_hours_closes_the_breaker_of_a_measured_pool_after_its_clean_period(
    scene: Scene,
) -> None:
    """Mistake 2, under the default controller."""
    scene.pool(cap=1, cap_ceiling=4)
    scene.throttle()
    scene.wait(scene.snapshot().settings.break_s)
    trial = scene.take()
    scene.wait(scene.snapshot().settings.trial_timeout_s * 3)
    assert scene.snapshot().phase is Phase.CLOSED
    assert scene.is_held(trial)
    assert scene.snapshot().memory.breaker.reopens == 0


def test_a_call_refused_right_after_an_increase_undoes_it(scene: Scene) -> None:
    """Mistake 3, under the default controller: at once, and for calls still to come."""
    _grown_to_nine(scene)
    while scene.nowait("b").granted:
        pass
    newest = scene.snapshot().leases[-1]
    scene.wait(0.5)
    scene.refuse(newest.id)
    assert scene.snapshot().cap == newest.level - 1


def test_ten_throttles_after_an_increase_leave_the_measured_cap_where_it_was_before(scene: Scene) -> None:
    """Mistake 3, under the default controller: 10 in 50 s, told without the calls they answer."""
    _grown_to_nine(scene)
    for task in range(10):
        scene.throttle("a", f"t-{task}")
        scene.wait(5)
    assert scene.snapshot().cap < 9


@pytest.mark.parametrize("cap", [2, 3, 4])
def test_calls_refused_together_do_not_open_the_breaker_of_a_small_measured_pool(
    scene: Scene, cap: int
) -> None:
    """Mistake 4, under the default controller: a burst of refusals is one measurement."""
    scene.pool(cap=cap)
    leases = [scene.take() for _ in range(cap)]
    scene.wait(0.5)
    for lease in leases:
        scene.refuse(lease)
    assert scene.snapshot().phase is Phase.CLOSED


@pytest.mark.parametrize("cap", [2, 3, 4])
def test_calls_refused_one_after_the_other_do_not_open_the_breaker_of_a_small_measured_pool_at_once(
    scene: Scene, cap: int
) -> None:
    """Mistake 4, under the default controller: what it comes down to gets its chance first."""
    scene.pool(cap=cap)
    began = scene.world.clock()
    while scene.world.clock() < began + 5:
        verdict = scene.nowait()
        if verdict.granted:
            scene.wait(0.1)
            scene.finish_call(verdict.claim_id, SignalKind.THROTTLED)
        else:
            scene.wait(0.1)
    assert scene.snapshot().phase is Phase.CLOSED


def test_a_measured_pool_that_is_never_full_does_not_grow(scene: Scene) -> None:
    """Mistake 5, under the default controller: successes at a cap that is not full prove nothing."""
    scene.pool(cap=8, cap_ceiling=64)
    for _ in range(8 * 12):
        leases = [scene.take() for _ in range(7)]
        scene.wait(300)
        for lease in leases:
            scene.release(lease, oks=100)
    assert scene.snapshot().cap == 8


def test_after_an_outage_the_measured_cap_is_back_within_minutes(scene: Scene) -> None:
    """Mistake 6, under the default controller: recovery 1 -> 8 took 47 minutes."""
    waiting = [scene.store.admit(scene.ask(), park=True)[0].claim_id for _ in range(40)]
    for _ in range(30):
        held = [lease.id for lease in scene.snapshot().leases]
        if not held or scene.snapshot().cap == 1:
            break
        scene.wait(0.5)
        for lease in held:
            scene.finish_call(lease, SignalKind.THROTTLED)
        scene.wait(scene.snapshot().settings.confirm_s)
        scene.poll(waiting[-1])
    assert scene.snapshot().cap == 1
    minutes: dict[int, int] = {}
    for minute in range(1, 30):
        scene.wait(60)
        scene.poll(waiting[-1])
        minutes.setdefault(scene.snapshot().cap, minute)
    assert min(minute for cap, minute in minutes.items() if cap >= 8) <= 15


def test_a_project_that_demands_but_holds_nothing_costs_the_others_nothing(scene: Scene) -> None:
    """Mistake 7: cap 8, another project demanding but holding none, and we got 4."""
    scene.demand("idle")
    for _ in range(8):
        scene.take("busy")


def test_a_demand_ends_unless_it_is_announced_again(scene: Scene) -> None:
    """Mistake 7: demand was refreshed on every tick, ready work or not."""
    scene.demand("idle")
    for _ in range(int(DEMAND_TTL_S)):
        scene.wait(1)
        scene.release(scene.take("busy"))
    assert scene.snapshot().demands == ()


def test_a_recycled_pid_holds_nothing(scene: Scene) -> None:
    """Mistake 8: pid liveness without start time."""
    old = scene.holder(4121)
    lease = scene.take(holder=old)
    scene.store.reclaim([(lease, replace(old, start=old.start + 1))])
    assert scene.is_held(lease)
    scene.store.reclaim([(lease, old)])
    assert not scene.is_held(lease)


def test_a_lease_older_than_a_day_stays_with_its_living_agent(scene: Scene) -> None:
    """Mistake 8: a lease older than 24 h vanished under a live agent."""
    lease = scene.take()
    scene.wait(LEASE_BACKSTOP_S * 3)
    scene.store.reclaim([])
    scene.take()
    assert scene.is_held(lease)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE mind SET settings = '{\"cap\": '",
        "UPDATE mind SET settings = '{\"cap\": 0}'",
        "UPDATE mind SET memory = 'null'",
        "UPDATE pool SET phase = 'ajar'",
        "UPDATE machine SET settings = '[]'",
    ],
)
def test_damaged_state_is_refused_never_replaced_by_defaults(tmp_path: Path, damage: str) -> None:
    """Mistake 9: a corrupt config turned cap 1 into 8, a corrupt lease was not counted."""
    path = tmp_path / "governor.db"
    before = Scene(lambda world: make_sqlite(world, path))
    before.static(1)
    before.take()
    before.close()
    with sqlite3.connect(path) as connection:
        connection.execute(damage)
    connection.close()
    after = Scene(lambda world: make_sqlite(world, path))
    after.wait(4000)
    with pytest.raises(FlyballError):
        after.nowait()
    after.close()


def test_a_file_that_is_not_a_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    """Mistake 9: unreadable state is never ignored and never overwritten."""
    path = tmp_path / "governor.db"
    path.write_bytes(b"not a database, but precious" * 100)
    before = path.read_bytes()
    with pytest.raises(StoreUnreadableError, match="doctor"):
        make_sqlite(FakeWorld(), path)
    assert path.read_bytes() == before


def test_names_that_differ_by_a_dash_are_different_projects_and_pools(scene: Scene) -> None:
    """Mistake 10: ``my_app`` and ``my-app`` shared one lease file."""
    scene.static(1, "my_app")
    scene.static(1, "my-app")
    holder = scene.holder()
    leases = {scene.take("my_app", name="t", pool=p, holder=holder) for p in ("my_app", "my-app")}
    leases |= {scene.take(project, name="t", holder=holder) for project in ("my_app", "my-app")}
    assert len(leases) == 4


def test_times_are_finer_than_a_second(scene: Scene) -> None:
    """Mistake 11: second-resolution times."""
    scene.pool(spacing_s=0.2)
    scene.take()
    scene.expect_refusal(Reason.SPACING)
    scene.wait(0.31)
    scene.take()


def test_a_wall_clock_set_back_an_hour_denies_no_ask(tmp_path: Path) -> None:
    """Mistake 11: a clock set back an hour denied everything."""
    world, wall = FakeWorld(), [1_700_000_000.0]

    def make(world: FakeWorld) -> SqliteStore:
        clock = StoreClock(boot_s=world.clock, wall=lambda: wall[0], boot=lambda: "boot-1")
        return SqliteStore(tmp_path / "governor.db", world.ports(clock), clock)

    scene = Scene(make, world)
    scene.pool(profile="agents")
    scene.take()
    wall[0] -= 3600
    scene.wait(5)
    scene.take()
    scene.close()


def test_two_providers_share_nothing(scene: Scene) -> None:
    """Mistake 12: two runtimes on different providers shared one pool and breaker."""
    scene.store.set_pool("anthropic", {"cap": 1})
    scene.throttle(pool="anthropic")
    scene.expect_refusal(Reason.BREAKER, pool="anthropic")
    scene.take(pool="openai")
    assert scene.snapshot("openai").memory.cap.throttle_count == 0


def test_making_a_pool_adaptive_keeps_its_other_settings(scene: Scene) -> None:
    """Mistake 14: ``set --adaptive`` silently dropped unrelated settings."""
    scene.static(5, spacing_s=7.0, settle_s=60.0, reserve=2, share="strict", weights={"a": 3.0})
    before = scene.snapshot().settings
    scene.pool(adaptive=True)
    assert scene.snapshot().settings == replace(before, adaptive=True)
