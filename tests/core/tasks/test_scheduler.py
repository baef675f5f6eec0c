"""Choosing: what starts now, in which order, and the one reason why every other task does not."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from flyball.core.tasks.footprint import Footprint
from flyball.core.tasks.readiness import Deferral, DeferReason, TaskIndex
from flyball.core.tasks.scheduler import PATIENCE, RunningTask, Selection, choose
from flyball.core.tasks.task import Task, TaskStatus
from flyball.errors import InvariantError
from tests.cases import every

NOTHING = Footprint()
"""Touches nothing, so it is in no task's way."""


def task(name: str, footprint: Footprint | None = NOTHING, **fields: Any) -> Task:
    return Task(id=name, title=name, footprint=footprint, **fields)


def writes(*tokens: str) -> Footprint:
    return Footprint(write=tokens)


def picked(choice: Selection) -> list[str]:
    return [item.task.id for item in choice.items]


def why(choice: Selection, name: str) -> Deferral:
    deferral = choice.why(name)
    assert deferral is not None, f"{name} was not deferred"
    return deferral


def reason(choice: Selection, name: str) -> DeferReason:
    return why(choice, name).reason


# -- what can never start ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["epic", "feature", "decision", "merge-request"])
def test_a_type_that_is_not_work_is_not_dispatched(kind: str) -> None:
    deferral = why(choose([task("t-1", type=kind)], room=1), "t-1")
    assert deferral == Deferral("t-1", DeferReason.TYPE, None, f"is of type {kind}, which is not dispatched")


@pytest.mark.parametrize("label", ["no-dispatch", "refactor-core", "gt:slot", "gt:"])
def test_a_label_keeps_a_task_from_being_dispatched(label: str) -> None:
    deferral = why(choose([task("t-1", labels=("backend", label))], room=1), "t-1")
    assert deferral.reason is DeferReason.LABEL
    assert label in deferral.words


@pytest.mark.parametrize("status", [TaskStatus.BLOCKED, TaskStatus.DEFERRED, TaskStatus.IN_PROGRESS])
def test_a_task_that_is_not_open_is_not_started(status: TaskStatus) -> None:
    assert reason(choose([task("t-1", status=status)], room=1), "t-1") is DeferReason.STATUS


def test_what_we_said_is_in_progress_ourselves_may_start() -> None:
    tasks = [task("t-1", status=TaskStatus.IN_PROGRESS), task("t-2", status=TaskStatus.BLOCKED)]
    choice = choose(tasks, room=2, ours={"t-1", "t-2"})
    assert picked(choice) == ["t-1"]
    assert reason(choice, "t-2") is DeferReason.STATUS


def test_a_closed_or_merged_task_is_neither_picked_nor_deferred() -> None:
    choice = choose([task("t-1", status=TaskStatus.CLOSED), task("t-2")], room=2, merged={"t-2"})
    assert choice == Selection((), (), {})


def test_what_is_in_flight_is_not_started_twice() -> None:
    choice = choose([task("t-1"), task("t-2")], room=2, active=[RunningTask("t-1", NOTHING)])
    assert why(choice, "t-1") == Deferral("t-1", DeferReason.ACTIVE, None, "is already in flight")
    assert picked(choice) == ["t-2"]


@pytest.mark.parametrize("status", [TaskStatus.OPEN, TaskStatus.BLOCKED])
def test_what_the_caller_holds_back_is_deferred_in_its_words(status: TaskStatus) -> None:
    choice = choose([task("t-1", status=status)], room=1, held={"t-1": "the gate was red twice"})
    assert why(choice, "t-1") == Deferral("t-1", DeferReason.HELD, None, "the gate was red twice")


def test_two_tasks_with_one_id_are_a_bug_of_the_source() -> None:
    with pytest.raises(InvariantError, match="same id"):
        choose([task("t-1"), task("t-1")], room=1)


def test_areas_beside_a_lineup_that_has_its_own_are_refused() -> None:
    with pytest.raises(InvariantError, match="areas"):
        choose(TaskIndex([task("t-1")]), room=1, areas={"api": ["src/api/**"]})


