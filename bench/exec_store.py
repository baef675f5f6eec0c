"""Agents over the real store in simulated time: what ``flyball exec`` asks of it and tells it.

The scenarios and the oracle are those of the simulator. Between them stands a store instead of a controller:
two asks wait in its line, a run that ends releases its lease and hands its slot on, and how it ended is told
by the functions that ``exec`` itself uses. A run that is refused dies of it, as agents do, and its work
stands in line again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from bench.report import Figure, Progress, Section, Target
from flyball.core.pool.settings import PoolChanges
from flyball.core.signals import REJECTIONS, End, Signal, SignalKind
from flyball.runtimes.outcome import report_ending
from flyball.runtimes.port import Ending
from flyball.sim.simulator.compare import ORACLE, ScenarioScore, play, score
from flyball.sim.simulator.engine import Engine
from flyball.sim.simulator.held_out import EVERY_SCENARIO
from flyball.sim.simulator.jobs import Job, jobs
from flyball.sim.simulator.limits import INFINITY
from flyball.sim.simulator.scenario import AGENTS, Scenario
from flyball.stores.port import Release
from flyball.testing.store_checks.scenario import Scene
from flyball.testing.stores import make_memory

SCENARIOS = ("agents", "agents-step")
POOLS: Mapping[str, PoolChanges] = {"out of the box": {}, "profile agents": AGENTS}
GOODPUT, SLOT_WASTE = 99.0, 0.3
_IN_LINE = 2


class StoreLease:
    """What ``exec`` holds while its agent runs; it hears what a ``flyball.Lease`` hears."""

    def __init__(self, scene: Scene, claim_id: int) -> None:
        self._scene, self._claim_id = scene, claim_id
        self._oks, self._reported, self.rejected = 0, False, False

    def report(self, status: Signal, /) -> Signal:
        first, self._reported = not self._reported, True
        self.rejected = status.kind in REJECTIONS
        if status.kind is SignalKind.OK:
            self._oks += 1
        else:
            claim = self._scene.claim(self._claim_id)
            self._scene.store.report(
                claim.pool,
                status,
                project=claim.project,
                name=claim.name,
                claim_id=self._claim_id,
                first=first,
            )
        return status

    def note_answer(self) -> None:
        if self.rejected or not self._reported:
            self.report(Signal(SignalKind.OK))

    def end(self, ending: Ending) -> None:
        outcome = report_ending(self, ending, read=True, note_answer=StoreLease.note_answer)
        self._scene.store.release(Release(self._claim_id, outcome, self._oks, self.rejected))


class StorePolicy:
    """A policy of the simulator that asks a store."""

    def __init__(self, pool: PoolChanges) -> None:
        self._scene = Scene(make_memory)
        self._began = self._scene.world.clock()
        self._in_line: deque[int] = deque()
        self._granted: deque[int] = deque()
        if pool:
            self._scene.pool(**pool)

    @property
    def level(self) -> float:
        return float(self._scene.snapshot().cap)

    def earliest_start(self, t_s: float, job: Job) -> float:  # noqa: ARG002
        self._go_on(t_s)
        looks = [look_s for claim_id in tuple(self._in_line) if (look_s := self._look(claim_id)) is not None]
        while len(self._in_line) < _IN_LINE and not self._granted:
            verdict, _ = self._scene.store.admit(self._scene.ask(), park=True)
            (self._granted if verdict.granted else self._in_line).append(verdict.claim_id)
            if verdict.look_again_s is not None:
                looks.append(verdict.look_again_s)
        return t_s if self._granted else t_s + min(looks, default=INFINITY)

    def _look(self, claim_id: int) -> float | None:
        """When something is known to change for an ask in line, from now."""
        verdict = self._scene.poll(claim_id)
        if verdict.granted:
            self._in_line.remove(claim_id)
            self._granted.append(claim_id)
        return None if verdict.granted else verdict.look_again_s

    def start(self, t_s: float, job: Job) -> object:  # noqa: ARG002
        return StoreLease(self._scene, self._granted.popleft())

    def end(self, started: object, job: Job, signal: Signal, t_s: float) -> None:  # noqa: ARG002
        self._go_on(t_s)
        if isinstance(started, StoreLease):
            served = signal.kind is SignalKind.OK
            end, said = (End.FINISHED, None) if served else (End.LIMITED, signal)
            started.end(Ending(end=end, reason="", signal=said))

    def _go_on(self, t_s: float) -> None:
        self._scene.wait(max(0.0, self._began + t_s - self._scene.world.clock()))


def play_on_store(scenario: Scenario, seed: int, pool: PoolChanges) -> ScenarioScore:
    policy, provider = StorePolicy(pool), scenario.provider(seed)
    run = Engine(provider, [(policy, jobs(scenario.mix, seed))], horizon_s=scenario.horizon_s).play()
    return score(scenario, run.clients, play(scenario, ORACLE, seed).clients)


def section(seeds: Sequence[int], *, part: float, progress: Progress) -> Section:
    figures: list[Figure] = []
    for name in SCENARIOS:
        for pool in POOLS:
            progress(f"control, over the store: {name}, {pool}")
            scenario = EVERY_SCENARIO[name].shorten(part)
            figures += _figures(
                f"{name}, {pool}", [play_on_store(scenario, seed, POOLS[pool]) for seed in seeds]
            )
    seeded = ", ".join(str(seed) for seed in seeds)
    return Section("exec", f"agents over the real store, as exec tells it, seeds {seeded}", tuple(figures))


def _figures(what: str, scores: Sequence[ScenarioScore]) -> Iterator[Figure]:
    yield Figure(
        what=what,
        ours=fmean(each.goodput_pct for each in scores),
        unit="%",
        target=Target("value", GOODPUT, at_least=True),
    )
    yield Figure(
        what=f"{what}: slot time wasted",
        ours=fmean(each.slot_waste_pct for each in scores),
        unit="%",
        target=Target("value", SLOT_WASTE),
    )
