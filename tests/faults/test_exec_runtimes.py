"""``flyball exec`` around an agent: a script named like one that replays what the real one printed."""

from __future__ import annotations

import json
import os
import pty
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import flyball
from flyball.governor.internals import internals
from flyball.governor.launch import output_files
from flyball.governor.status import PoolStatus
from flyball.host.process import identify
from tests.waiting import until

EXEC = [sys.executable, "-m", "flyball", "exec"]
RECORDINGS = Path(__file__).parents[1] / "runtimes" / "recordings"

REPLAY = """\
#!{python}
import os, pathlib, signal, sys, time
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
plan = pathlib.Path(__file__).with_name("plan")
turn = plan / str(len(list(plan.glob("*.argv"))))
turn.with_suffix(".argv").write_text("\\n".join(sys.argv[1:]))
stdin = sys.stdin.read() if not sys.stdin.isatty() else "a terminal"
turn.with_suffix(".stdin").write_text(stdin)
turn.with_suffix(".tty").write_text(str([os.isatty(n) for n in (0, 1, 2)]))
for number, name in ((2, "stderr"), (1, "stdout")):
    for line in turn.with_suffix("." + name).read_bytes().splitlines(keepends=True):
        os.write(number, line)
gate = turn.with_suffix(".gate")
while gate.exists():
    os.write(1, b"tick\\n")
    time.sleep(0.01)
code = int(turn.with_suffix(".code").read_text())
os.kill(os.getpid(), -code) if code < 0 else sys.exit(code)
"""


SLOW_TO_SEE_THE_END = """
import os, time

wait = os.waitpid

def waitpid(pid, options):
    ended = wait(pid, options)
    if ended[0] and not os.WIFSTOPPED(ended[1]):
        time.sleep(0.5)
    return ended

os.waitpid = waitpid
"""


class Agent:
    """A fake agent on the PATH. Each ``will`` is one more run of it."""

    def __init__(self, folder: Path, name: str) -> None:
        self.plan = folder / "plan"
        self.plan.mkdir(parents=True)
        self.script = folder / name
        self.script.write_text(REPLAY.format(python=sys.executable))
        self.script.chmod(0o755)
        self._turns = 0

    def will(self, recording: str, *, exit_code: int, staying: bool = False) -> Path:
        """What it prints and how it exits next time; a run that stays goes on while its gate exists."""
        turn = self.plan / str(self._turns)
        self._turns += 1
        turn.with_suffix(".stdout").write_bytes(next(RECORDINGS.glob(f"{recording}.stdout.*")).read_bytes())
        turn.with_suffix(".stderr").write_bytes((RECORDINGS / f"{recording}.stderr.txt").read_bytes())
        turn.with_suffix(".code").write_text(str(exit_code))
        if staying:
            turn.with_suffix(".gate").touch()
        return turn.with_suffix(".gate")

    def argv(self, turn: int) -> list[str]:
        return (self.plan / f"{turn}.argv").read_text().split("\n")

    @property
    def runs(self) -> int:
        return len(list(self.plan.glob("*.argv")))


@pytest.fixture
def agent(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Agent]:
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")

    def make(name: str) -> Agent:
        return Agent(tmp_path / "bin", name)

    return make


@pytest.fixture
def claude(agent: Callable[[str], Agent]) -> Iterator[Agent]:
    made = agent("claude")
    yield made
    for gate in made.plan.glob("*.gate"):
        gate.unlink()


def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    options = {"stdin": subprocess.DEVNULL, "capture_output": True, **options}
    return subprocess.run([*EXEC, *arguments], text=True, timeout=60, **options)


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(claude: Agent) -> Iterator[Start]:
    """Runs a wrapper beside the test; nothing of it is left when the test ends."""
    started: list[subprocess.Popen[str]] = []

    def begin(*arguments: str) -> subprocess.Popen[str]:
        pipes: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
        }
        started.append(subprocess.Popen([*EXEC, *arguments], text=True, **pipes))
        return started[-1]

    yield begin
    for gate in claude.plan.glob("*.gate"):
        gate.unlink()
    for process in started:
        process.kill()
        process.communicate()


def pool(name: str = "anthropic") -> PoolStatus | None:
    return next((each for each in flyball.Governor().status().pools if each.name == name), None)


def throttles(name: str = "anthropic") -> int:
    shown = subprocess.run(
        [sys.executable, "-m", "flyball", "status", "--json"], capture_output=True, text=True, check=True
    )
    pools = json.loads(shown.stdout)["pools"]
    return next((each["throttle_count"] for each in pools if each["name"] == name), 0)


