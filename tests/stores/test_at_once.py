"""A grant with nothing in its way is one statement; whatever is in the way goes the whole way."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize

from flyball.core.pool.model import Outcome
from flyball.core.pool.settings import MachineSettings, PoolChanges
from flyball.core.pool.verdict import Verdict
from flyball.core.signals import Signal, SignalKind
from flyball.errors import StoreFullError
from flyball.stores.handoff import HOLD_SAMPLE
from flyball.stores.port import Release
from flyball.stores.rows import ID_BLOCK
from flyball.stores.sqlite import fast_path
from flyball.stores.sqlite.store import SqliteStore
from flyball.testing import Scene, make_sqlite
from tests.stores.test_same_trace_same_verdicts import SOAK, MemoryAndSqlite
from tests.stores.trace_words import pool_changes


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """A pool of nine, in which one lease of project ``a`` runs."""
    scene = Scene(lambda world: make_sqlite(world, tmp_path / "governor.db"))
    scene.static(9)
    scene.take()
    scene.release(scene.take())
    yield scene
    scene.close()


def statements_of(scene: Scene, step: Callable[[], object]) -> list[str]:
    """The first word of everything that a step ran; what triggers run is not a statement of ours."""
    assert isinstance(scene.store, SqliteStore)
    connection = scene.store._ready().connection
    ran: list[str] = []
    connection.set_trace_callback(ran.append)
    step()
    connection.set_trace_callback(None)
    return [text.split()[0] for text in ran if not text.startswith("--")]


def in_steps(scene: Scene, step: Callable[[], object]) -> bool:
    return "BEGIN" in statements_of(scene, step)


def test_a_grant_and_an_end_are_one_statement_each(scene: Scene) -> None:
    taken: list[int] = []
    assert set(statements_of(scene, lambda: taken.append(scene.take()))) == {"INSERT"}
    assert set(statements_of(scene, lambda: scene.release(taken[0]))) == {"DELETE"}


def test_what_it_says_is_what_a_step_says(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    holder = scene.holder()

    def ask() -> Verdict:
        return scene.nowait(name="t-1", priority=3, slots=2, cost={"tokens": 7.0}, holder=holder)

    short = ask()
    first = scene.claim(short.claim_id)
    scene.release(short.claim_id)
    monkeypatch.setattr(fast_path, "grant_values", lambda ask: None)
    whole = ask()
    assert replace(short, claim_id=whole.claim_id) == whole
    assert replace(first, id=whole.claim_id) == scene.claim(whole.claim_id)


LOCK = """
import fcntl, sys
with open(sys.argv[1], "r+") as file:
    fcntl.lockf(file, fcntl.LOCK_EX)
    print(flush=True)
    input()
