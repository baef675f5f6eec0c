"""A store that lost its last writes gives out ids again: an earlier holder does not end a new lease."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from flyball import Governor
from flyball.errors import RefusedError
from flyball.stores.redis.connection import RedisConnections
from tests.postgres_server import PostgresServer
from tests.redis_server import RedisServer
from tests.waiting import LONGEST_S, until

pytestmark = pytest.mark.faults
POOL = "p"
CAP = 3


class Loss(Protocol):
    """A server that can be made to forget what it was told since ``remember``."""

    url: str

    def remember(self) -> None: ...

    def lose(self) -> None: ...

    def close(self) -> None: ...


class RedisFlushed:
    """Everything is gone, from one moment to the next; the server goes on."""

    def __init__(self) -> None:
        self.server = RedisServer()
        self.url = self.server.url

    def remember(self) -> None:
        return None

    def lose(self) -> None:
        link = RedisConnections(self.url)
        link.ask("FLUSHALL")
        link.close()

    def close(self) -> None:
        self.server.close()


class RedisSetBack(RedisFlushed):
    """Killed, and back as it was a while ago: so is a replica that lagged when it was promoted."""

    def remember(self) -> None:
        link = RedisConnections(self.url)
        link.ask("SAVE")
        link.close()

    def lose(self) -> None:
        self.server.kill()
        self.server.start()


class PostgresSetBack:
    """The same, as a standby that lagged, or a backup that was restored."""

    def __init__(self) -> None:
        self.server = PostgresServer()
        self.url = self.server.url
        self._kept = self.server.folder / "kept"

    def remember(self) -> None:
        self.server.stop()
        subprocess.run(["cp", "-a", self.server.folder / "data", self._kept], check=True)
        self.server.start()

    def lose(self) -> None:
        self.server.kill()
        subprocess.run(["rm", "-r", self.server.folder / "data"], check=True)
        self._kept.rename(self.server.folder / "data")
        self.server.start()

    def close(self) -> None:
        self.server.close()


@pytest.fixture(params=[RedisFlushed, RedisSetBack, PostgresSetBack], ids=lambda kind: kind.__name__)
def store(request: pytest.FixtureRequest, home: Path) -> Iterator[Loss]:
    loss: Loss = request.param()
    yield loss
    loss.close()


@pytest.fixture
def gov(store: Loss) -> Iterator[Governor]:
    gov = Governor(store.url)
    gov.set_pool(POOL, cap=CAP, adaptive=False, spacing_s=0)
    with gov.slot(POOL):
        pass
    store.remember()
    yield gov
    gov.close()


class Agents:
    """``flyball exec``, so many times, until they are told to end."""

    def __init__(self, url: str, folder: Path, number: int = CAP) -> None:
        self._folder = folder
        folder.mkdir()
        script = f"touch {folder}/began-$$; while [ ! -e {folder}/end ]; do sleep 0.02; done"
        command = [sys.executable, "-m", "flyball", "exec", "--pool", POOL, "--", "sh", "-c", script]
        env = {**os.environ, "FLYBALL_URL": url}
        self.running = [subprocess.Popen(command, env=env) for _ in range(number)]
        until(lambda: len([*folder.glob("began-*")]) == number, "all of them run")

    def end(self) -> list[int]:
        (self._folder / "end").touch()
        return [agent.wait(LONGEST_S) for agent in self.running]


def test_agents_that_end_after_the_loss_leave_the_slots_of_others_counted(
    store: Loss, gov: Governor, tmp_path: Path
) -> None:
    before = Agents(store.url, tmp_path / "before")
    store.lose()
    gov.set_pool(POOL, cap=CAP, adaptive=False, spacing_s=0)
    after = Agents(store.url, tmp_path / "after")
    before.end()
    counted = gov.status().pools[0].in_use
    with pytest.raises(RefusedError):
        gov.acquire_nowait(POOL)
    after.end()
    assert counted == CAP
    assert gov.status().pools[0].in_use == 0


def test_ids_that_another_pool_has_now_are_released_there(store: Loss, gov: Governor) -> None:
    """Pools get their ids in the order in which they are used, and that is another one afterwards."""
    gov.acquire(POOL).release()
    store.lose()
    other = Governor(store.url)
    other.set_pool("q", cap=2, adaptive=False, spacing_s=0)
    other.acquire("q").release()
    lease = gov.acquire("q")
    lease.release()
    in_use = {pool.name: pool.in_use for pool in gov.status().pools}
    other.close()
    assert in_use["q"] == 0