def test_what_was_picked_at_one_look_is_in_no_tasks_way_at_the_next() -> None:
    lineup = TaskIndex([task("t-1", writes("a")), task("t-2", writes("a"))])
    active = [RunningTask("t-0", writes("b"))]
    first = choose(lineup, room=9, active=active)
    assert picked(first) == ["t-1"]
    assert picked(choose(lineup, room=9, active=active, merged={"t-1"})) == ["t-2"]


# -- what this run is for ----------------------------------------------------------------------------------


def test_a_run_for_some_tasks_defers_the_others() -> None:
    choice = choose([task("t-1"), task("t-2")], room=2, only={"t-2", "unheard-of"})
    assert picked(choice) == ["t-2"]
    assert reason(choice, "t-1") is DeferReason.NOT_ASKED


def test_a_run_for_a_parent_takes_what_is_beneath_it_at_any_depth() -> None:
    tasks = [
        task("epic", type="epic"),
        task("story", parent="epic", type="feature"),
        task("t-1", parent="story"),
        task("t-2", parent="elsewhere"),
    ]
    choice = choose(tasks, room=9, parent="epic")
    assert picked(choice) == ["t-1"]
    assert reason(choice, "story") is DeferReason.TYPE
    assert reason(choice, "epic") is DeferReason.NOT_ASKED
    assert why(choice, "t-2").words == "is not beneath epic, which this run is for"


# -- needs, parents, children ------------------------------------------------------------------------------


def test_a_task_waits_for_its_need_to_be_merged() -> None:
    tasks = [task("t-1", needs=("t-2",)), task("t-2")]
    choice = choose(tasks, room=9)
    assert why(choice, "t-1") == Deferral("t-1", DeferReason.NEEDS, "t-2", "needs t-2, which is not merged")
    assert picked(choose(tasks, room=9, merged=["t-2"])) == ["t-1"]
    assert picked(choose([tasks[0], replace(tasks[1], status=TaskStatus.CLOSED)], room=9)) == ["t-1"]


def test_a_need_that_does_not_exist_is_said_to_be_missing() -> None:
    deferral = why(choose([task("t-1", needs=("t-9",))], room=1), "t-1")
    assert deferral == Deferral("t-1", DeferReason.NEEDS, "t-9", "needs t-9, which does not exist")


def test_a_circle_is_named() -> None:
    choice = choose([task("t-1", needs=("t-2",)), task("t-2", needs=("t-1",))], room=2)
    words = "waits for itself: t-1 -> t-2 -> t-1"
    assert why(choice, "t-1") == Deferral("t-1", DeferReason.CIRCLE, "t-2", words)
    assert why(choice, "t-2").words == "waits for itself: t-2 -> t-1 -> t-2"


def test_a_child_waits_for_the_needs_of_its_parent() -> None:
    tasks = [task("epic", type="epic", needs=("t-2",)), task("t-1", parent="epic"), task("t-2")]
    choice = choose(tasks, room=9)
    assert picked(choice) == ["t-2"]
    assert why(choice, "t-1").words == "its parent epic needs t-2, which is not merged"


@pytest.mark.parametrize("status", [TaskStatus.OPEN, TaskStatus.BLOCKED, TaskStatus.IN_PROGRESS])
def test_a_task_with_an_open_child_waits_for_it(status: TaskStatus) -> None:
    choice = choose([task("t-1"), task("t-2", parent="t-1", status=status)], room=9)
    assert why(choice, "t-1") == Deferral("t-1", DeferReason.CHILDREN, "t-2", "has an open child, t-2")


def test_a_parent_starts_when_its_children_are_closed() -> None:
    tasks = [task("t-1"), task("t-2", parent="t-1", status=TaskStatus.CLOSED), task("t-3", parent="t-1")]
    assert why(choose(tasks, room=9), "t-1").blocker == "t-3"
    assert picked(choose(tasks, room=9, merged={"t-3"})) == ["t-1"]


# -- order and room ----------------------------------------------------------------------------------------


def test_urgent_first_then_old_then_by_number() -> None:
    tasks = [
        task("t-10"),
        task("t-2"),
        task("t-1b", created=200.0),
        task("t-1a", created=100.0),
        task("t-3", priority=0),
        task("t-02"),
        task("t-4", priority=4, created=1.0),
    ]
    assert picked(choose(tasks, room=9)) == ["t-3", "t-1a", "t-1b", "t-02", "t-2", "t-10", "t-4"]


