"""A waiter that is stopped (Ctrl-Z, SIGSTOP) cannot use a slot: it is passed over, on every kind of store."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import flyball
from flyball.host.process import is_stopped
from tests.faults.people_kit import REPOSITORY, Start, cap_of, pool, said, starting
from tests.postgres_server import PostgresServer
from tests.waiting import until

pytestmark = pytest.mark.faults
Exec = Callable[[str], "subprocess.Popen[str]"]


@pytest.fixture(params=["sqlite", "redis", "postgres"], autouse=True)
def address(request: pytest.FixtureRequest, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """``FLYBALL_URL`` for this test and every process it starts: an empty store of each kind."""
    if request.param == "redis":
        url = request.getfixturevalue("redis_server").url
        monkeypatch.setenv("FLYBALL_URL", f"{url}?space=test-{os.urandom(8).hex()}")
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        space = server.space()
        monkeypatch.setenv("FLYBALL_URL", f"{server.url}{'&' if '?' in server.url else '?'}space={space}")
        yield
        server.leave(space)
        return
    yield


@pytest.fixture
def person(address: None) -> Iterator[Start]:
    with starting() as start:
        yield start


@pytest.fixture
def run_exec(address: None, tmp_path: Path) -> Iterator[Exec]:
    """Starts ``flyball exec``, whose command writes its name into a file and waits until it is killed."""
    started: list[subprocess.Popen[str]] = []

    def run(name: str) -> subprocess.Popen[str]:
        script = f"echo {name} >> {tmp_path / 'ran'}; exec sleep 600"
        command = [sys.executable, "-m", "flyball", "exec", "--quiet", "--pool", "anthropic", "--name", name]
        process = subprocess.Popen([*command, "--", "sh", "-c", script], text=True, cwd=REPOSITORY)
        started.append(process)
        return process

    yield run
    for process in started:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.wait(timeout=60)


def stop(process: subprocess.Popen[str]) -> None:
    os.kill(process.pid, signal.SIGSTOP)
    until(lambda: is_stopped(process.pid))


def test_exec_that_was_stopped_in_line_is_passed_over_and_runs_when_it_goes_on(
    run_exec: Exec, tmp_path: Path
) -> None:
    def ran() -> list[str]:
        return (tmp_path / "ran").read_text().split() if (tmp_path / "ran").exists() else []

    cap_of(1)
    holder = run_exec("holder")
    until(lambda: ran() == ["holder"])
    stopped = run_exec("stopped")
    until(lambda: pool().waiting == 1)
    awake = run_exec("awake")
    until(lambda: pool().waiting == 2)
    stop(stopped)
    holder.terminate()
    until(lambda: ran() == ["holder", "awake"])
    assert [(ask.pid, ask.stopped) for ask in pool().asks] == [(stopped.pid, True)]
    os.kill(stopped.pid, signal.SIGCONT)
    awake.terminate()
    until(lambda: ran() == ["holder", "awake", "stopped"])


@pytest.fixture(params=["version 1", "version 2"])
def freezer(request: pytest.FixtureRequest) -> Iterator[Freezer]:
    roots = {"version 1": ["freezer"], "version 2": [".", "unified"]}[request.param]
    found = [path for root in roots if (path := Path("/sys/fs/cgroup") / root / "cgroup.procs").exists()]
    if not found or not os.access(found[0], os.W_OK):
        pytest.skip(f"control groups of {request.param} cannot be made here")
    freezer = Freezer(found[0].parent)
    yield freezer
    freezer.remove()


class Freezer:
    """A control group of its own, whose processes it freezes."""

    def __init__(self, root: Path) -> None:
        self._root, self._group = root, root / f"flyball-test-{os.getpid()}"
        self._group.mkdir()

    def freeze(self, pid: int) -> None:
        (self._group / "cgroup.procs").write_text(str(pid))
        self._turn(on=True)
        until(lambda: is_stopped(pid))

    def thaw(self) -> None:
        self._turn(on=False)

    def _turn(self, *, on: bool) -> None:
        of_version_1 = self._group / "freezer.state"
        if of_version_1.exists():
            of_version_1.write_text("FROZEN" if on else "THAWED")
        else:
            (self._group / "cgroup.freeze").write_text("1" if on else "0")

    def remove(self) -> None:
        self.thaw()
        for pid in (self._group / "cgroup.procs").read_text().split():
            (self._root / "cgroup.procs").write_text(pid)
        self._group.rmdir()


def test_exec_whose_container_is_paused_in_line_is_passed_over_and_runs_when_it_goes_on(
    run_exec: Exec, freezer: Freezer, tmp_path: Path
) -> None:
    def ran() -> list[str]:
        return (tmp_path / "ran").read_text().split() if (tmp_path / "ran").exists() else []

    cap_of(1)
    holder = run_exec("holder")
    until(lambda: ran() == ["holder"])
    frozen = run_exec("frozen")
    until(lambda: pool().waiting == 1)
    awake = run_exec("awake")
    until(lambda: pool().waiting == 2)
    freezer.freeze(frozen.pid)
    holder.terminate()
    until(lambda: ran() == ["holder", "awake"])
    assert [(ask.pid, ask.stopped) for ask in pool().asks] == [(frozen.pid, True)]
    freezer.thaw()
    awake.terminate()
    until(lambda: ran() == ["holder", "awake", "frozen"])


def test_a_signal_reaches_the_command_also_right_after_another_one(run_exec: Exec, tmp_path: Path) -> None:
    """Sent to the process while it handles the first, the second may be taken by a thread that listens."""
    ran = tmp_path / "ran"
    cap_of(1)
    for count in range(1, 9):
        holder = flyball.Governor().acquire(name="holder")
        process = run_exec("waiter")
        until(lambda: pool().waiting == 1)
        holder.release()
        while not ran.exists() or len(ran.read_text().split()) < count:
            time.sleep(0.01)
        process.send_signal(signal.SIGCONT)
        process.terminate()
        assert process.wait(timeout=60) == -signal.SIGTERM


def test_a_stopped_waiter_does_not_stop_the_others(person: Start) -> None:
    gov = cap_of(2)
    leases = [gov.acquire(name=f"mine {n}") for n in range(2)]
    stopped = person("wait", "stopped")
    until(lambda: pool().waiting == 1)
    awake = person("wait", "awake")
    until(lambda: pool().waiting == 2)
    os.kill(stopped.pid, signal.SIGSTOP)
    for lease in leases:
        lease.release()
    assert said(awake) == "got"
    os.kill(stopped.pid, signal.SIGCONT)
    assert said(stopped) == "got"


def test_a_stopped_waiter_is_passed_over_and_served_when_it_goes_on(person: Start) -> None:
    lease = cap_of(1).acquire(name="holder")
    stopped = person("wait", "stopped")
    until(lambda: pool().waiting == 1)
    awake = person("wait", "awake")
    until(lambda: pool().waiting == 2)
    stop(stopped)
    lease.release()
    assert said(awake) == "got"
    awake.wait()
    assert [(ask.pid, ask.stopped) for ask in pool().asks] == [(stopped.pid, True)]
    os.kill(stopped.pid, signal.SIGCONT)
    assert said(stopped) == "got"


def test_all_who_are_stopped_are_passed_over_however_many_they_are(person: Start) -> None:
    gov = cap_of(2)
    leases = [gov.acquire(name=f"mine {n}") for n in range(2)]
    waiters = []
    for number in range(6):
        waiters.append(person("wait", f"waiter {number}"))
        until(lambda number=number: pool().waiting == number + 1)  # type: ignore[misc]
    for waiter in waiters[:4]:
        stop(waiter)
    for lease in leases:
        lease.release()
    assert [said(waiter) for waiter in waiters[4:]] == ["got", "got"]
    for waiter in waiters[:4]:
        os.kill(waiter.pid, signal.SIGCONT)
    assert [said(waiter) for waiter in waiters[:4]] == ["got"] * 4


def test_a_raised_cap_serves_the_waiters_that_are_awake(person: Start) -> None:
    lease = cap_of(1).acquire(name="holder")
    stopped = person("wait", "stopped")
    until(lambda: pool().waiting == 1)
    awake = person("wait", "awake")
    until(lambda: pool().waiting == 2)
    stop(stopped)
    cap_of(2)
    assert said(awake) == "got"
    awake.wait()
    assert [(ask.pid, ask.stopped) for ask in pool().asks] == [(stopped.pid, True)]
    lease.release()


def test_a_slot_that_only_a_stopped_waiter_waits_for_is_free_for_others(person: Start) -> None:
    gov = cap_of(1)
    lease = gov.acquire(name="holder")
    stopped = person("wait", "stopped")
    until(lambda: pool().waiting == 1)
    stop(stopped)
    lease.release()
    newcomer = gov.acquire_nowait(name="newcomer")
    os.kill(stopped.pid, signal.SIGCONT)
    newcomer.release()
    assert said(stopped) == "got"


def test_a_newcomer_of_the_same_project_passes_a_stopped_waiter(person: Start) -> None:
    gov = cap_of(1)
    lease = gov.acquire(project="people", name="holder")
    stopped = person("wait", "stopped")
    until(lambda: pool().waiting == 1)
    stop(stopped)
    lease.release()
    newcomer = person("hold", "newcomer")
    assert said(newcomer) == "held"
    assert [ask.pid for ask in pool().asks] == [stopped.pid]


def test_why_says_that_a_waiter_is_stopped(person: Start) -> None:
    cap_of(1).acquire(name="holder")
    stopped = person("wait", "stopped")
    until(lambda: pool().waiting == 1)
    stop(stopped)
    done = subprocess.run(
        [sys.executable, "-m", "flyball", "why", "stopped"], capture_output=True, text=True, timeout=60
    )
    assert f"kill -CONT {stopped.pid}" in done.stdout
