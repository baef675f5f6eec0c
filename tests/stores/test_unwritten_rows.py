"""Rows for those who look: all reads, what a plan writes, and no other write."""

from __future__ import annotations

from inspect import isfunction

import pytest

from flyball.stores.rows import RowReader, Rows
from flyball.stores.unwritten_rows import as_unwritten
from flyball.testing import Scene

PLAN_WRITES = {
    "add_facts",
    "drop_idle_projects",
    "drop_share",
    "put_life",
    "put_memory",
    "put_plan",
    "put_project",
    "put_share",
    "put_share_budget",
}


def methods(port: type) -> set[str]:
    return {name for name, found in vars(port).items() if isfunction(found) and name[0] != "_"}


def test_they_have_all_reads_and_of_the_writes_those_of_a_plan(scene: Scene) -> None:
    with scene.store._peek() as rows:  # type: ignore[attr-defined]
        there = as_unwritten(rows)
        reads = {name for name in methods(RowReader) if hasattr(there, name)}
        writes = {name for name in methods(Rows) if hasattr(there, name)}
    assert reads == methods(RowReader)
    assert writes == PLAN_WRITES


def test_a_stale_plan_is_shown_as_it_would_be_and_stays_stale(scene: Scene) -> None:
    scene.pool(cap=2)
    scene.take()
    scene.wait(86400)
    with scene.store._peek() as rows:  # type: ignore[attr-defined]
        before = rows.pool("p").limits
    assert before.valid_until < scene.world.clock(), "this test is about a plan that is stale"
    shown = scene.store.snapshot()
    with scene.store._peek() as rows:  # type: ignore[attr-defined]
        assert rows.pool("p").limits == before
    assert [pool.cap for pool in shown.pools] == [2]


def test_a_write_that_no_plan_makes_fails(scene: Scene) -> None:
    peek = scene.store._peek()  # type: ignore[attr-defined]
    with peek as rows, pytest.raises(AttributeError, match="remove is not a read"):
        as_unwritten(rows).remove(1)
