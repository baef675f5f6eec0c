"""The factory beside a bare script: how much it adds to the same git commands and the same agents.

Both turn the same tasks into commits on ``main`` of the same repository, as wide as each other, with a
scripted agent that takes two seconds and writes one file, and a gate that is always green. The script does
nothing but run git, the agent and the gate: it forgets everything when killed, and governs nothing.

From the run's own ledger: the time from a freed place to the next agent's start, git's worktree time taken
off. And two runs that only wait: what an idle one costs, and what one with ten thousand tasks weighs.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.fleet import BenchError
from bench.homes import scratch
from bench.report import Figure, Progress, Section, Target, beside

NAME = "factory"
TITLE = "the factory, beside a bare script with the same git commands"
_GIT = ["git", "-c", "core.hooksPath=/dev/null", "-c", "gc.auto=0", "-c", "maintenance.auto=false"]
_AGENT = """\
tenths=$(( ${FLYBALL_TASK#t-} * 7 % 20 ))
[ "$AGENT_S" = spread ] && AGENT_S=$(( tenths / 10 )).$(( tenths % 10 ))5
sleep "$AGENT_S"
mkdir -p pages
echo "$FLYBALL_TASK" > "pages/$FLYBALL_TASK.txt"
"""
_TASK = """\
---
id: t-{number}
title: Add page {number}
status: open
footprint: {{write: ["pages/t-{number}.txt"]}}
---
{body}
"""
_CONFIG = """\
[project]
id = "bench"
[agent]
runtime = "command"
command = ["sh", "agent.sh"]
[run]
width = {width}
[gate]
commands = ["true"]
[guard]
env = ["AGENT_S"]
"""


@dataclass(frozen=True, slots=True)
class Sizes:
    tasks: int = 200
    width: int = 16
    agent_s: float = 2.0
    rounds: int = 1
    spread_tasks: int = 60
    spread_width: int = 4
    idle_s: float = 20.0
    many: int = 10_000


FULL = Sizes()
QUICK = Sizes(tasks=8, width=4, agent_s=0.2, spread_tasks=8, idle_s=2.0, many=500)


def run(sizes: Sizes, progress: Progress) -> Section:
    ours, theirs, together = [], [], []
    for number in range(sizes.rounds):
        with scratch() as home:
            progress(f"{NAME}: round {number + 1} of {sizes.rounds}, flyball")
            root = _project(home / "ours", sizes.tasks, sizes.width)
            ours.append(_flyball(root, home / "home", sizes.width, f"{sizes.agent_s:g}", sizes.tasks))
            together += _gaps_ms(root / ".flyball" / "ledger.db", sizes.width)
            progress(f"{NAME}: round {number + 1} of {sizes.rounds}, the script")
            theirs.append(_script(_project(home / "theirs", sizes.tasks, sizes.width), home / "trees", sizes))
    progress(f"{NAME}: hand-overs")
    spread = _spread(sizes)
    progress(f"{NAME}: idle")
    idle = _idle(sizes)
    progress(f"{NAME}: many tasks")
    weight = _weight(sizes)
    what = f"{sizes.tasks} tasks, {sizes.width} wide, agents of {sizes.agent_s:g} s"
    figures = (
        beside(what, ours, theirs, unit="s", name="bare script", target=Target("ratio", 1.3)),
        Figure(
            what=f"place freed to next agent started, {sizes.spread_width} wide, agents of 0 to 2 s, p50",
            ours=median(spread),
            unit="ms",
            target=Target("value", 100.0),
        ),
        Figure(
            what=f"the same where all {sizes.width} end at once, p50",
            ours=median(together),
            unit="ms",
        ),
        Figure(
            what=f"an idle run, {sizes.width} silent agents, of one core",
            ours=idle,
            unit="%",
            target=Target("value", 1.0),
        ),
        Figure(
            what=f"a run with {sizes.many:,} tasks, at its largest",
            ours=weight,
            unit="MB",
            target=Target("value", 150.0),
        ),
    )
    notes = ("git's own worktree time is taken off the times from a freed place to the next start",)
    return Section(NAME, TITLE, figures, notes)


# -- the project --------------------------------------------------------------------------------------


def _project(root: Path, tasks: int, width: int, *, body: str = "Add the page.") -> Path:
    (root / "tasks").mkdir(parents=True)
    (root / "agent.sh").write_text(_AGENT)
    (root / "flyball.toml").write_text(_CONFIG.format(width=width))
    for number in range(1, tasks + 1):
        (root / "tasks" / f"t-{number}.md").write_text(_TASK.format(number=number, body=body))
    for command in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "Start"]):
        _git(root, *command)
    return root


def _git(folder: Path, *args: str) -> str:
    who = {f"GIT_{role}_{key}": "bench" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
    done = subprocess.run(
        [*_GIT, *args], cwd=folder, env={**os.environ, **who}, capture_output=True, text=True
    )
    if done.returncode:
        raise BenchError(f"git {' '.join(args)} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout.strip()


def _environment(home: Path, agent_s: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLYBALL")}
    return {**kept, "FLYBALL_HOME": str(home), "AGENT_S": agent_s}


def _command(*words: str) -> list[str]:
    return [sys.executable, "-m", "flyball", *words]


def _prepare_pool(env: Mapping[str, str], width: int) -> None:
    pool = _command("pool", "set", "anthropic", "--static", "--cap", str(width))
    subprocess.run(pool, env=env, check=True, capture_output=True)


def _flyball(root: Path, home: Path, width: int, agent_s: str, tasks: int) -> float:
    env = _environment(home, agent_s)
    _prepare_pool(env, width)
    start = time.perf_counter()
    done = subprocess.run(_command("run"), cwd=root, env=env, capture_output=True, text=True)
    took = time.perf_counter() - start
    _check(root, tasks, done.stdout[-2000:] + done.stderr[-2000:])
    return took


def _spread(sizes: Sizes) -> list[float]:
    """Hand-overs one by one, as agents that take their own time bring them about."""
    with scratch() as home:
        root = _project(home / "spread", sizes.spread_tasks, sizes.spread_width)
        _flyball(root, home / "home", sizes.spread_width, "spread", sizes.spread_tasks)
        return _gaps_ms(root / ".flyball" / "ledger.db", sizes.spread_width)


def _check(root: Path, tasks: int, said: str) -> None:
    found = int(_git(root, "rev-list", "--count", "main")) - 1
    if found != tasks:
        raise BenchError(f"{found} of {tasks} tasks landed: {said}")


# -- the script -----------------------------------------------------------------------------------------


def _script(root: Path, trees: Path, sizes: Sizes) -> float:
    """What anybody would write first: threads, git, and two locks."""
    adding, landing = threading.Lock(), threading.Lock()
    place = trees / "landing"
    start = time.perf_counter()
    _git(root, "worktree", "add", "-q", "--detach", str(place), "main")

    def one(number: int) -> None:
        task, tree = f"t-{number}", trees / f"t-{number}"
        with adding:
            _git(root, "worktree", "add", "-q", "--no-checkout", "-b", f"agent/{task}", str(tree), "main")
        _git(tree, "reset", "-q", "--hard")
        env = {**os.environ, "AGENT_S": f"{sizes.agent_s:g}", "FLYBALL_TASK": task}
        subprocess.run(["sh", "agent.sh"], cwd=tree, env=env, check=True)
        _git(tree, "add", "--all", "--", ".")
        _git(tree, "commit", "-q", "-m", f"Add page {number}")
        with landing:
            _land(root, place, task)
        with adding:
            _git(root, "worktree", "remove", str(tree))
            _git(root, "branch", "-q", "-D", f"agent/{task}")

    with ThreadPoolExecutor(sizes.width) as pool:
        list(pool.map(one, range(1, sizes.tasks + 1)))
    took = time.perf_counter() - start
    _check(root, sizes.tasks, "the script")
    return took


def _land(root: Path, place: Path, task: str) -> None:
    old = _git(root, "rev-parse", "main")
    _git(place, "checkout", "-q", "--force", "--detach", f"agent/{task}")
    _git(place, "clean", "-q", "-fd")
    _git(place, "rebase", "-q", old)
    file = place / "tasks" / f"{task}.md"
    file.write_text(file.read_text().replace("status: open", "status: closed"))
    _git(place, "add", "--", f"tasks/{task}.md")
    _git(place, "commit", "-q", "--amend", "--no-edit")
    subprocess.run(["sh", "-c", "true"], cwd=place, check=True)
    new = _git(place, "rev-parse", "HEAD")
    _git(root, "diff", "--quiet", "HEAD")
    _git(root, "update-ref", "refs/heads/main", new, old)
    _git(root, "read-tree", "-m", "-u", old, new)


# -- the ledger -------------------------------------------------------------------------------------------


def _gaps_ms(ledger: Path, width: int) -> list[float]:
    """From the end of an agent to the start of the one that took its place, less the time of its worktree."""
    with sqlite3.connect(ledger) as db:
        rows = db.execute("SELECT at, task, step, mark FROM entry ORDER BY id").fetchall()
    ends = sorted(at for at, _, step, _ in rows if step == "end")
    launches = sorted((at, task) for at, task, step, mark in rows if (step, mark) == ("launch", "done"))
    begun = {task: at for at, task, step, mark in rows if (step, mark) == ("worktree", "begun")}
    made = {task: at for at, task, step, mark in rows if (step, mark) == ("worktree", "done")}
    return [
        (at - freed - (made[task] - begun[task])) * 1e3
        for freed, (at, task) in zip(ends, launches[width:], strict=False)
    ]


# -- runs that only wait ------------------------------------------------------------------------------------


@contextmanager
def _waiting_run(home: Path, root: Path, width: int):  # type: ignore[no-untyped-def]
    env = _environment(home, "600")
    _prepare_pool(env, width)
    process = subprocess.Popen(
        _command("run"), cwd=root, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        running = 0
        while running < width:
            line = process.stdout.readline() if process.stdout else ""
            if not line:
                raise BenchError("the run ended before its agents had started")
            running += " running" in line
        yield process.pid
    finally:
        for _ in range(2):
            process.terminate()
            time.sleep(0.3)
        process.communicate(timeout=60)


def _idle(sizes: Sizes) -> float:
    """Of one core, in percent."""
    with scratch() as home:
        root = _project(home / "idle", sizes.width, sizes.width)
        with _waiting_run(home / "home", root, sizes.width) as pid:
            time.sleep(1.0)
            before = _cpu_s(pid)
            time.sleep(sizes.idle_s)
            return (_cpu_s(pid) - before) / sizes.idle_s * 100


def _weight(sizes: Sizes) -> float:
    """The largest the run's own process has been, in MB."""
    with scratch() as home:
        root = _project(home / "many", sizes.many, 2, body="What to do, in words. " * 40)
        with _waiting_run(home / "home", root, 2) as pid:
            text = Path(f"/proc/{pid}/status").read_text()
            return int(text.split("VmHWM:")[1].split()[0]) / 1024


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
