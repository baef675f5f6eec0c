"""Steps on a server: round trips, locks, answers that are lost, tables that move forward, many leases."""

from __future__ import annotations

import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from flyball.core.pool import plan
from flyball.core.pool.model import HOLD_SMOOTHING, Outcome
from flyball.errors import StoreBusyError, StoreError, StoreUnreadableError
from flyball.stores import handoff, rows
from flyball.stores.port import Release
from flyball.stores.postgres import connection_pool
from flyball.stores.postgres import queries as sql
from flyball.stores.postgres.connection import Connection
from flyball.stores.postgres.connection_pool import ConnectionPool
from flyball.stores.postgres.migrations import LAYOUT, scripts
from flyball.stores.postgres.store import PostgresStore
from flyball.testing import FakeWorld, MakeStore, Scene, make_memory, make_postgres
from tests.postgres_server import PostgresServer


@pytest.fixture
def scene(make_on_postgres: MakeStore) -> Iterator[Scene]:
    scene = Scene(make_on_postgres)
    yield scene
    scene.close()


@pytest.fixture
def space(scene: Scene) -> str:
    store: Any = scene.store
    return str(store._server.address.space)


# -- round trips -------------------------------------------------------------------------------------


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every statement from now on."""
    found: list[str] = []
    execute = psycopg.Cursor.execute

    def noted(self: Any, query: Any, *rest: Any, **named: Any) -> Any:
        found.append(str(query))
        return execute(self, query, *rest, **named)

    monkeypatch.setattr(psycopg.Cursor, "execute", noted)
    return found


@pytest.fixture(autouse=True)
def without_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks for a newer layout come by the clock, and are no part of what is counted."""
    monkeypatch.setattr(connection_pool, "LOOK_EVERY_S", math.inf)


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every wait for an answer inside a batch from now on."""
    found: list[str] = []
    sync = psycopg.Pipeline.sync

    def noted(self: psycopg.Pipeline) -> None:
        found.append("sync")
        sync(self)

    monkeypatch.setattr(psycopg.Pipeline, "sync", noted)
    return found


def test_a_grant_and_an_end_are_one_round_trip_each(scene: Scene, sent: list[str]) -> None:
    scene.static(2)
    scene.release(scene.take())
    del sent[:]
    scene.release(scene.take())
    assert sent == [sql.FAST_ADMIT, sql.FAST_END]


def test_a_slot_that_is_handed_on_takes_few_round_trips(scene: Scene, trips: list[str]) -> None:
    scene.static(1)
    lease = scene.take()
    for _ in range(3):
        scene.park()
    del trips[:]
    scene.release(lease)
    # The lock; who is first; the next behind it; the commit is the end of the batch.
    assert len(trips) <= 4


def test_what_the_short_way_counts_with_is_what_the_long_way_does() -> None:
    (script,) = (text for number, text in scripts() if number == 2)
    said = {name: float(value) for name, value in re.findall(r"(\w+) CONSTANT [\w ]+ := ([\d.]+);", script)}
    assert said == {
        "fold_every_s": plan.FOLD_EVERY_S,
        "forever_s": plan.FOREVER_S,
        "id_block": rows.ID_BLOCK,
        "hold_sample": handoff.HOLD_SAMPLE,
        "hold_smoothing": HOLD_SMOOTHING,
    }


# -- locks -------------------------------------------------------------------------------------------


def test_a_step_that_stands_in_anothers_way_is_tried_again(
    scene: Scene, space: str, postgres_server: PostgresServer
) -> None:
    scene.static(1)
    scene.take()
    postgres_server.run(
        f"""CREATE SEQUENCE "{space}".tried;
        CREATE FUNCTION "{space}".fail() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN IF nextval('"{space}".tried') < 3 THEN RAISE 'deadlock' USING ERRCODE = '40P01'; END IF;
        RETURN NEW; END $$;
        CREATE TRIGGER fail BEFORE INSERT ON "{space}".claim FOR EACH ROW EXECUTE FUNCTION "{space}".fail()"""
    )
    scene.park()
    postgres_server.run(f'ALTER SEQUENCE "{space}".tried INCREMENT BY -1 MINVALUE -1000000 RESTART WITH 0')
    with pytest.raises(StoreBusyError, match="changes all the time"):
        scene.park()
    postgres_server.run(f'DROP SCHEMA "{space}" CASCADE')


def test_threads_that_bury_and_ask_in_many_pools_do_not_stop_each_other(scene: Scene) -> None:
    pools = [f"pool-{number}" for number in range(4)]
    for pool in pools:
        scene.static(3, pool)
    errors: list[Exception] = []

    def ask_and_end(pool: str) -> None:
        try:
            for _ in range(10):
                verdict, _ = scene.store.admit(scene.ask(pool=pool), park=True)
                scene.store.withdraw(verdict.claim_id)
        except Exception as error:
            errors.append(error)

    def reclaim() -> None:
        try:
            for _ in range(10):
                leases = [scene.store.admit(scene.ask(pool=pool), park=True)[0].claim_id for pool in pools]
                claims = [claim for claim_id in leases if (claim := scene.store.claim(claim_id)) is not None]
                scene.store.reclaim([(claim.id, claim.holder) for claim in claims])
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=ask_and_end, args=(pool,)) for pool in pools * 2]
    threads += [threading.Thread(target=reclaim) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert scene.store.miscounts() == []
    assert sum(pool.in_use + pool.waiting for pool in scene.store.snapshot().pools) == 0


def test_more_threads_than_connections_take_turns(postgres_server: PostgresServer) -> None:
    space = postgres_server.space()
    store = PostgresStore(
        ConnectionPool(f"{postgres_server.url}?space={space}&connections=1"),
        FakeWorld().ports(),
        server_time=False,
    )
    scene = Scene(lambda _: store)
    scene.static(50)
    threads = [threading.Thread(target=lambda: [scene.take() for _ in range(5)]) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert scene.snapshot().in_use == 50
    assert len(store._server._all) == 1
    scene.close()
    postgres_server.leave(space)


# -- answers that are lost ---------------------------------------------------------------------------


@pytest.fixture
def lose(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """The server does what it is told, but the answer to this statement is lost, with its connection."""
    execute, losing = psycopg.Cursor.execute, [""]

    def lost(self: Any, query: Any, *rest: Any, **named: Any) -> Any:
        cursor = execute(self, query, *rest, **named)
        if losing[0] and query == losing[0]:
            link: Connection = self.connection
            if link._batch is not None:
                link._batch.sync()
            link.close()
            raise psycopg.OperationalError("the answer was lost")
        return cursor

    monkeypatch.setattr(psycopg.Cursor, "execute", lost)
    return lambda query: losing.__setitem__(0, query)


@pytest.mark.parametrize("query", [sql.FAST_ADMIT, "COMMIT"])
def test_a_grant_whose_answer_was_lost_is_given_back_by_the_next_step(
    scene: Scene, lose: Callable[[str], None], query: str
) -> None:
    scene.static(1)
    scene.pool(maxima={"a": 1} if query == "COMMIT" else {})
    scene.release(scene.take())
    lose(query)
    with pytest.raises(StoreError, match="cannot be reached"):
        scene.take()
    lose("")
    assert scene.snapshot().in_use == 1, "no caller knows of this lease"
    scene.take()
    assert scene.snapshot().in_use == 1
    assert scene.store.miscounts() == []


def test_an_ask_in_line_whose_answer_was_lost_leaves_it(scene: Scene, lose: Callable[[str], None]) -> None:
    scene.static(1)
    lease = scene.take()
    lose("COMMIT")
    with pytest.raises(StoreError):
        scene.park()
    lose("")
    assert scene.snapshot().waiting == 1
    mine = scene.park()
    assert scene.snapshot().waiting == 1
    scene.release(lease)
    assert scene.is_held(mine)


def test_an_ask_that_failed_for_certain_is_not_looked_for(
    scene: Scene, space: str, postgres_server: PostgresServer
) -> None:
    scene.static(1)
    scene.release(scene.take())
    store: Any = scene.store
    postgres_server.run(
        f"""CREATE FUNCTION "{space}".fail() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN RAISE 'no'; END $$;
        CREATE TRIGGER fail BEFORE INSERT ON "{space}".claim EXECUTE FUNCTION "{space}".fail()"""
    )
    with pytest.raises(StoreError):
        scene.take()
    assert store._lost_replies == []
    postgres_server.run(f'DROP SCHEMA "{space}" CASCADE')


def test_a_release_whose_answer_was_lost_counts_once(scene: Scene, lose: Callable[[str], None]) -> None:
    scene.pool(cap=8, controller="koryph")
    release = Release(scene.take(), Outcome.THROTTLED)
    lose("COMMIT")
    with pytest.raises(StoreError):
        scene.store.release(release)
    lose("")
    scene.store.remember(release)
    scene.take()
    assert scene.snapshot().in_use == 1
    assert scene.snapshot().memory.cap.throttle_count == 1


def test_a_grant_that_was_interrupted_is_given_back(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.static(1)
    scene.release(scene.take())
    ask = Connection.ask

    def interrupted(self: Connection, query: str, values: Any = ()) -> Any:
        ask(self, query, values)
        raise KeyboardInterrupt

    monkeypatch.setattr(Connection, "ask", interrupted)
    with pytest.raises(KeyboardInterrupt):
        scene.take()
    monkeypatch.setattr(Connection, "ask", ask)
    scene.take()
    assert scene.snapshot().in_use == 1


def test_a_process_of_the_server_that_is_still_busy_with_a_lost_ask_is_told_to_end(scene: Scene) -> None:
    from flyball.stores.postgres.lost_replies import LostReply

    scene.static(1)
    store: Any = scene.store
    with store._server.lend() as busy:
        store._lost_replies = [LostReply("p", 42, busy.backend)]
        scene.take()
        deadline = time.monotonic() + 10
        while busy.usable:
            assert time.monotonic() < deadline
    scene.park()
    assert store._lost_replies == []


def test_what_comes_after_its_sender_gave_up_changes_nothing(postgres_server: PostgresServer) -> None:
    space = postgres_server.space()
    store = PostgresStore(ConnectionPool(f"{postgres_server.url}?space={space}"), FakeWorld().ports())
    scene = Scene(lambda _: store)
    scene.static(1)
    scene.release(scene.take())
    late = {**store._ask_fields(scene.ask(), 42), "deadline": 1.0}
    with store._server.lend() as link:
        assert link.ask(sql.FAST_ADMIT, late)[0][0] == 0
    assert scene.snapshot().in_use == 0
    store._server.note_time(1.0)
    store._detours.clear()
    scene.take()
    assert store._server.deadline() > 1e9, "a server whose clock was set is followed"
    scene.close()
    postgres_server.leave(space)


# -- tables that move forward ------------------------------------------------------------------------


@pytest.fixture
def fresh(postgres_server: PostgresServer) -> Iterator[str]:
    space = f"fresh-{os.urandom(6).hex()}"
    yield space
    postgres_server.run(f'DROP SCHEMA IF EXISTS "{space}" CASCADE')


def tables(server: PostgresServer, space: str) -> int:
    return len(server.run(f"SELECT 1 FROM pg_tables WHERE schemaname = '{space}'"))


def test_the_scripts_are_numbered_without_gaps() -> None:
    assert [number for number, _ in scripts()] == list(range(1, LAYOUT + 1))


def test_looking_makes_nothing(postgres_server: PostgresServer, fresh: str) -> None:
    store = make_postgres(FakeWorld(), postgres_server.url, space=fresh)
    assert store.snapshot().pools == ()
    assert (store.claim(7), store.poll(7, advance=False)[0], store.facts(limit=5)) == (None, None, [])
    assert store.miscounts() == []
    assert postgres_server.run(f"SELECT 1 FROM pg_namespace WHERE nspname = '{fresh}'") == []
    store.set_pool("p", {"cap": 1})
    assert len(store.snapshot().pools) == 1
    store.close()


def test_of_several_who_come_first_one_makes_the_tables(postgres_server: PostgresServer, fresh: str) -> None:
    stores = [make_postgres(FakeWorld(), postgres_server.url, space=fresh) for _ in range(6)]
    works = [lambda n=n: stores[n].set_pool(f"pool-{n % 3}", {"cap": 1}) for n in range(6)]
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [pool.name for pool in stores[0].snapshot().pools] == ["pool-0", "pool-1", "pool-2"]
    for store in stores:
        store.close()


def test_a_newer_layout_is_refused_and_left_alone(
    scene: Scene, space: str, postgres_server: PostgresServer
) -> None:
    scene.take()
    postgres_server.run(f'UPDATE "{space}".layout SET version = {LAYOUT + 1}')
    newer = make_postgres(FakeWorld(), postgres_server.url, space=space)
    for work in (newer.snapshot, lambda: newer.set_pool("p", {"cap": 1})):
        with pytest.raises(StoreUnreadableError, match=rf"newer flyball \(layout {LAYOUT + 1}"):
            work()
    newer.close()
    postgres_server.run(f'UPDATE "{space}".layout SET version = {LAYOUT}')


def test_a_newer_layout_is_noticed_by_a_process_that_runs(
    scene: Scene, space: str, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = scene.take()
    monkeypatch.setattr(connection_pool, "LOOK_EVERY_S", 0.0)
    postgres_server.run(f'UPDATE "{space}".layout SET version = {LAYOUT + 1}')
    for work in (scene.take, scene.snapshot, lambda: scene.release(lease)):
        with pytest.raises(StoreUnreadableError, match=rf"newer flyball \(layout {LAYOUT + 1}"):
            work()
    postgres_server.run(f'UPDATE "{space}".layout SET version = {LAYOUT}')


def test_an_old_layout_is_brought_forward_by_the_first_writer_and_keeps_what_it_had(
    postgres_server: PostgresServer, fresh: str
) -> None:
    first = "".join(text for number, text in scripts() if number == 1)
    postgres_server.run(
        f"""CREATE SCHEMA "{fresh}"; SET search_path = "{fresh}"; {first};
        UPDATE layout SET version = 1; INSERT INTO fact (of_ask, at, pool, kind, words, project, name, pid)
        VALUES (true, 1, 'p', 'granted', 'words', 'a', 't', 1)"""
    )
    store = make_postgres(FakeWorld(), postgres_server.url, space=fresh)
    with pytest.raises(StoreUnreadableError, match="any flyball command that writes upgrades it"):
        store.snapshot()
    scene = Scene(lambda _: store)
    scene.static(1)
    scene.release(scene.take())
    assert postgres_server.run(f'SELECT version FROM "{fresh}".layout') == [(LAYOUT,)]
    assert store.facts(limit=500)[-1].words == "words"
    scene.close()


def test_a_script_that_fails_leaves_nothing_behind(
    postgres_server: PostgresServer, fresh: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = [*scripts()[:-1], (LAYOUT, "CREATE TABLE half (id integer); SELECT 1 / 0")]
    monkeypatch.setattr("flyball.stores.postgres.migrations.scripts", lambda: broken)
    store = make_postgres(FakeWorld(), postgres_server.url, space=fresh)
    with pytest.raises(StoreError, match="division by zero"):
        store.set_pool("p", {"cap": 1})
    monkeypatch.undo()
    assert tables(postgres_server, fresh) == 0
    store.set_pool("p", {"cap": 1})
    store.close()


# -- many, and odd ones ------------------------------------------------------------------------------


def test_ten_thousand_leases_are_carried(scene: Scene, space: str, postgres_server: PostgresServer) -> None:
    scene.static(20_000)
    scene.take("first")
    copied = "pool, 'many', 'n', host, boot, pidns, pid, start, slots, priority, model, mailbox, launcher_pid"
    postgres_server.run(
        f"""INSERT INTO "{space}".claim (id, pool, project, name, host, boot, pidns, pid, start, slots,
            priority, model, mailbox, launcher_pid, asked_at, granted_at, why, level, tag)
        SELECT 1000000 + n, {copied}, asked_at, granted_at, why, level, tag
        FROM "{space}".claim, generate_series(1, 10000) AS n; ANALYZE "{space}".claim"""
    )
    wrong, _ = scene.store.recount()
    assert {(miscount.project, miscount.what, miscount.found) for miscount in wrong} == {
        ("", "in_use", 10_001),
        ("", "low_in_use", 10_001),
        ("many", "in_use", 10_000),
    }
    scene.release(scene.take("many"))
    scene.pool(cap=10_001)
    waiting = scene.park()
    assert len(scene.store.holders("p")) == 2, "all of them are of one process; and who watches"
    assert len(scene.store.pool_census("p").claims) == 10_002
    scene.release(1_000_500)
    assert scene.is_held(waiting)
    assert scene.snapshot().in_use == 10_001
    assert scene.store.miscounts() == []


@pytest.mark.parametrize(
    ("query", "values"),
    [
        (sql.BY_ID, "7"),
        (sql.OLDEST_OF_POOL, "'p'"),
        (sql.NEWEST_WAITING, "'p'"),
        (sql.LINE_HEAD, "'p', 'a', 0, 7"),
        (sql.EXPIRED, "7"),
        (sql.GRANT_OF, "7"),
        (sql.WAITING, "'p', 50"),
    ],
)
def test_no_question_of_admission_reads_every_lease(
    scene: Scene, space: str, postgres_server: PostgresServer, query: str, values: str
) -> None:
    scene.static(1)
    given = iter(values.split(", "))
    text = re.sub("%s", lambda _: next(given), query)
    told = postgres_server.run(f'SET search_path = "{space}"; SET enable_seqscan = off; EXPLAIN {text}')
    assert not any("Seq Scan" in str(line) for line in told), told


def test_names_sort_as_they_do_in_memory_whatever_the_server_speaks(scene: Scene) -> None:
    memory = Scene(make_memory)
    for each in (scene, memory):
        each.static(1)
        each.take()
        for project in ("b", "B", "ä", "Z", "a b", "a-b", "🚀", "ß", "%s", "''", "é", "e"):
            each.park(project)
    said = [each.store.snapshot().pools[0].projects for each in (scene, memory)]
    assert said[0] == said[1]
    order = [[ask.claim.project for ask in each.snapshot().asks] for each in (scene, memory)]
    assert order[0] == order[1]
    memory.close()


def test_text_that_the_server_cannot_hold_is_kept_as_far_as_it_can(scene: Scene) -> None:
    scene.static(1)
    for _ in range(2):
        verdict, _ = scene.store.admit(scene.ask(), park=True)
    scene.store.remember(Release(verdict.claim_id))
    told = Release(scene.snapshot().leases[0].id, Outcome.FAILED, words="over\0\ud800")
    scene.store.release(told)
    assert scene.store.facts(limit=1)[0].words.startswith("over\ufffd?")
