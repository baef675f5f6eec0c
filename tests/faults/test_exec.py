"""``flyball exec`` as a user meets it: real commands, real signals, a real terminal."""

from __future__ import annotations

import json
import os
import pty
import shlex
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

import flyball
from flyball import MachineSettings
from flyball.governor.internals import internals
from flyball.governor.status import PoolStatus
from flyball.stores.handoff import HOLD_SAMPLE
from tests.waiting import until

EXEC = [sys.executable, "-m", "flyball", "exec"]


def run(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*EXEC, *arguments], capture_output=True, text=True, timeout=30, **options)  # type: ignore[call-overload,no-any-return]


def pool() -> PoolStatus:
    return flyball.Governor().status().pools[0]


@pytest.fixture
def started(home: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    running: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*EXEC, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
    for lease in (lease for pool in flyball.Governor().status().pools for lease in pool.leases):
        if lease.alive:
            os.kill(lease.pid, signal.SIGKILL)
    for process in running:
        process.communicate()


def cap_of(cap: int, pool: str = "anthropic") -> None:
    gov = flyball.Governor()
    gov.set_pool(pool, cap=cap, adaptive=False)
    gov.close()


def test_input_output_and_exit_status_are_the_commands_own(home: Path) -> None:
    done = run("--", "sh", "-c", "cat; echo oops >&2; exit 7", input="héllo")
    assert (done.stdout, done.stderr, done.returncode) == ("héllo", "oops\n", 7)


@pytest.mark.parametrize("pool", ["--pool=", "--no-wait"])
def test_an_empty_pool_is_the_one_of_the_command(home: Path, pool: str) -> None:
    assert run(pool, "--", "true", env={**os.environ, "FLYBALL_POOL": ""}).returncode == 0
    assert [each.name for each in flyball.Governor().status().pools] == ["anthropic"]


@pytest.mark.parametrize("given", [{}, {"LC_CTYPE": "C.UTF-8"}, {"LANG": "C"}, {"LC_ALL": "C"}])
@pytest.mark.parametrize("options", [[], ["--replace"]])
def test_the_command_gets_the_environment_that_flyball_got(
    home: Path, given: dict[str, str], options: list[str]
) -> None:
    """Under the C locale Python adds one of its own, which is not for the command."""
    kept = {name: os.environ[name] for name in ("PATH", "FLYBALL_HOME", "PYTHONPATH")} | given
    done = subprocess.run([*EXEC, *options, "--", "env", "-0"], env=kept, capture_output=True, text=True)
    seen = dict(entry.split("=", 1) for entry in done.stdout.split("\0") if entry)
    assert {name: text for name, text in seen.items() if name != "FLYBALL_LEASE"} == kept


def test_a_command_killed_by_a_signal_kills_the_wrapper_the_same_way(home: Path) -> None:
    assert run("--", "sh", "-c", "kill -SEGV $$").returncode == -signal.SIGSEGV


@pytest.mark.parametrize("options", [[], ["--runtime", "claude"]])
def test_a_command_killed_by_a_signal_leaves_no_mailbox_behind(home: Path, options: list[str]) -> None:
    assert run(*options, "--", "sh", "-c", "kill -KILL $$").returncode == -signal.SIGKILL
    assert [path for path in home.rglob("*") if path.is_socket()] == []


def test_a_command_that_does_not_exist_is_told_before_waiting(home: Path) -> None:
    cap_of(1)
    done = run("--", "no-such-command-here")
    assert done.returncode == 127
    assert done.stderr == "flyball: no-such-command-here was not found\n"
    as_json = json.loads(run("--json", "--", "no-such-command-here").stderr)
    assert (as_json["message"], as_json["exit"]) == ("no-such-command-here was not found", 127)


def test_an_empty_word_and_a_folder_are_called_what_they_are(home: Path, tmp_path: Path) -> None:
    empty, folder = run("--", ""), run("--", str(tmp_path))
    assert (empty.returncode, folder.returncode) == (127, 126)
    assert empty.stderr == "flyball: the command is an empty word; say what to run after --\n"
    assert folder.stderr == f"flyball: {tmp_path} is a folder, not a command\n"


def test_a_file_that_may_not_be_executed_is_126(home: Path, tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("x")
    assert run("--", str(tmp_path / "plain")).returncode == 126


def test_a_waiter_under_nohup_outlives_the_terminal_it_was_left_in(
    home: Path, started: Callable[..., subprocess.Popen[str]]
) -> None:
    cap_of(1)
    first = started("--", "sleep", "30")
    until(lambda: pool().in_use == 1, "the first to run")
    night = subprocess.Popen(["nohup", *EXEC, "--", "echo", "ran"], stdout=subprocess.PIPE, text=True)
    until(lambda: pool().waiting == 1, "the second to wait")
    night.send_signal(signal.SIGHUP)
    first.terminate()
    assert night.communicate(timeout=60)[0] == "ran\n"
    assert night.returncode == 0


@pytest.mark.parametrize("way", [["--"], ["--replace", "--"], ["--runtime", "claude", "--"]])
@pytest.mark.parametrize(
    ("text", "code", "why"),
    [
        ("#!/no/such/sh -e\n", 127, "its first line names '/no/such/sh', which does not exist"),
        ("#!/bin/sh\r\necho x\r\n", 127, r"its first line names '/bin/sh\r', which does not exist"),
        ("echo x\n", 126, "it is not a program; a script begins with a line such as #!/bin/sh"),
        ("#!/\n", 126, "Permission denied"),
    ],
)
def test_a_script_that_the_system_refuses_ends_as_in_a_shell_and_leaves_no_lease(
    home: Path, tmp_path: Path, way: list[str], text: str, code: int, why: str
) -> None:
    script = tmp_path / "x"
    script.write_text(text)
    script.chmod(0o755)
    done = run(*way, str(script))
    assert (done.returncode, done.stderr) == (code, f"flyball: cannot run {script}: {why}\n")
    assert pool().in_use == 0


def test_a_new_pool_named_almost_like_another_is_asked_about_once(home: Path) -> None:
    cap_of(2)
    hint = "flyball: this is a new pool; did you mean 'anthropic'?\n"
    assert [run("--pool", "anthropc", "--", "true").stderr for _ in range(2)] == [hint, ""]
    assert "did you mean" in json.loads(run("--json", "--pool", "antropic", "--", "true").stderr)["words"]


def test_a_new_pool_is_not_asked_about_where_it_was_meant(home: Path) -> None:
    cap_of(2)
    cap_of(1, "anthropic-2")
    assert run("--pool", "anthropic-2", "--", "true").stderr == ""
    assert run("--pool", "gpu", "--", "true").stderr == ""
    assert run("--quiet", "--pool", "anthropic-3", "--", "true").stderr == ""


def test_a_pool_in_use_that_begins_another_block_of_ids_is_not_new(home: Path) -> None:
    cap_of(2)
    gov = flyball.Governor()
    for _ in range(HOLD_SAMPLE):
        gov.acquire_nowait("anthropic-2").release()
    state = sqlite3.connect(home / "governor.db")
    state.execute("UPDATE pool SET next_id = (next_id / 1000 + 1) * 1000 WHERE name = 'anthropic-2'")
    state.commit()
    state.close()
    assert run("--pool", "anthropic-2", "--", "true").stderr == ""
    lease = gov.acquire_nowait("anthropic-2")
    lease.release()
    assert lease.id % 1000 == 2, "the one before began a block"


def test_a_resource_that_is_named_twice_is_taken_twice(home: Path) -> None:
    gov = flyball.Governor()
    gov.change_machine(resources={"docker": 3, "gpu": 1})
    lease = gov.acquire_nowait(resources={"docker": 2})
    done = run("--no-wait", "--resource", "docker", "--resource", "gpu", "--resource=docker=1", "--", "true")
    assert done.returncode == 75
    assert "resource 'docker' has 1 free, 2 needed" in done.stderr
    assert run("--no-wait", "--resource", "docker", "--resource", "gpu", "--", "true").returncode == 0
    lease.release()


def test_no_wait_on_a_full_pool_is_75_and_says_who_holds_it(
    home: Path, started: Callable[..., subprocess.Popen[str]]
) -> None:
    cap_of(1)
    started("--project", "blog", "--name", "t-14", "--", "sleep", "30")
    until(lambda: pool().in_use == 1, "the first exec to hold the slot")
    done = run("--no-wait", "--", "true")
    assert done.returncode == 75
    assert "1 of 1 in use" in done.stderr
    assert "blog/t-14" in done.stderr


def test_two_execs_share_one_cap_and_status_explains_the_waiter(
    home: Path, started: Callable[..., subprocess.Popen[str]]
) -> None:
    cap_of(1)
    first = started("--name", "first", "--", "sleep", "30")
    until(lambda: pool().in_use == 1, "the first to run")
    second = started("--name", "second", "--", "echo", "mine")
    until(lambda: pool().waiting == 1, "the second to wait")
    ask = pool().asks[0]
    assert (ask.name, ask.reason, ask.position) == ("second", "cap", 1)
    assert "first" in ask.words
    first.terminate()
    output, said = second.communicate(timeout=60)
    assert output == "mine\n"
    assert said.startswith("flyball: waiting: anthropic 1 of 1 in use")


def test_wait_gives_up_after_its_time_with_75(
    home: Path, started: Callable[..., subprocess.Popen[str]]
) -> None:
    cap_of(1)
    started("--", "sleep", "30")
    until(lambda: pool().in_use == 1, "the first to run")
    done = run("--wait", "200ms", "--", "true")
    assert done.returncode == 75
    assert pool().waiting == 0


def test_the_lease_survives_a_killed_wrapper_and_dies_with_the_command(
    home: Path, started: Callable[..., subprocess.Popen[str]]
) -> None:
    cap_of(1)
    wrapper = started("--", "sleep", "60")
    until(lambda: any(_name(lease.pid) == "sleep" for lease in pool().leases), "the command to run")
    command = pool().leases[0].pid
    wrapper.kill()
    wrapper.wait()
    assert run("--no-wait", "--", "true").returncode == 75
    os.kill(command, signal.SIGKILL)
    assert run("--wait", "10s", "--", "true").returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signals_sent_to_the_wrapper_reach_the_command(
    home: Path, tmp_path: Path, started: Callable[..., subprocess.Popen[str]], number: signal.Signals
) -> None:
    ready = tmp_path / "ready"
    script = f"trap 'echo got it; exit 5' TERM HUP INT; : > {ready}; while :; do sleep 0.05; done"
    wrapper = started("--", "sh", "-c", script)
    until(ready.exists, "the command to be ready")
    wrapper.send_signal(number)
    assert wrapper.communicate(timeout=60)[0] == "got it\n"
    assert wrapper.returncode == 5


def test_a_wrapper_told_to_stop_while_waiting_gives_its_place_back(
    home: Path, started: Callable[..., subprocess.Popen[str]]
) -> None:
    cap_of(1)
    started("--", "sleep", "30")
    until(lambda: pool().in_use == 1, "the first to run")
    waiter = started("--", "true")
    assert waiter.stderr is not None
    assert "waiting" in waiter.stderr.readline()
    waiter.terminate()
    assert waiter.wait(timeout=60) == 128 + signal.SIGTERM
    assert pool().waiting == 0


def test_the_wrapper_stops_with_its_command_and_continues_it(
    home: Path, started: Callable[..., subprocess.Popen[str]]
) -> None:
    cap_of(1)
    wrapper = started("--", "sleep", "60")
    until(lambda: any(_name(lease.pid) == "sleep" for lease in pool().leases), "the command to run")
    command = pool().leases[0].pid
    os.kill(command, signal.SIGSTOP)
    until(lambda: _state(wrapper.pid) == "T", "the wrapper to stop")
    os.kill(wrapper.pid, signal.SIGCONT)
    until(lambda: _state(command) in "SR", "the command to go on")
    wrapper.terminate()
    assert wrapper.wait(timeout=60) == -signal.SIGTERM


def test_replace_becomes_the_command_and_the_lease_ends_with_it(
    home: Path, started: Callable[..., subprocess.Popen[str]]
) -> None:
    cap_of(1)
    process = started("--replace", "--", "sleep", "60")
    until(lambda: _name(process.pid) == "sleep", "the wrapper to become sleep")
    assert pool().leases[0].pid == process.pid
    process.kill()
    process.wait()
    assert run("--no-wait", "--", "true").returncode == 0


def test_a_slot_inside_an_exec_on_the_same_pool_uses_its_lease(home: Path) -> None:
    cap_of(1)
    code = "import flyball\nwith flyball.slot('anthropic', timeout=5) as lease: print(lease.nested)"
    done = run("--", sys.executable, "-c", code)
    assert done.stdout == "True\n", done.stderr
    nested = run("--", *EXEC, "--no-wait", "--", "echo", "inner")
    assert nested.stdout == "inner\n", nested.stderr
    assert pool().in_use == 0


def test_commands_inside_an_exec_stay_within_the_cap_and_all_run(home: Path, tmp_path: Path) -> None:
    cap_of(2)
    seen = tmp_path / "seen"
    one = f"echo + >> {seen}; sleep 0.1; echo - >> {seen}"
    ask = shlex.join([*EXEC, "--quiet", "--", "sh", "-c", one])
    deeper = shlex.join([*EXEC, "--quiet", "--", *EXEC, "--quiet", "--", "sh", "-c", one])
    assert run("--", "sh", "-c", f"for i in 1 2 3 4; do {ask} & {deeper} & done; wait").returncode == 0
    steps = [1 if line == "+" else -1 for line in seen.read_text().split()]
    assert (len(steps), max(accumulate(steps)) <= 2) == (16, True)


@pytest.mark.parametrize("limit", ["two pools", "the machine's ceiling"])
def test_commands_inside_leases_that_wait_for_each_other_are_found_by_the_doctor(
    home: Path, started: Callable[..., subprocess.Popen[str]], tmp_path: Path, limit: str
) -> None:
    gov, gate = flyball.Governor(), tmp_path / "gate"
    wanted = {"a": "b", "b": "a"} if limit == "two pools" else {"a": "c", "b": "d"}
    for name in ("a", "b", "c", "d"):
        gov.set_pool(name, cap=1, adaptive=False)
    if limit != "two pools":
        gov.set_machine(MachineSettings(ceiling=2))
    gate.touch()
    for held, asked in wanted.items():
        inner = shlex.join([*EXEC, "--pool", asked, "--", "true"])
        started("--pool", held, "--", "sh", "-c", f"while [ -e {gate} ]; do sleep 0.02; done; {inner}; true")
    until(lambda: sum(pool.in_use for pool in gov.status().pools) == 2, "both to run")
    assert "deadlock" not in [finding["kind"] for finding in doctor()]
    gate.unlink()
    until(lambda: sum(pool.waiting for pool in gov.status().pools) == 2, "both to wait")
    (found,) = (finding for finding in doctor() if finding["kind"] == "deadlock")
    assert "2 leases of a, b wait for each other" in found["words"]
    os.kill(gov.status().pools[0].leases[0].pid, signal.SIGKILL)
    until(lambda: sum(pool.waiting + pool.in_use for pool in gov.status().pools) == 0, "all to end")


def doctor() -> list[dict[str, Any]]:
    told = subprocess.run([*EXEC[:-1], "doctor", "--json"], capture_output=True, text=True)
    found: list[dict[str, Any]] = json.loads(told.stdout)["findings"]
    return found


def test_a_command_inside_an_exec_counts_as_long_as_it_lives_though_its_wrapper_was_killed(
    started: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    cap_of(1)
    inside = shlex.join([*EXEC, "--quiet", "--", "sh", "-c", "echo $$; exec sleep 60"])
    again, told = shlex.join([*EXEC, "--no-wait", "--", "true"]), tmp_path / "told"
    asking = f"while sleep 0.05; do {again} 2>/dev/null; echo $? > {told}; done"
    outer = started("--quiet", "--", "sh", "-c", f"{inside} & echo $!; {asking}")
    assert outer.stdout is not None
    wrapper, pid = (int(outer.stdout.readline()) for _ in range(2))
    os.kill(wrapper, signal.SIGKILL)

    def answers() -> str:
        told.unlink(missing_ok=True)
        until(lambda: told.exists() and told.read_text() != "", "it to ask")
        return told.read_text().strip()

    answers()
    assert answers() == "75"
    os.kill(pid, signal.SIGKILL)
    until(lambda: answers() == "0", "its slot of the lease is free")


def test_an_exported_lease_that_ended_counts_for_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cap_of(1)
    exported = run("--", "sh", "-c", 'printf %s "$FLYBALL_LEASE"').stdout
    monkeypatch.setenv("FLYBALL_LEASE", exported)
    with flyball.slot("anthropic", timeout=5) as lease:
        assert not lease.nested


def test_a_terminal_is_passed_through_and_ctrl_c_reaches_the_command(home: Path) -> None:
    script = "trap 'echo interrupted; exit 9' INT; test -t 0 && echo terminal; while :; do sleep 0.05; done"
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [*EXEC, "--", "sh", "-c", script])
    seen = b""
    while b"terminal" not in seen:
        seen += os.read(terminal, 1024)
    os.write(terminal, b"\x03")
    while b"interrupted" not in seen:
        seen += os.read(terminal, 1024)
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 9


def test_extra_file_descriptors_of_the_caller_reach_the_command(home: Path) -> None:
    reader, writer = os.pipe()
    with open(writer, "wb") as file:
        file.write(b"through")
    done = run("--", "sh", "-c", f"cat /dev/fd/{reader}", pass_fds=[reader])
    os.close(reader)
    assert done.stdout == "through"


def test_a_command_dies_of_a_broken_pipe_as_without_the_wrapper(home: Path) -> None:
    pipeline = f"{' '.join(EXEC)} -- yes | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", pipeline], capture_output=True, text=True, timeout=30)
    assert done.stdout == "y\n"
    assert done.returncode == 128 + signal.SIGPIPE


def _name(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_what_ended_under_its_launcher_is_released_and_not_reclaimed(
    started: Callable[..., subprocess.Popen[str]],
) -> None:
    governor = flyball.Governor()
    governor.set_pool("p", cap=1, adaptive=False)
    running = [started("--quiet", "--pool", "p", "--", "sleep", "0.1") for _ in range(6)]
    assert [process.wait(timeout=30) for process in running] == [0] * 6
    assert "reclaimed" not in {fact.kind for fact in internals(governor).store.facts(limit=100)}


def test_with_json_a_refusal_is_a_line_of_json_beside_the_others(
    started: Callable[..., subprocess.Popen[str]],
) -> None:
    flyball.Governor().set_pool("p", cap=1, adaptive=False)
    started("--pool", "p", "--", "sleep", "20")
    until(lambda: pool().in_use, "the first one to run")
    done = run("--json", "--no-wait", "--pool", "p", "--", "echo", "hello")
    assert (done.returncode, done.stdout) == (75, "")
    assert [json.loads(line)["exit"] for line in done.stderr.splitlines()] == [75]
