"""The lock between processes: exclusive, freed by death, and honest about who is stuck."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue

import pytest

from flyball.errors import StoreBusyError, StoreReadOnlyError
from flyball.host.lock_file import LockFile, LongLock

_HOLD = """
import sys
from flyball.host.lock_file import LockFile
LockFile.of(sys.argv[1]).acquire()
print("held", flush=True)
sys.stdin.read()
"""
_TAKE = """
import sys
from flyball.host.lock_file import LockFile
sys.exit(not LockFile.of(sys.argv[1]).acquire_at_once())
"""
_COUNT = """
import sys
from flyball.host.lock_file import LockFile
lock, path = LockFile.of(sys.argv[1]), sys.argv[2]
for _ in range(100):
    lock.acquire()
    number = int(open(path).read())
    open(path, "w").write(str(number + 1))
    lock.release()
"""

Hold = Callable[[], "subprocess.Popen[str]"]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "lock")


@pytest.fixture
def hold(path: str) -> Iterator[Hold]:
    """Start a process that holds the lock until its stdin ends."""
    started: list[subprocess.Popen[str]] = []

    def start() -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", _HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_processes_take_turns(path: str, tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    command = [sys.executable, "-c", _COUNT, path, str(counter)]
    for process in [subprocess.Popen(command) for _ in range(4)]:
        assert process.wait(60) == 0
    assert counter.read_text() == "400"


def test_threads_take_turns(path: str) -> None:
    lock, inside, most = LockFile.of(path), [0], [0]

    def work() -> None:
        for _ in range(100):
            lock.acquire()
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            inside[0] -= 1
            lock.release()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]


def test_the_lock_of_a_killed_holder_is_free(path: str, hold: Hold) -> None:
    holder = hold()
    seen = LockFile.of(path).waits_for()
    assert seen is not None
    assert seen.pid == holder.pid
    holder.kill()
    holder.wait()
    lock = LockFile.of(path)
    lock.acquire()
    lock.release()


def test_a_holder_that_is_stopped_is_named_with_the_way_out(path: str, hold: Hold) -> None:
    holder = hold()
    holder.send_signal(signal.SIGSTOP)
    lock = LockFile.of(path, stuck_after_s=0.1)
    with pytest.raises(StoreBusyError, match=f"process {holder.pid} has held .*kill -CONT {holder.pid}"):
        lock.acquire()
    holder.send_signal(signal.SIGCONT)
    holder.communicate("")
    lock.acquire()
    lock.release()


def test_the_kernel_says_who_holds_it_and_not_the_file(path: str, hold: Hold) -> None:
    holder = hold()
    Path(path).write_bytes(b"%-20d" % os.getpid())
    seen = LockFile.of(path).waits_for()
    assert seen is not None
    assert (seen.pid, seen.holder) == (holder.pid, f"process {holder.pid}")


def test_a_holder_that_takes_it_again_and_again_shows_now_and_then_that_it_is_passed_on(path: str) -> None:
    lock, turns = LockFile.of(path), 0
    stamps: set[int] = set()
    while len(stamps) < 3:
        lock.acquire()
        stamps.add(os.stat(path).st_mtime_ns)
        lock.release()
        turns += 1
    assert turns > len(stamps)


def test_a_busy_lock_is_not_a_stuck_one(path: str, tmp_path: Path) -> None:
    """As long as holders come and go, every waiter waits its turn."""
    counter = tmp_path / "counter"
    counter.write_text("0")
    command = [sys.executable, "-c", _COUNT, path, str(counter)]
    busy = [subprocess.Popen(command) for _ in range(2)]
    lock = LockFile.of(path, stuck_after_s=5.0)
    for _ in range(50):
        lock.acquire()
        lock.release()
    assert [process.wait(60) for process in busy] == [0, 0]


def test_a_lock_that_was_refused_can_be_taken_later_by_any_thread(path: str, hold: Hold) -> None:
    holder = hold()
    lock = LockFile.of(path, stuck_after_s=0.05)
    for _ in range(2):
        with pytest.raises(StoreBusyError):
            lock.acquire()
    holder.communicate("")
    lock.acquire()
    lock.release()


def test_a_waiter_that_is_interrupted_keeps_no_other_waiting(path: str, hold: Hold) -> None:
    class CutError(Exception):
        pass

    def interrupt(*_: object) -> None:
        raise CutError

    holder, lock = hold(), LockFile.of(path)
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
        with pytest.raises(CutError):
            lock.acquire()
    finally:
        signal.signal(signal.SIGUSR1, before)
    holder.communicate("")
    # Another process gets it, and after that we do.
    hold().communicate("")
    lock.acquire()
    lock.release()


def test_a_thread_that_has_it_cannot_take_it_again(path: str) -> None:
    lock = LockFile.of(path)
    lock.acquire()
    with pytest.raises(StoreBusyError, match="already"):
        lock.acquire()
    assert not lock.acquire_at_once()
    lock.release()
    assert lock.acquire_at_once()
    lock.release()


def test_it_is_not_taken_beside_a_helper_that_is_about_to_get_it_for_no_waiter(path: str, hold: Hold) -> None:
    holder = hold()
    lock = LockFile.of(path, stuck_after_s=0.05)
    with pytest.raises(StoreBusyError):
        lock.acquire()
    holder.communicate("")
    took = lock.acquire_at_once()
    if took:
        lock.release()
    lock.acquire()
    assert subprocess.run([sys.executable, "-c", _TAKE, path], check=False).returncode == 1
    lock.release()


def test_it_is_not_taken_while_a_helper_lets_go_of_it(
    path: str, hold: Hold, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel's lock is the whole process's: what a thread takes now, the helper gives away."""
    holder, lock, took = hold(), LockFile.of(path, stuck_after_s=0.05), Queue[bool]()
    lockf = fcntl.lockf

    def lockf_with_a_rival(fd: int, what: int) -> None:
        if what == fcntl.LOCK_UN and threading.current_thread().name == "flyball-lock":
            rival = threading.Thread(target=lambda: took.put(lock.acquire_at_once()))
            rival.start()
            rival.join()
        lockf(fd, what)

    with pytest.raises(StoreBusyError):
        lock.acquire()
    monkeypatch.setattr("fcntl.lockf", lockf_with_a_rival)
    holder.communicate("")
    assert not took.get(timeout=30)
    monkeypatch.undo()
    lock.acquire()
    lock.release()


