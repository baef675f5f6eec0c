"""Controllers against an oracle, in simulated time: flyball's own beside what others do.

tuning      the scenarios and seeds that the controllers may be tuned on
final       other seeds, and shapes nobody tuned on: the table that counts
exec        agents over the real store, as ``flyball exec`` asks and tells it
peers       in how many scenarios a peer has more goodput at equal or less waste
speed       how long a cold start and the way back after an outage take, in hold times

Goodput is counted against an oracle that knows every limit, in what the limit is made of; waste is
rejected attempts per 100 successes beyond the oracle's own, for agents the share of slot time. Simulated
time makes every figure exact and the same on any machine: only the run time depends on it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from bench import exec_store
from bench.report import COLUMNS, Figure, Progress, Section, Target, as_record
from flyball.sim.simulator import report
from flyball.sim.simulator.compare import ScenarioResult, compare, play
from flyball.sim.simulator.controllers import CONTENDERS, DEFAULT, PEERS
from flyball.sim.simulator.engine import Moment
from flyball.sim.simulator.held_out import EVERY_SCENARIO, HELD_OUT
from flyball.sim.simulator.plot import at, curve, draw, picture
from flyball.sim.simulator.scenario import FINAL_SEEDS, SCENARIOS, TUNING_SEEDS, Goal, ScenarioKind

NAME = "control"
TITLE = "controllers against an oracle, in simulated time"
RESULTS = Path(__file__).parent / "results" / "control.json"
PLOTS = Path(__file__).parents[1] / "docs" / "plots"

MEDIAN_GOAL = Goal(goodput=99.0, waste=0.5)
COLD_START_PART, COLD_START_HOLDS = 0.95, 2.0
RECOVERY_PART, RECOVERY_HOLDS = 0.90, 3.0
COLD = ("constant", "seven", "wide", "agents")
OUTAGES = ("outages", "outages-mixed")
ALIKE = 0.005
"""Percent by which two goodputs or wastes may differ and still be the same."""

PICTURES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "step": ("step", (DEFAULT,)),
    "diurnal": ("diurnal", (DEFAULT,)),
    "neighbour": ("neighbour", (DEFAULT,)),
    "bucket-shared": ("bucket-shared", (DEFAULT,)),
    "agents-step": ("agents-step", (DEFAULT,)),
    "outages": ("outages", (DEFAULT,)),
    "step-beside-article": ("step", (DEFAULT, "article-raised")),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    tuning_seeds: Sequence[int] = TUNING_SEEDS
    final_seeds: Sequence[int] = FINAL_SEEDS
    scenarios: Sequence[str] = tuple(SCENARIOS)
    held_out: Sequence[str] = tuple(HELD_OUT)
    peers: Sequence[str] = tuple(PEERS)
    part: float = 1.0
    processes: int = 2
    moments_per_hold: int = 20


FULL = Sizes()
QUICK = Sizes(tuning_seeds=TUNING_SEEDS[:1], final_seeds=FINAL_SEEDS[:1], part=0.15)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Everything a run of this suite found."""

    sections: tuple[Section, ...]
    tables: Mapping[str, Sequence[ScenarioResult]]
    sizes: Sizes = field(default_factory=Sizes)


def run(sizes: Sizes, progress: Progress) -> Outcome:
    contenders = (DEFAULT, *sizes.peers)

    def table(title: str, scenarios: Sequence[str], seeds: Sequence[int]) -> list[ScenarioResult]:
        told: Callable[[str], None] = lambda words: progress(f"control, {title}: {words}")  # noqa: E731
        return compare(scenarios, contenders, seeds, part=sizes.part, processes=sizes.processes, report=told)

    tuning = table("tuning", sizes.scenarios, sizes.tuning_seeds)
    final = table("final", [*sizes.scenarios, *sizes.held_out], sizes.final_seeds)
    sections = (
        goals_section("tuning", f"tuning scenarios, seeds {_words(sizes.tuning_seeds)}", tuning),
        goals_section("final", f"other seeds ({_words(sizes.final_seeds)}) and held-out shapes", final),
        exec_store.section(sizes.tuning_seeds, part=sizes.part, progress=progress),
        peers_section(final, sizes.peers),
        speed_section(sizes, progress),
    )
    return Outcome(sections, {"tuning": tuning, "final": final}, sizes)


