"""Scenarios x contenders x seeds: run them, and make numbers of the runs.

All contenders meet the same seeded work and the same provider. The oracle runs once per scenario and seed,
and its failures do not count as waste of the others. With ``processes`` the runs are spread over that many;
the results come back in the same order either way, and no worker outlives the process that started it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context, parent_process
from statistics import fmean
from typing import cast

from flyball.core.pool.settings import PoolChanges
from flyball.host.background_thread import start_thread
from flyball.sim.demo.score import jain
from flyball.sim.simulator.controllers import CONTENDERS, FIXED_LOW
from flyball.sim.simulator.engine import CallPolicy, ClientTally, Engine, Oracle, SimulatedRun
from flyball.sim.simulator.held_out import EVERY_SCENARIO
from flyball.sim.simulator.jobs import jobs
from flyball.sim.simulator.rivals import CALLERS
from flyball.sim.simulator.scenario import Goal, Scenario

ORACLE = "oracle"
_NO_CHANGES = PoolChanges()


@dataclass(frozen=True, slots=True)
class ScenarioScore:
    """One run beside the oracle's."""

    goodput_pct: float
    waste_pct: float
    """Rejected attempts per 100 successes, beyond the oracle's."""
    slot_waste_pct: float
    """Slot time spent on being rejected, of the time spent being served."""
    jain: float
    done: int
    rejected: int


@dataclass(frozen=True, slots=True)
class ScenarioResult:
    """A contender in a scenario, over all seeds."""

    scenario: str
    contender: str
    scores: tuple[ScenarioScore, ...]

    @property
    def goodput_pct(self) -> float:
        return fmean(score.goodput_pct for score in self.scores)

    @property
    def goodput_least_pct(self) -> float:
        return min(score.goodput_pct for score in self.scores)

    @property
    def waste_pct(self) -> float:
        return fmean(score.waste_pct for score in self.scores)

    @property
    def slot_waste_pct(self) -> float:
        return fmean(score.slot_waste_pct for score in self.scores)

    @property
    def jain(self) -> float:
        return fmean(score.jain for score in self.scores)

    def judged_waste_pct(self, goal: Goal | None) -> float:
        """The kind of waste that counts here."""
        return self.slot_waste_pct if goal is not None and goal.slot_waste is not None else self.waste_pct

    def meets(self, goal: Goal) -> bool:
        return (
            self.goodput_pct >= goal.goodput
            and (goal.waste is None or self.waste_pct <= goal.waste)
            and (goal.slot_waste is None or self.slot_waste_pct <= goal.slot_waste)
            and (goal.jain is None or self.jain >= goal.jain)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioTask:
    """One run by name, so that it can cross to another process."""

    scenario: str
    contender: str
    seed: int
    part: float = 1.0
    changes: PoolChanges = field(default_factory=PoolChanges)


def play(
    scenario: Scenario, contender: str, seed: int, *, changes: PoolChanges = _NO_CHANGES, moments: int = 0
) -> SimulatedRun:
    """One run. ``contender`` may be the oracle; ``changes`` are for flyball's own."""
    provider = scenario.provider(seed)
    if contender == ORACLE:
        policies: list[CallPolicy] = [Oracle(provider)] * scenario.clients
    else:
        policies = _policies(scenario, contender, seed, changes)
    work = [
        jobs(scenario.mix, seed if scenario.clients == 1 else f"{seed}/{n}") for n in range(len(policies))
    ]
    clients = list(zip(policies, work, strict=True))
    return Engine(provider, clients, horizon_s=scenario.horizon_s, moments=moments).play()


def _policies(scenario: Scenario, contender: str, seed: int, changes: PoolChanges) -> list[CallPolicy]:
    chosen = CONTENDERS[contender]
    # A scenario's cap is where controllers start; a cap that never moves needs one that was chosen.
    stays = {"cap": FIXED_LOW} if contender == "fixed" else {}
    pool = cast(PoolChanges, {**scenario.pool, **stays, **changes})
    if chosen.coordinates and scenario.coordinated:
        return [chosen.make(pool, seed, CALLERS)] * scenario.clients
    callers = CALLERS // scenario.clients
    return [chosen.make(pool, seed + 1000 * n, callers) for n in range(scenario.clients)]


def score(scenario: Scenario, clients: Sequence[ClientTally], oracle: Sequence[ClientTally]) -> ScenarioScore:
    total, best, unit = (
        SimulatedRun(list(clients)).total,
        SimulatedRun(list(oracle)).total,
        scenario.unit.value,
    )
    beyond = total.rejected - best.rejected
    return ScenarioScore(
        goodput_pct=100 * getattr(total, unit) / getattr(best, unit),
        waste_pct=100 * beyond / max(1, total.done),
        slot_waste_pct=100 * beyond * scenario.reject_s / max(1.0, total.served_s),
        jain=jain(getattr(client, unit) for client in clients) or 0.0,
        done=total.done,
        rejected=total.rejected,
    )


def run_task(task: ScenarioTask) -> list[ClientTally]:
    scenario = EVERY_SCENARIO[task.scenario].shorten(task.part)
    return play(scenario, task.contender, task.seed, changes=task.changes).clients


def compare(
    scenarios: Sequence[str],
    contenders: Sequence[str],
    seeds: Sequence[int],
    *,
    part: float = 1.0,
    changes: PoolChanges = _NO_CHANGES,
    processes: int = 1,
    report: Callable[[str], None] | None = None,
) -> list[ScenarioResult]:
    """Run every contender in every scenario; results by scenario, then contender."""
    tasks = [
        ScenarioTask(scenario=scenario, contender=contender, seed=seed, part=part, changes=changes)
        for scenario in scenarios
        for seed in seeds
        for contender in (ORACLE, *contenders)
    ]
    scores: dict[tuple[str, str], list[ScenarioScore]] = {}
    oracle: list[ClientTally] = []
    for count, (task, clients) in enumerate(zip(tasks, _run_all(tasks, processes), strict=True), 1):
        if report is not None:
            report(f"{count} of {len(tasks)} runs: {task.scenario}, {task.contender}")
        if task.contender == ORACLE:
            oracle = clients
        else:
            scored = score(EVERY_SCENARIO[task.scenario], clients, oracle)
            scores.setdefault((task.scenario, task.contender), []).append(scored)
    return [ScenarioResult(*names, tuple(each)) for names, each in scores.items()]


def _run_all(tasks: Sequence[ScenarioTask], processes: int) -> Iterator[list[ClientTally]]:
    if processes <= 1 or len(tasks) <= 1:
        yield from map(run_task, tasks)
        return
    # Leaving the block terminates the workers, so an interrupt does not wait for the runs under way.
    with get_context("spawn").Pool(processes, initializer=_start_worker) as pool:
        yield from pool.imap(run_task, tasks)


def _start_worker() -> None:
    """The parent handles Ctrl-C; a worker ends with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    start_thread(_exit_with_parent, name="flyball-parent")


def _exit_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def cores() -> int:
    """The number of cores this process may run on."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
