"""What a task waits for: needs, the needs of its parents, its children; and circles."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from flyball.core.tasks.dependencies import DependencyCycle, DependencyGraph, UnmetDependency
from flyball.core.tasks.task import Task, TaskStatus


def task(name: str, *needs: str, parent: str | None = None, closed: bool = False) -> Task:
    status = TaskStatus.CLOSED if closed else TaskStatus.OPEN
    return Task(id=name, title=name, needs=needs, parent=parent, status=status)


def test_a_need_that_is_open_is_in_the_way() -> None:
    assert DependencyGraph([task("a", "b"), task("b")]).unmet("a") == UnmetDependency("b")


def test_a_need_that_does_not_exist_is_told_before_one_that_is_open() -> None:
    waits = DependencyGraph([task("a", "b", "gone"), task("b")])
    assert waits.unmet("a") == UnmetDependency("gone", missing=True)


def test_a_closed_or_merged_need_is_met() -> None:
    tasks = [task("a", "b", "c", "d"), task("b", closed=True), task("c")]
    assert DependencyGraph(tasks, merged={"c", "d"}).unmet("a") is None


def test_a_child_waits_for_the_needs_of_all_its_parents() -> None:
    tasks = [task("top", "x"), task("mid", parent="top"), task("leaf", parent="mid"), task("x")]
    unmet = DependencyGraph(tasks).unmet("leaf")
    assert unmet == UnmetDependency("x", heir_of="top")
    assert unmet.words() == "its parent top needs x, which is not merged"


def test_a_closed_parent_has_no_needs_any_more() -> None:
    tasks = [task("top", "x", closed=True), task("leaf", parent="top"), task("x")]
    assert DependencyGraph(tasks).unmet("leaf") is None


def test_a_parent_that_needs_its_own_child_does_not_hold_the_child_back() -> None:
    waits = DependencyGraph([task("top", "leaf"), task("mid", parent="top"), task("leaf", parent="mid")])
    assert waits.unmet("leaf") is None
    assert waits.circles() == []


def test_a_parent_that_does_not_exist_is_not_a_parent() -> None:
    assert DependencyGraph([task("a", parent="gone")]).unmet("a") is None


def test_parents_in_a_loop_wait_for_each_other_and_their_children_are_found() -> None:
    waits = DependencyGraph([task("a", parent="b"), task("b", parent="a"), task("c", parent="a")])
    circle = waits.circle("a")
    assert circle is not None
    assert circle.words() == "a -> b -> a"
    assert waits.circle("c") is None
    assert waits.unmet("c") is None
    assert waits.beneath("a") == {"b", "c"}


def test_a_task_that_needs_itself_is_in_a_circle() -> None:
    circle = DependencyGraph([task("a", "a")]).circle("a")
    assert circle is not None
    assert circle.words() == "a -> a"


def test_a_circle_is_told_from_the_place_of_each_member() -> None:
    waits = DependencyGraph([task("a", "b"), task("b", "c"), task("c", "a"), task("d", "a")])
    words = [circle.words() for name in "abc" if (circle := waits.circle(name))]
    assert words == ["a -> b -> c -> a", "b -> c -> a -> b", "c -> a -> b -> c"]
    assert waits.circle("d") is None
    assert len(waits.circles()) == 1


def test_a_circle_behind_a_need_that_is_merely_open_is_found() -> None:
    waits = DependencyGraph([task("a", "ready", "b"), task("b", "a"), task("ready")])
    assert waits.circle("a") is not None


def test_a_child_that_needs_its_parent_is_in_a_circle() -> None:
    waits = DependencyGraph([task("top"), task("leaf", "top", parent="top")])
    assert waits.circle("leaf") == DependencyCycle(("top", "leaf"), 1)


def test_a_circle_through_a_parents_need_is_found() -> None:
    waits = DependencyGraph([task("top", "x"), task("leaf", parent="top"), task("x", "leaf")])
    assert waits.circle("x") is not None
    assert waits.circle("leaf") is not None


def test_a_closed_member_breaks_a_circle() -> None:
    assert DependencyGraph([task("a", "b"), task("b", "a", closed=True)]).circles() == []
    assert DependencyGraph([task("a", "b"), task("b", "a")], merged={"b"}).circles() == []


def test_a_long_circle_is_not_written_out_and_costs_little() -> None:
    count = 10_000
    start = time.perf_counter()
    waits = DependencyGraph([task(str(n), str((n + 1) % count)) for n in range(count)])
    words = [circle.words() for n in range(count) if (circle := waits.circle(str(n)))]
    assert time.perf_counter() - start < 5
    assert len(words) == count
    assert words[0] == "0 -> 1 -> 2 -> 3 -> 4 -> 5 -> 6 -> 7 -> (9992 more) -> 0"


def test_what_is_beneath_a_parent_is_found_through_closed_ones_at_any_depth() -> None:
    tasks = [task("top"), task("mid", parent="top", closed=True), task("leaf", parent="mid"), task("else")]
    assert DependencyGraph(tasks).beneath("top") == {"mid", "leaf"}
    assert DependencyGraph(tasks).beneath("gone") == set()


_IDS = st.sampled_from("abcdef")
graphs = st.dictionaries(_IDS, st.tuples(st.lists(_IDS, max_size=3), st.none() | _IDS, st.booleans()))


@given(graphs)
def test_a_circle_is_told_exactly_where_work_can_never_be_done(
    graph: dict[str, tuple[list[str], str | None, bool]],
) -> None:
    """Close every task that waits for no other, again and again: the rest has a circle or a missing need."""
    tasks = {n: task(n, *needs, parent=up, closed=done) for n, (needs, up, done) in graph.items()}
    circles = DependencyGraph(tasks.values()).circles()
    done: set[str] = set()
    while True:
        waits = DependencyGraph(tasks.values(), merged=done)
        free = {t.id for t in waits.open if not waits.children.get(t.id) and not waits.unmet(t.id)}
        if not free:
            break
        done |= free
    left = DependencyGraph(tasks.values(), merged=done)
    assert {name for circle in circles for name in circle.ids} <= {t.id for t in left.open}
    if left.open and not any((unmet := left.unmet(t.id)) and unmet.missing for t in left.open):
        assert circles
