"""Ctrl-Z, ``fg`` and ``bg`` of ``flyball exec``: the command and its wrapper stop and go on together.

The wrapper runs beside its command, so whatever it does about a stop may come late. ``SLOW_KILL`` makes it
come late every time: it lengthens the system calls by which the wrapper stops itself and continues others.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import flyball
from flyball.governor.status import LeaseStatus
from tests.faults.terminal import Terminal
from tests.waiting import until

EXEC = f"{sys.executable} -m flyball exec --pool p"
READ_OR_NOT = pytest.mark.parametrize("options", ["", "--runtime claude"])

SLOW_KILL = """
import os, signal, time

def slow(call):
    def kill(whom, number):
        # As inside a system call: the terminal's stop takes effect when it has returned.
        mask = {signal.SIGTSTP} if number == signal.SIGCONT else set()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, mask)
        while os.path.exists(os.environ["HOLD"]):
            open(os.environ["HOLD"] + ".met", "w").close()
            time.sleep(0.005)
        call(whom, number)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return kill

os.kill, signal.pthread_kill = slow(os.kill), slow(signal.pthread_kill)
"""

EDITOR = """
import os, signal

def tidy(*_):
    print("tidy-" + input(), flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)

signal.signal(signal.SIGTSTP, tidy)
print("ready", flush=True)
while True:
    signal.pause()
"""


class Job:
    """A command under ``flyball exec`` in the foreground of a shell."""

    def __init__(self, shell: Terminal, command: str, name: str, options: str = "") -> None:
        self.shell = shell
        shell.type(f"{EXEC} {options} -- {command}\n")
        until(lambda: any(_name(lease.pid) == name for lease in _leases()), "the command to run")
        lease = _leases()[0]
        self.command, self.wrapper = lease.pid, lease.launcher_pid
        shell.seen = b""
        self.until_in_foreground()

    def states(self) -> list[str]:
        return [_state(self.command), _state(self.wrapper)]

    def until_followed(self) -> None:
        """Until the wrapper has opened the gate and handles Ctrl-Z, by not stopping."""
        until(lambda: _caught(self.wrapper) & 1 << signal.SIGTSTP - 1, "the wrapper to follow its command")

    def until_in_foreground(self) -> None:
        until(lambda: self.shell.group() == os.getpgid(self.wrapper), "the job to have the terminal")

    def until_in_background(self) -> None:
        until(lambda: self.shell.group() == self.shell.pid, "the shell to have the terminal")

    def until_stopped(self) -> None:
        until(lambda: self.states() == ["T", "T"], "both to stop")

    def until_running(self) -> None:
        until(lambda: self.states() == ["S", "S"], "both to go on")


@pytest.fixture
def shell(home: Path) -> Iterator[Terminal]:
    flyball.Governor().set_pool("p", cap=1, adaptive=False)
    shell = Terminal()
    yield shell
    shell.close()
    for lease in _leases():
        if lease.alive:
            with suppress(ProcessLookupError):
                os.kill(lease.pid, signal.SIGKILL)


@pytest.fixture
def hold(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """While this file exists, the wrapper stays in the calls that stop and continue processes."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SLOW_KILL)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"), prepend=os.pathsep)
    monkeypatch.setenv("HOLD", str(tmp_path / "hold"))
    return tmp_path / "hold"


@READ_OR_NOT
def test_ctrl_z_stops_and_fg_continues_the_command_and_its_wrapper_every_time(
    shell: Terminal, options: str
) -> None:
    job = Job(shell, "cat", "cat", options)
    for turn in range(20):
        job.until_in_foreground()
        shell.type(f"word-{turn}\n")
        shell.read_until(f"word-{turn}\r\nword-{turn}\r\n")
        shell.type("\x1a")
        job.until_stopped()
        job.until_in_background()
        shell.type("fg\n")
    job.until_running()


