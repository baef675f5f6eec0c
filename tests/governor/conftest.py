"""Governors over each kind of store, in a home of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flyball import Governor
from flyball.governor import internals as module
from flyball.governor.state_url import open_store
from flyball.testing import FaultyStore
from tests.postgres_server import PostgresServer
from tests.redis_server import RedisServer

"""Longer than anything here takes, short enough to fail before the suite's own timeout."""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """``FLYBALL_HOME`` and the runtime folder of this test. Sockets need a short path."""
    runtime = Path(tempfile.mkdtemp(prefix="fb-"))
    folder = tmp_path / "home"
    monkeypatch.setenv("FLYBALL_HOME", str(folder))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    monkeypatch.delenv("FLYBALL_URL", raising=False)
    monkeypatch.delenv("FLYBALL_LEASE", raising=False)
    yield folder
    shutil.rmtree(runtime)


@pytest.fixture(params=["memory", "sqlite", "redis", "postgres"])
def url(request: pytest.FixtureRequest, home: Path) -> Iterator[str]:
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        yield f"{server.url}?space={os.urandom(8).hex()}"
    elif request.param == "postgres":
        postgres: PostgresServer = request.getfixturevalue("postgres_server")
        space = postgres.space()
        yield f"{postgres.url}?space={space}"
        postgres.leave(space)
    else:
        yield "memory:" if request.param == "memory" else f"sqlite://{home / 'governor.db'}"


@pytest.fixture
def gov(url: str) -> Iterator[Governor]:
    """A governor with a pool ``p`` of one slot."""
    gov = Governor(url)
    gov.set_pool("p", cap=1, adaptive=False)
    yield gov
    gov.close()


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> list[FaultyStore]:
    """Stores that governors open from now on can be broken; the newest is last."""
    opened: list[FaultyStore] = []

    def opening(address: str) -> object:
        opened.append(FaultyStore(open_store(address)))
        return opened[-1].port

    monkeypatch.setattr(module, "open_store", opening)
    return opened


@pytest.fixture
def broken(faulty: list[FaultyStore], gov: Governor) -> FaultyStore:
    """The breakable store behind ``gov``."""
    return faulty[0]


@pytest.fixture
def child() -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Starts processes that do nothing until they are killed."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()