@pytest.mark.parametrize("room", [0, -3])
def test_without_room_nothing_starts(room: int) -> None:
    choice = choose([task("t-1")], room=room)
    assert why(choice, "t-1") == Deferral("t-1", DeferReason.ROOM, None, "no room: nothing may start now")


def test_no_more_are_picked_than_there_is_room_for() -> None:
    choice = choose([task("t-1"), task("t-2")], room=1, active=[RunningTask("t-0", NOTHING)])
    assert picked(choice) == ["t-1"]
    assert why(choice, "t-2").words == "no room: 1 in flight, 1 picked before it"


def test_a_task_that_is_not_ready_says_so_even_without_room() -> None:
    choice = choose(
        [task("t-1", needs=("t-9",)), task("t-2", labels=("res:gpu",))], room=0, capacity={"gpu": 0}
    )
    assert reason(choice, "t-1") is DeferReason.NEEDS
    assert reason(choice, "t-2") is DeferReason.RESOURCE


# -- footprints --------------------------------------------------------------------------------------------


def test_a_clash_with_work_in_flight_names_it_and_the_tokens() -> None:
    active = [RunningTask("t-3", Footprint(read=("pages/**",)))]
    choice = choose([task("t-1", writes("pages/hello*"))], room=1, active=active)
    words = "writes pages/hello*, which t-3 (in flight) reads as pages/**"
    assert why(choice, "t-1") == Deferral("t-1", DeferReason.FOOTPRINT, "t-3", words)


def test_a_clash_within_the_wave_defers_the_later_and_lets_others_by() -> None:
    choice = choose([task("t-1", writes("a")), task("t-2", writes("a")), task("t-3", writes("b"))], room=9)
    assert picked(choice) == ["t-1", "t-3"]
    assert why(choice, "t-2").words == "writes a, which t-1 (starts first) writes"


def test_a_task_that_declares_nothing_runs_alone() -> None:
    choice = choose([task("t-1", None), task("t-2", None), task("t-3", writes("b")), task("t-4")], room=9)
    assert picked(choice) == ["t-1"]
    assert why(choice, "t-2").words == "declares no footprint, so it cannot run beside t-1 (starts first)"
    assert why(choice, "t-3").words == "cannot run beside t-1 (starts first), which declares no footprint"


def test_a_task_that_declares_nothing_waits_for_all_that_is_in_flight() -> None:
    choice = choose([task("t-1", None)], room=9, active=[RunningTask("t-0", NOTHING)])
    assert reason(choice, "t-1") is DeferReason.FOOTPRINT


def test_labels_and_areas_make_a_footprint_and_it_goes_with_the_item() -> None:
    tasks = [task("t-1", None, labels=("area:api",)), task("t-2", None, labels=("fp:src/api/x.py",))]
    choice = choose(tasks, room=9, areas={"api": ["src/api/**"]})
    assert choice.items[0].footprint == writes("src/api/**")
    assert why(choice, "t-2").blocker == "t-1"


# -- resources ---------------------------------------------------------------------------------------------


def test_a_resource_at_capacity_names_who_holds_it() -> None:
    tasks = [task("t-1", labels=("res:docker=2",)), task("t-2", labels=("res:docker",)), task("t-3")]
    active = [RunningTask("t-0", NOTHING, {"docker": 1})]
    choice = choose(tasks, room=9, active=active, capacity={"docker": 2})
    assert picked(choice) == ["t-2", "t-3"]
    words = "needs 2 docker: 1 of 2 is held by t-0"
    assert why(choice, "t-1") == Deferral("t-1", DeferReason.RESOURCE, "t-0", words)
    assert choice.items[0].resources == {"docker": 1}


def test_what_is_picked_uses_resources_too() -> None:
    tasks = [task(f"t-{n}", labels=("res:docker",)) for n in range(7)]
    choice = choose(tasks, room=9, capacity={"docker": 5})
    assert len(choice.items) == 5
    assert why(choice, "t-6").words == "needs 1 docker: 5 of 5 are held by t-0, t-1, t-2 and 2 more"


def test_more_than_there_can_ever_be_is_said_so() -> None:
    deferral = why(choose([task("t-1", labels=("res:docker=3",))], room=1, capacity={"docker": 2}), "t-1")
    words = "needs 3 docker, and there are never more than 2"
    assert deferral == Deferral("t-1", DeferReason.RESOURCE, "docker", words)


