"""Three terminals of plain claude and one script on the OpenAI SDK, and the load of an hour for them.

An hour is replayed at a thirtieth: the load lasts two minutes, a call of half a second stands for 15 s of
answering, a tool run of one second for 30 s, and a person thinks for two to five seconds instead of one to
two and a half minutes. No client may try a refused call again.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import random
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.agents.bench import FLYBALL, LONGEST_S, Bench, finished, until
from tests.agents.kit import KEY, Claude

LOAD_S = 120.0
HOUR_S = 3600.0
SEATS_WITH_HOOKS, SEATS_THROUGH_GATEWAY = 6, 3
"""With hooks each terminal holds a slot as long as it lives."""
THINK_S = (2.0, 5.0)
PROJECTS = ("blog", "shop", "docs")
"""Of the terminals."""
SCRIPTS = "nightly"
"""The project of the script."""
CALLERS = 3
"""Threads of the script, each of which makes one call after another."""
SCRIPT = """\
import os, sys, threading
import flyball, openai

client = openai.OpenAI(max_retries=0)
if "FLYBALL_GATEWAY" not in os.environ:
    flyball.govern(client, "anthropic")
over = threading.Event()
answers, errors = [], []
question = [{"role": "user", "content": "Say: Done."}]

def ask():
    while not over.is_set():
        try:
            chat = client.chat.completions.create(model="gpt-5.5", max_tokens=50, messages=question)
        except Exception as error:
            errors.append(repr(error))
            return
        answers.append(chat.choices[0].message.content)
        over.wait(0.2)

threads = [threading.Thread(target=ask) for _ in range(int(sys.argv[1]))]
for thread in threads:
    thread.start()
sys.stdin.read()
over.set()
for thread in threads:
    thread.join()
print(len(answers))
sys.exit(errors[0] if errors else 0)
"""
SETTINGS = b"""\
{ "permissions": {"allow": ["Bash", "Agent"]},
    "hooks": {
        "UserPromptSubmit": [{"hooks": [{"type": "command", "command": "cat >> prompts"}]}],
        "Stop": [ {"hooks": [{"type": "command", "command": "printf . >> stops"}]} ] }   }
"""
"""Of the person, who has hooks already: they tell this test how far a session has come."""
_WITH_TERMINAL = """\
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""
_TYPED_S = 0.3
"""An Enter that comes sooner would be a part of what was pasted."""
_ENTER_AGAIN_S = 3.0
Status = dict[str, dict[str, Any]]
"""The pools, as ``flyball status --json`` shows them."""


class Terminal:
    """A terminal in a project's folder, with an interactive claude in it."""

    def __init__(self, bench: Bench, project: str, env: Mapping[str, str], argv: Sequence[str]) -> None:
        self.project, self._chance = project, random.Random(project)
        self._folder = Path(env["HOME"]).parent / project
        self._shown = bytearray()
        self._keys, screen = pty.openpty()
        fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        words = [sys.executable, "-c", _WITH_TERMINAL, *argv]
        try:
            self.process = bench.spawn(
                words, env=env, folder=self._folder, stdin=screen, stdout=screen, stderr=screen
            )
        finally:
            os.close(screen)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        """Until its process has ended and nothing is left to read."""
        with suppress(OSError):
            while piece := os.read(self._keys, 65536):
                self._shown += piece
                del self._shown[:-10_000]
        os.close(self._keys)

    def work(self, until_s: float) -> int:
        """Type prompts, each a while after the last was answered; how many there were."""
        prompts = 0
        while time.monotonic() < until_s:
            time.sleep(self._chance.uniform(*THINK_S))
            prompts += 1
            self.ask(self._prompt(first=prompts == 1), prompts)
        return prompts

    def ask(self, prompt: str, number: int) -> None:
        """Type a prompt, and wait for the end of its turn."""
        stops = self._told("stops")
        self._submit(f"{prompt} {number}.", f" {number}.")
        assert self._wait(partial(self._has_news, "stops", stops)), self.screen

    def stop_subagents(self) -> None:
        """As a person does: Ctrl-X Ctrl-K, twice."""
        for _ in range(2):
            os.write(self._keys, b"\x18\x0b")
            time.sleep(_TYPED_S)

    def _prompt(self, *, first: bool) -> str:
        run = f"errand: run sleep 1 && echo {self.project}"
        count = 4 if first else self._chance.randint(2, 4)
        delegated = f"errand: delegate {count} general-purpose = {run}"
        return (
            delegated if first else self._chance.choice([delegated, delegated, run, "Say that you are done"])
        )

    def _submit(self, prompt: str, mark: str) -> None:
        os.write(self._keys, prompt.encode())
        end = time.monotonic() + LONGEST_S
        while mark not in self._told("prompts"):
            assert time.monotonic() < end, self.screen
            time.sleep(_TYPED_S)
            os.write(self._keys, b"\r")
            self._wait(lambda: mark in self._told("prompts"), for_s=_ENTER_AGAIN_S)

    def leave(self) -> None:
        os.write(self._keys, b"/exit")
        end = time.monotonic() + LONGEST_S
        while self.process.poll() is None:
            assert time.monotonic() < end, self.screen
            time.sleep(_TYPED_S)
            with suppress(OSError):
                os.write(self._keys, b"\r")
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_ENTER_AGAIN_S)

    def _told(self, name: str) -> str:
        """What the person's own hooks have written."""
        path = self._folder / name
        return path.read_text() if path.exists() else ""

    def _has_news(self, name: str, known: str) -> bool:
        return self._told(name) != known

    def _wait(self, condition: Callable[[], bool], *, for_s: float = LONGEST_S) -> bool:
        end = time.monotonic() + for_s
        while not condition() and time.monotonic() < end:
            assert self.process.poll() is None, self.screen
            time.sleep(0.05)
        return condition()

    @property
    def screen(self) -> str:
        """The end of what it has shown."""
        return self._shown.decode(errors="replace")


