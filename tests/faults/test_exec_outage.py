"""``flyball exec`` stands in line while its server is killed and started again: it is served all the same."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from flyball.governor.governor import Governor
from tests.faults.test_redis import DURABLE
from tests.postgres_server import PostgresServer
from tests.redis_server import RedisServer
from tests.waiting import LONGEST_S, until

POOL = "p"


class Killable(Protocol):
    def kill(self) -> None: ...

    def start(self) -> None: ...

    def close(self) -> None: ...


class Line:
    """A holder of the only slot, and a ``flyball exec`` behind it."""

    def __init__(self, server: Killable, url: str, folder: Path) -> None:
        self.server, self.done, self.words = server, folder / "done", folder / "stderr"
        self._url = url
        self.gov = Governor(url)
        self.gov.set_pool(POOL, cap=1, adaptive=False)
        self.lease = self.gov.acquire(POOL)
        self.waiter = self._started()
        until(lambda: "flyball: waiting" in self.heard(), "it waits")

    def _started(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "flyball", "exec", "--pool", POOL, "--", "touch", str(self.done)]
        with self.words.open("wb") as words:
            return subprocess.Popen(command, stderr=words, env={**os.environ, "FLYBALL_URL": self._url})

    def heard(self) -> str:
        return self.words.read_text()

    def end(self) -> None:
        self.waiter.kill()
        self.waiter.wait()
        self.gov.close()
        self.server.close()


def redis_line(folder: Path) -> Line:
    server = RedisServer(*DURABLE)
    return Line(server, f"{server.url}?socket_timeout=1", folder)


def postgres_line(folder: Path) -> Line:
    server = PostgresServer()
    return Line(server, f"{server.url}?socket_timeout=2", folder)


@pytest.fixture(params=[redis_line, postgres_line])
def line(request: pytest.FixtureRequest, home: Path, tmp_path: Path) -> Iterator[Line]:
    line: Line = request.param(tmp_path)
    yield line
    line.end()


def outage(line: Line) -> None:
    """Killed, missed by the waiter, and started again."""
    line.server.kill()
    until(lambda: "cannot be reached" in line.heard(), "it says that the server is gone")
    assert line.waiter.poll() is None, line.heard()


def served(line: Line) -> None:
    until(line.done.exists, "its command")
    assert line.waiter.wait(LONGEST_S) == 0, line.heard()
    assert line.heard().count("cannot be reached") == 1, "said once"
    assert "granted after" in line.heard()


def test_it_waits_through_the_outage_and_is_served(line: Line) -> None:
    outage(line)
    line.server.start()
    line.lease.release()
    served(line)


def test_it_stands_in_line_again_where_the_server_forgot_it(home: Path, tmp_path: Path) -> None:
    line = redis_line(tmp_path)
    try:
        outage(line)
        assert isinstance(line.server, RedisServer)
        line.server.forget()
        line.server.start()
        served(line)
    finally:
        line.end()
