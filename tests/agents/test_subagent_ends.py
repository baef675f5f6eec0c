"""What the real agents tell where a subagent does not end by itself, and that its slot comes back."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.agents.bench import FLYBALL, LONGEST_S, Bench, Benches, finished, until
from tests.agents.kit import Agent, Codex, Gemini, Opencode
from tests.agents.plainly import KINDS, Plainly, calls_of_subagents, delegate, four

FAILS = "Fail, please."
_KEYS_S = 0.5
"""An Enter that comes sooner would be a part of what was pasted."""
_ESCAPE = b"\x1b"


def is_of_subagent(body: Mapping[str, Any]) -> bool:
    return "errand: delegate" not in str(body)


def test_a_subagent_of_codex_that_fails_makes_room_for_the_next_one(bench_of: Benches) -> None:
    bench, agent = bench_of(), Codex()
    bench.flyball("pool", "set", agent.pool, "--cap", "2", "--static")
    bench.refuses = lambda body: FAILS in str(body) and is_of_subagent(body)
    bench.door.set()
    plainly = Plainly(bench, agent, wait="20s")
    first = f"errand: delegate {KINDS['codex']} = {FAILS}"
    pause = "errand: run sleep 3"
    process = plainly.start(f"{first}\n{pause}\n{delegate(agent, 1)}\n{pause}")
    done = finished(process)
    assert done.code == 0, done.stderr
    assert "flyball holds this subagent back" not in str(bench.heard)
    assert [FAILS in str(body) for body in bench.heard if is_of_subagent(body)] == [True, False]


@four
def test_what_a_session_held_comes_back_when_its_process_is_killed(agent: Agent, bench_of: Benches) -> None:
    bench = bench_of()
    bench.flyball("pool", "set", agent.pool, "--cap", "3", "--static")
    bench.closes_after = 1
    bench.door.set()
    plainly = Plainly(bench, agent)
    process = plainly.start(delegate(agent, 1))
    until(lambda: calls_of_subagents(bench.heard), "the subagent's call", while_runs=process)
    assert agent.name in plainly.names()
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    words = [*FLYBALL, "exec", "--pool", agent.pool, "--slots", "3", "--wait", "20s", "--", "true"]
    subprocess.run(words, env=plainly.env, cwd=plainly.folder, check=True, timeout=LONGEST_S)


class Keyboard:
    """A terminal in which a person types."""

    def __init__(self, plainly: Plainly, argv: list[str]) -> None:
        self.pid, self._keys = pty.fork()
        if self.pid == 0:
            os.chdir(plainly.folder)
            os.execvpe(argv[0], argv, {**plainly.env, "TERM": "xterm-256color"})
        os.set_blocking(self._keys, False)
        self.shown = bytearray()

    def press(self, keys: bytes) -> None:
        self.read()
        os.write(self._keys, keys)

    def read(self) -> None:
        try:
            while piece := os.read(self._keys, 65536):
                self.shown += piece
        except OSError:
            return

    def until(self, condition: Callable[[], object], what: str) -> None:
        end = time.monotonic() + LONGEST_S
        while not condition():
            assert time.monotonic() < end, f"waited in vain for {what}"
            self.read()
            time.sleep(0.05)

    def ask(self, prompt: str, condition: Callable[[], object], what: str) -> None:
        """Type it, and Enter as often as it takes."""
        self.press(prompt.encode())
        end = time.monotonic() + LONGEST_S
        while not condition():
            assert time.monotonic() < end, f"waited in vain for {what}"
            time.sleep(_KEYS_S)
            self.press(b"\r")
            again = time.monotonic() + 3.0
            while not condition() and time.monotonic() < again:
                self.read()
                time.sleep(0.05)

    def close(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._keys)


def told(log: Path) -> list[str]:
    """The names of the events that a person's own hooks have written down."""
    return log.read_text().split() if log.exists() else []