@READ_OR_NOT
def test_a_command_that_is_stopped_again_at_once_is_not_continued_by_its_wrapper(
    hold: Path, shell: Terminal, options: str
) -> None:
    job = Job(shell, "sleep 600", "sleep", options)
    shell.type("\x1a")
    job.until_in_background()
    hold.touch()
    shell.type("fg\n")
    job.until_in_foreground()
    until(lambda: _state(job.command) == "S", "the command to go on")
    shell.type("\x1a")
    until(lambda: _state(job.command) == "T", "the command to stop again")
    hold.unlink()
    until(lambda: _state(job.wrapper) == "T", "the wrapper to stop again")
    assert _state(job.command) == "T"


@READ_OR_NOT
def test_a_wrapper_that_was_continued_with_its_command_does_not_stop_after_it(
    hold: Path, shell: Terminal, options: str
) -> None:
    job = Job(shell, "sleep 600", "sleep", options)
    hold.touch()
    os.kill(job.command, signal.SIGSTOP)
    until(Path(f"{hold}.met").exists, "the wrapper to be about to stop")
    shell.type("\x1a")
    shell.read_until("^Z")
    hold.unlink()
    job.until_in_background()
    shell.type("fg\n")
    job.until_running()
    assert shell.group() == os.getpgid(job.wrapper)


def test_a_command_that_tidies_up_before_it_stops_has_the_terminal_until_then(
    shell: Terminal, tmp_path: Path
) -> None:
    script = tmp_path / "editor.py"
    script.write_text(EDITOR)
    job = Job(shell, f"{sys.executable} {script}", "python")
    shell.read_until("ready")
    job.until_followed()
    shell.type("\x1a")
    shell.read_until("^Z")
    shell.type("up\n")
    shell.read_until("tidy-up")
    job.until_stopped()
    job.until_in_background()
    shell.type("fg\n")
    job.until_in_foreground()


def test_a_command_that_ignores_ctrl_z_keeps_the_terminal(shell: Terminal) -> None:
    job = Job(shell, "env --ignore-signal=TSTP cat", "cat")
    job.until_followed()
    shell.type("\x1a")
    shell.read_until("^Z")
    shell.type("word\n")
    shell.read_until("word\r\nword\r\n")
    job.until_running()
    assert shell.group() == os.getpgid(job.wrapper)


@READ_OR_NOT
def test_bg_lets_both_go_on_without_the_terminal(shell: Terminal, options: str) -> None:
    job = Job(shell, "sleep 600", "sleep", options)
    shell.type("\x1a")
    job.until_stopped()
    shell.type("bg\n")
    job.until_running()
    assert shell.group() == shell.pid
    shell.type("fg\n")
    job.until_in_foreground()
    shell.type("\x03")
    job.until_in_background()
    until(lambda: not _leases(), "the slot to be given back")


@READ_OR_NOT
@pytest.mark.parametrize("whom", ["the wrapper", "the group"])
def test_a_command_that_was_stopped_alone_goes_on_with_its_wrapper(
    shell: Terminal, whom: str, options: str
) -> None:
    job = Job(shell, "sleep 600", "sleep", options)
    job.until_followed()
    for _ in range(3):
        os.kill(job.command, signal.SIGSTOP)
        job.until_stopped()
        if whom == "the group":
            os.killpg(job.wrapper, signal.SIGCONT)
        else:
            os.kill(job.wrapper, signal.SIGCONT)
        job.until_running()


@READ_OR_NOT
def test_a_group_that_was_stopped_goes_on_with_its_wrapper(shell: Terminal, options: str) -> None:
    job = Job(shell, "sleep 600", "sleep", options)
    job.until_followed()
    for _ in range(3):
        os.killpg(job.wrapper, signal.SIGSTOP)
        job.until_stopped()
        os.kill(job.wrapper, signal.SIGCONT)
        job.until_running()


def _leases() -> list[LeaseStatus]:
    return [lease for pool in flyball.Governor().status().pools for lease in pool.leases]


def _name(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _caught(pid: int) -> int:
    """The signals that a process handles, as bits."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("SigCgt:")[2].split()[0], 16)
