"""Choosing, whatever the tasks are: picks never clash, deferrals have reasons, same tasks, same answer."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from flyball.core.tasks.footprint import Footprint, conflict
from flyball.core.tasks.readiness import DeferReason, TaskIndex
from flyball.core.tasks.scheduler import RunningTask, choose
from flyball.core.tasks.task import Task, TaskStatus

_TOKENS = ["a", "a/b", "a/*", "**/b", "c", "c/d*", "c/x.py", "e", "f", "g", "h"]
_SOME = st.lists(st.sampled_from(_TOKENS), max_size=2).map(tuple)
_IDS = [f"t-{n}" for n in range(8)]
_LABELS = [
    "backend",
    "no-dispatch",
    "fp:a",
    "fp:read:c",
    "area:x",
    "res:gpu",
    "res:gpu=2",
    "res:bad=",
    "gt:x",
]
footprints = st.builds(Footprint, write=_SOME, read=_SOME)
resources = st.dictionaries(st.sampled_from(["gpu", "docker"]), st.integers(1, 2))


Scene = tuple[list[Task], dict[str, Any]]
"""Tasks, and the terms on which to choose among them."""


def _rarely(draw: st.DrawFn, unusual: st.SearchStrategy[Any], usual: Any) -> Any:
    return draw(unusual) if draw(st.integers(0, 9)) == 9 else usual


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    names = draw(st.lists(st.sampled_from(_IDS), min_size=3, unique=True))
    ids = st.sampled_from(_IDS)
    tasks = [
        Task(
            id=name,
            title=name,
            status=_rarely(draw, st.sampled_from(TaskStatus), TaskStatus.OPEN),
            type=_rarely(draw, st.just("epic"), "task"),
            priority=draw(st.integers(0, 2)),
            needs=_rarely(draw, st.lists(ids, max_size=2).map(tuple), ()),
            parent=_rarely(draw, ids, None),
            labels=tuple(draw(st.lists(st.sampled_from(_LABELS), max_size=1))),
            footprint=_rarely(draw, st.none(), draw(footprints)),
            created=draw(st.none() | st.integers(0, 2).map(float)),
        )
        for name in names
    ]
    active = [
        RunningTask(f"a-{n}", _rarely(draw, st.none(), draw(footprints)), draw(resources))
        for n in range(draw(st.integers(0, 2)))
    ]
    return tasks, {
        "active": active,
        "room": _rarely(draw, st.just(0), draw(st.integers(1, 6))),
        "areas": {"x": ["a/b"]},
        "capacity": {"gpu": 2},
        "merged": draw(st.sets(ids, max_size=1)),
        "held": dict.fromkeys(_rarely(draw, st.sets(ids), set()), "held back"),
        "only": _rarely(draw, st.sets(ids), None),
        "parent": _rarely(draw, ids, None),
        "passed": draw(st.dictionaries(ids, st.integers(0, 2), max_size=3)),
        "patience": draw(st.integers(0, 2)),
    }


@given(scenes())
def test_no_picked_task_is_in_the_way_of_another_picked_or_in_flight(
    scene: Scene,
) -> None:
    tasks, terms = scene
    choice = choose(tasks, **terms)
    running = [each.footprint for each in terms["active"]] + [item.footprint for item in choice.items]
    first = len(terms["active"])
    for later in range(first, len(running)):
        assert all(conflict(running[later], earlier) is None for earlier in running[:later])


@given(scenes())
def test_every_task_that_is_not_done_is_picked_or_deferred_exactly_once(
    scene: Scene,
) -> None:
    tasks, terms = scene
    choice = choose(tasks, **terms)
    told = [item.task.id for item in choice.items] + [deferral.task_id for deferral in choice.deferrals]
    due = [t.id for t in tasks if t.status is not TaskStatus.CLOSED and t.id not in terms["merged"]]
    assert sorted(told) == sorted(due)
    assert all(deferral.words and not deferral.words.endswith(".") for deferral in choice.deferrals)


@given(scenes(), st.randoms(use_true_random=False))
def test_the_order_in_which_tasks_are_given_does_not_matter(scene: Scene, chance: Any) -> None:
    tasks, terms = scene
    mixed = list(tasks)
    chance.shuffle(mixed)
    assert choose(tasks, **terms) == choose(mixed, **terms)


@given(scenes(), scenes())
def test_a_lineup_gives_the_same_at_every_look_as_its_tasks_looked_at_anew(
    scene: Scene, other: Scene
) -> None:
    tasks, terms = scene
    looks = [terms, other[1], terms, terms, {**other[1], "active": terms["active"]}]
    lineup = TaskIndex(tasks, areas=terms["areas"])
    for look in looks:
        fresh = choose(tasks, **look)
        assert choose(lineup, **{key: value for key, value in look.items() if key != "areas"}) == fresh


@given(scenes())
def test_room_and_capacity_are_never_exceeded(scene: Scene) -> None:
    tasks, terms = scene
    choice = choose(tasks, **terms)
    assert len(choice.items) <= terms["room"]
    before = sum(each.resources.get("gpu", 0) for each in terms["active"])
    added = sum(item.resources.get("gpu", 0) for item in choice.items)
    assert added == 0 or before + added <= 2


@given(scenes())
def test_the_first_that_nothing_forbids_starts_where_nothing_is_in_flight(
    scene: Scene,
) -> None:
    tasks, terms = scene
    choice = choose(tasks, **{**terms, "active": []})
    blocked = [d for d in choice.deferrals if d.reason in (DeferReason.FOOTPRINT, DeferReason.TURN)]
    assert choice.items or not blocked
