"""Everything that was opened is closed: by ``close``, by being forgotten, in a fork's child, at the end."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from flyball.errors import StoreClosedError, StoreError
from flyball.governor import acquisition
from flyball.governor.governor import Governor
from flyball.governor.internals import internals
from flyball.stores.redis.connection import RedisConnections
from flyball.testing import FakeWorld, make_redis
from tests.redis_server import RedisServer
from tests.waiting import LONGEST_S, until

REPOSITORY = Path(__file__).parents[2]


def sockets() -> int:
    """Sockets of this process, and its threads that could open some."""
    links = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _is_there(fd)]
    ours = [
        thread for thread in threading.enumerate() if thread.name in ("flyball-listener", "flyball-heartbeat")
    ]
    return sum(link.startswith("socket:") for link in links) + len(ours)


def _is_there(fd: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{fd}")


@pytest.fixture
def url(redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("FLYBALL_HOME", str(tmp_path / "home"))
    return f"{redis_server.url}?space={os.urandom(6).hex()}"


def busy(url: str) -> Governor:
    """A governor with a lease, a heartbeat, and a listener for the next slot."""
    gov = Governor(url)
    gov.set_pool("p", cap=1, adaptive=False)
    gov.acquire_nowait("p")

    def wait() -> None:
        with pytest.raises((TimeoutError, StoreError)):
            gov.acquire("p", timeout=0.4)

    waiter = threading.Thread(target=wait)
    waiter.start()
    names = ("flyball-listener", "flyball-heartbeat")
    until(lambda: {thread.name for thread in threading.enumerate()}.issuperset(names), "there is no listener")
    waiter.join()
    return gov


def test_close_leaves_no_socket_and_no_thread(url: str) -> None:
    before = sockets()
    gov = busy(url)
    assert sockets() > before
    gov.close()
    until(lambda: sockets() <= before, "something stayed open")


def test_a_governor_that_is_forgotten_leaves_no_socket_and_no_listener(url: str) -> None:
    before = sockets()
    gov = busy(url)
    internals(gov)._heart.close()  # type: ignore[union-attr]
    until(lambda: "flyball-heartbeat" not in [thread.name for thread in threading.enumerate()], "it beats")
    del gov
    gc.collect()
    until(lambda: sockets() <= before, "something stayed open")


def test_nothing_is_opened_again_after_close(redis_server: RedisServer) -> None:
    """As by a thread that was in the middle of something."""
    server = RedisConnections(redis_server.url)
    ears = server.listener()
    server.close()
    before = sockets()
    for step in (server.now, server.listener, lambda: ears.subscribe("x")):
        with pytest.raises(StoreClosedError):
            step()
    ears.close()
    server.close()
    assert sockets() <= before


@pytest.mark.parametrize("option", ["--replicaof 127.0.0.1 1", "--maxmemory-policy allkeys-lru"])
def test_a_server_that_is_refused_leaves_no_socket(option: str) -> None:
    running = RedisServer(*option.split())
    before = sockets()
    store = make_redis(FakeWorld(), running.url)
    for _ in range(3):
        with pytest.raises(StoreError):
            store.snapshot()
        assert sockets() == before
    store.close()
    running.close()


def test_a_closed_governor_can_be_used_again(url: str) -> None:
    gov = busy(url)
    gov.close()
    gov.set_pool("p", cap=2)
    gov.acquire("p", timeout=5).release()
    gov.close()


def test_another_governor_at_the_same_address_goes_on_hearing(
    url: str, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
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
        until(lambda number=number: _waiting(second) == number, "no ask waits")  # type: ignore[misc]
    first.close()
    until(lambda: _listened_to(redis_server), "no listener is left")
    lease.release()
    for waiter in waiters:
        waiter.join(timeout=LONGEST_S)
    second.close()
    assert len(served) == 2


def _waiting(gov: Governor) -> int:
    return sum(pool.waiting for pool in gov.status().pools)


def _listened_to(server: RedisServer) -> bool:
    link = RedisConnections(server.url)
    try:
        return bool(link.ask("PUBSUB", "CHANNELS", "*"))
    finally:
        link.close()


LEAVING = """
import os, sys, threading, time
from flyball.governor.governor import Governor
gov = Governor(sys.argv[1])
gov.set_pool("p", cap=1, adaptive=False)
lease = gov.acquire("p")
def wait():
    try:
        gov.acquire("p", timeout=60)
    except BaseException:
        pass
threading.Thread(target=wait, daemon=True).start()
while not any(thread.name == "flyball-listener" for thread in threading.enumerate()):
    time.sleep(0.01)
time.sleep(0.1)
if sys.argv[2] == "fork":
    child = os.fork()
    if not child:
        gov.set_pool("q", cap=1, adaptive=False)
        with gov.slot("q"):
            pass
        sys.exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0, status
    gov.set_pool("p", cap=2)
print("done")
"""


@pytest.mark.parametrize("how", ["exit", "fork"])
def test_a_process_that_leaves_everything_open_ends_without_a_word(url: str, how: str) -> None:
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", LEAVING, url, how]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