def test_one_process_has_one_lock_per_path(path: str) -> None:
    assert LockFile.of(path) is LockFile.of(path)
    assert LockFile.of(path) is not LockFile.of(path + "2")


def test_a_lock_file_is_private(path: str) -> None:
    LockFile.of(path)
    assert os.stat(path).st_mode & 0o077 == 0


def test_a_lock_that_cannot_be_opened_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(StoreReadOnlyError, match="FLYBALL_HOME"):
        LockFile.of(str(tmp_path))


# -- held for long ----------------------------------------------------------------------------------------

_TAKE_LONG = """
import sys
from flyball.host.lock_file import LongLock
sys.exit(not LongLock(sys.argv[1], inherited=sys.argv[2] == "True").take())
"""


def is_free(path: str, *, inherited: bool) -> bool:
    """Can another process take it?"""
    command = [sys.executable, "-c", _TAKE_LONG, path, str(inherited)]
    return subprocess.run(command, check=False).returncode == 0


kinds = pytest.mark.parametrize("inherited", [False, True])


@kinds
def test_a_long_lock_is_taken_at_once_or_not_at_all(path: str, inherited: bool) -> None:
    lock, other = LongLock(path, inherited=inherited), LongLock(path, inherited=inherited)
    assert lock.take()
    assert not lock.take()
    assert not other.take()
    other.release()
    assert not is_free(path, inherited=inherited), "what it did not hold it cannot release"
    lock.release()
    assert is_free(path, inherited=inherited)
    assert other.take()
    other.release()


@kinds
def test_a_long_lock_says_what_its_holder_wrote(path: str, inherited: bool) -> None:
    lock = LongLock(path, inherited=inherited)
    lock.take()
    lock.write(b"a long text")
    lock.write(b"mine")
    assert Path(path).read_bytes() == b"mine"
    lock.release()
    lock.write(b"not any more")
    assert Path(path).read_bytes() == b"mine"


@kinds
def test_a_child_keeps_a_long_lock_only_where_it_is_inherited(path: str, inherited: bool) -> None:
    code = """
import os, subprocess, sys
from flyball.host.lock_file import LongLock
lock = LongLock(sys.argv[1], inherited=sys.argv[2] == "True")
lock.take()
child = subprocess.Popen(["sh", "-c", "echo; read x"], pass_fds=[lock.fd], stdin=0)
os._exit(0)
"""
    command = [sys.executable, "-c", code, path, str(inherited)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdin is not None
        assert killed.stdout is not None
        killed.wait(60)
        assert killed.stdout.readline() == "\n", "the child lives on"
        assert is_free(path, inherited=inherited) is not inherited
        killed.stdin.close()
        assert killed.stdout.read() == "", "and has ended"
    assert is_free(path, inherited=inherited)


def test_a_released_long_lock_is_free_although_a_child_still_has_its_descriptor(path: str) -> None:
    lock = LongLock(path, inherited=True)
    assert lock.take()
    assert lock.fd is not None
    with subprocess.Popen(["sh", "-c", "read x"], pass_fds=[lock.fd], stdin=subprocess.PIPE) as child:
        lock.release()
        assert is_free(path, inherited=True)
        child.communicate(b"")