def running(home: Path) -> list[Path]:
    return list((home / "runs").glob("*")) if (home / "runs").exists() else []


def recorded(name: str) -> str:
    return next(RECORDINGS.glob(f"{name}.stdout.*")).read_text()


def test_a_finished_run_passes_everything_on_and_says_nothing(home: Path, claude: Agent) -> None:
    claude.will("claude/ok_tool", exit_code=0)
    done = run("--", "claude", "-p", "x")
    assert (done.returncode, done.stdout, done.stderr) == (0, recorded("claude/ok_tool"), "")
    assert running(home) == []


def test_a_throttle_is_in_the_pool_while_the_agent_still_runs(
    home: Path, claude: Agent, start: Start
) -> None:
    gate = claude.will("claude/err_429_then_ok", exit_code=0, staying=True)
    wrapper = start("--name", "t-1", "--", "claude", "-p", "x")
    until(lambda: throttles() == 1, "the throttle to show in status")
    assert wrapper.poll() is None
    here = pool()
    assert here is not None
    assert here.in_use == 1
    gate.unlink()
    wrapper.communicate(timeout=60)
    assert wrapper.returncode == 0
    assert throttles() == 1


def test_how_a_run_ended_is_kept_where_its_wrapper_is_slow_to_see_it_while_others_wait(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, claude: Agent, start: Start
) -> None:
    (tmp_path / "sitecustomize.py").write_text(SLOW_TO_SEE_THE_END)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    flyball.Governor().set_pool("anthropic", cap=1, adaptive=False)
    gate = claude.will("claude/ok_tool__max_turns_1", exit_code=1, staying=True)
    first = start("--", "claude", "-p", "x")
    until(lambda: claude.runs, "the agent to run")
    second = start("--pool", "anthropic", "--", "true")
    until(lambda: any(each.waiting for each in flyball.Governor().status().pools), "another to wait")
    gate.unlink()
    assert [each.wait(timeout=60) for each in (first, second)] == [1, 0]
    told = [fact.words for fact in flyball.Governor().facts(limit=100)]
    assert not any("taken back" in words for words in told), told
    assert any("Reached maximum number of turns" in words for words in told), told


def test_a_limited_run_is_75_one_line_and_counted_once(home: Path, claude: Agent) -> None:
    claude.will("claude/tool_then_429", exit_code=1)
    done = run("--", "claude", "-p", "x")
    assert done.returncode == 75
    (line,) = done.stderr.splitlines()
    assert line.startswith("flyball: limited: the provider throttled it (429)")
    assert line.endswith("; session 9dfb7734-7226-4f3e-908f-fbf3a25b8a47")
    assert throttles() == 1


def test_a_limit_that_only_the_end_shows_is_counted_too(home: Path, agent: Callable[[str], Agent]) -> None:
    agent("codex").will("codex/err_429__format_text", exit_code=1)
    assert run("--", "codex", "exec", "x").returncode == 75
    assert throttles("openai") == 1


def test_a_failed_run_keeps_its_own_status_and_says_why(home: Path, claude: Agent) -> None:
    claude.will("claude/ok_tool__max_turns_1", exit_code=1)
    done = run("--", "claude", "-p", "x")
    assert done.returncode == 1
    assert done.stderr.startswith("flyball: failed: Reached maximum number of turns (1)")


def test_a_killed_agent_kills_the_wrapper_the_same_way(home: Path, claude: Agent) -> None:
    claude.will("claude/hang", exit_code=-9)
    done = run("--quiet", "--", "claude", "-p", "x")
    assert (done.returncode, done.stderr) == (-9, "")


def test_the_line_can_be_json(home: Path, claude: Agent) -> None:
    claude.will("claude/err_credit", exit_code=1)
    said = json.loads(run("--json", "--", "claude", "-p", "x").stderr)
    assert (said["ending"], said["signal"], said["retry_after_s"]) == ("limited", "credit gone", None)


