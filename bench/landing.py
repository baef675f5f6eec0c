"""Landing many finished branches behind a slow gate: together, beside one at a time.

Each round makes a small repository with as many branches as said, each of one page, and hands all of them to
the landing at once, as a wide run would. The gate sleeps and then looks for a bad page. One at a time is the
same landing with ``merge.batch = 1``.

What a landing costs beyond git and the gate is measured where one lands alone behind a gate that is ``true``:
its whole time less that of every git command and of the gate's own processes, as they were timed.
"""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.factory import _git as git
from bench.fleet import BenchError
from bench.homes import scratch
from bench.report import Figure, Progress, Section, Target
from flyball.core.tasks.task import Task
from flyball.core.tasks.task_run import LandingResult, RunPhase, Step
from flyball.factory.git import git as gits
from flyball.factory.landing import gate as gates
from flyball.factory.landing.result import Landed
from flyball.factory.project.config_reader import load_config
from flyball.factory.run.context import RunContext, open_run
from flyball.factory.run.options import RunOptions

NAME = "landing"
TITLE = "landing many branches behind one gate, beside one at a time"
_CONFIG = """\
[project]
id = "bench"
default_branch = "main"
[agent]
runtime = "command"
command = ["true"]
[gate]
commands = [{gate}]
[merge]
batch = {batch}
[worktree]
folder = "../trees"
"""
_TASK = "---\nid: {name}\ntitle: Add page {name}\nstatus: open\n---\nAdd the page.\n"


@dataclass(frozen=True, slots=True)
class Sizes:
    branches: int = 30
    gate_s: float = 5.0
    bad: tuple[int, ...] = (4, 15, 26)
    batch: int = 8
    alone: int = 40


FULL = Sizes()
QUICK = Sizes(branches=6, gate_s=0.2, bad=(2, 5), alone=3)


def run(sizes: Sizes, progress: Progress) -> Section:
    progress(f"{NAME}: {sizes.branches} together")
    together = _landed(sizes, batch=sizes.batch, bad=())
    progress(f"{NAME}: {sizes.branches} one at a time")
    alone = _landed(sizes, batch=1, bad=())
    progress(f"{NAME}: {sizes.branches} together, {len(sizes.bad)} of them bad")
    bisected = _landed(sizes, batch=sizes.batch, bad=sizes.bad)
    progress(f"{NAME}: one at a time, {len(sizes.bad)} of them bad")
    with_bad = _landed(sizes, batch=1, bad=sizes.bad)
    progress(f"{NAME}: what a landing adds")
    beyond = _beyond_ms(sizes)
    what = f"{sizes.branches} branches, a gate of {sizes.gate_s:g} s"
    figures = (
        _rate(f"{what}: landings per minute", together, alone, Target("ratio", 4.0, at_least=True)),
        _rate(f"the same, {len(sizes.bad)} of them bad", bisected, with_bad, None),
        Figure(
            what="red commits on the default branch, all rounds",
            ours=float(sum(each.red for each in (together, alone, bisected, with_bad))),
            unit="",
            target=Target("value", 0.0),
        ),
        Figure(
            what="bad branches refused, and good ones refused with them",
            ours=float(len(bisected.refused ^ _names(sizes.bad))),
            unit="wrong",
            target=Target("value", 0.0),
        ),
        Figure(
            what="a landing beyond git and the gate, p50",
            ours=median(beyond),
            unit="ms",
            target=Target("value", 200.0),
        ),
    )
    notes = (
        f"the gate ran {together.gates} times for all green together, {alone.gates} one at a time; "
        f"{bisected.gates} and {with_bad.gates} with bad ones",
        "a gate only says yes or no, so finding bad ones takes runs of its own: that row has no target",
    )
    return Section(NAME, TITLE, figures, notes)


@dataclass(frozen=True, slots=True)
class Round:
    took_s: float
    good: int
    refused: frozenset[str]
    red: int
    gates: int


def _rate(what: str, ours: Round, theirs: Round, target: Target | None) -> Figure:
    return Figure(
        what=what,
        ours=ours.good / ours.took_s * 60,
        unit="/min",
        beside="one at a time",
        theirs=theirs.good / theirs.took_s * 60,
        target=target,
    )


def _names(numbers: tuple[int, ...]) -> frozenset[str]:
    return frozenset(f"t-{number}" for number in numbers)