class Home:
    """Of a person with settings of their own, who has put flyball's hooks into them."""

    def __init__(self, bench: Bench, **env: str) -> None:
        self.bench = bench
        self.env = {**bench.environment(Claude()), "TERM": "xterm-256color", "OPENAI_API_KEY": KEY}
        self.env |= {"OPENAI_BASE_URL": f"{bench.provider.url}/v1", **env}
        # As people have it: all the calls that claude makes by itself.
        del self.env["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"]
        self._place = Path(self.env["HOME"]).parent
        folders = [self._place / project for project in (*PROJECTS, SCRIPTS)]
        for folder in folders:
            folder.mkdir()
        config = Path(self.env["CLAUDE_CONFIG_DIR"])
        config.mkdir()
        known = {
            "hasCompletedOnboarding": True,
            "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
            "projects": {str(folder): {"hasTrustDialogAccepted": True} for folder in folders},
        }
        (config / ".claude.json").write_text(json.dumps(known))
        self.settings = config / "settings.json"
        self.settings.write_bytes(SETTINGS)
        self.flyball("hooks", "install", "claude")
        assert self.settings.read_bytes() != SETTINGS

    def flyball(self, *words: str) -> None:
        subprocess.run([*FLYBALL, *words], env=self.env, capture_output=True, check=True, timeout=60)

    def open_terminals(self, *, before: str = "", projects: Sequence[str] = PROJECTS) -> list[Terminal]:
        """``before``: what is typed into their shells first."""
        argv = _in_shell(before, "claude --model sonnet --permission-mode acceptEdits")
        return [Terminal(self.bench, project, self.env, argv) for project in projects]

    def start_script(self, *, before: str = "") -> subprocess.Popen[str]:
        folder = self._place / SCRIPTS
        (folder / "script.py").write_text(SCRIPT)
        argv = _in_shell(before, f"{sys.executable} script.py {CALLERS}")
        return self.bench.spawn(argv, env=self.env, folder=folder, stdin=subprocess.PIPE)


def _in_shell(before: str, command: str) -> list[str]:
    return ["bash", "--norc", "-c", f"{before}\nexec {command}"]


def status(bench: Bench) -> Status:
    return {pool["name"]: pool for pool in json.loads(bench.flyball("status", "--json"))["pools"]}


@contextmanager
def watched(bench: Bench) -> Iterator[list[Status]]:
    """What ``flyball status`` shows again and again, while in the block."""
    seen: list[Status] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.5):
            seen.append(status(bench))

    with ThreadPoolExecutor(1) as threads:
        watching = threads.submit(watch)
        try:
            yield seen
        finally:
            over.set()
            watching.result()


def carry_load(
    home: Home, terminals: Sequence[Terminal], script: subprocess.Popen[str], *, load_s: float
) -> list[Status]:
    """All four at work until the hour is over; what the status was meanwhile."""
    bench = home.bench
    with watched(bench) as seen, ThreadPoolExecutor(len(terminals)) as threads:
        end = time.monotonic() + load_s
        working = [threads.submit(terminal.work, end) for terminal in terminals]
        assert all(each.result() for each in working)
    until(lambda: not subagents(status(bench)), "the last subagent is done", while_runs=script)
    for terminal in terminals:
        terminal.leave()
    assert script.poll() is None
    done = finished(script)  # closes its stdin
    assert done.code == 0, done.stderr
    assert int(done.stdout) > 0
    return seen