def test_a_retry_waits_asks_again_and_resumes_the_session(home: Path, claude: Agent) -> None:
    # Else it is half a minute before a pool that was throttled for the first time is opened again.
    flyball.Governor().set_pool("anthropic", confirm_s=1.0)
    claude.will("claude/err_429__fallback_model", exit_code=1)
    claude.will("claude/ok_text", exit_code=0)
    began = time.monotonic()
    done = run("--retry-limited", "2", "--", "claude", "-p", "fix it", "--verbose")
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began >= 1.5
    session = json.loads(recorded("claude/err_429__fallback_model").splitlines()[0])["session_id"]
    assert claude.argv(0) == ["-p", "fix it", "--verbose"]
    assert claude.argv(1) == ["-p", "Continue.", "--verbose", "--resume", session]
    assert "trying again in 2 s (1 of 2)" in done.stderr
    assert done.stdout == recorded("claude/err_429__fallback_model") + recorded("claude/ok_text")


@pytest.mark.parametrize("recording", ["claude/err_credit", "claude/err_api_usage_cap"])
def test_spent_credit_is_not_tried_again(home: Path, claude: Agent, recording: str) -> None:
    claude.will(recording, exit_code=1)
    assert run("--retry-limited", "3", "--", "claude", "-p", "x").returncode == 75
    assert claude.runs == 1


def test_a_wait_for_a_retry_can_be_ended(home: Path, claude: Agent, start: Start) -> None:
    claude.will("claude/err_529__oauth", exit_code=1)
    wrapper = start("--retry-limited", "1", "--", "claude", "-p", "x")
    assert wrapper.stderr is not None
    assert "trying again in 15 s" in wrapper.stderr.readline()
    here = pool()
    assert here is not None
    assert here.in_use == 0
    (rest,) = here.resting
    assert (rest.pid, rest.alive, 0 < rest.tries_again_in_s <= 15) == (wrapper.pid, True, True)
    assert rest.words.endswith("; trying again in 15 s (1 of 1)")
    wrapper.terminate()
    wrapper.communicate(timeout=60)
    assert wrapper.returncode == 128 + signal.SIGTERM
    assert claude.runs == 1
    here = pool()
    assert here is not None
    assert here.resting == ()


def test_a_killed_wrapper_leaves_the_agent_writing(home: Path, claude: Agent, start: Start) -> None:
    gate = claude.will("claude/ok_text", exit_code=0, staying=True)
    wrapper = start("--", "claude", "-p", "x")
    until(
        lambda: any(file.stat().st_size > 3000 for file in home.glob("runs/*/stdout")), "output in the file"
    )
    (folder,) = running(home)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "stdout").stat().st_mode) == 0o600
    wrapper.kill()
    wrapper.communicate(timeout=60)
    size = (folder / "stdout").stat().st_size
    until(lambda: (folder / "stdout").stat().st_size > size + 20, "the agent to go on writing")
    here = pool()
    assert here is not None
    assert here.leases[0].alive
    gate.unlink()
    until(lambda: not [lease for lease in pool().leases if lease.alive], "the agent to end by itself")  # type: ignore[union-attr]


def test_leftovers_go_a_day_later_once_their_process_is_dead(home: Path, claude: Agent) -> None:
    kinds = {"dead and old": (None, 2), "alive and old": (os.getpid(), 2), "dead and new": (None, 0)}
    for name, (pid, days) in kinds.items():
        folder = home / "runs" / name
        folder.mkdir(parents=True)
        if pid is not None:
            made = output_files.OutputFolder.__new__(output_files.OutputFolder)
            made.path, made._relays = folder, {}
            made.belongs_to(identify(pid))
        old = time.time() - days * 86400
        os.utime(folder, (old, old))
    claude.will("claude/ok_text", exit_code=0)
    assert run("--", "claude", "-p", "x").returncode == 0
    assert sorted(path.name for path in running(home)) == ["alive and old", "dead and new"]


def test_a_reader_that_closes_the_pipe_ends_the_agent_as_without_the_wrapper(
    home: Path, claude: Agent
) -> None:
    claude.will("claude/ok_text", exit_code=0, staying=True)
    pipeline = f"{' '.join(EXEC)} --quiet -- claude -p x | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", pipeline], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
    )
    assert done.stdout == recorded("claude/ok_text").splitlines(keepends=True)[0]
    assert done.returncode == 128 + signal.SIGPIPE
    assert running(home) == []