# -- goals ------------------------------------------------------------------------------------------


def goals_section(name: str, title: str, results: Sequence[ScenarioResult]) -> Section:
    """Each scenario's goodput and waste against its goal, beside the best peer that wastes no more."""
    ours = [result for result in results if result.contender == DEFAULT]
    figures = [figure for result in ours for figure in _figures(result, _rival(result, results))]
    judged = [result for result in ours if EVERY_SCENARIO[result.scenario].goal is not None]
    goodput, waste = report.median_scores(judged)
    figures.append(_goodput("median of all", goodput, MEDIAN_GOAL.goodput))
    figures.append(_waste("median of all: waste", waste, MEDIAN_GOAL.waste))
    return Section(
        name, title, tuple(figures), ("beside it: the best peer that wastes no more than flyball",)
    )


def _figures(result: ScenarioResult, rival: ScenarioResult | None) -> list[Figure]:
    scenario = EVERY_SCENARIO[result.scenario]
    goal = scenario.goal
    figures = [_goodput(scenario.name, result.goodput_pct, goal.goodput if goal else None, rival)]
    if scenario.kind is ScenarioKind.AGENTS:
        limit = goal.slot_waste if goal else None
        figures.append(_waste(f"{scenario.name}: slot time wasted", result.slot_waste_pct, limit))
    else:
        limit = goal.waste if goal else None
        figures.append(_waste(f"{scenario.name}: waste", result.waste_pct, limit))
    if scenario.clients > 1:
        target = Target("value", goal.jain, at_least=True) if goal and goal.jain is not None else None
        figures.append(Figure(what=f"{scenario.name}: Jain", ours=result.jain, unit="", target=target))
    return figures


def _goodput(what: str, value: float, least: float | None, rival: ScenarioResult | None = None) -> Figure:
    return Figure(
        what=what,
        ours=value,
        unit="%",
        beside=rival.contender if rival else "",
        theirs=rival.goodput_pct if rival else None,
        target=Target("value", least, at_least=True) if least is not None else None,
    )


def _waste(what: str, value: float, most: float | None) -> Figure:
    return Figure(what=what, ours=value, unit="%", target=Target("value", most) if most is not None else None)


def _rival(ours: ScenarioResult, results: Sequence[ScenarioResult]) -> ScenarioResult | None:
    """The peer with the most goodput among those that waste no more than we do."""
    goal = EVERY_SCENARIO[ours.scenario].goal
    limit = ours.judged_waste_pct(goal) + ALIKE
    frugal = [
        result
        for result in results
        if result.scenario == ours.scenario
        and result.contender != DEFAULT
        and result.judged_waste_pct(goal) <= limit
    ]
    return max(frugal, key=lambda result: result.goodput_pct, default=None)


def peers_section(results: Sequence[ScenarioResult], peers: Sequence[str]) -> Section:
    """Per peer: where it has more goodput than we do at equal or less waste."""
    ours = {result.scenario: result for result in results if result.contender == DEFAULT}
    figures, notes = [], []
    for peer in peers:
        theirs = [result for result in results if result.contender == peer]
        ahead = [result.scenario for result in theirs if _is_ahead(result, ours[result.scenario])]
        target = Target("value", 0)
        words = f"scenarios in which {peer} is ahead"
        figures.append(Figure(what=words, ours=float(len(ahead)), unit=f"of {len(theirs)}", target=target))
        goodput, waste = report.median_scores(theirs)
        where = f"; ahead in {', '.join(ahead)}" if ahead else ""
        words = CONTENDERS[peer].words
        notes.append(f"{peer} ({words}): median {goodput:.1f} % at {report.number(waste)} % waste{where}")
    title = "more goodput at equal or less waste than flyball, final table"
    return Section("peers", title, tuple(figures), tuple(notes))


def _is_ahead(theirs: ScenarioResult, ours: ScenarioResult) -> bool:
    goal = EVERY_SCENARIO[ours.scenario].goal
    frugal = theirs.judged_waste_pct(goal) <= ours.judged_waste_pct(goal) + ALIKE
    return frugal and theirs.goodput_pct > ours.goodput_pct + ALIKE


# -- speed ------------------------------------------------------------------------------------------