def subagents(pools: Status) -> list[dict[str, Any]]:
    """Those that run or wait."""
    return [each for pool in pools.values() for each in (*pool["leases"], *pool["asks"]) if each["parent"]]


def overtakes(seen: Sequence[Status]) -> list[str]:
    """One line for all; within a project nothing overtakes, and of two the one with fewer slots is next."""
    found: list[str] = []
    for pools in seen:
        pool = pools.get("anthropic", {"leases": [], "asks": []})
        leases, asks = pool["leases"], pool["asks"]
        if [ask["position"] for ask in asks] != list(range(1, len(asks) + 1)):
            found.append(f"more than one line: {asks}")
        for ask in asks:
            for lease in (lease for lease in leases if lease["id"] > ask["id"]):
                # One more by its own grant, and one that the other may have given back since.
                most = _used(leases, ask["project"]) + 2
                if lease["project"] == ask["project"] or _used(leases, lease["project"]) > most:
                    found.append(f"{lease} before {ask}")
    return found


def _used(leases: Sequence[Mapping[str, Any]], project: str) -> int:
    return sum(lease["slots"] for lease in leases if lease["project"] == project)


@dataclass(frozen=True)
class Replay:
    """An hour that is over."""

    home: Home
    seats: int
    seen: Sequence[Status]
    together: int
    """So many looks at the status showed the three sessions and the script's calls in one pool."""
    in_line: int
    """In so many of these the script and a terminal stood in its line."""


def _in_line(pools: Sequence[Mapping[str, Any]]) -> int:
    return sum({ask["project"] for ask in pool["asks"]} > {SCRIPTS} for pool in pools)


def replay_with_hooks(bench: Bench, *, load_s: float = LOAD_S) -> Replay:
    """Plain claude with flyball's hooks in its settings; the script governs its client."""
    seats = SEATS_WITH_HOOKS
    home = Home(bench, CLAUDE_CODE_DISABLE_TERMINAL_TITLE="1")
    reserve = str(len(PROJECTS))
    home.flyball("pool", "set", "anthropic", "--cap", str(seats), "--static", "--reserve", reserve)
    terminals, script = home.open_terminals(), home.start_script()
    seen = carry_load(home, terminals, script, load_s=load_s)
    sessions = {f"claude-{terminal.process.pid}" for terminal in terminals}
    together = [
        pool
        for pool in (each["anthropic"] for each in seen if "anthropic" in each)
        if sessions <= {lease["name"] for lease in pool["leases"]}
        and SCRIPTS in {each["project"] for each in (*pool["leases"], *pool["asks"])}
    ]
    return Replay(home, seats, seen, len(together), _in_line(together))


def replay_through_gateway(bench: Bench, *, load_s: float = LOAD_S) -> Replay:
    """Plain claude and the script in shells whose calls lead through the gateway."""
    seats = SEATS_THROUGH_GATEWAY
    home = Home(bench)
    home.flyball("pool", "set", "anthropic", "--cap", str(seats), "--static")
    through = f'eval "$({" ".join(FLYBALL)} env --pool anthropic)"'
    terminals, script = home.open_terminals(before=through), home.start_script(before=through)
    seen = carry_load(home, terminals, script, load_s=load_s)
    sessions = {f"claude-{terminal.process.pid}" for terminal in terminals}
    together = [
        pools["anthropic"]
        for pools in seen
        if "agents" in pools and sessions <= {lease["name"] for lease in pools["agents"]["leases"]}
        if {SCRIPTS, *PROJECTS}
        == {each["project"] for each in (*pools["anthropic"]["leases"], *pools["anthropic"]["asks"])}
    ]
    return Replay(home, seats, seen, len(together), _in_line(together))


def check_end(replay: Replay) -> None:
    """Nothing was refused, nothing is held, and the settings are as they were."""
    home = replay.home
    tally = home.bench.provider.tally()
    assert (tally.rejected, tally.inside) == (0, 0)
    assert tally.peak_inside <= replay.seats
    assert "flyball holds this subagent back" not in str(home.bench.heard)
    assert {name: (pool["leases"], pool["asks"]) for name, pool in status(home.bench).items()} == {
        name: ([], []) for name in status(home.bench)
    }
    home.flyball("hooks", "remove", "claude")
    assert home.settings.read_bytes() == SETTINGS
