"""The ring of samples: columns of one length, bounded, gaps where nothing was known."""

from __future__ import annotations

from flyball.service import timeline
from flyball.service.timeline import HistoryRecorder
from flyball.testing import Scene
from tests.service.kit import seen_in


def test_samples_are_columns_of_one_length(scene: Scene) -> None:
    past = HistoryRecorder()
    scene.static(4)
    past.record(seen_in(scene))
    scene.take()
    scene.wait(1)
    past.record(seen_in(scene))
    view = past.view(seconds=900, pool=None)
    (pool,) = view.pools
    assert view.time == [1000.0, 1001.0]
    assert (pool.cap, pool.in_use, pool.waiting, pool.phase) == ([4, 4], [0, 1], [0, 0], ["closed", "closed"])


def test_a_pool_that_came_later_has_nothing_before(scene: Scene) -> None:
    past = HistoryRecorder()
    scene.static(4)
    past.record(seen_in(scene))
    scene.static(2, "late")
    past.record(seen_in(scene))
    late = next(pool for pool in past.view(seconds=900, pool=None).pools if pool.name == "late")
    assert late.cap == [None, 2]


def test_throttles_are_those_of_that_second(scene: Scene) -> None:
    past = HistoryRecorder()
    scene.pool(cap=8, controller="koryph")
    for throttles in (0, 2, 0, 1):
        for number in range(throttles):
            scene.throttle("a", f"t{number}")
        past.record(seen_in(scene))
        scene.wait(1)
    assert past.view(seconds=900, pool="p").pools[0].throttles == [0, 2, 0, 1]


def test_a_reset_is_not_a_negative_number_of_throttles(scene: Scene) -> None:
    past = HistoryRecorder()
    scene.pool(cap=8, controller="koryph")
    for _ in range(3):
        scene.throttle()
    past.record(seen_in(scene))
    scene.store.reset_pool("p")
    scene.throttle()
    past.record(seen_in(scene))
    assert past.view(seconds=900, pool="p").pools[0].throttles == [0, 1]


def test_a_removed_pool_takes_its_history_along(scene: Scene) -> None:
    past = HistoryRecorder()
    scene.static(1)
    past.record(seen_in(scene))
    scene.store.remove_pool("p")
    past.record(seen_in(scene))
    assert past.view(seconds=900, pool=None).pools == []
    scene.static(2)
    past.record(seen_in(scene))
    assert past.view(seconds=900, pool="p").pools[0].cap == [None, None, 2]


def test_the_ring_is_bounded_and_keeps_the_newest(scene: Scene) -> None:
    past = HistoryRecorder(kept_s=5)
    scene.static(1)
    for cap in range(1, 20):
        scene.static(cap)
        past.record(seen_in(scene))
        scene.wait(1)
    view = past.view(seconds=900, pool=None)
    assert (view.pools[0].cap, len(view.time)) == ([15, 16, 17, 18, 19], 5)


def test_only_the_seconds_that_were_asked_for_are_told(scene: Scene) -> None:
    past = HistoryRecorder()
    scene.static(1)
    for _ in range(10):
        past.record(seen_in(scene))
        scene.wait(1)
    assert len(past.view(seconds=3, pool=None).time) == 3
    assert len(past.view(seconds=3, pool=None).pools[0].cap) == 3


def test_a_gap_is_seen_in_the_times(scene: Scene) -> None:
    past = HistoryRecorder()
    scene.static(1)
    past.record(seen_in(scene))
    scene.wait(30)
    past.record(seen_in(scene))
    assert past.view(seconds=900, pool=None).time == [1000.0, 1030.0]


def test_pools_are_bounded(scene: Scene) -> None:
    past = HistoryRecorder()
    for number in range(timeline.POOLS_KEPT + 20):
        scene.static(1, f"pool-{number}")
    past.record(seen_in(scene))
    assert len(past.view(seconds=900, pool=None).pools) == timeline.POOLS_KEPT


def test_nothing_yet_is_an_empty_history() -> None:
    view = HistoryRecorder().view(seconds=900, pool=None)
    assert (view.time, view.pools) == ([], [])
