"""Shared by all tests: hypothesis profiles, and stores and homes that belong to one test."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

from flyball.stores.port import Store
from flyball.testing import FakeWorld, MakeStore, Scene, make_memory, make_postgres, make_redis, make_sqlite
from tests.postgres_server import PostgresServer
from tests.redis_server import RedisServer

pytest_plugins = ["tests.collecting"]

_COMMON = {
    "deadline": None,
    "print_blob": True,
    # Explaining a failure takes longer than finding it.
    "phases": [phase for phase in Phase if phase is not Phase.explain],
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
}
# The same examples every time, and few: `make soak` looks for new ones, not the middle of a change.
settings.register_profile("quick", max_examples=50, derandomize=True, **_COMMON)  # type: ignore[arg-type]
settings.register_profile("soak", max_examples=3000, **_COMMON)  # type: ignore[arg-type]
settings.load_profile("soak" if os.environ.get("FLYBALL_SOAK") else "quick")
# A shell starts what it puts into the background with Ctrl-C and Ctrl-\ ignored, nohup ignores the end of its
# terminal, and all that we start would inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
# A process that outlives a test would look after leases that the test means to lose.
os.environ["FLYBALL_HOST_AGENT"] = "off"


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """One real server for all tests that leave it as they found it."""
    server = RedisServer()
    yield server
    server.close()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The same for PostgreSQL."""
    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture
def make_on_postgres(postgres_server: PostgresServer) -> Iterator[MakeStore]:
    """Makes empty stores on PostgreSQL, whose spaces are used again."""
    used: list[str] = []

    def make(world: FakeWorld) -> Store:
        used.append(postgres_server.space())
        return make_postgres(world, postgres_server.url, space=used[-1])

    yield make
    postgres_server.leave(*used)


@pytest.fixture(params=["memory", "sqlite", "redis", "postgres"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
    """Makes empty stores of each kind, as many as a test wants."""
    if request.param == "memory":
        return make_memory
    if request.param == "redis":
        url = request.getfixturevalue("redis_server").url
        return lambda world: make_redis(world, url)
    if request.param == "postgres":
        make: MakeStore = request.getfixturevalue("make_on_postgres")
        return make
    numbers = count()
    return lambda world: make_sqlite(world, tmp_path / f"{next(numbers)}.db")


@pytest.fixture
def scene(make_store: MakeStore) -> Iterator[Scene]:
    """One store of each kind in a simulated world."""
    scene = Scene(make_store)
    yield scene
    scene.close()