"""


def sqlite(scene: Scene) -> SqliteStore:
    assert isinstance(scene.store, SqliteStore)
    return scene.store


def test_what_is_granted_now_is_what_a_step_grants(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = scene.ask(name="t-1", priority=3, slots=2, cost={"tokens": 7.0}, holder=scene.holder())
    now = sqlite(scene).grant_now(ask)
    assert now is not None
    first = scene.claim(now.claim_id)
    scene.release(now.claim_id)
    monkeypatch.setattr(fast_path, "grant_values", lambda ask: None)
    whole, _ = scene.store.admit(ask, park=False)
    assert replace(now, claim_id=whole.claim_id) == whole
    assert replace(first, id=whole.claim_id) == scene.claim(whole.claim_id)


def test_nothing_is_granted_now_where_another_thread_is_at_work(scene: Scene) -> None:
    store = sqlite(scene)
    with ThreadPoolExecutor(1) as other, store._mutex:
        assert other.submit(store.grant_now, scene.ask()).result() is None
    assert store.grant_now(scene.ask()) is not None


def test_nothing_is_granted_now_where_another_process_has_the_files_lock(
    scene: Scene, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", LOCK, str(tmp_path / "governor.db.lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert sqlite(scene).grant_now(scene.ask()) is None
        other.communicate("go\n")
    assert sqlite(scene).grant_now(scene.ask()) is not None


def test_nothing_is_granted_now_where_another_program_writes_to_the_file(
    scene: Scene, tmp_path: Path
) -> None:
    other = sqlite3.connect(tmp_path / "governor.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert sqlite(scene).grant_now(scene.ask()) is None
    other.execute("ROLLBACK")
    other.close()
    assert scene.nowait().granted
    assert sqlite(scene).grant_now(scene.ask()) is not None


def said(scene: Scene, signal: Signal) -> None:
    scene.pool(adaptive=True)
    scene.store.report("p", signal, project="a", name="", claim_id=None)


IN_THE_WAY: dict[str, Callable[[Scene], object]] = {
    "an ask waits": lambda s: s.park(slots=9),
    "it would fill the cap": lambda s: s.static(2),
    "a window": lambda s: s.pool(windows={"requests": "100/min"}),
    "spacing": lambda s: s.pool(adaptive=True, spacing_s=2.0),
    "strict shares": lambda s: s.pool(share="strict"),
    "a reserve": lambda s: s.pool(reserve=1),
    "a maximum": lambda s: s.pool(maxima={"a": 5}),
    "a machine's ceiling": lambda s: s.store.set_machine(MachineSettings(ceiling=20)),
    "a Retry-After": lambda s: said(s, Signal(SignalKind.OVERLOADED, retry_after_s=60.0)),
    "a quota that is being found out": lambda s: said(s, Signal(SignalKind.THROTTLED)),
    "a plan that is too old": lambda s: s.wait(5000.0),
    "a release that could not be written": lambda s: s.store.remember(Release(12345)),
}


@pytest.mark.parametrize("what", IN_THE_WAY)
def test_what_is_in_the_way_is_judged(scene: Scene, what: str) -> None:
    IN_THE_WAY[what](scene)
    assert sqlite(scene).grant_now(scene.ask()) is None
    assert in_steps(scene, scene.nowait)


@pytest.mark.parametrize("words", [{"resources": {"gpu": 1}}, {"key": "k", "ttl_s": 9.0}, {"ttl_s": 9.0}])
def test_an_ask_that_is_more_than_an_ask_is_judged(scene: Scene, words: dict[str, Any]) -> None:
    assert fast_path.grant_values(replace(scene.ask(), **words)) is None


def test_a_project_that_is_new_is_judged(scene: Scene) -> None:
    assert in_steps(scene, lambda: scene.nowait("newcomer"))


@pytest.mark.parametrize(
    "release",
    [
        Release(1, Outcome.THROTTLED),
        Release(1, words="done"),
        Release(1, rejected=True),
    ],
)
def test_an_end_that_says_something_is_a_step(release: Release) -> None:
    assert fast_path.end_of(release, now=0.0) is None


def test_an_end_that_teaches_the_pool_something_is_a_step(scene: Scene) -> None:
    full = [scene.take() for _ in range(8)]
    assert in_steps(scene, lambda: scene.release(full[0]))


def test_a_long_hold_is_measured_as_a_step_measures_it(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def means(*, at_once: bool) -> list[float]:
        scene.store.reset_pool("p")
        scene.release(scene.take())
        found = []
        for held_s in (1.5, 20.0, 3.25):
            lease = scene.claim(scene.take())
            scene.wait(held_s)
            end = partial(scene.store.release, Release(lease.id, used={"tokens": 9}, asked_at=lease.asked_at))
            assert ("SELECT" in statements_of(scene, end)) is not at_once
            found.append(scene.snapshot().hold_mean_s)
        return found

    short = means(at_once=True)
    monkeypatch.setattr(fast_path, "end_of", lambda release, now: None)
    assert short == means(at_once=False)
    assert scene.snapshot().in_use == 1


def test_one_end_in_so_many_is_measured(scene: Scene) -> None:
    leases = [scene.take() for _ in range(7)]
    measured = [lease for lease in leases if in_steps(scene, partial(scene.release, lease))]
    assert measured == [lease for lease in leases if lease % HOLD_SAMPLE == 0] != []


def test_no_id_is_given_out_twice(scene: Scene) -> None:
    """Pools take ids by the block; a second pool has the block after the first's."""
    scene.static(9, "q")
    ids: list[int] = []
    for pool in ["p", "q"] * (ID_BLOCK + 10):
        ids.append(scene.take(pool=pool))
        scene.release(ids[-1])
    assert len(set(ids)) == len(ids)


def fill(scene: Scene) -> None:
    for _ in range(100):
        scene.store.admit(scene.ask(name="x" * 150), park=False)


def test_a_disk_that_is_full_is_said_and_nothing_is_left_locked(scene: Scene) -> None:
    assert isinstance(scene.store, SqliteStore)
    connection = scene.store._ready().connection
    scene.static(1000)
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreFullError):
        fill(scene)
    connection.execute("PRAGMA max_page_count = 1073741823")
    assert scene.nowait().granted
    assert scene.store.miscounts() == []


# -- the same trace as in memory, with room -----------------------------------------------------------------


class WithRoom(MemoryAndSqlite):
    @initialize(cap=st.integers(5, 20), changes=st.just({}) | pool_changes)
    def begin(self, cap: int, changes: PoolChanges) -> None:
        self.set_pool("p", {**changes, "cap": cap, "adaptive": False})
        for project in "abc":
            self.admit("p", project, 0, 1, {}, {}, False, False)


class TestWithRoom(WithRoom.TestCase):  # type: ignore[valid-type,misc]
    settings = settings(max_examples=1000 if SOAK else 40, stateful_step_count=80 if SOAK else 30)

    def runTest(self) -> None:  # noqa: N802 - unittest names it so
        """Whatever is made up, some of it must have gone the short way."""
        ran: list[object] = []
        whole = SqliteStore._at_once

        def counted(store: SqliteStore, statements: tuple[str, ...], values: fast_path.Values) -> Any:
            done = whole(store, statements, values)
            if done is not None:
                ran.append(done)
            return done

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(SqliteStore, "_at_once", counted)
            super().runTest()
        assert ran
