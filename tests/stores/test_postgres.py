"""What only a server has: servers that must be refused, addresses, and errors that name the way out."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from flyball.errors import (
    FlyballError,
    StoreBusyError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnreadableError,
    UsageError,
)
from flyball.governor.state_url import open_store
from flyball.host.install_hints import extra_command
from flyball.stores.postgres.address import parse
from flyball.stores.postgres.connection_pool import ConnectionPool
from flyball.stores.postgres.store import PostgresStore
from flyball.testing import FakeWorld, MakeStore, Scene, make_postgres
from tests.postgres_server import PostgresServer
from tests.waiting import until


@pytest.fixture
def scene(make_on_postgres: MakeStore) -> Iterator[Scene]:
    scene = Scene(make_on_postgres)
    yield scene
    scene.close()


@pytest.fixture(scope="module")
def guarded() -> Iterator[PostgresServer]:
    """A server that wants passwords over the network, with a user ``weak`` who may do little."""
    server = PostgresServer(tcp=True)
    server.rules.write_text("local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n")
    server.run("CREATE ROLE weak LOGIN PASSWORD 's3cret'; SELECT pg_reload_conf()")
    yield server
    server.close()


@contextmanager
def server(*options: str, tcp: bool = False) -> Iterator[PostgresServer]:
    running = PostgresServer(*options, tcp=tcp)
    try:
        yield running
    finally:
        running.close()


def refusal(url: str, kind: type[FlyballError] = StoreError) -> str:
    """What is said when a store at this address is first written to."""
    store = PostgresStore(ConnectionPool(url), FakeWorld().ports(), server_time=False)
    with pytest.raises(kind) as raised:
        store.set_pool("p", {"cap": 1})
    store.close()
    assert "s3cret" not in str(raised.value) + repr(raised.value) + repr(store)
    return str(raised.value)


def as_weak(server: PostgresServer, password: str = "s3cret", database: str = "postgres") -> str:
    return f"postgresql://weak:{password}@127.0.0.1:{server.port}/{database}"


def space_of(store: object) -> str:
    assert isinstance(store, PostgresStore)
    return store._server.address.space


# -- servers that cannot be used ---------------------------------------------------------------------


def test_a_wrong_password_is_refused_and_not_repeated(guarded: PostgresServer) -> None:
    guarded.run("ALTER ROLE weak PASSWORD 'right'")
    try:
        for url in (as_weak(guarded), as_weak(guarded).replace("weak:s3cret", "weak"), guarded.url):
            said = refusal(url)
            assert "password" in said
            assert "FLYBALL_URL" in said
            assert f"127.0.0.1:{guarded.port}" in said
    finally:
        guarded.run("ALTER ROLE weak PASSWORD 's3cret'")


def test_a_user_that_may_not_log_in_is_told_where_that_is_said(guarded: PostgresServer) -> None:
    before = guarded.rules.read_text()
    guarded.rules.write_text("local all all trust\n")
    guarded.run("SELECT pg_reload_conf()")
    try:
        assert "pg_hba.conf" in refusal(as_weak(guarded))
    finally:
        guarded.rules.write_text(before)
        guarded.run("SELECT pg_reload_conf()")


def test_a_server_that_is_not_there_is_named() -> None:
    said = refusal("postgresql://user:s3cret@127.0.0.1:1/db")
    assert "postgresql://127.0.0.1:1/db cannot be reached" in said
    assert "is it running" in said
    assert "cannot be reached" in refusal("postgresql://user:s3cret@no-such-host.invalid/db")
    assert "cannot be reached" in refusal("postgresql:///db?host=/no/such/folder&password=s3cret")


def test_a_server_that_speaks_no_tls_is_named(guarded: PostgresServer) -> None:
    assert "sslmode=" in refusal(f"{as_weak(guarded)}?sslmode=require")


def test_a_database_that_is_not_there_is_named(guarded: PostgresServer) -> None:
    said = refusal(as_weak(guarded, database="elsewhere"))
    assert "elsewhere" in said
    assert "create it" in said


def test_a_follower_is_refused_with_the_way_out() -> None:
    with server() as running:
        running.stop()
        (running.folder / "data" / "standby.signal").touch()
        running.start()
        assert "name the primary" in refusal(running.url, StoreReadOnlyError)


def test_a_user_who_may_not_write_is_refused_likewise(guarded: PostgresServer) -> None:
    guarded.run("ALTER ROLE weak SET default_transaction_read_only = on")
    try:
        assert "takes no writes" in refusal(as_weak(guarded), StoreReadOnlyError)
    finally:
        guarded.run("ALTER ROLE weak RESET default_transaction_read_only")


def test_a_user_without_rights_is_told_which(guarded: PostgresServer) -> None:
    said = refusal(f"{as_weak(guarded)}?space=mine")
    assert "permission denied" in said
    assert "CREATE SCHEMA mine AUTHORIZATION" in said


def test_a_user_who_was_given_a_schema_needs_no_more(guarded: PostgresServer) -> None:
    guarded.run("CREATE SCHEMA given AUTHORIZATION weak")
    scene = Scene(lambda world: make_postgres(world, as_weak(guarded), space="given"))
    scene.static(1)
    scene.release(scene.take())
    scene.close()


def test_an_old_server_is_refused(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flyball.stores.postgres.connection.OLDEST", 99)
    assert "flyball needs 99 or newer" in refusal(postgres_server.url)


def test_a_database_that_cannot_hold_all_names_is_refused(guarded: PostgresServer) -> None:
    guarded.run("CREATE DATABASE plain ENCODING 'SQL_ASCII' TEMPLATE template0")
    assert "UTF8" in refusal(as_weak(guarded, database="plain"))


def test_a_server_without_a_free_connection_names_both_settings(guarded: PostgresServer) -> None:
    # A connection of an earlier test is closed here before the server has noticed.
    until(
        lambda: not guarded.run("SELECT pid FROM pg_stat_activity WHERE usename = 'weak'"),
        "the session is gone",
    )
    guarded.run("ALTER ROLE weak CONNECTION LIMIT 1")
    try:
        with psycopg.connect(as_weak(guarded)):
            said = refusal(as_weak(guarded), StoreBusyError)
        assert "max_connections" in said
        assert "connections= in FLYBALL_URL" in said
    finally:
        guarded.run("ALTER ROLE weak CONNECTION LIMIT -1")


def test_a_space_with_foreign_tables_is_left_alone(postgres_server: PostgresServer) -> None:
    postgres_server.run("CREATE SCHEMA theirs; CREATE TABLE theirs.pool (depth_m integer)")
    assert "?space=" in refusal(f"{postgres_server.url}?space=theirs", StoreUnreadableError)
    assert postgres_server.run("SELECT tablename FROM pg_tables WHERE schemaname = 'theirs'") == [("pool",)]


# -- a server in trouble -----------------------------------------------------------------------------


def test_a_full_disk_is_said_and_nothing_is_half_done(scene: Scene, postgres_server: PostgresServer) -> None:
    scene.static(5)
    lease = scene.take()
    space = space_of(scene.store)
    postgres_server.run(
        f"""CREATE FUNCTION "{space}".fail() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN RAISE 'could not extend file' USING ERRCODE = '53100'; END $$;
        CREATE TRIGGER fail BEFORE INSERT ON "{space}".claim EXECUTE FUNCTION "{space}".fail()"""
    )
    for _ in range(2):
        with pytest.raises(StoreFullError, match="no disk space left"):
            scene.take()
    with pytest.raises(StoreFullError):
        scene.park(slots=5)
    postgres_server.run(f'DROP TRIGGER fail ON "{space}".claim; DROP FUNCTION "{space}".fail()')
    scene.release(lease)
    scene.release(scene.take())
    assert scene.snapshot().in_use == 0
    assert scene.store.miscounts() == []


def test_a_session_that_locks_a_pool_for_too_long_is_not_waited_for(postgres_server: PostgresServer) -> None:
    space = postgres_server.space()
    url = f"{postgres_server.url}?space={space}&socket_timeout=0.5"
    scene = Scene(lambda world: PostgresStore(ConnectionPool(url), world.ports(), server_time=False))
    scene.static(5)
    with psycopg.connect(postgres_server.url) as other:
        other.execute(f'SELECT 1 FROM "{space}".pool FOR UPDATE'.encode())
        for work in (scene.take, scene.park):
            with pytest.raises(StoreBusyError, match=r"within 0\.4 s .* socket_timeout="):
                work()
    scene.release(scene.take())
    scene.close()
    postgres_server.leave(space)


def test_tables_that_vanish_are_made_anew(postgres_server: PostgresServer) -> None:
    space = f"gone-{os.urandom(4).hex()}"
    scene = Scene(lambda world: make_postgres(world, postgres_server.url, space=space))
    scene.static(1)
    scene.take()
    postgres_server.run(f'DROP SCHEMA "{space}" CASCADE')
    with pytest.raises(StoreError, match="the next call makes it anew"):
        scene.take()
    scene.static(1)
    scene.release(scene.take())
    scene.close()


# -- addresses ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "option",
    [
        *("no_such_option=1", "socket_timeout=often", "socket_timeout=0", "connections=0"),
        *("connections=many", "space=pg_mine", f"space={'x' * 64}", "space=a%00b"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused(postgres_server: PostgresServer, option: str) -> None:
    with pytest.raises(UsageError, match="FLYBALL_URL"):
        PostgresStore(ConnectionPool(f"{postgres_server.url}?{option}"), FakeWorld().ports()).snapshot()


def test_a_password_that_is_written_wrongly_is_not_repeated() -> None:
    assert "%25" in refusal("postgresql://user:s3cret%zz@127.0.0.1:1/db", UsageError)


def test_an_address_is_shown_without_anything_secret() -> None:
    address = parse("postgresql://user:s3cret@a:1,b:2/db?password=s3cret&sslmode=require&space=x")
    assert address.words == "postgresql://a:1,b:2/db"
    assert "s3cret" not in repr(address)
    assert address.conninfo == "postgresql://user:s3cret@a:1,b:2/db?password=s3cret&sslmode=require"
    assert parse("postgres:///db?host=/run/pg").words == "postgres:///db (at /run/pg)"


def test_without_its_driver_the_way_to_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(UsageError, match=re.escape(extra_command("postgres"))):
        open_store("postgresql://127.0.0.1/db")


def test_any_name_that_a_schema_may_have_is_a_space(postgres_server: PostgresServer) -> None:
    for space in ('with "quotes"', "ünï 🚀", "UPPER", "a;b--"):
        scene = Scene(lambda world, space=space: make_postgres(world, postgres_server.url, space=space))  # type: ignore[misc]
        scene.static(1)
        scene.release(scene.take())
        assert len(scene.store.snapshot().pools) == 1
        scene.close()