def speed_section(sizes: Sizes, progress: Progress) -> Section:
    seeds = (*sizes.tuning_seeds, *sizes.final_seeds)
    figures = []
    for name in COLD:
        progress(f"control, speed: cold start, {name}")
        took = [cold_start_holds(name, seed) for seed in seeds]
        figures.append(_speed(f"cold start to {COLD_START_PART:.0%}, {name}", took, COLD_START_HOLDS))
    for name in OUTAGES:
        progress(f"control, speed: recovery, {name}")
        took = [holds for seed in seeds for holds in recoveries_holds(name, seed, sizes)]
        figures.append(_speed(f"back to {RECOVERY_PART:.0%} after an outage, {name}", took, RECOVERY_HOLDS))
    notes = (f"the slowest of {len(seeds)} seeds and all their outages; a hold is the mean time of a call",)
    return Section("speed", "how soon the capacity is used, in hold times", tuple(figures), notes)


def _speed(what: str, took: Sequence[float], most: float) -> Figure:
    return Figure(what=what, ours=max(took, default=0.0), unit="holds", target=Target("value", most))


def cold_start_holds(name: str, seed: int) -> float:
    """From nothing until 95 % of the capacity is in service."""
    whole = EVERY_SCENARIO[name]
    scenario = replace(whole, horizon_s=30 * whole.hold_s)
    moments = play(scenario, DEFAULT, seed, moments=3000).moments
    return _reached(moments, 0.0, COLD_START_PART * at(curve(scenario, seed), 0.0)) / whole.hold_s


def recoveries_holds(name: str, seed: int, sizes: Sizes) -> list[float]:
    """For each outage: from its end until 90 % of the capacity is in service."""
    scenario = EVERY_SCENARIO[name].shorten(sizes.part)
    count = int(scenario.horizon_s / scenario.hold_s * sizes.moments_per_hold)
    moments = play(scenario, DEFAULT, seed, moments=count).moments
    steps = curve(scenario, seed)
    ends = [(t_s, seats) for (_, before), (t_s, seats) in pairwise(steps) if not before]
    full = [(t_s, seats) for t_s, seats in ends if t_s + 10 * scenario.hold_s < scenario.horizon_s]
    return [_reached(moments, t_s, RECOVERY_PART * seats) / scenario.hold_s for t_s, seats in full]


def _reached(moments: Sequence[Moment], from_s: float, wanted: float) -> float:
    later = (m for m in moments if m.t_s >= from_s)
    return next((m.t_s - from_s for m in later if m.served >= wanted), moments[-1].t_s - from_s)


# -- keeping ----------------------------------------------------------------------------------------


def keep(file: Path, outcome: Outcome, described: dict[str, object]) -> None:
    """The record as JSON, and the tables as Markdown beside it."""
    sizes = outcome.sizes
    whole = as_record(list(outcome.sections), described)
    seeds = {"tuning": sizes.tuning_seeds, "final": sizes.final_seeds}
    for name, results in outcome.tables.items():
        whole[name] = report.record(results, seeds=seeds[name], part=sizes.part)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    file.with_suffix(".md").write_text(as_markdown(outcome), encoding="utf-8")


def draw_all(folder: Path, progress: Progress) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, (scenario, contenders) in PICTURES.items():
        progress(f"control, plots: {name}")
        drawn = draw(picture(EVERY_SCENARIO[scenario], contenders, TUNING_SEEDS[0]))
        (folder / f"{name}.svg").write_text(drawn, encoding="utf-8")


def as_markdown(outcome: Outcome) -> str:
    lines = [
        "# Control",
        "",
        "Written by `python -m bench control`; do not edit. Goodput in percent of an oracle that knows",
        "every limit / rejected attempts per 100 successes beyond the oracle's own (for agents: percent of",
        "slot time); behind it, where several processes share a provider, Jain's index. Simulated: the same",
        "on any machine.",
    ]
    for name, results in outcome.tables.items():
        lines += ["", f"## The {name} table", "", report.markdown(report.matrix(results))]
    for section in outcome.sections:
        cells = [list(COLUMNS), *(list(figure.cells()) for figure in section.figures)]
        lines += ["", f"## {section.name}: {section.title}", "", report.markdown(cells)]
        lines += ["", *(f"- {note}" for note in section.notes)] if section.notes else []
    return "\n".join(lines) + "\n"


def _words(seeds: Sequence[int]) -> str:
    return ", ".join(str(seed) for seed in seeds)