def _landed(sizes: Sizes, *, batch: int, bad: tuple[int, ...]) -> Round:
    with scratch() as home:
        count = home / "gates"
        gate = f"echo >> {count}; sleep {sizes.gate_s:g}; ! grep -rqs bad pages"
        root = _project(home / "project", sizes.branches, gate=gate, batch=batch, bad=bad)
        start = time.perf_counter()
        results = asyncio.run(_all(root, sizes.branches))
        took_s = time.perf_counter() - start
        refused = frozenset(
            name for name, landed in results.items() if landed.result is LandingResult.GATE_FAILED
        )
        good = sum(landed.result is LandingResult.MERGED for landed in results.values())
        if good + len(refused) != sizes.branches:
            raise BenchError(f"landings that are neither merged nor red: {results}")
        return Round(took_s, good, refused, _red(root), len(count.read_text().splitlines()))


def _red(root: Path) -> int:
    """Commits of the default branch, every one of them, with a bad page in it."""
    commits = git(root, "rev-list", "main").split()
    found = (subprocess.run(["git", "grep", "-q", "bad", each, "--", "pages"], cwd=root) for each in commits)
    return sum(each.returncode == 0 for each in found)


# -- the project --------------------------------------------------------------------------------------


def _project(root: Path, branches: int, *, gate: str, batch: int, bad: tuple[int, ...] = ()) -> Path:
    (root / "tasks").mkdir(parents=True)
    quoted = '"' + gate.replace('"', '\\"') + '"'
    (root / "flyball.toml").write_text(_CONFIG.format(gate=quoted, batch=batch))
    for number in range(1, branches + 1):
        (root / "tasks" / f"t-{number}.md").write_text(_TASK.format(name=f"t-{number}"))
    for command in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "Start"]):
        git(root, *command)
    for number in range(1, branches + 1):
        git(root, "checkout", "-q", "-b", f"agent/t-{number}", "main")
        (root / "pages").mkdir(exist_ok=True)
        (root / "pages" / f"t-{number}.txt").write_text("bad\n" if number in bad else "fine\n")
        git(root, "add", "pages")
        git(root, "commit", "-qm", f"Add page t-{number}")
    git(root, "checkout", "-q", "main")
    return root


async def _all(root: Path, branches: int) -> dict[str, Landed]:
    context = open_run(root, load_config(root), RunOptions(), run="bench")
    try:
        names = [f"t-{number}" for number in range(1, branches + 1)]
        landed = await asyncio.gather(*(_one(context, name) for name in names))
        return dict(zip(names, landed, strict=True))
    finally:
        context.close()


async def _one(context: RunContext, name: str) -> Landed:
    """A task whose agent has just ended, from there."""
    folder = context.project.state / "runs" / name / "1"
    folder.mkdir(parents=True)
    for step, mark in (
        (Step.CLAIM, RunPhase.DONE),
        (Step.WORKTREE, RunPhase.DONE),
        (Step.LAUNCH, RunPhase.DONE),
        (Step.END, RunPhase.DONE),
    ):
        context.project.ledger.note(name, step, mark)
    return await context.landings.landing.land(Task(id=name, title=f"Add page {name}"), folder)


# -- what a landing adds --------------------------------------------------------------------------------


def _beyond_ms(sizes: Sizes) -> list[float]:
    with scratch() as home:
        root = _project(home / "project", sizes.alone, gate="true", batch=sizes.batch)
        return asyncio.run(_each_alone(root, sizes.alone))


async def _each_alone(root: Path, branches: int) -> list[float]:
    context = open_run(root, load_config(root), RunOptions(), run="bench")
    found = []
    try:
        with _timed() as spent:
            for number in range(1, branches + 1):
                before, start = spent[0], time.perf_counter()
                landed = await _one(context, f"t-{number}")
                took_s = time.perf_counter() - start
                if landed.result is not LandingResult.MERGED:
                    raise BenchError(f"t-{number} did not land: {landed}")
                found.append((took_s - (spent[0] - before)) * 1e3)
    finally:
        context.close()
    return found


@contextmanager
def _timed() -> Iterator[list[float]]:
    """How long git commands and gates have taken so far. One lands at a time, so none overlap."""
    spent = [0.0]
    real_run, real_one = gits.Git.run, gates.GateRunner._one

    def timed_run(*args: Any, **kwargs: Any) -> gits.Done:
        start = time.perf_counter()
        try:
            return real_run(*args, **kwargs)
        finally:
            spent[0] += time.perf_counter() - start

    async def timed_one(*args: Any, **kwargs: Any) -> gates.GateFailure | None:
        start = time.perf_counter()
        try:
            return await real_one(*args, **kwargs)
        finally:
            spent[0] += time.perf_counter() - start

    gits.Git.run, gates.GateRunner._one = timed_run, timed_one  # type: ignore[method-assign]
    try:
        yield spent
    finally:
        gits.Git.run, gates.GateRunner._one = real_run, real_one  # type: ignore[method-assign]
