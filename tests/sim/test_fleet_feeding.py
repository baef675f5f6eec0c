"""What a pool's one controller hears from the renewals of many nodes, and how soon every node follows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flyball.core.pool.model import Phase
from flyball.core.pool.settings import PoolChanges
from flyball.core.signals import Signal, SignalKind
from flyball.testing import Scene
from flyball.testing.store_checks.share_leases import Node, let_learn, settle
from flyball.testing.stores import make_memory


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene(make_memory)
    yield scene
    scene.close()


ARTICLE: PoolChanges = {"controller": "article"}


def busy(scene: Scene, *names: str, cap: int, changes: PoolChanges | None = None) -> list[Node]:
    """Nodes with more to do than there is room for, each with its part of the cap."""
    scene.pool(cap=cap, cap_ceiling=200, profile="calls")
    scene.pool(**(changes or {}))
    let_learn(scene)
    nodes = [Node(scene, name, wants=cap + 4) for name in names]
    for _ in range(6):
        for node in nodes:
            node.end(max(0, node.running - node.may))
            scene.wait(0.06)
            node.renew()
    assert sum(node.running for node in nodes) == scene.snapshot().cap
    return nodes


def refused(node: Node, times: int, *, begun_ago_s: float) -> None:
    """So much of its work was refused, and has ended."""
    node.answered(throttled=times)
    node.refused_age_s = begun_ago_s


# -- who hears of a refusal, and when -------------------------------------------------------------------


def test_a_node_that_tells_of_a_refusal_is_lowered_by_the_answer_to_it(scene: Scene) -> None:
    (a,) = busy(scene, "a", cap=8, changes=ARTICLE)
    scene.wait(0.5)
    refused(a, 1, begun_ago_s=0.15)
    a.renew()
    assert scene.snapshot().cap == 4
    assert a.may == 4


def test_every_other_node_is_told_at_once_to_look(scene: Scene) -> None:
    a, b, c = busy(scene, "a", "b", "c", cap=9, changes=ARTICLE)
    scene.wait(0.5)
    refused(a, 1, begun_ago_s=0.15)
    a.renew()
    assert {"/mail/b", "/mail/c"} <= set(a.after.notices)
    for node in (b, c):
        scene.wait(0.01)
        node.renew()
    assert a.may + b.may + c.may == scene.snapshot().cap == 4


def test_where_it_is_too_soon_for_a_plan_who_told_of_it_comes_again(scene: Scene) -> None:
    a, _ = busy(scene, "a", "b", cap=8, changes=ARTICLE)
    scene.wait(0.5)
    late = Node(scene, "late", wants=1)
    late.renew()  # a joiner: planned just now
    scene.wait(0.01)
    refused(a, 1, begun_ago_s=0.15)
    a.renew()
    assert scene.snapshot().cap == 4
    assert "/mail/a" in a.after.notices
    scene.wait(0.06)
    a.renew()
    assert a.may <= 2
    assert "/mail/b" in a.after.notices


# -- what it measures ---------------------------------------------------------------------------------------


def test_what_was_served_is_the_measure_however_many_were_refused_together(scene: Scene) -> None:
    (a,) = busy(scene, "a", cap=28)
    scene.wait(0.5)
    refused(a, 4, begun_ago_s=0.15)
    a.renew()
    assert scene.snapshot().cap == 24


def test_one_slot_that_is_refused_again_and_again_is_not_taken_for_many(scene: Scene) -> None:
    (a,) = busy(scene, "a", cap=28)
    scene.wait(0.5)
    refused(a, 1_000, begun_ago_s=0.15)
    a.renew()
    assert scene.snapshot().cap >= 13


def test_what_others_began_before_they_heard_of_a_cut_does_not_cut_again(scene: Scene) -> None:
    a, b = busy(scene, "a", "b", cap=28)
    scene.wait(0.5)
    refused(a, 2, begun_ago_s=0.15)
    a.renew()
    cap = scene.snapshot().cap
    scene.wait(0.1)
    refused(b, 2, begun_ago_s=0.05)
    b.renew()
    assert scene.snapshot().cap == cap


def test_what_is_begun_after_every_node_heard_of_a_cut_and_refused_cuts_again(scene: Scene) -> None:
    a, b = busy(scene, "a", "b", cap=28)
    scene.wait(0.5)
    refused(a, 2, begun_ago_s=0.15)
    a.renew()
    cap = scene.snapshot().cap
    for _ in range(8):
        for node in (a, b):
            node.end(max(0, node.running - node.may))
            scene.wait(0.06)
            node.renew()
    refused(b, 2, begun_ago_s=0.2)
    b.renew()
    assert scene.snapshot().cap < cap


# -- the breaker --------------------------------------------------------------------------------------------


def opened(scene: Scene) -> tuple[Node, Node]:
    """Two nodes of a pool whose breaker has just opened, by overloads on one of them."""
    a, b = busy(scene, "a", "b", cap=8, changes={"break_s": 6.0, "break_max_s": 6.0})
    scene.wait(0.5)
    a.answered(overloaded=5)
    a.refused_age_s = 0.15
    a.renew()
    assert scene.snapshot().phase is Phase.OPEN
    return a, b


def ended(*nodes: Node) -> None:
    for node in nodes:
        node.end(node.running)


def test_as_many_overloads_as_open_the_breaker_open_it_with_one_renewal(scene: Scene) -> None:
    a, b = opened(scene)
    assert a.may == 0
    scene.wait(0.1)
    b.renew()
    assert b.may == 0


def test_an_open_breaker_is_open_to_its_end(scene: Scene) -> None:
    a, b = opened(scene)
    ended(a, b)
    until = scene.snapshot().closed_until
    assert until is not None
    while scene.world.clock() < until - 0.2:
        scene.wait(0.1)
        assert settle(a, b, rounds=1) == [0, 0]


def test_a_pause_that_was_heeded_lasts_to_its_end(scene: Scene) -> None:
    a, b = busy(scene, "a", "b", cap=8)
    closed = Signal(SignalKind.THROTTLED, 5.0)
    scene.store.report("p", closed, project="", name="a", claim_id=None)
    until = scene.snapshot().closed_until
    assert until is not None
    settle(a, b, rounds=2)
    ended(a, b)
    while scene.world.clock() < until - 0.2:
        scene.wait(0.1)
        assert settle(a, b, rounds=1) == [0, 0]
    scene.wait(0.3)
    assert sum(settle(a, b)) > 0


def test_one_node_has_the_trial_and_the_others_nothing(scene: Scene) -> None:
    a, b = opened(scene)
    settle(a, b, rounds=1)
    ended(a, b)
    settle(a, b, rounds=1)
    scene.wait(6.0)
    assert sorted(settle(a, b, rounds=2)) == [0, 1]
    assert scene.snapshot().phase is Phase.TRIAL
    assert scene.snapshot().trial == ("/a" if a.running else "/b")


def test_no_trial_begins_on_a_node_whose_old_work_still_runs(scene: Scene) -> None:
    a, b = opened(scene)
    settle(a, b, rounds=1)
    ended(b)
    b.wants = 0
    scene.wait(6.0)
    settle(a, b, rounds=2)
    assert a.running > 1
    assert scene.snapshot().phase is Phase.TRIAL
    assert not scene.snapshot().trial


def test_a_refusal_of_older_work_or_from_elsewhere_does_not_fail_the_trial(scene: Scene) -> None:
    a, b = opened(scene)
    settle(a, b, rounds=1)
    ended(a, b)
    settle(a, b, rounds=1)
    scene.wait(6.0)
    settle(a, b, rounds=2)
    tried, other = (a, b) if a.running else (b, a)
    refused(other, 1, begun_ago_s=0.01)
    other.renew()
    refused(tried, 1, begun_ago_s=5.0)
    tried.renew()
    assert scene.snapshot().phase is Phase.TRIAL
    scene.wait(0.2)
    refused(tried, 1, begun_ago_s=0.1)
    tried.renew()
    assert scene.snapshot().phase is Phase.OPEN
