"""A success in a full pool: the plan is made anew soon, if the controller says that it grows by successes."""

from __future__ import annotations

import pytest

from flyball.core.pool.control.registry import load_controller
from flyball.core.pool.plan import FOLD_EVERY_S
from flyball.core.pool.settings import CONTROLLERS
from flyball.testing import Scene


def valid_for_s(scene: Scene) -> float:
    with scene.store._peek() as rows:  # type: ignore[attr-defined]
        return float(rows.pool("p").limits.valid_until - scene.world.clock())


def after_a_success_in_a_full_pool(scene: Scene, controller: str) -> float:
    scene.pool(cap=2, cap_ceiling=8, controller=controller)
    leases = [scene.take(), scene.take()]
    scene.release(leases[0])
    return valid_for_s(scene)


@pytest.mark.parametrize("controller", CONTROLLERS)
def test_a_controller_that_grows_by_successes_sees_them_soon(scene: Scene, controller: str) -> None:
    soon = after_a_success_in_a_full_pool(scene, controller) <= FOLD_EVERY_S
    assert soon is load_controller(controller).by_success


def test_a_controller_that_says_so_is_believed(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_controller("koryph"), "by_success", True)
    assert after_a_success_in_a_full_pool(scene, "koryph") <= FOLD_EVERY_S


def test_the_seeds_quiet_controller_and_no_control_want_none() -> None:
    assert [name for name in CONTROLLERS if not load_controller(name).by_success] == ["koryph", "fixed"]
