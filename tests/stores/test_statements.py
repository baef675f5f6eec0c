"""How often a step reads and writes the same row: once is enough."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

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
