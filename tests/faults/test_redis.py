"""A real server that dies, forgets, or stops to answer; processes on it that are killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flyball.core.pool.model import Ask
from flyball.errors import RefusedError, StoreError
from flyball.governor import acquisition
from flyball.governor.governor import Governor
from flyball.governor.internals import internals
from flyball.host.process import me
from flyball.stores.redis.connection import RedisConnections
from tests.faults.conftest import REPOSITORY, SOAK
from tests.redis_server import RedisServer
from tests.waiting import LONGEST_S, until

pytestmark = pytest.mark.faults
POOL = "p"
SECONDS = 30.0 if SOAK else 2.0
DURABLE = ("--appendonly", "yes", "--appendfsync", "always")
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def server(home: Path) -> Iterator[RedisServer]:
    """A server of its own, to be treated badly. What it said, it has on disk."""
    running = RedisServer(*DURABLE)
    yield running
    running.close()


@pytest.fixture
def gov(server: RedisServer) -> Iterator[Governor]:
    gov = Governor(f"{server.url}?socket_timeout=1")
    yield gov
    gov.close()


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts Python processes of ours; none outlives the test."""
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: object) -> subprocess.Popen[str]:
        command = [sys.executable, *map(str, arguments)]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


HOLD = """
import sys, time
from flyball.governor.governor import Governor
gov = Governor(sys.argv[1])
leases = [gov.acquire("p", name=f"held-{n}") for n in range(int(sys.argv[2]))]
print("holding", flush=True)
time.sleep(600)
"""


def holding(start: Start, url: str, number: int = 1) -> subprocess.Popen[str]:
    process = start("-c", HOLD, url, number)
    assert process.stdout is not None
    assert process.stdout.readline() == "holding\n"
    return process


def results(processes: list[subprocess.Popen[str]]) -> list[dict[str, Any]]:
    found = []
    for process in processes:
        assert process.stdout is not None
        # Not communicate(): a process that was done before "ready" was read has its last line in the buffer.
        out = process.stdout.read()
        assert process.wait() == 0
        found.append(json.loads(out.splitlines()[-1]))
    return found


def all_slots_free(gov: Governor, cap: int) -> None:
    leases = [gov.acquire_nowait(POOL, name=f"check-{number}") for number in range(cap)]
    with pytest.raises(RefusedError):
        gov.acquire_nowait(POOL)
    for lease in leases:
        lease.release()
    assert internals(gov).store.miscounts() == []


def waiting(gov: Governor) -> threading.Thread:
    """An ask stands in line; its thread ends once it was served."""
    thread = threading.Thread(target=served_in_the_end, args=(gov,))
    thread.start()
    while not any(pool.waiting for pool in gov.status().pools):
        assert thread.is_alive()
        time.sleep(0.005)
    return thread


def served_in_the_end(gov: Governor) -> None:
    with gov.slot(POOL, timeout=60):
        pass


def hammers(start: Start, server: RedisServer, counter: Path, number: int = 3) -> list[subprocess.Popen[str]]:
    counter.write_text("0")
    url = f"{server.url}?socket_timeout=1"
    started = [start("-m", "tests.faults.hammer", url, SECONDS, counter) for _ in range(number)]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    return started


def test_processes_that_hammer_one_pool_never_exceed_its_cap(
    start: Start, server: RedisServer, gov: Governor, tmp_path: Path
) -> None:
    gov.set_pool(POOL, cap=2, adaptive=False)
    done = results(hammers(start, server, tmp_path / "counter"))
    assert max(one["most"] for one in done) == 2, "reached, and never more"
    assert all(one["grants"] > 3 and not one["failures"] for one in done), done
    all_slots_free(gov, 2)