def test_of_two_labels_of_a_kind_the_larger_counts() -> None:
    labels = ("res:docker=2", "res:docker")
    assert choose([task("t-1", labels=labels)], room=1).items[0].resources == {"docker": 2}


def test_a_kind_without_a_capacity_has_no_limit_here() -> None:
    assert picked(choose([task("t-1", labels=("res:gpu=900",))], room=1)) == ["t-1"]


@every("label", ["res:", "res:docker=", "res:docker=0", "res:docker=-1", "res:docker=two", "res:=2"])
def test_a_resource_label_that_cannot_be_read_is_said_so(label: str) -> None:
    deferral = why(choose([task("t-1", labels=(label,))], room=1), "t-1")
    assert deferral.reason is DeferReason.LABEL
    assert "write res:docker or res:docker=2" in deferral.words


# -- turns: no task starves ---------------------------------------------------------------------------------


def test_a_task_that_was_passed_over_often_enough_is_next_in_turn() -> None:
    tasks = [task("t-1", writes("a", "b")), task("t-2", writes("b")), task("t-3", writes("c"))]
    active = [RunningTask("t-0", writes("a"))]
    eager = choose(tasks, room=1, active=active, passed={"t-1": PATIENCE - 1})
    assert picked(eager) == ["t-2"]
    assert eager.passed == {"t-1": PATIENCE}
    patient = choose(tasks, room=1, active=active, passed=eager.passed)
    assert picked(patient) == ["t-3"]
    words = f"writes b, which t-1 (next in turn, passed over {PATIENCE} times) writes"
    assert why(patient, "t-2") == Deferral("t-2", DeferReason.TURN, "t-1", words)


def test_a_task_that_waits_for_a_resource_long_enough_is_next_in_turn() -> None:
    tasks = [task("t-1", labels=("res:docker=2",)), task("t-2", labels=("res:docker",))]
    active = [RunningTask("t-0", NOTHING, {"docker": 1})]
    choice = choose(tasks, room=1, active=active, capacity={"docker": 2}, passed={"t-1": PATIENCE})
    assert picked(choice) == []
    words = "needs 1 docker: the next free is kept for t-1"
    assert why(choice, "t-2") == Deferral("t-2", DeferReason.TURN, "t-1", words)


def test_a_turn_holds_back_only_what_comes_later() -> None:
    tasks = [task("t-1", None, priority=2), task("t-2", writes("b"), priority=1)]
    choice = choose(tasks, room=1, active=[RunningTask("t-0", writes("a"))], passed={"t-1": PATIENCE})
    assert picked(choice) == ["t-2"]


def test_no_task_is_passed_over_when_nothing_later_starts() -> None:
    choice = choose([task("t-1", None), task("t-2", None)], room=1, active=[RunningTask("t-0", NOTHING)])
    assert choice.passed == {}
    assert choose([task("t-1", None)], room=0, passed={"t-1": 3, "gone": 4}).passed == {"t-1": 3}


def test_a_picked_task_starts_to_count_again() -> None:
    assert choose([task("t-1")], room=1, passed={"t-1": 5}).passed == {}


@pytest.mark.parametrize("wide", [None, writes("src"), writes("**")])
def test_a_wide_task_starts_in_the_end_however_much_else_there_is(wide: Footprint | None) -> None:
    """Two run at a time; whenever the older ends, new work that clashes with the wide task is ready."""
    assert _refills_until_started(wide, PATIENCE) == PATIENCE + 1
    assert _refills_until_started(wide, 10**6) is None  # it is patience that helps


def _refills_until_started(wide: Footprint | None, patience: int) -> int | None:
    numbers = itertools.count()
    tasks = [task("wide", wide, created=0.0)]
    running = [RunningTask("old", writes("src/old.py"))]
    passed: Mapping[str, int] = {}
    done: list[str] = []
    for refill in range(3 * PATIENCE):
        tasks += [task(name := f"t-{next(numbers)}", writes(f"src/{name}.py"), created=1.0) for _ in range(2)]
        choice = choose(
            tasks, room=2 - len(running), active=running, merged=done, passed=passed, patience=patience
        )
        if "wide" in picked(choice):
            return refill
        running += [RunningTask(item.task.id, item.footprint) for item in choice.items]
        done.append(running.pop(0).task_id)
        passed = choice.passed
    return None
