"""A real server that dies or stops to answer, connections that are cut, processes that race or are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flyball import Governor
from flyball.core.pool.model import Ask
from flyball.errors import RefusedError, StoreBusyError, StoreError
from flyball.governor import acquisition
from flyball.governor.internals import internals
from flyball.host.process import me
from flyball.stores.port import AfterCommit
from flyball.stores.postgres.connection_pool import ConnectionPool
from flyball.stores.postgres.store import PostgresStore
from flyball.stores.postgres.transaction import PostgresTransaction
from flyball.testing import FakeWorld, Scene, make_postgres
from tests.postgres_server import PostgresServer
from tests.waiting import LONGEST_S, until

pytestmark = pytest.mark.faults
REPOSITORY = Path(__file__).parents[2]
SECONDS = 30.0 if os.environ.get("FLYBALL_SOAK") else 3.0
POOL = "p"
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(scope="module")
def durable() -> Iterator[PostgresServer]:
    """What it said, it has written: a kill loses nothing."""
    running = PostgresServer("synchronous_commit=on")
    yield running
    running.close()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLYBALL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    monkeypatch.delenv("FLYBALL_URL", raising=False)
    monkeypatch.delenv("FLYBALL_LEASE", raising=False)


@pytest.fixture
def url(durable: PostgresServer) -> Iterator[str]:
    space = durable.space()
    yield f"{durable.url}?space={space}&socket_timeout=2"
    durable.leave(space)


@pytest.fixture
def gov(url: str) -> Iterator[Governor]:
    gov = Governor(url)
    gov.set_pool(POOL, cap=2, adaptive=False)
    yield gov
    gov.close()


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts Python processes of ours; none outlives the test."""
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: object) -> subprocess.Popen[str]:
        command = [sys.executable, *map(str, arguments)]
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=REPOSITORY))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.communicate()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def all_slots_free(gov: Governor, cap: int = 2) -> None:
    leases = [gov.acquire_nowait(POOL, name=f"check-{number}") for number in range(cap)]
    with pytest.raises(RefusedError):
        gov.acquire_nowait(POOL)
    for lease in leases:
        lease.release()
    assert internals(gov).store.miscounts() == []


# -- the server --------------------------------------------------------------------------------------


