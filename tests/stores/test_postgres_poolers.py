"""A pooler in front of PostgreSQL. One that keeps a session for its client is as good as the server itself.
One that gives each transaction another session would count in another client's tables, and is refused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from flyball import Governor
from flyball.errors import StoreError
from tests.pgbouncer import PgBouncer, SmallPooler, program
from tests.postgres_server import PostgresServer


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLYBALL_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("FLYBALL_URL", raising=False)


@pytest.fixture(scope="module", params=[PgBouncer, SmallPooler])
def kind(request: pytest.FixtureRequest) -> type[PgBouncer] | type[SmallPooler]:
    if request.param is PgBouncer and not os.path.exists(program()):
        pytest.skip("NOTICE: pgbouncer is not installed, only the small pooler of the tests was tried")
    found: type[PgBouncer] | type[SmallPooler] = request.param
    return found


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture
def transactions(
    kind: type[PgBouncer] | type[SmallPooler], server: PostgresServer
) -> Iterator[PgBouncer | SmallPooler]:
    pooler = kind(server, "transaction")
    yield pooler
    pooler.close()


@pytest.fixture
def sessions(
    kind: type[PgBouncer] | type[SmallPooler], server: PostgresServer
) -> Iterator[PgBouncer | SmallPooler]:
    pooler = kind(server, "session")
    yield pooler
    pooler.close()


def test_a_pooler_that_shares_sessions_is_refused_with_the_way_out(
    transactions: PgBouncer | SmallPooler,
) -> None:
    gov = Governor(transactions.url)
    with pytest.raises(StoreError, match="pool_mode = session"):
        gov.acquire_nowait("p")
    gov.close()


def test_a_pooler_that_is_refused_keeps_no_setting_of_ours_for_others(
    transactions: PgBouncer | SmallPooler,
) -> None:
    gov = Governor(transactions.url)
    with pytest.raises(StoreError):
        gov.acquire_nowait("p")
    gov.close()
    with psycopg.connect(transactions.url, autocommit=True) as stranger:
        found = stranger.execute("SELECT current_setting('search_path'), current_setting('enable_seqscan')")
        assert found.fetchall() == [('"$user", public', "on")]


def test_a_pooler_that_keeps_sessions_is_used(sessions: PgBouncer | SmallPooler) -> None:
    gov = Governor(f"{sessions.url}?space=kept_{type(sessions).__name__.lower()}")
    gov.set_pool("p", cap=1, adaptive=False)
    lease = gov.acquire_nowait("p")
    in_use = gov.status().pools[0].in_use
    lease.release()
    gov.close()
    assert in_use == 1
