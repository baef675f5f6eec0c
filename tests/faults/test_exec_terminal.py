"""``flyball exec`` around a headless agent in a terminal: it is read, and nothing else is different."""

from __future__ import annotations

import os
import pty
import select
import signal
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import flyball
from flyball.governor.status import PoolStatus
from tests.faults.test_exec_runtimes import EXEC, RECORDINGS, running, throttles
from tests.waiting import until

LONGEST_S = 60.0
REFUSED = RECORDINGS / "claude" / "err_429__format_text.stdout.txt"
SERVED = RECORDINGS / "claude" / "ok_text__format_text.stdout.txt"

Script = Callable[[str, str], Path]


@pytest.fixture
def script(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    """Makes a program on the PATH, in shell or, with a first line of its own, in anything."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    for key in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(key, raising=False)

    def make(name: str, text: str) -> Path:
        path = folder / name
        path.write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    return make


class Terminal:
    """A command in a terminal of its own."""

    def __init__(self, *argv: str) -> None:
        self.pid, self.file = pty.fork()
        if self.pid == 0:
            os.execvp(argv[0], argv)
        self.shown = b""
        self._read_to = 0
        self._status: int | None = None

    def type(self, text: str) -> None:
        os.write(self.file, text.encode())

    def resize(self, rows: int, columns: int) -> None:
        termios.tcsetwinsize(self.file, (rows, columns))

    def read_until(self, text: str) -> None:
        """Read on until it was shown; what was shown before is behind us."""
        end = time.monotonic() + LONGEST_S
        while (at := self.shown.find(text.encode(), self._read_to)) < 0:
            assert time.monotonic() < end, f"{text!r} was never shown: {self.shown!r}"
            assert self._more(), f"it ended before {text!r}: {self.shown!r}"
        self._read_to = at + len(text.encode())

    def ended(self) -> int:
        """Its exit code, once all that it showed is read."""
        end = time.monotonic() + LONGEST_S
        while self._more():
            assert time.monotonic() < end, f"it does not end: {self.shown!r}"
        return self.code()

    def code(self) -> int:
        if self._status is None:
            self._status = os.waitpid(self.pid, 0)[1]
        return os.waitstatus_to_exitcode(self._status)

    def _more(self) -> bool:
        if not select.select([self.file], [], [], 1.0)[0]:
            return True
        try:
            piece = os.read(self.file, 65536)
        except OSError:
            return False
        self.shown += piece
        return bool(piece)

    def close(self) -> None:
        os.close(self.file)
        if self._status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


@pytest.fixture
def terminal() -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def start(*argv: str) -> Terminal:
        opened.append(Terminal(*argv))
        return opened[-1]

    yield start
    for each in opened:
        each.close()
    for pool in flyball.Governor().status().pools:
        for lease in pool.leases:
            if lease.alive:
                os.kill(lease.pid, signal.SIGKILL)


Open = Callable[..., Terminal]


def pool(name: str = "anthropic") -> PoolStatus:
    return next(each for each in flyball.Governor().status().pools if each.name == name)


def bash(*lines: str) -> Sequence[str]:
    return ["bash", "--norc", "--noprofile", "-c", "\n".join(lines)]


ON_EXEC = " ".join(EXEC)


def test_a_limit_in_a_terminal_is_heard_75_and_one_line(script: Script, terminal: Open, home: Path) -> None:
    script("claude", f"cat {REFUSED}; exit 1")
    here = terminal(*EXEC, "--", "claude", "-p", "x")
    assert here.ended() == 75
    said = here.shown.decode().replace("\r\n", "\n")
    assert said.startswith(REFUSED.read_text())
    (line,) = [each for each in said.splitlines() if each.startswith("flyball:")]
    assert line.startswith("flyball: limited: the provider throttled it (429)")
    assert throttles() == 1
    assert pool().cap < 8
    assert running(home) == []


def test_a_throttle_of_a_login_is_not_taken_for_its_usage_window(script: Script, terminal: Open) -> None:
    words = "API Error: Server is temporarily limiting requests (not your usage limit) · Rate limited."
    script("claude", f"echo '{words}'; exit 1")
    here = terminal(*EXEC, "--", "claude", "-p", "x")
    assert here.ended() == 75
    assert b"flyball: limited: the provider throttled it (429)" in here.shown
    assert throttles() == 1


def test_a_coloured_error_of_codex_is_read_in_the_stream_of_both(script: Script, terminal: Open) -> None:
    refused = r"\033[1m\033[31mERROR:\033[0m\033[0m exceeded retry limit, last status: 429 Too Many Requests"
    script("codex", f"printf '{refused}\\n' >&2; exit 1")
    here = terminal(*EXEC, "--", "codex", "exec", "x")
    assert here.ended() == 75
    assert throttles("openai") == 1


def test_a_retry_in_a_terminal_goes_on(script: Script, terminal: Open, tmp_path: Path) -> None:
    flyball.Governor().set_pool("anthropic", confirm_s=1.0)
    once = tmp_path / "once"
    refused = "API Error: Request rejected (429) · Rate limited. Please try again in 1s."
    script("claude", f"[ -e {once} ] && exec cat {SERVED}; : > {once}; echo '{refused}'; exit 1")
    here = terminal(*EXEC, "--retry-limited", "3", "--", "claude", "-p", "x")
    assert here.ended() == 0, here.shown
    assert b"; trying again in 1 s, from the start (1 of 3)" in here.shown
    assert here.shown.endswith(SERVED.read_bytes().replace(b"\n", b"\r\n"))


MIXED = """\
#!{python}
import os, sys, fcntl, termios
for i in range(200):
    os.write(1 + i % 2, b"\\x1b[3%dm%d\\x1b[0m\\n" % (i % 8, i))
os.write(1, b"\\xff\\x00\\r\\tno end" + bytes(70000) + b"\\x1b]0;title\\x07")
print(os.isatty(0), os.isatty(1), os.isatty(2), os.get_terminal_size(), os.tcgetpgrp(0) == os.getpgrp())
print(os.ctermid(), os.ttyname(0) == os.environ.get("TTY"), sys.stdin.readline())
"""


def test_the_bytes_and_their_order_are_those_without_flyball(script: Script, terminal: Open) -> None:
    script("gemini", MIXED.format(python=sys.executable))
    shown = []
    for before in ("", f"{ON_EXEC} -- "):
        here = terminal(
            *bash("export TTY=$(tty)", "stty -echo; stty rows 33 cols 101", f"{before}gemini -p x")
        )
        here.type("typed\n")
        assert here.ended() == 0
        shown.append(here.shown)
    assert shown[1] == shown[0]
    assert b"lines=33" in shown[0]


def test_a_change_of_the_window_reaches_the_agent_with_its_size(script: Script, terminal: Open) -> None:
    tell = "import os, signal\ndef tell(*_): print(*os.get_terminal_size(1), flush=True)\n"
    loop = "signal.signal(signal.SIGWINCH, tell)\ntell()\nwhile True: signal.pause()\n"
    script("claude", f"#!{sys.executable}\n{tell}{loop}")
    here = terminal(*bash("stty rows 20 cols 70", f"{ON_EXEC} -- claude -p x; echo over"))
    here.read_until("70 20\r\n")
    for columns in (71, 132, 40):
        here.resize(50, columns)
        here.read_until(f"{columns} 50\r\n")


@pytest.mark.parametrize(("key", "number"), [("\x03", signal.SIGINT), ("\x1c", signal.SIGQUIT)])
def test_keys_end_the_agent_as_without_flyball(
    key: str, number: signal.Signals, script: Script, terminal: Open
) -> None:
    script("claude", "echo ready; while :; do sleep 0.05; done")
    here = terminal(*EXEC, "--", "claude", "-p", "x")
    here.read_until("ready")
    here.type(key)
    assert here.ended() == -number
    script("claude", "trap 'echo got it; exit 9' INT QUIT; echo ready; while :; do sleep 0.05; done")
    here = terminal(*EXEC, "--", "claude", "-p", "x")
    here.read_until("ready")
    here.type(key)
    here.read_until("got it")
    assert here.ended() == 9


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_ctrl_z_stops_and_fg_continues_every_time(script: Script, terminal: Open) -> None:
    script("claude", "echo ready; exec cat")
    here = terminal("bash", "--norc", "--noprofile", "--noediting", "-i")
    here.type(f"{ON_EXEC} -- claude -p x\n")
    here.read_until("ready\r\n")
    lease = pool().leases[0]
    both = (lease.pid, lease.launcher_pid)
    for turn in range(5):
        until(lambda: os.tcgetpgrp(here.file) == os.getpgid(lease.pid), "the job to have the terminal")
        here.type(f"word-{turn}\n")
        here.read_until(f"word-{turn}\r\nword-{turn}\r\n")
        here.type("\x1a")
        until(lambda: [state(pid) for pid in both] == ["T", "T"], "both to stop")
        until(lambda: os.tcgetpgrp(here.file) == here.pid, "the shell to have the terminal")
        here.resize(30, 90 + turn)
        here.type("fg\n")
    here.type("\x04")
    until(lambda: not pool().leases, "the agent to end")
    here.type("echo status $?\n")
    here.read_until("status 0")


def test_a_killed_agent_leaves_the_terminal_as_it_was(script: Script, terminal: Open) -> None:
    script("claude", "stty raw -echo; echo ready; exec sleep 60")
    here = terminal(*EXEC, "--", "claude", "-p", "x")
    before = termios.tcgetattr(here.file)
    here.read_until("ready")
    assert termios.tcgetattr(here.file) != before
    os.kill(pool().leases[0].pid, signal.SIGKILL)
    # The terminal is there as long as this process has it open.
    assert here.ended() == -signal.SIGKILL
    assert termios.tcgetattr(here.file)[:4] == before[:4]


def test_a_killed_wrapper_leaves_the_agent_running_and_shown(
    script: Script, terminal: Open, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    loop = f"while [ -e {gate} ]; do echo tick; sleep 0.02; done; echo served; : > {tmp_path}/done"
    gate.touch()
    script("claude", loop)
    here = terminal("bash", "--norc", "--noprofile", "--noediting", "-i")
    before = termios.tcgetattr(here.file)[:4]
    here.type(f"{ON_EXEC} -- claude -p x\n")
    here.read_until("tick\r\n")
    lease = pool().leases[0]
    assert lease.launcher_pid
    os.kill(lease.launcher_pid, signal.SIGKILL)
    here.read_until("Killed")
    for _ in range(20):
        here.read_until("tick\r\n")
    assert pool().leases[0].alive
    gate.unlink()
    here.read_until("served")
    until((tmp_path / "done").exists, "the agent to end by itself")
    here.type("echo still $((1+1))\n")
    here.read_until("still 2")
    assert termios.tcgetattr(here.file)[1] == before[1]


def test_what_the_agent_leaves_running_goes_on_writing_to_the_terminal(
    script: Script, terminal: Open, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    script("claude", f"(while [ -e {gate} ]; do sleep 0.02; done; echo later) & echo now")
    here = terminal("bash", "--norc", "--noprofile", "--noediting", "-i")
    here.type(f"{ON_EXEC} -- claude -p x; echo status $?\n")
    here.read_until("now\r\n")
    here.read_until("status 0\r\n")
    gate.unlink()
    here.read_until("later\r\n")


@pytest.mark.parametrize(
    ("how", "terminals"),
    [
        ("", "in out err"),
        ("| cat", "in err"),
        ("> file", "in err"),
        ("2> file", "in out"),
        ("> file 2>&1", "in"),
        ("< prompt.txt", "out err"),
    ],
)
def test_each_descriptor_stays_what_the_shell_made_it(
    how: str, terminals: str, script: Script, terminal: Open, tmp_path: Path
) -> None:
    asks = '[ -t 0 ] && w="$w in"; [ -t 1 ] && w="$w out"; [ -t 2 ] && w="$w err"'
    script("claude", f"{asks}; echo $w > {tmp_path}/seen; echo worry >&2; cat {REFUSED}; exit 1")
    (tmp_path / "prompt.txt").write_text("fix it")
    here = terminal(
        *bash(f"cd {tmp_path}", f"{ON_EXEC} -- claude -p x {how}", "echo ${PIPESTATUS[0]} > code")
    )
    here.ended()
    assert (tmp_path / "seen").read_text().split() == terminals.split()
    assert (tmp_path / "code").read_text() == "75\n"
    assert throttles() == 1
    everything = here.shown + ((tmp_path / "file").read_bytes() if "file" in how else b"")
    assert everything.replace(b"\r\n", b"\n").count(REFUSED.read_bytes()) == 1
    assert everything.count(b"worry") == 1


def test_what_the_model_says_in_text_is_not_taken_for_a_refusal(script: Script, terminal: Open) -> None:
    said = "Attempt 1 failed with status 429. Retrying with backoff... You exceeded your current quota."
    script("gemini", f"echo '{said}'; echo done")
    here = terminal(*EXEC, "--", "gemini", "-p", "tell me what a log of a throttled call looks like")
    assert here.ended() == 0
    assert throttles("google") == 0


def test_an_agent_that_prints_events_is_heard_while_it_runs(
    script: Script, terminal: Open, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    events = RECORDINGS / "claude" / "err_429_then_ok.stdout.jsonl"
    script("claude", f"cat {events}; while [ -e {gate} ]; do sleep 0.02; done")
    here = terminal(*EXEC, "--", "claude", "-p", "x", "--output-format", "stream-json", "--verbose")
    until(lambda: pool_is_there() and throttles() == 1, "the throttle to show in status")
    assert pool().in_use == 1
    gate.unlink()
    assert here.ended() == 0


def pool_is_there() -> bool:
    return any(each.name == "anthropic" for each in flyball.Governor().status().pools)


def test_eighteen_terminals_that_are_all_refused_never_raise_the_cap_and_are_heard(
    script: Script, terminal: Open, tmp_path: Path
) -> None:
    flyball.Governor().set_pool("anthropic", confirm_s=0.1, break_s=0.2)
    script("claude", f"sleep 0.3; cat {REFUSED}; exit 1")
    caps = [pool().cap]
    loop = f"for i in 1 2; do {ON_EXEC} --quiet --wait 3s -- claude -p x; done"
    shells = [terminal(*bash(loop)) for _ in range(18)]
    for shell in shells:
        shell.ended()
        caps.append(pool().cap)
    assert throttles() >= 2
    assert max(caps) == caps[0]
    assert caps[-1] < caps[0]


def test_a_command_that_is_not_known_says_which_pool_it_takes_to_a_person(
    script: Script, terminal: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    script("aider", "echo hello")
    here = terminal(*EXEC, "--", "aider", "--model", "gpt-5")
    assert here.ended() == 0
    said = b"flyball: aider takes a slot of anthropic; --pool names another\r\n"
    assert here.shown == said + b"hello\r\n"
    for quiet in (["--quiet"], ["--pool", "openai"]):
        here = terminal(*EXEC, *quiet, "--", "aider")
        here.ended()
        assert here.shown == b"hello\r\n"
    nested = terminal(*EXEC, "--quiet", "--", *EXEC, "--", "aider")
    nested.ended()
    assert nested.shown == b"hello\r\n"
    monkeypatch.setenv("FLYBALL_POOL", "openai-2")
    here = terminal(*EXEC, "--", "aider")
    here.ended()
    assert b"takes a slot" not in here.shown
    assert pool("openai-2").in_use == 0