def test_a_server_that_is_killed_and_comes_back_breaks_no_promise(
    start: Start, durable: PostgresServer, gov: Governor, url: str, tmp_path: Path
) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    processes = [start("-m", "tests.faults.hammer", url, SECONDS, counter) for _ in range(2)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for _ in range(2):
        time.sleep(SECONDS / 10)
        durable.kill()
        time.sleep(0.1)
        durable.start()
    done = [json.loads(process.communicate(timeout=100)[0].splitlines()[-1]) for process in processes]
    assert max(one["most"] for one in done) <= 2
    assert sum(one["grants"] for one in done) > 5, done
    all_slots_free(gov)


def test_a_restart_between_two_calls_costs_no_waiter_an_error(durable: PostgresServer, gov: Governor) -> None:
    lease = gov.acquire(POOL)
    durable.kill()
    with pytest.raises(StoreError, match="cannot be reached"):
        gov.acquire_nowait(POOL)
    durable.start()
    assert gov.status().pools[0].in_use == 1, "no restart of ours, and nothing forgotten"
    durable.stop()
    durable.start()
    lease.release()
    all_slots_free(gov)


def test_a_release_that_the_server_was_gone_for_is_made_good(durable: PostgresServer, gov: Governor) -> None:
    lease = gov.acquire(POOL)
    durable.kill()
    lease.release()
    durable.start()
    all_slots_free(gov)


def test_a_paused_server_is_reported_in_time_and_nothing_it_was_told_then_happens_later(
    durable: PostgresServer, url: str
) -> None:
    store = PostgresStore(
        ConnectionPool(url.replace("socket_timeout=2", "socket_timeout=0.5")), FakeWorld().ports()
    )
    scene = Scene(lambda _: store)
    scene.static(1)
    scene.release(scene.take())
    store._detours.clear()
    durable.pause()
    try:
        with pytest.raises(StoreBusyError, match=r"did not answer within 0\.5 s"):
            scene.take()
    finally:
        durable.resume()
    scene.take()
    assert scene.snapshot().in_use == 1
    assert store._lost_replies == []
    scene.close()


def test_a_grant_that_is_committed_after_its_sender_gave_up_is_given_back(
    durable: PostgresServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PostgresStore(
        ConnectionPool(url.replace("socket_timeout=2", "socket_timeout=0.5")), FakeWorld().ports()
    )
    scene = Scene(lambda _: store)
    scene.static(1, maxima={"a": 1})
    commit = PostgresTransaction.commit
    paused: list[PostgresTransaction] = []

    def pausing(step: PostgresTransaction, after: AfterCommit) -> None:
        # The server has read all that came before, and waits for the rest of the batch.
        step.link.execute("SELECT 1").fetchall()
        durable.pause()
        paused.append(step)
        commit(step, after)

    monkeypatch.setattr(PostgresTransaction, "commit", pausing)
    try:
        while not paused:
            # Beside other work the server may be too slow for the steps before that.
            with pytest.raises(StoreBusyError, match="did not answer"):
                scene.take()
    finally:
        durable.resume()
    monkeypatch.undo()
    until(lambda: scene.snapshot().in_use == 1)
    scene.take()
    assert scene.snapshot().in_use == 1
    scene.close()


def test_a_server_that_does_not_answer_a_newcomer_is_reported_too(durable: PostgresServer, url: str) -> None:
    gov = Governor(url)
    durable.pause()
    try:
        with pytest.raises(StoreBusyError, match="did not answer"):
            gov.acquire_nowait(POOL)
    finally:
        durable.resume()
    gov.close()


def test_connections_that_are_cut_are_opened_again(durable: PostgresServer, gov: Governor) -> None:
    lease = gov.acquire(POOL)
    ours = "FROM pg_stat_activity WHERE application_name = 'flyball'"
    for _ in range(3):
        durable.run(f"SELECT pg_terminate_backend(pid, 5000) {ours}")
        assert gov.status().pools[0].in_use == 1
    lease.release()
    all_slots_free(gov)


def test_a_waiter_is_served_when_a_server_that_died_is_back(durable: PostgresServer, gov: Governor) -> None:
    leases = [gov.acquire(POOL) for _ in range(2)]
    served = threading.Event()

    def wait() -> None:
        with gov.slot(POOL, timeout=60):
            served.set()

    thread = threading.Thread(target=wait)
    thread.start()
    until(lambda: gov.status().pools[0].waiting)
    # Another one stands behind it and watches, so that the first need not look by itself meanwhile.
    watcher, _ = internals(gov).store.admit(Ask(pool=POOL, project="x", name="y", holder=me()), park=True)
    time.sleep(0.3)
    durable.kill()
    durable.start()
    internals(gov).store.withdraw(watcher.claim_id)
    for lease in leases:
        lease.release()
    assert served.wait(30)
    thread.join()
    all_slots_free(gov)


# -- wakes -------------------------------------------------------------------------------------------


def test_a_handover_is_told_and_not_polled(gov: Governor, monkeypatch: pytest.MonkeyPatch) -> None:
    # None looks by itself in the time of this test.
    monkeypatch.setattr(acquisition, "_NET_STEP_S", 10 * LONGEST_S)
    monkeypatch.setattr(acquisition, "_NET_LIMIT_S", 10 * LONGEST_S)
    leases, served = [gov.acquire(POOL) for _ in range(2)], []

    def wait() -> None:
        mine = gov.acquire(POOL)
        served.append(mine.id)
        mine.release()

    threads = [threading.Thread(target=wait) for _ in range(6)]
    for number, thread in enumerate(threads, start=1):
        thread.start()
        until(lambda number=number: gov.status().pools[0].waiting == number)  # type: ignore[misc]
    for lease in leases:
        lease.release()
    for thread in threads:
        thread.join(LONGEST_S)
    assert len(served) == 6


def test_a_wake_that_is_lost_is_made_up_for(durable: PostgresServer, gov: Governor) -> None:
    """Every listening connection is cut, and the slot is handed on before a connection listens again."""
    leases = [gov.acquire(POOL) for _ in range(2)]
    served = threading.Event()

    def wait() -> None:
        with gov.slot(POOL, timeout=60):
            served.set()

    thread = threading.Thread(target=wait)
    thread.start()
    listening = "FROM pg_stat_activity WHERE query LIKE 'LISTEN%' OR query = 'SELECT 1'"
    until(lambda: durable.run(f"SELECT 1 {listening}"))
    durable.run(f"SELECT pg_terminate_backend(pid) {listening}")
    for lease in leases:
        lease.release()
    assert served.wait(5)
    thread.join()


# -- processes ---------------------------------------------------------------------------------------

RACE = """
import sys
from flyball import Governor
from flyball.errors import RefusedError
gov = Governor(sys.argv[1])
gov.status()
print("ready", flush=True)
for line in sys.stdin:
    try:
        gov.acquire_nowait("p")
        print("granted", flush=True)
    except RefusedError:
        print("refused", flush=True)
"""


def test_of_processes_that_race_for_the_last_slot_one_gets_it(start: Start, gov: Governor, url: str) -> None:
    gov.set_pool(POOL, cap=1)
    racers = [start("-c", RACE, url) for _ in range(3)]
    assert [said(racer) for racer in racers] == ["ready"] * 3
    for racer in racers:
        go(racer)
    assert sorted(said(racer) for racer in racers) == ["granted", "refused", "refused"]


STEP = """
import sys
from flyball.stores.postgres.transaction import PostgresTransaction
from flyball import Governor
begin = PostgresTransaction.begin
def stand_still(self, lock):
    begin(self, lock)
    print("inside", flush=True)
    sys.stdin.readline()
PostgresTransaction.begin = stand_still
gov = Governor(sys.argv[1])
try:
    gov.set_pool("p", cap=7)
    print("done", flush=True)
except Exception as error:
    print(error, flush=True)
"""


@pytest.mark.parametrize("ending", [signal.SIGSTOP, signal.SIGKILL])
def test_a_process_that_stands_still_or_dies_in_the_middle_of_a_step_stops_no_other(
    start: Start, gov: Governor, url: str, ending: signal.Signals
) -> None:
    stuck = start("-c", STEP, url.replace("socket_timeout=2", "socket_timeout=0.5"))
    assert said(stuck) == "inside"
    os.kill(stuck.pid, ending)
    gov.acquire(POOL).release()
    assert gov.status().pools[0].cap == 2
    if ending is signal.SIGSTOP:
        os.kill(stuck.pid, signal.SIGCONT)
        go(stuck)
        told = said(stuck)
        assert "was this process stopped?" in told or "cannot be reached" in told


HOLD = """
import sys, time
from flyball import Governor
gov = Governor(sys.argv[1])
leases = [gov.acquire("p", name=f"held-{n}") for n in range(int(sys.argv[2]))]
print("holding", flush=True)
time.sleep(600)
"""


def test_a_killed_holders_slots_come_back(start: Start, gov: Governor, url: str) -> None:
    holder = start("-c", HOLD, url, 2)
    assert said(holder) == "holding"
    holder.kill()
    holder.wait()
    gov.acquire(POOL, timeout=20).release()
    all_slots_free(gov)


def test_a_forked_child_lets_go_of_its_parents_connections(postgres_server: PostgresServer) -> None:
    store: Any = make_postgres(FakeWorld(), postgres_server.url, space=postgres_server.space())
    scene = Scene(lambda _: store)
    scene.static(2)
    scene.take()
    reading, writing = os.pipe()
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        try:
            scene.take()
            os.write(writing, str(scene.snapshot().in_use).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        assert pipe.read() == b"2"
    os.waitpid(pid, 0)
    assert scene.snapshot().in_use == 2, "the parent's connection is as good as before"
    scene.close()
