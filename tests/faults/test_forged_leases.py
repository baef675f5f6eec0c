"""A lease counts for the process that holds it and for what descends from that, and for no other: attacks."""

from __future__ import annotations

import itertools
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import flyball
from flyball.governor.inherited_lease import VARIABLE, variable_value
from tests.faults.people_kit import cap_of, pool
from tests.postgres_server import PostgresServer
from tests.redis_server import RedisServer
from tests.waiting import until

EXEC = [sys.executable, "-m", "flyball", "exec", "--quiet"]
NO_ROOM = 75
_numbers = itertools.count()
FORGED = """
import json, os, sys
entries = json.loads(os.environ["FLYBALL_LEASE"])
entries[0].update(json.loads(sys.argv[1]))
os.environ["FLYBALL_LEASE"] = json.dumps(entries)
os.execv(sys.argv[2], sys.argv[2:])
"""
"""A command that says something else about the lease that it works under."""


def run(*words: str, **variables: str) -> int:
    return subprocess.run([*EXEC, *words], env={**os.environ, **variables}).returncode


def shell(*words: str) -> str:
    """An ``exec`` as a line of shell."""
    return shlex.join([*EXEC, *words])


class Stage:
    """Commands that run until the gate is opened, and leave a file behind while they run."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.gate = folder, folder / "closed"
        self.gate.touch()
        self.started: list[subprocess.Popen[str]] = []

    def work(self, name: str, *before: str) -> str:
        """A line of shell: do something, and work until the gate opens."""
        path = shlex.quote(str(self.folder / name))
        wait = f"while [ -e {shlex.quote(str(self.gate))} ]; do sleep 0.02; done"
        return "\n".join([*before, f"echo $$ > {path}.new; mv {path}.new {path}", wait, f"rm {path}"])

    def start(self, *words: str) -> subprocess.Popen[str]:
        self.started.append(subprocess.Popen([*EXEC, *words], stdout=subprocess.PIPE, text=True))
        return self.started[-1]

    def working(self, name: str) -> int:
        """The pid of a command that works now."""
        until((self.folder / name).exists, f"{name} to work")
        return int((self.folder / name).read_text())

    def end(self) -> None:
        self.gate.unlink(missing_ok=True)
        for process in self.started:
            process.communicate()


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, str]]:
    """The addresses of state on servers."""
    redis, postgres = RedisServer(tcp=True), PostgresServer()
    yield {"redis": redis.url, "postgres": postgres.url}
    redis.close()
    postgres.close()


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def stage(
    request: pytest.FixtureRequest,
    home: Path,
    tmp_path: Path,
    servers: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Stage]:
    if request.param in servers:
        space = f"t{os.getpid()}x{next(_numbers)}"
        monkeypatch.setenv("FLYBALL_URL", f"{servers[request.param]}?space={space}")
    monkeypatch.setenv("FLYBALL_HOST_AGENT", "off")
    cap_of(1)
    stage = Stage(tmp_path)
    yield stage
    stage.end()


def test_the_lease_of_another_command_cannot_be_borrowed(stage: Stage) -> None:
    holder = stage.start("--", "sh", "-c", stage.work("holder", f'echo "${VARIABLE}"'))
    assert holder.stdout is not None
    borrowed = holder.stdout.readline().strip()
    stage.working("holder")
    assert run("--no-wait", "--", "true", **{VARIABLE: borrowed}) == NO_ROOM


def test_the_number_of_a_lease_that_was_read_in_the_state_is_worth_nothing(stage: Stage) -> None:
    stage.start("--", "sh", "-c", stage.work("holder"))
    stage.working("holder")
    forged = variable_value(flyball.Governor().address, "anthropic", pool().leases[0].id)
    assert run("--no-wait", "--", "true", **{VARIABLE: forged}) == NO_ROOM


@pytest.mark.parametrize(
    "words", ['{"part": "7"}', '{"part": "0", "slots": 9}', '{"part": "0.0"}', '{"part": "../../0"}', "{}"]
)
def test_a_part_that_was_made_up_is_no_room_for_more(stage: Stage, words: str) -> None:
    """The first inside rides, as is its right. One beside it finds no room, whatever it says of itself."""
    rides = shell("--", "sh", "-c", stage.work("rides"))
    beside = shlex.join([sys.executable, "-c", FORGED, words, *EXEC, "--no-wait", "--", "true"])
    waits = f"while [ ! -e {stage.folder}/rides ]; do sleep 0.02; done"
    outer = stage.start("--", "sh", "-c", f"{rides} & {waits}; {beside}; echo $?; wait")
    assert outer.stdout is not None
    assert outer.stdout.readline().strip() == str(NO_ROOM)


def test_twelve_commands_inside_a_lease_of_one_slot_run_in_turn(stage: Stage) -> None:
    counted = stage.folder / "counted"
    one = shell("--", "sh", "-c", f"echo + >> {counted}; sleep 0.05; echo - >> {counted}")
    run("--", "sh", "-c", f"for i in $(seq 12); do {one} & done; wait")
    assert counted.read_text().split() == ["+", "-"] * 12


@pytest.mark.parametrize("outer", [[], ["--replace"], ["--runtime", "claude"]])
def test_a_command_that_outlives_the_one_around_it_keeps_the_slot(stage: Stage, outer: list[str]) -> None:
    inside = shell("--", "sh", "-c", stage.work("inside"))
    around = stage.start(*outer, "--", "sh", "-c", f"{inside} >&- & sleep 0.5")
    pid = stage.working("inside")
    around.wait()
    assert run("--no-wait", "--", "true") == NO_ROOM
    (lease,) = pool().leases
    assert (lease.pid, lease.alive) == (pid, True)
    stage.gate.unlink()
    until(lambda: not flyball.Governor().status().pools[0].leases, "the slot is free")
    assert run("--no-wait", "--", "true") == 0


def test_a_command_that_was_started_deep_inside_keeps_the_slot_when_all_around_it_are_killed(
    stage: Stage,
) -> None:
    deepest = shell("--", "sh", "-c", stage.work("deepest"))
    middle = shell("--", "sh", "-c", stage.work("middle", f"{deepest} &"))
    around = stage.start("--", "sh", "-c", stage.work("outer", f"{middle} &"))
    pids = [stage.working(name) for name in ("outer", "middle", "deepest")]
    around.kill()
    for pid in pids[:2]:
        os.kill(pid, signal.SIGKILL)
    until(
        lambda: run("--no-wait", "--", "true") == NO_ROOM and pool().leases[0].pid == pids[2], "it passed on"
    )
    os.kill(pids[2], signal.SIGKILL)
    until(lambda: run("--no-wait", "--", "true") == 0, "the slot is free")


def test_a_daemon_that_left_its_lease_asks_like_any_other_process(stage: Stage) -> None:
    """Its parents are gone, so nothing proves that it belongs to the lease that its environment names."""
    asks = shlex.join([*EXEC, "--no-wait", "--", "true"])
    told = stage.folder / "told"
    daemon = f"sleep 0.3; {asks}; echo $? > {told}"
    stage.start("--", "sh", "-c", stage.work("outer", f"(setsid sh -c {shlex.quote(daemon)} &)"))
    until(lambda: told.exists() and told.read_text() != "", "the daemon to ask")
    assert told.read_text().strip() == str(NO_ROOM)
