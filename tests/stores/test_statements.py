"""How often a step reads and writes the same row: once is enough."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from flyball.core.pool.settings import check_ask
from flyball.stores.sqlite.store import SqliteStore
from flyball.testing import Scene, make_sqlite


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(lambda world: make_sqlite(world, tmp_path / "governor.db"))
    yield scene
    scene.close()


@contextmanager
def statements_of(scene: Scene) -> Iterator[list[str]]:
    """The statements that SQLite is given."""
    assert isinstance(scene.store, SqliteStore)
    seen: list[str] = []
    connection = scene.store._ready().connection
    connection.set_trace_callback(lambda statement: seen.append(" ".join(statement.split())))
    yield seen
    connection.set_trace_callback(None)


def writes_of_meters(statements: list[str]) -> list[str]:
    return [words for words in statements if words.startswith("UPDATE pool SET") and "bound_at" in words]


def reads_of_projects(statements: list[str]) -> list[str]:
    return [
        words
        for words in statements
        if words.startswith("SELECT") and re.search("(FROM|JOIN) project", words)
    ]


def test_a_success_in_a_full_pool_writes_the_meters_once(scene: Scene) -> None:
    scene.pool(cap=2, cap_ceiling=8)
    leases = [scene.take(), scene.take()]
    scene.pool(cap_ceiling=9)  # makes the plan anew, for longer than until it is folded next
    with statements_of(scene) as seen:
        scene.release(leases[0])
    assert len(writes_of_meters(seen)) == 1, seen


def test_a_grant_that_fills_the_cap_writes_the_meters_once(scene: Scene) -> None:
    scene.pool(cap=2, cap_ceiling=8)
    scene.take()
    with statements_of(scene) as seen:
        scene.take()
    assert len(writes_of_meters(seen)) == 1, seen


def test_an_ask_that_is_parked_reads_its_project_once(scene: Scene) -> None:
    scene.static(1)
    scene.take()
    with statements_of(scene) as seen:
        scene.park()
    # That one reads the pool, too.
    assert len(reads_of_projects(seen)) == 1, seen


def test_a_waiter_that_looks_reads_its_project_once(scene: Scene) -> None:
    scene.static(1)
    scene.take()
    waiting = scene.park()
    with statements_of(scene) as seen:
        scene.store.poll(waiting, advance=False)
    assert len(reads_of_projects(seen)) == 1, seen


def test_an_ask_is_checked_once_on_its_whole_way(scene: Scene) -> None:
    scene.static(1)
    scene.take()
    checked = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal checked
        checked += event == "call" and frame.f_code is check_ask.__code__

    sys.setprofile(count)
    try:
        scene.park()
    finally:
        sys.setprofile(None)
    assert checked == 1
