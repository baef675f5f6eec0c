"""The gateway as a process of its own, from the command line, and what happens when it is killed."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from flyball.gateway.lifetime import ask_gateway
from flyball.sim.provider.server import Provider
from tests.gateway.machine import CALL, FLYBALL, Machine
from tests.waiting import until

pytestmark = pytest.mark.faults


def test_commands_of_two_terminals_stand_in_one_line(machine: Machine, provider: Provider) -> None:
    machine.run("pool", "set", "127.0.0.1", "--cap", "2", "--static")
    runs = [machine.start("env", "--", sys.executable, "-c", CALL, "20", "2") for _ in range(6)]
    said = [run.communicate(timeout=120) for run in runs]
    assert [out for out, _ in said] == ["200\n200\n"] * 6, said
    assert provider.tally().peak_open == 2


def test_the_variables_for_a_shell_lead_through_a_gateway_that_stays(machine: Machine) -> None:
    said = machine.run("env", "--json", "--project", "blog", "--name", "shell")
    address = json.loads(said.stdout)["ANTHROPIC_BASE_URL"]
    assert address.startswith(machine.gateway.address + "/+/blog/shell/http/127.0.0.1:")
    assert machine.run("env", "--project", "blog", "--name", "shell").stdout == (
        f"export ANTHROPIC_BASE_URL={address}\nexport FLYBALL_GATEWAY=1\n"
    )
    status = json.loads(machine.run("gateway", "status", "--json").stdout)
    assert (status["running"], status["waiting"]) == (True, 0)
    assert machine.run("gateway", "stop").returncode == 0
    until(lambda: machine.gateway_pid() is None, "it stopped")
    assert json.loads(machine.run("gateway", "status", "--json").stdout) == {"running": False}


def test_without_a_key_the_way_out_is_named(machine: Machine) -> None:
    said = machine.run("env", "--", "true", ANTHROPIC_API_KEY="", ANTHROPIC_BASE_URL="")
    assert said.returncode == 2
    assert "ANTHROPIC_API_KEY" in said.stderr
    assert "flyball exec" in said.stderr
    assert not (machine.folder / "flyball" / "gateway.json").exists()


def test_the_session_of_the_person_at_the_terminal_may_use_the_reserve_and_headless_agents_may_not(
    machine: Machine,
) -> None:
    folder = machine.folder / "bin"
    folder.mkdir()
    claude = folder / "claude"
    claude.write_text("#!/bin/sh\necho base=$ANTHROPIC_BASE_URL\n")
    claude.chmod(0o755)
    machine.env["PATH"] = f"{folder}{os.pathsep}{machine.env['PATH']}"
    assert "!1/" not in _said_in_terminal(machine, "exec", "--", "claude", "-p", "x")
    own = _said_in_terminal(machine, "exec", "--", "claude")
    assert "base=http://127.0.0.1:" in own
    assert "!1/" in own
    assert "!1/" not in _said_in_terminal(machine, "exec", "--priority", "0", "--", "claude")
    assert "/+!2/" in machine.run("env", "--priority", "2").stdout


def _said_in_terminal(machine: Machine, *words: str) -> str:
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(machine.folder)
        os.execve(FLYBALL[0], [*FLYBALL, *words], machine.env)
    said = b""
    with suppress(OSError):  # how a terminal ends
        while part := os.read(terminal, 65536):
            said += part
    os.waitpid(child, 0)
    os.close(terminal)
    return said.decode()


def test_the_command_keeps_its_exit_status_and_its_signals(machine: Machine) -> None:
    assert machine.run("env", "--", "sh", "-c", "exit 7").returncode == 7
    assert machine.run("env", "--", "sh", "-c", "kill -TERM $$").returncode == -signal.SIGTERM


def test_a_killed_gateway_breaks_the_call_under_way_loses_no_slot_and_is_followed_by_the_next(
    machine: Machine, provider: Provider
) -> None:
    machine.run("pool", "set", "127.0.0.1", "--cap", "2", "--static")
    run = machine.start("env", "--", sys.executable, "-c", CALL, "200", "5")
    until(lambda: provider.tally().open == 1, "a call is under way")
    pid = machine.gateway_pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(lambda: machine.gateway_pid() not in (None, pid), "the next gateway runs")
    said, _ = run.communicate(timeout=60)
    assert said.startswith("broken\n")
    assert said.endswith("200\n")
    both = machine.run("exec", "--pool", "127.0.0.1", "--slots", "2", "--wait", "20s", "--", "true")
    assert both.returncode == 0, both.stderr


def test_a_storm_of_kills_breaks_calls_under_way_and_nothing_else(
    machine: Machine, provider: Provider
) -> None:
    """Each kill breaks at most what is under way; every client goes on, and all slots are there later."""
    cap, clients, calls, kills = 3, 5, 8, 4
    machine.run("pool", "set", "127.0.0.1", "--cap", str(cap), "--static")
    runs = [machine.start("env", "--", sys.executable, "-c", CALL, "20", str(calls)) for _ in range(clients)]
    killed: set[int | None] = {None}
    for _ in range(kills):
        served = provider.tally().accepted
        until(lambda served=served: provider.tally().accepted >= served + 3, "calls go on")  # type: ignore[misc]
        until(lambda: machine.gateway_pid() not in killed, "a gateway runs")
        killed.add(pid := machine.gateway_pid())
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
    answers = [run.communicate(timeout=120)[0].split() for run in runs]
    assert [len(each) for each in answers] == [calls] * clients
    assert {word for each in answers for word in each} == {"200", "broken"}
    # What a killed gateway left at the provider ends with its connection, before the next one is up.
    assert provider.tally().peak_open == cap
    whole = machine.run("exec", "--pool", "127.0.0.1", "--slots", str(cap), "--wait", "30s", "--", "true")
    assert whole.returncode == 0, whole.stderr


def test_the_gateway_stays_while_a_command_lives_whose_starter_was_killed(machine: Machine) -> None:
    run = machine.start("env", "--", "sh", "-c", "echo $$; exec sleep 60")
    assert run.stdout is not None
    pid = int(run.stdout.readline())
    run.kill()
    run.wait()
    said = ask_gateway(machine.gateway, "status")
    os.kill(pid, signal.SIGKILL)
    assert said is not None
    assert said["users"] == 1


def test_a_second_gateway_is_refused_while_one_runs(machine: Machine) -> None:
    machine.run("env")
    said = machine.run("gateway", "run")
    assert (said.returncode, "runs already" in said.stderr) == (2, True)


def test_no_key_is_left_in_any_file(machine: Machine) -> None:
    machine.run("env", "--", sys.executable, "-c", CALL, "1", "1")
    kept = [path for path in (machine.folder / "flyball").rglob("*") if path.is_file()]
    assert kept
    assert not [path for path in kept if b"secret-1" in path.read_bytes()]


def test_more_calls_are_held_than_a_process_may_usually_have_files_open(machine: Machine) -> None:
    """A call is two connections, and a shell may open 1024 files or fewer."""
    machine.run("pool", "set", "127.0.0.1", "--cap", "200", "--static")
    few = f"ulimit -S -n 64; exec {' '.join(FLYBALL)} gateway run"
    machine.started.append(
        gateway := subprocess.Popen(
            ["sh", "-c", few], env=machine.env, cwd=machine.folder, stdout=subprocess.PIPE, text=True
        )
    )
    assert gateway.stdout is not None
    assert gateway.stdout.readline().startswith("gateway on")
    address = json.loads(machine.run("env", "--json").stdout)["ANTHROPIC_BASE_URL"]
    with ThreadPoolExecutor(100) as threads:
        answers = list(threads.map(lambda _: _call(f"{address}/v1/messages"), range(100)))
    assert answers == [200] * 100


def _call(address: str) -> int:
    body = json.dumps({"max_tokens": 50, "model": "m", "messages": []}).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(address, body), timeout=60) as answer:
            answer.read()
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