def test_a_subagent_of_gemini_that_a_person_interrupts_gives_its_place_to_the_next(bench_of: Benches) -> None:
    bench, agent = bench_of(), Gemini()
    bench.flyball("pool", "set", agent.pool, "--cap", "1", "--static")
    bench.door.set()
    plainly = Plainly(bench, agent, wait="1s")
    started, subagent = plainly.folder / "started", delegate(agent, 1)
    settings = Path(plainly.env["GEMINI_CLI_HOME"]) / ".gemini" / "settings.json"
    known = json.loads(settings.read_text())
    own = {"type": "command", "name": "own", "command": f"echo started >> {started}"}
    known["hooks"]["SessionStart"].append({"hooks": [own]})
    settings.write_text(json.dumps(known))
    argv = ["gemini", "--skip-trust", "--approval-mode=yolo", "-m", agent.model]
    with closing(Keyboard(plainly, argv)) as keyboard:
        keyboard.until(lambda: told(started), "its start")
        bench.closes_after = 1
        keyboard.ask(subagent, lambda: calls_of_subagents(bench.heard), "the subagent's call")
        keyboard.press(_ESCAPE)
        keyboard.until(lambda: b"cancelled" in keyboard.shown, "the interrupt")
        bench.closes_after = None
        bench.door.set()
        before = len(bench.heard)
        keyboard.ask(subagent, lambda: calls_of_subagents(bench.heard[before:]), "the next one's call")
        assert plainly.names() == [agent.name]
    assert "flyball holds this subagent back" not in str(bench.heard)


class OpencodeServer:
    """opencode without a screen, which is asked and interrupted over HTTP as its own screen does it."""

    def __init__(self, bench: Bench, plainly: Plainly) -> None:
        self.process = bench.spawn(
            ["opencode", "serve", "--port", "0"], env=plainly.env, folder=plainly.folder
        )
        assert self.process.stdout is not None
        line = next(line for line in self.process.stdout if "listening on" in line)
        self._url = line.split()[-1]

    def post(self, path: str, **body: object) -> Any:
        said = json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self._url}{path}", data=said, headers={"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=LONGEST_S) as answer:
            return json.loads(answer.read() or b"null")

    def ask(self, prompt: str) -> str:
        """Begin a turn; the id of its session."""
        vendor, _, model = Opencode.model.partition("/")
        session = self.post("/session", title="a test")["id"]
        parts = [{"type": "text", "text": prompt}]
        chosen = {"providerID": vendor, "modelID": model}
        self.post(f"/session/{session}/prompt_async", parts=parts, model=chosen)
        return str(session)


@pytest.fixture
def opencode(bench_of: Benches) -> tuple[Bench, Plainly, OpencodeServer]:
    bench = bench_of()
    bench.door.set()
    plainly = Plainly(bench, Opencode())
    bench.flyball("pool", "set", "anthropic", "--cap", "2", "--static")
    return bench, plainly, OpencodeServer(bench, plainly)


def test_a_subagent_of_opencode_that_a_person_interrupts_gives_its_slot_back(
    opencode: tuple[Bench, Plainly, OpencodeServer],
) -> None:
    bench, plainly, server = opencode
    bench.closes_after = 2
    # The first rides on the slot of the process, and the second has one of its own.
    sessions = [server.ask(delegate(plainly.agent, 1)) for _ in range(2)]
    both = ["opencode", "opencode > subagent general"]
    until(lambda: plainly.names() == both, "two subagents", while_runs=server.process)
    for session in sessions:
        server.post(f"/session/{session}/abort")
    until(lambda: plainly.names() == ["opencode"], "the slot", while_runs=server.process)


def test_a_subagent_of_opencode_that_is_interrupted_while_it_waits_leaves_the_line(
    opencode: tuple[Bench, Plainly, OpencodeServer],
) -> None:
    bench, plainly, server = opencode
    bench.closes_after = 3
    sessions = [server.ask(delegate(plainly.agent, 1)) for _ in range(3)]
    until(lambda: len(plainly.names("asks")) == 1, "one in line", while_runs=server.process)
    for session in sessions:
        server.post(f"/session/{session}/abort")
    until(lambda: plainly.names() == ["opencode"], "the slots", while_runs=server.process)
    assert plainly.names("asks") == []
