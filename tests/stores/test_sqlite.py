"""What only a file has: a schema that moves forward, readers that never write, counts that can be checked."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from flyball.errors import StoreReadOnlyError, StoreUnreadableError
from flyball.stores.sqlite import store as sqlite_store
from flyball.stores.sqlite.clock import StoreClock
from flyball.stores.sqlite.schema import SCHEMA_VERSION, schema_steps
from flyball.stores.sqlite.store import SqliteStore
from flyball.testing import FakeWorld, Scene, make_sqlite


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "governor.db"


@pytest.fixture
def file_scene(path: Path) -> Iterator[Scene]:
    scene = Scene(lambda world: make_sqlite(world, path))
    yield scene
    scene.close()


def _reader(path: Path) -> SqliteStore:
    world = FakeWorld()
    clock = StoreClock(boot_s=world.clock, wall=world.clock, boot=lambda: world.here.boot)
    return SqliteStore(path, world.ports(clock), clock, read_only=True)


def _run(path: Path, statement: str) -> list[tuple[object, ...]]:
    with sqlite3.connect(path) as connection:
        rows = connection.execute(statement).fetchall()
    connection.close()
    return rows


def test_everything_is_there_after_closing_and_opening(file_scene: Scene, path: Path) -> None:
    file_scene.static(2, reserve=1)
    file_scene.take("blog", name="t-14")
    waiting = file_scene.park("shop", slots=1)
    before = file_scene.store.snapshot()
    file_scene.close()
    again = Scene(lambda world: make_sqlite(world, path))
    assert again.store.snapshot() == before
    assert again.claim(waiting).project == "shop"
    again.close()


def test_the_schema_has_a_version_and_its_steps_are_numbered_without_gaps(
    file_scene: Scene, path: Path
) -> None:
    assert [number for number, _ in schema_steps()] == list(range(1, SCHEMA_VERSION + 1))
    assert _run(path, "PRAGMA user_version") == [(SCHEMA_VERSION,)]
    assert _run(path, "PRAGMA journal_mode") == [("wal",)]


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION))
def test_an_older_layout_is_brought_forward(path: Path, version: int) -> None:
    path.parent.mkdir()
    connection = sqlite3.connect(path)
    for number, script in schema_steps()[:version]:
        connection.executescript(script)
        connection.execute(f"PRAGMA user_version = {number}")
    connection.execute(f"PRAGMA application_id = {0x666C7962}")
    connection.commit()
    connection.close()
    with pytest.raises(StoreUnreadableError, match="upgrades it"):
        _reader(path)
    scene = Scene(lambda world: make_sqlite(world, path))
    scene.take()
    assert _run(path, "PRAGMA user_version") == [(SCHEMA_VERSION,)]
    scene.close()


def test_a_newer_layout_is_refused_and_left_alone(file_scene: Scene, path: Path) -> None:
    file_scene.close()
    _run(path, f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    with pytest.raises(StoreUnreadableError, match="newer flyball"):
        make_sqlite(FakeWorld(), path)
    with pytest.raises(StoreUnreadableError, match="newer flyball"):
        _reader(path)
    assert _run(path, "PRAGMA user_version") == [(SCHEMA_VERSION + 1,)]


def test_a_newer_layout_is_noticed_by_a_process_that_runs(
    file_scene: Scene, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_store, "LOOK_EVERY_S", 0.0)
    lease = file_scene.take()
    _run(path, f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    for work in (file_scene.take, file_scene.snapshot, lambda: file_scene.release(lease)):
        with pytest.raises(StoreUnreadableError, match="newer flyball"):
            work()


def test_another_programs_database_is_refused(path: Path) -> None:
    path.parent.mkdir()
    _run(path, "CREATE TABLE theirs (x)")
    _run(path, "PRAGMA user_version = 7")
    with pytest.raises(StoreUnreadableError, match="another program"):
        make_sqlite(FakeWorld(), path)


def test_another_programs_database_without_a_version_is_refused_too(path: Path) -> None:
    path.parent.mkdir()
    _run(path, "CREATE TABLE theirs (x)")
    with pytest.raises(StoreUnreadableError):
        make_sqlite(FakeWorld(), path)
    assert _run(path, "SELECT name FROM sqlite_master") == [("theirs",)]


def test_files_are_private(file_scene: Scene, path: Path) -> None:
    file_scene.take()
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert set(modes.values()) == {0o600}, modes


def test_a_reader_reads_and_never_writes(file_scene: Scene, path: Path) -> None:
    file_scene.take()
    reader = _reader(path)
    assert reader.snapshot().pools == file_scene.store.snapshot().pools
    with pytest.raises(StoreReadOnlyError):
        reader.admit(file_scene.ask(), park=False)
    reader.close()


def test_a_writer_works_while_a_reader_reads(file_scene: Scene, path: Path) -> None:
    reader = _reader(path)
    file_scene.take()
    assert reader.snapshot().pools[0].in_use == 1
    file_scene.take()
    assert reader.snapshot().pools[0].in_use == 2
    reader.close()


def test_a_count_that_was_tampered_with_is_found_and_put_right(file_scene: Scene, path: Path) -> None:
    file_scene.static(2)
    file_scene.take("blog")
    assert file_scene.store.miscounts() == []
    _run(path, "UPDATE pool SET in_use = 2")
    _run(path, "UPDATE project SET waiting = 5")
    waiting = file_scene.park("shop")
    found = {(m.project, m.what): (m.kept, m.found) for m in file_scene.store.miscounts()}
    assert found["", "in_use"] == (2, 1)
    assert found["blog", "waiting"] == (5, 0)
    wrong, after = file_scene.store.recount()
    assert len(wrong) == len(found)
    assert file_scene.is_held(waiting), "the slot that was there all along is handed out"
    assert [wake.claim_id for wake in after.wakes] == [waiting]
    assert file_scene.store.miscounts() == []


def test_ten_thousand_idle_projects_are_not_kept(file_scene: Scene, path: Path) -> None:
    for n in range(1200):
        file_scene.release(file_scene.take(f"project-{n}"))
    assert _run(path, "SELECT count(*) FROM project")[0][0] <= 1001  # type: ignore[operator]


# -- several verbs in one transaction -------------------------------------------------------------------


def _together(scene: Scene) -> SqliteStore:
    assert isinstance(scene.store, SqliteStore)
    return scene.store


def test_what_is_done_together_is_seen_by_others_at_once(file_scene: Scene, path: Path) -> None:
    file_scene.static(2)
    store = _together(file_scene)
    assert store.begin_together()
    first, second = file_scene.take(), file_scene.take()
    assert _run(path, "SELECT count(*) FROM claim") == [(0,)]
    assert store.end_together(keep=True)
    assert _run(path, "SELECT id FROM claim ORDER BY id") == [(first,), (second,)]


def test_what_is_undone_together_leaves_nothing(file_scene: Scene, path: Path) -> None:
    file_scene.static(2)
    store = _together(file_scene)
    assert store.begin_together()
    file_scene.take()
    assert not store.end_together(keep=False)
    assert _run(path, "SELECT count(*) FROM claim") == [(0,)]
    assert store.miscounts() == []
    file_scene.take()


def test_beginning_together_never_waits(file_scene: Scene, path: Path) -> None:
    file_scene.static(2)
    store = _together(file_scene)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert not store.begin_together()
    other.execute("ROLLBACK")
    other.close()
    with store._write():
        # Another thread of this process is at it.
        import threading

        said: list[bool] = []
        asking = threading.Thread(target=lambda: said.append(store.begin_together()))
        asking.start()
        asking.join()
        assert said == [False]
    assert store.begin_together()
    assert store.end_together(keep=True)
