"""Which process is which, and is it still alive?"""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from flyball.errors import UsageError
from flyball.host.pid_namespaces import FIRST_NAMESPACE, pid_namespace
from flyball.host.process import DeathWatch, alive, boot_id, here, identify, me
from flyball.host.resources import free_bytes, total_bytes


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def _make_zombie(process: subprocess.Popen[bytes]) -> None:
    """Kill it and do not reap it."""
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def test_this_process_is_alive() -> None:
    assert me() == identify(os.getpid())
    assert alive(me()) is True


def test_a_child_is_another_holder(sleeper: subprocess.Popen[bytes]) -> None:
    holder = identify(sleeper.pid)
    assert alive(holder) is True
    assert holder != me()
    assert (holder.host, holder.boot, holder.pidns) == (me().host, me().boot, me().pidns)


def test_a_recycled_pid_is_not_the_process_that_had_it(sleeper: subprocess.Popen[bytes]) -> None:
    holder = identify(sleeper.pid)
    assert alive(replace(holder, start=holder.start - 1)) is False


def test_a_process_that_was_killed_and_reaped_is_dead(sleeper: subprocess.Popen[bytes]) -> None:
    holder = identify(sleeper.pid)
    sleeper.kill()
    sleeper.wait()
    assert alive(holder) is False


def test_a_zombie_is_dead(sleeper: subprocess.Popen[bytes]) -> None:
    holder = identify(sleeper.pid)
    _make_zombie(sleeper)
    assert alive(holder) is False
    with pytest.raises(UsageError, match=str(sleeper.pid)):
        identify(sleeper.pid)


@pytest.mark.parametrize("pid", [0, -1, 2**30])
def test_without_a_process_there_is_no_identity(pid: int) -> None:
    with pytest.raises(UsageError, match="no running process"):
        identify(pid)
    assert alive(replace(me(), pid=pid)) is False


def test_a_process_that_cannot_be_seen_from_here_is_neither_alive_nor_dead() -> None:
    assert alive(replace(me(), host="elsewhere")) is None


def test_a_namespace_without_processes_is_dead_where_all_can_be_seen() -> None:
    gone = alive(replace(me(), pidns=1))
    assert gone is (False if pid_namespace() == FIRST_NAMESPACE else None)


def test_no_process_survives_a_reboot() -> None:
    assert alive(replace(me(), boot="another")) is False


@pytest.mark.parametrize("name", ["a ) b", "S 1 (x) 2", "x y"])
def test_a_command_may_have_any_name(tmp_path: Path, name: str) -> None:
    program = tmp_path / name
    shutil.copy(shutil.which("sleep") or "/bin/sleep", program)
    process = subprocess.Popen([str(program), "600"])
    holder = identify(process.pid)
    assert alive(holder) is True
    process.kill()
    process.wait()
    assert alive(holder) is False


def test_a_boot_has_one_name() -> None:
    assert boot_id() == boot_id() != ""


def test_free_memory_is_known_here() -> None:
    assert 1 << 20 < (free_bytes() or 0) <= (total_bytes() or 0)


# -- watching ---------------------------------------------------------------------------------------


def _ready(watch: DeathWatch, timeout_s: float) -> bool:
    return bool(select.select(watch.fds, [], [], timeout_s)[0])


def test_a_watch_notices_a_death(sleeper: subprocess.Popen[bytes]) -> None:
    watch = DeathWatch([identify(sleeper.pid)])
    assert not _ready(watch, 0)
    sleeper.kill()
    assert _ready(watch, 5)
    assert not watch.partial
    watch.close()
    assert watch.fds == []


def test_a_watch_on_a_zombie_is_not_relied_upon(sleeper: subprocess.Popen[bytes]) -> None:
    holder = identify(sleeper.pid)
    _make_zombie(sleeper)
    watch = DeathWatch([holder])
    assert watch.partial or _ready(watch, 0)
    watch.close()


def test_a_watch_on_a_recycled_pid_is_not_relied_upon(sleeper: subprocess.Popen[bytes]) -> None:
    watch = DeathWatch([replace(identify(sleeper.pid), start=1)])
    assert watch.partial
    watch.close()


def test_a_watch_leaves_out_who_cannot_be_seen() -> None:
    watch = DeathWatch([replace(me(), host="elsewhere")])
    assert (watch.fds, watch.partial) == ([], False)
    watch.close()


def test_closing_a_watch_twice_is_harmless(sleeper: subprocess.Popen[bytes]) -> None:
    watch = DeathWatch([identify(sleeper.pid)])
    watch.close()
    watch.close()


def test_a_process_whose_first_thread_ended_lives_as_long_as_the_others() -> None:
    """The kernel shows it as a zombie, yet it runs and holds its files."""
    code = (
        "import ctypes, threading, time\n"
        "threading.Thread(target=lambda: (print('on', flush=True), time.sleep(60))).start()\n"
        "time.sleep(0.1)\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        holder = identify(process.pid)
        assert process.stdout is not None
        process.stdout.readline()
        deadline = time.monotonic() + 10
        stat = Path(f"/proc/{process.pid}/stat")
        while stat.read_text().rpartition(")")[2].split()[0] != "Z" and time.monotonic() < deadline:
            time.sleep(0.01)
        assert alive(holder) is True
        process.kill()
        while alive(holder) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert alive(holder) is False


def test_a_process_can_be_of_another_host(sleeper: subprocess.Popen[bytes]) -> None:
    """As if on another machine: what is known of the others there, is not known here."""
    code = "from flyball.host.process import host_name, identify, me, here; import sys\n"
    code += "other = identify(int(sys.argv[1])); print(host_name(), other.host, me().host, here(me()))"
    assert _said(code, str(sleeper.pid), FLYBALL_HOST_ID="höst 2") == "höst 2 höst 2 höst 2 True\n"
    there = replace(identify(sleeper.pid), host="höst 2")
    assert alive(there) is None
    assert not here(there)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "must not be empty"),
        ("x" * 201, "201 characters long; at most 200"),
        ("a\tb", "control characters"),
    ],
)
def test_a_host_id_that_makes_no_sense_is_refused_by_its_name(name: str, words: str) -> None:
    code = "from flyball import Governor, UsageError\n"
    code += "try: Governor('memory:').acquire('p')\nexcept UsageError as error: print(error)"
    said = _said(code, FLYBALL_HOST_ID=name)
    assert said.startswith("FLYBALL_HOST_ID ")
    assert words in said


def _said(code: str, *arguments: str, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, **variables, "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
    )
    return done.stdout
