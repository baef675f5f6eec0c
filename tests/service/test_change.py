"""What counts as news: everything but that time passed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass

import pytest

from flyball.governor import status
from flyball.service.monitor import _AGES, _COUNTDOWNS, _UNCOMPARED, is_unchanged
from flyball.testing import Scene
from tests.service.kit import seen_in

STEADY = {"spacing_s", "heartbeat_s", "grace_s", "hold_mean_s", "waited_s", "ttl_s"}
"""Durations that stay as they are."""


def test_of_every_duration_it_is_known_whether_it_moves() -> None:
    records = [
        found
        for module in (status, status)
        for found in vars(module).values()
        if is_dataclass(found) and getattr(found, "__module__", "") == module.__name__
    ]
    names = {field.name for found in records for field in fields(found)}
    for name in names:
        if name.endswith(("_s", "_s_ago")):
            assert name in STEADY | _UNCOMPARED or name.endswith((*_AGES, *_COUNTDOWNS)), name


def busy(scene: Scene) -> Scene:
    """One ask works, another waits, a cut settles, a window fills, a project announces, a run rests."""
    scene.pool(cap=2, cap_floor=1, controller="koryph", windows={"requests": "60/min"}, spacing_s=60.0)
    scene.take("blog", cost={"requests": 1.0})
    scene.throttle("blog", "t")
    scene.park("shop")
    scene.demand("site")
    scene.store.pause(scene.ask("blog", name="rests"), for_s=500.0, why="limited")
    scene.wait(1)
    return scene


@pytest.mark.parametrize("elapsed_s", [0.5, 7.0, 30.0])
def test_time_alone_changes_nothing(scene: Scene, elapsed_s: float) -> None:
    before = seen_in(busy(scene))
    scene.wait(elapsed_s)
    after = seen_in(scene)
    assert before.body != after.body
    assert is_unchanged(before.plain, after.plain, elapsed_s=elapsed_s)


HAPPENINGS: dict[str, Callable[[Scene], object]] = {
    "a lease": lambda scene: scene.take("shop", pool="q"),
    "an ask": lambda scene: scene.park("blog"),
    "a throttle": lambda scene: scene.throttle("blog", "u"),
    "a release": lambda scene: scene.release(scene.snapshot().leases[0].id),
    "a setting": lambda scene: scene.pool(reserve=1),
    "another demand": lambda scene: scene.demand("more"),
    "a reset": lambda scene: scene.store.reset_pool("p"),
    "a retry-after": lambda scene: scene.throttle("blog", "u", retry_after_s=60),
    "a limit over all pools": lambda scene: scene.store.change_machine({"ceiling": 5}),
}


@pytest.mark.parametrize("what", HAPPENINGS)
def test_what_happens_is_news(scene: Scene, what: str) -> None:
    busy(scene)
    scene.take("other", pool="q")
    before = seen_in(scene)
    HAPPENINGS[what](scene)
    scene.wait(0.5)
    assert not is_unchanged(before.plain, seen_in(scene).plain, elapsed_s=0.5)


def test_the_end_of_a_settle_is_news(scene: Scene) -> None:
    before = seen_in(busy(scene))
    scene.wait(600)
    assert not is_unchanged(before.plain, seen_in(scene).plain, elapsed_s=600)
