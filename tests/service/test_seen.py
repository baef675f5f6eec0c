"""What the metrics say of a pool; above all that over-admission counts what it should and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flyball.core.pool.model import Fact
from flyball.observe import metrics
from flyball.observe.metrics import Metric, MetricRegistry
from flyball.service import metrics as seen
from flyball.service.store_reader import StoreSnapshot
from flyball.service.timeline import new_facts
from flyball.testing import Scene
from tests.service.kit import seen_in


class Story:
    """Looks at a scene, one after the other, as the watch takes them."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self.registry = scene, MetricRegistry()
        self._last: StoreSnapshot | None = None
        self._facts: list[Fact] = []

    def look(self, look: StoreSnapshot | None = None) -> None:
        look, before = look or seen_in(self.scene), self._last
        facts = new_facts(before.facts, look.facts) if before else []
        if before is not None:
            seen.record_changes(self.registry, before.status, look.status, [*self._facts, *facts])
        seen.record_facts(self.registry, facts)
        seen.record_state(self.registry, look.status)
        self._last, self._facts = look, facts
        self.scene.wait(0.5)

    def number(self, metric: Metric) -> float:
        return self.registry.number(metric, pool="p")


@pytest.fixture
def story(scene: Scene) -> Story:
    return Story(scene)


def test_slots_beyond_the_cap_are_counted(scene: Scene, story: Story) -> None:
    """A store that let too many in does not exist; so the second look is made to say so."""
    scene.static(2)
    story.look()
    scene.static(4)
    for _ in range(4):
        scene.take()
    look = seen_in(scene)
    broken = tuple(replace(pool, cap=2) for pool in look.status.pools)
    story.look(replace(look, status=replace(look.status, pools=broken)))
    assert story.number(metrics.POOL_OVER_ADMITTED) == 2


def test_a_full_pool_admits_no_ask_beyond_it(scene: Scene, story: Story) -> None:
    scene.static(3)
    story.look()
    for _ in range(3):
        scene.take()
    scene.park()
    story.look()
    assert story.number(metrics.POOL_OVER_ADMITTED) == 0
    assert story.number(metrics.POOL_IN_USE) == 3
    assert story.number(metrics.POOL_WAITING) == 1


def test_a_cap_lowered_under_running_work_is_not_an_over_admission(scene: Scene, story: Story) -> None:
    scene.static(4)
    for _ in range(4):
        scene.take()
    story.look()
    scene.static(1)
    story.look()
    story.look()
    assert story.number(metrics.POOL_OVER_ADMITTED) == 0


def test_a_cap_lowered_right_after_a_grant_is_not_an_over_admission(scene: Scene, story: Story) -> None:
    scene.static(4)
    story.look()
    for _ in range(4):
        scene.take()
    scene.static(1)
    story.look()
    assert story.number(metrics.POOL_OVER_ADMITTED) == 0


def test_a_cap_that_rose_and_fell_between_two_looks_is_not_judged(scene: Scene, story: Story) -> None:
    scene.pool(cap=4, controller="koryph")
    story.look()
    for _ in range(4):
        scene.take()
    scene.throttle("a", "t")
    story.look()
    scene.wait(1)
    story.look()
    assert scene.snapshot().cap < 4
    assert story.number(metrics.POOL_OVER_ADMITTED) == 0


def test_work_recorded_as_running_is_not_an_over_admission(scene: Scene, story: Story) -> None:
    scene.static(1)
    scene.take()
    story.look()
    scene.store.record_running(scene.ask("a", name="ran-already"))
    story.look()
    story.look()
    assert story.number(metrics.POOL_IN_USE) == 2
    assert story.number(metrics.POOL_OVER_ADMITTED) == 0


def test_the_breakers_trial_is_not_an_over_admission(scene: Scene, story: Story) -> None:
    scene.pool(cap=1, cap_floor=1, controller="koryph", break_s=10.0, settle_s=1.0)
    held = scene.take()
    for _ in range(4):
        scene.throttle("a", "t")
        scene.wait(2)
    story.look()
    scene.wait(60)
    story.look()
    scene.nowait()
    story.look()
    assert story.number(metrics.POOL_OVER_ADMITTED) == 0
    scene.release(held)


def test_a_dead_holder_is_an_expiry(scene: Scene, story: Story) -> None:
    scene.static(1)
    lease = scene.take()
    story.look()
    scene.reclaim(lease)
    story.look()
    assert story.number(metrics.POOL_EXPIRIES) == 1
    assert story.number(metrics.POOL_WAKES_MISSED) == 0


def test_a_slot_that_a_waiter_never_took_is_a_missed_wake(scene: Scene, story: Story) -> None:
    scene.static(1)
    lease = scene.take()
    scene.park(holder=scene.stranger())
    story.look()
    scene.release(lease)
    scene.wait(120)
    scene.store.reclaim([])
    story.look()
    assert story.number(metrics.POOL_WAKES_MISSED) == 1
    assert story.number(metrics.POOL_EXPIRIES) == 1


def test_throttles_are_counted_and_a_reset_takes_none_back(scene: Scene, story: Story) -> None:
    scene.pool(cap=8, controller="koryph")
    story.look()
    scene.throttle()
    scene.throttle()
    story.look()
    scene.store.reset_pool("p")
    story.look()
    assert story.number(metrics.POOL_THROTTLES) == 2


def test_each_lease_tells_once_how_long_it_waited(scene: Scene, story: Story) -> None:
    scene.static(1)
    lease = scene.take()
    story.look()
    waiting = scene.park("shop")
    scene.wait(20)
    scene.release(lease)
    assert scene.is_held(waiting)
    story.look()
    story.look()
    (waits,) = [family for family in story.registry.families() if family.metric is metrics.POOL_WAIT]
    assert {values: (found.count, found.total) for values, found in waits.histograms.items()} == {
        ("p", "shop"): (1, 20.0)
    }


def test_the_phase_is_one_of_three(scene: Scene, story: Story) -> None:
    scene.static(1)
    story.look()
    phases = [
        story.registry.number(metrics.POOL_PHASE, pool="p", phase=phase)
        for phase in ("closed", "open", "trial")
    ]
    assert phases == [1, 0, 0]


def test_what_must_stay_zero_is_there_from_the_beginning(scene: Scene, story: Story) -> None:
    scene.static(1)
    story.look()
    (over,) = [family for family in story.registry.families() if family.metric.must_be_zero]
    assert over.numbers == {("p",): 0.0}
