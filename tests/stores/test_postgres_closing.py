"""Everything that was opened is closed: by ``close``, by being forgotten, in a fork's child, at the end."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flyball.errors import StoreClosedError
from flyball.governor import acquisition
from flyball.governor.governor import Governor
from flyball.governor.internals import internals
from flyball.stores.postgres.connection_pool import ConnectionPool
from tests.postgres_server import PostgresServer
from tests.stores.test_redis_closing import LEAVING, REPOSITORY, busy, sockets
from tests.waiting import LONGEST_S, until


@pytest.fixture
def url(postgres_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("FLYBALL_HOME", str(tmp_path / "home"))
    space = postgres_server.space()
    yield f"{postgres_server.url}?space={space}"
    postgres_server.leave(space)


def sessions(server: PostgresServer) -> int:
    return len(server.run("SELECT 1 FROM pg_stat_activity WHERE application_name = 'flyball'"))


def test_close_leaves_no_socket_and_no_thread(url: str, postgres_server: PostgresServer) -> None:
    before, others = sockets(), sessions(postgres_server)
    gov = busy(url)
    assert sockets() > before
    gov.close()
    until(lambda: sockets() <= before, "something stayed open")
    until(lambda: sessions(postgres_server) <= others, "the server still serves us")


def test_a_governor_that_is_forgotten_leaves_no_socket_and_no_listener(url: str) -> None:
    before = sockets()
    gov = busy(url)
    internals(gov)._heart.close()  # type: ignore[union-attr]
    until(lambda: "flyball-heartbeat" not in [thread.name for thread in threading.enumerate()], "it beats")
    del gov
    gc.collect()
    until(lambda: sockets() <= before, "something stayed open")


def test_nothing_is_opened_again_after_close(url: str) -> None:
    """As by a thread that was in the middle of something."""
    server = ConnectionPool(url)
    ears = server.listener()
    with server.lend():
        server.close()
    for step in (server.now, server.listener, lambda: ears.subscribe("x")):
        with pytest.raises(StoreClosedError):
            step()
    ears.close()
    server.close()
    assert not any(not link.closed for link in server._all)


def test_a_closed_governor_can_be_used_again(url: str) -> None:
    gov = busy(url)
    gov.close()
    gov.set_pool("p", cap=2)
    gov.acquire("p", timeout=5).release()
    gov.close()


def test_another_governor_at_the_same_address_goes_on_hearing(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # None looks by itself in the time of this test.
    monkeypatch.setattr(acquisition, "_NET_STEP_S", 10 * LONGEST_S)
    monkeypatch.setattr(acquisition, "_NET_LIMIT_S", 10 * LONGEST_S)
    first, second = busy(url), Governor(url)
    second.set_pool("q", cap=1, adaptive=False)
    lease = second.acquire_nowait("q")
    served: list[str] = []

    def wait() -> None:
        with second.slot("q", timeout=5 * LONGEST_S):
            served.append("it")

    waiters = [threading.Thread(target=wait) for _ in range(2)]
    for number, waiter in enumerate(waiters, start=1):
        waiter.start()
        until(lambda number=number: second.status().pools[1].waiting == number, "no ask waits")  # type: ignore[misc]
    first.close()
    lease.release()
    for waiter in waiters:
        waiter.join(timeout=LONGEST_S)
    second.close()
    assert len(served) == 2


@pytest.mark.parametrize("how", ["exit", "fork"])
def test_a_process_that_leaves_everything_open_ends_without_a_word(url: str, how: str) -> None:
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", LEAVING, url, how]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_a_connection_that_was_idle_for_long_is_closed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    server = ConnectionPool(url)
    with server.lend(), server.lend():
        pass
    assert len(server._idle) == 2
    monkeypatch.setattr("flyball.stores.postgres.connection_pool.SPARE_S", 0.0)
    with server.lend():
        time.sleep(0.001)
    assert len(server._idle) == 1
    server.close()