def in_terminal(*arguments: str) -> str:
    """``flyball exec`` as a person runs it; what they see."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [*EXEC, *arguments])
    seen = b""
    try:
        while piece := os.read(terminal, 65536):
            seen += piece
    except OSError:
        pass
    os.waitpid(pid, 0)
    os.close(terminal)
    return seen.decode(errors="replace")


def test_an_interactive_agent_is_left_untouched_and_one_line_says_so(home: Path, claude: Agent) -> None:
    claude.will("claude/err_429__format_text", exit_code=1)
    shown = in_terminal("--retry-limited", "3", "--json", "--", "claude", "x").splitlines()
    record = json.loads(shown[0])
    assert record["read"] is False
    assert record["words"].startswith("an interactive claude is not read: it holds its slot")
    assert record["words"].endswith("not heard and not retried")
    assert (claude.plan / "0.tty").read_text() == "[True, True, True]"
    assert (claude.runs, running(home), throttles()) == (1, [], 0)


def test_agents_that_are_not_read_never_raise_the_cap(home: Path, claude: Agent, start: Start) -> None:
    """Every one of them is refused, and none is heard: that is not a reason to let more of them start."""
    flyball.Governor().set_pool("anthropic", cap=1, cap_ceiling=4, confirm_s=0.01)
    for _ in range(3):
        claude.will("claude/err_429__format_text", exit_code=1)
        assert "API Error" in in_terminal("--", "claude", "x")
    gate = claude.plan / "held.gate"
    gate.touch()
    wrapper = start("--", "sh", "-c", f"while [ -e {gate} ]; do sleep 0.01; done")
    until(lambda: (here := pool()) is not None and here.in_use == 1, "the command to run")
    assert [run("--no-wait", "--", "true").returncode for _ in range(6)] == [75] * 6
    gate.unlink()
    wrapper.communicate(timeout=60)
    here = pool()
    assert here is not None
    assert (here.cap, here.throttle_count) == (1, 0)


def test_with_a_reserve_agents_that_are_not_read_never_raise_the_cap(
    home: Path, claude: Agent, start: Start
) -> None:
    """The reserve keeps them from ever filling it, so that an ask always waits while a slot is free."""
    flyball.Governor().set_pool("anthropic", cap=2, cap_ceiling=4, reserve=1, confirm_s=0.01, settle_s=0.0)
    gate = claude.plan / "held.gate"
    gate.touch()
    while_gate = ["sh", "-c", f"while [ -e {gate} ]; do sleep 0.01; done"]
    wrappers = [start("--", *while_gate) for _ in range(3)]
    until(lambda: (here := pool()) is not None and (here.in_use, here.waiting) == (1, 2), "two to wait")

    def planned() -> int:
        assert run("--no-wait", "--", "true").returncode == 75
        with closing(sqlite3.connect(home / "governor.db")) as file:
            return int(file.execute("SELECT version FROM pool").fetchone()[0])

    first = planned()
    until(lambda: planned() >= first + 3, "time to pass for the pool")
    here = pool()
    assert here is not None
    assert (here.cap, here.in_use) == (2, 1)
    gate.unlink()
    for wrapper in wrappers:
        wrapper.communicate(timeout=60)


def test_a_refusal_of_the_first_call_is_timed_and_measured(
    home: Path, claude: Agent, start: Start, tmp_path: Path
) -> None:
    """It was sent when the slot was granted, with so many others in flight: the controller is told both."""
    events = recorded("claude/err_429_then_ok").splitlines(keepends=True)
    (tmp_path / "refused").write_text("".join(events[:2]))
    (tmp_path / "served").write_text("".join(events[2:]))
    gate = claude.plan / "held.gate"
    gate.touch()
    lines = ["#!/bin/sh", "cat refused", "while [ -e gate ]; do sleep 0.01; done", "cat served"]
    claude.script.write_text("\n".join(lines).replace("cat ", f"cat {tmp_path}/").replace("gate", str(gate)))
    wrapper = start("--", "claude", "-p", "x", "--output-format", "stream-json", "--verbose")
    until(lambda: throttles() == 1, "the throttle to show in status")
    learned = internals(flyball.Governor()).store.snapshot().pools[0].memory.cap.measured
    assert learned is not None
    assert learned.reject_s > 0, "how long the refusal took is known"
    gate.unlink()
    wrapper.communicate(timeout=60)
    assert wrapper.returncode == 0


def test_a_pause_after_a_refusal_is_no_longer_than_the_runs_that_were_seen(home: Path, claude: Agent) -> None:
    replay = claude.script.read_text()
    claude.script.write_text("#!/bin/sh\nsleep 1.1\n")
    assert run("--", "claude", "-p", "x").returncode == 0
    claude.script.write_text(replay)
    claude.will("claude/tool_then_429", exit_code=1)
    assert run("--", "claude", "-p", "x").returncode == 75
    seen = internals(flyball.Governor()).store.snapshot().pools[0]
    cap = seen.memory.cap
    assert cap.last_cut_at is not None
    assert cap.hold_until - cap.last_cut_at <= max(seen.hold_mean_s, 1.0)
    assert 0 < cap.spaced_s <= max(seen.hold_mean_s, 1.0)


def test_stderr_on_a_terminal_stays_on_it_while_stdout_is_read(home: Path, claude: Agent) -> None:
    claude.will("claude/err_429", exit_code=1)
    ours, theirs = pty.openpty()
    done = run("--", "claude", "-p", "x", capture_output=False, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    os.close(ours)
    assert done.returncode == 75
    assert (claude.plan / "0.tty").read_text() == "[False, False, True]"


def test_stdout_and_stderr_in_one_place_stay_in_order(home: Path, tmp_path: Path) -> None:
    script = tmp_path / "claude"
    script.write_text("#!/bin/sh\nfor i in 1 2 3 4 5; do echo out $i; echo err $i >&2; done\n")
    script.chmod(0o755)
    done = run("--", str(script), capture_output=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.stdout == "".join(f"out {i}\nerr {i}\n" for i in range(1, 6))


def test_much_output_comes_through_whole(home: Path, tmp_path: Path) -> None:
    script = tmp_path / "claude"
    script.write_text("#!/bin/sh\nyes 0123456789012345678901234567890123456789 | head -c 30000000\n")
    script.chmod(0o755)
    done = run("--", str(script))
    assert len(done.stdout) == 30_000_000


def test_output_that_cannot_be_passed_on_stays_in_its_file_and_the_agent_runs_on(
    home: Path, claude: Agent
) -> None:
    gate = claude.will("claude/ok_text", exit_code=0, staying=True)
    with open("/dev/full", "wb") as full:
        done = run("--", "claude", "-p", "x", capture_output=False, stdout=full, stderr=subprocess.PIPE)
    (folder,) = running(home)
    assert done.returncode == 1
    assert f"it runs on and writes to {folder / 'stdout'}" in done.stderr
    here = pool()
    assert here is not None
    assert here.leases[0].alive
    gate.unlink()
    until(lambda: not [lease for lease in pool().leases if lease.alive], "the agent to end by itself")  # type: ignore[union-attr]


def test_a_prompt_on_stdin_reaches_the_agent(home: Path, claude: Agent) -> None:
    claude.will("claude/ok_text", exit_code=0)
    done = run("--", "claude", "-p", stdin=None, input="do it")
    assert done.returncode == 0
    assert (claude.plan / "0.stdin").read_text() == "do it"


def test_the_runtime_can_be_named_for_a_script_of_ones_own(home: Path, agent: Callable[[str], Agent]) -> None:
    agent("my-agent").will("gemini/err_429__lowretry", exit_code=173)
    assert run("--", "my-agent").returncode == 173
    again = Agent(Path(os.environ["PATH"].split(":")[0]) / "again", "my-agent")
    again.will("gemini/err_429__lowretry", exit_code=173)
    assert run("--runtime", "gemini", "--", str(again.script)).returncode == 75


def test_replace_and_retry_exclude_each_other(home: Path, claude: Agent) -> None:
    done = run("--replace", "--retry-limited", "1", "--", "claude")
    assert done.returncode == 2
    assert claude.runs == 0


def test_the_readers_are_not_imported_for_a_plain_command(home: Path) -> None:
    code = (
        "import sys; from flyball.cli.main import main\n"
        "try: main(['exec', '--', 'true'])\n"
        "finally: print([m for m in ('msgspec', 'asyncio', 'rich', 'flyball.cli.shared.agent_exec', "
        "'locale', 'subprocess', 'flyball.core.pool.setting_table', 'flyball.stores.snapshot') "
        "if m in sys.modules])"
    )
    subprocess.run([*EXEC, "--", "true"], check=True)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_nothing_of_the_factory_is_imported_for_an_agent(home: Path, claude: Agent) -> None:
    code = (
        "import atexit, sys; from flyball.cli.main import main\n"
        "atexit.register(lambda: print(sorted(m for m in sys.modules if m.startswith("
        "('flyball.factory', 'flyball.core.tasks', 'shutil'))), file=sys.stderr))\n"
        "main(['exec', '--quiet', '--', 'claude', '-p', 'x'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == "[]"