def test_a_server_that_is_killed_and_comes_back_with_its_data_breaks_no_promise(
    start: Start, server: RedisServer, gov: Governor, tmp_path: Path
) -> None:
    gov.set_pool(POOL, cap=2, adaptive=False)
    processes = hammers(start, server, tmp_path / "counter")
    for _ in range(3):
        time.sleep(SECONDS / 5)
        server.kill()
        time.sleep(0.1)
        server.start()
    done = results(processes)
    assert max(one["most"] for one in done) <= 2
    assert all(one["grants"] > 5 for one in done), done
    all_slots_free(gov, 2)


def test_a_server_that_comes_back_empty_is_used_without_a_restart(
    start: Start, server: RedisServer, gov: Governor
) -> None:
    gov.set_pool(POOL, cap=2, adaptive=False)
    lease = gov.acquire(POOL)
    server.kill()
    server.forget()
    with pytest.raises(StoreError, match="cannot be reached"):
        gov.acquire_nowait(POOL)
    server.start()
    assert gov.status().pools == ()
    lease.release()
    gov.set_pool(POOL, cap=2, adaptive=False)
    all_slots_free(gov, 2)


def test_a_server_that_stops_in_the_middle_breaks_no_promise(
    start: Start, server: RedisServer, gov: Governor, tmp_path: Path
) -> None:
    """Longer than any client waits for an answer: what it finds in its buffers then is out of date."""
    gov.set_pool(POOL, cap=2, adaptive=False)
    processes = hammers(start, server, tmp_path / "counter")
    time.sleep(SECONDS / 4)
    server.pause()
    time.sleep(1.3)
    server.resume()
    done = results(processes)
    assert max(one["most"] for one in done) <= 2
    assert all(one["grants"] > 5 for one in done), done
    all_slots_free(gov, 2)


def test_processes_go_on_by_themselves_on_a_server_that_forgot_everything(
    start: Start, server: RedisServer, gov: Governor, tmp_path: Path
) -> None:
    """What ran under leases that it forgot is no longer counted; whatever it grants from then on is."""
    gov.set_pool(POOL, cap=2, adaptive=False)
    processes = hammers(start, server, tmp_path / "counter")
    time.sleep(SECONDS / 3)
    server.kill()
    server.forget()
    server.start()
    done = results(processes)
    assert all(one["grants"] > 5 for one in done), done
    gov.set_pool(POOL, cap=2, adaptive=False)
    all_slots_free(gov, 2)


def test_a_waiter_is_served_when_a_server_that_stopped_goes_on(server: RedisServer, gov: Governor) -> None:
    gov.set_pool(POOL, cap=1, adaptive=False)
    lease = gov.acquire(POOL)
    waiter = waiting(gov)
    server.pause()
    time.sleep(1.3)
    lease.release()
    server.resume()
    waiter.join(timeout=30)
    assert not waiter.is_alive()
    all_slots_free(gov, 1)


def test_a_waiter_is_served_when_a_server_that_died_is_back(
    start: Start, server: RedisServer, gov: Governor
) -> None:
    """The waiter sleeps through it: its place is in the server's data, and its ears come back.

    Another one stands behind it and watches, so that the first need not look by itself meanwhile.
    """
    gov.set_pool(POOL, cap=1, adaptive=False)
    lease = gov.acquire(POOL)
    waiter = waiting(gov)
    watcher, _ = internals(gov).store.admit(Ask(pool=POOL, project="x", name="y", holder=me()), park=True)
    # Let the first find out that it is relieved.
    time.sleep(0.3)
    server.kill()
    server.start()
    internals(gov).store.withdraw(watcher.claim_id)
    lease.release()
    waiter.join(timeout=30)
    assert not waiter.is_alive()
    all_slots_free(gov, 1)


def test_a_paused_server_is_reported_in_time(server: RedisServer, gov: Governor) -> None:
    gov.set_pool(POOL, cap=1, adaptive=False)
    server.pause()
    with pytest.raises(StoreError, match="did not answer within 1 s"):
        gov.acquire_nowait(POOL)
    server.resume()
    all_slots_free(gov, 1)


def test_exec_says_in_words_that_the_server_is_gone(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLYBALL_URL", server.url.replace("redis+unix://", "redis+unix://user:s3cret@"))
    server.kill()
    command = [sys.executable, "-m", "flyball", "exec", "--", "true"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, timeout=60)
    server.start()
    assert done.returncode == 74
    assert "is it running" in done.stderr
    assert "s3cret" not in done.stderr
    assert "Traceback" not in done.stderr


def test_a_killed_holders_slot_goes_to_the_waiter(start: Start, server: RedisServer, gov: Governor) -> None:
    gov.set_pool(POOL, cap=1, adaptive=False)
    holder = holding(start, server.url)
    waiter = waiting(gov)
    # Let the watcher begin to watch.
    time.sleep(0.5)
    holder.kill()
    holder.wait()
    waiter.join(LONGEST_S)
    assert not waiter.is_alive()
    all_slots_free(gov, 1)


def test_a_killed_holder_is_found_by_another_process_of_its_host_without_a_waiter(
    start: Start, server: RedisServer, gov: Governor
) -> None:
    from flyball.governor.heartbeat import Heartbeat

    gov.set_pool(POOL, cap=3, adaptive=False)
    holder = holding(start, server.url, 2)
    holder.kill()
    holder.wait()
    store: Any = internals(gov).store
    heart = Heartbeat(store, (), beat_s=0.02, look_s=0.05)
    heart.keep(POOL)
    deadline = time.monotonic() + 20
    while gov.status().pools[0].in_use:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    heart.close()


def test_a_wake_that_is_lost_is_made_up_for(start: Start, server: RedisServer, gov: Governor) -> None:
    """Every listening connection is cut, and the slot is handed on before a connection listens again."""
    gov.set_pool(POOL, cap=1, adaptive=False)
    lease = gov.acquire(POOL)
    waiter = waiting(gov)
    link = RedisConnections(server.url)
    deadline = time.monotonic() + 10
    while not link.ask("PUBSUB", "NUMPAT") and not link.ask("PUBSUB", "CHANNELS"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    link.ask("CLIENT", "KILL", "TYPE", "pubsub")
    lease.release()
    waiter.join(LONGEST_S)
    assert not waiter.is_alive()
    link.close()


def test_a_handover_is_told_and_not_polled(gov: Governor, monkeypatch: pytest.MonkeyPatch) -> None:
    # None looks by itself in the time of this test.
    monkeypatch.setattr(acquisition, "_NET_STEP_S", 10 * LONGEST_S)
    monkeypatch.setattr(acquisition, "_NET_LIMIT_S", 10 * LONGEST_S)
    gov.set_pool(POOL, cap=1, adaptive=False)
    lease = gov.acquire(POOL)
    served: list[int] = []

    def wait() -> None:
        mine = gov.acquire(POOL)
        served.append(mine.id)
        mine.release()

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for number, thread in enumerate(threads, start=1):
        thread.start()
        until(lambda number=number: gov.status().pools[0].waiting == number)  # type: ignore[misc]
    lease.release()
    for thread in threads:
        thread.join(LONGEST_S)
    assert len(served) == 3


def test_a_killed_wrapper_leaves_its_agent_counted_until_that_ends(
    start: Start, server: RedisServer, gov: Governor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gov.set_pool("anthropic", cap=1, adaptive=False)
    monkeypatch.setenv("FLYBALL_URL", server.url)
    marker = tmp_path / "pid"
    script = f"echo $$ > {marker}.new; mv {marker}.new {marker}; exec sleep 600"
    wrapper = start("-m", "flyball", "exec", "--quiet", "--", "sh", "-c", script)
    deadline = time.monotonic() + 30
    while not marker.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    agent = int(marker.read_text())
    wrapper.kill()
    wrapper.wait()
    with pytest.raises(RefusedError):
        gov.acquire_nowait("anthropic")
    os.kill(agent, 9)
    gov.acquire("anthropic", timeout=20).release()
