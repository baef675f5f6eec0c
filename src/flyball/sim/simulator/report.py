"""Results as tables for people, as Markdown for the docs, as a record for programs. Values in, text out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median

from flyball.core.pool.settings import PoolChanges
from flyball.sim.simulator.compare import ScenarioResult
from flyball.sim.simulator.controllers import CONTENDERS, DEFAULT, OURS
from flyball.sim.simulator.held_out import EVERY_SCENARIO
from flyball.sim.simulator.scenario import Goal, Scenario

PRICE = 5.0
"""Points of goodput that one rejected call in a hundred costs (for agents, one percent of slot time)."""


def number(value: float) -> str:
    """As many digits as say something.

    >>> [number(value) for value in (0.3125, 12.51, 618.8, 12345.6)]
    ['0.31', '12.5', '619', '12,346']
    """
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}" if abs(value) < 100 else f"{value:,.0f}"


def worth(result: ScenarioResult, goal: Goal | None) -> float:
    """Goodput, less what the waste costs: a rejected call is paid for with others that had to wait, and
    providers notice."""
    return result.goodput_pct - PRICE * result.judged_waste_pct(goal)


def ranking(results: Sequence[ScenarioResult], goal: Goal | None) -> list[ScenarioResult]:
    """The best first."""
    return sorted(results, key=lambda result: -worth(result, goal))


@dataclass(frozen=True, slots=True)
class ReportRow:
    """A contender in one scenario, in words."""

    contender: str
    goodput: str
    rejected: str
    slot_time: str
    fairness: str
    words: str


def rows(results: Sequence[ScenarioResult], goal: Goal | None) -> list[ReportRow]:
    return [
        ReportRow(
            result.contender,
            f"{result.goodput_pct:.2f} %",
            number(result.waste_pct),
            f"{number(result.slot_waste_pct)} %",
            f"{result.jain:.3f}",
            CONTENDERS[result.contender].words,
        )
        for result in ranking(results, goal)
    ]


def settings_words(pool: PoolChanges) -> str:
    """The flags of ``flyball pool set`` that say the same."""
    flags = {"profile": "--profile", "cap": "--cap", "cap_ceiling": "--ceiling", "spacing_s": "--spacing"}
    named: Mapping[str, object] = dict(pool)
    parts = []
    for key, flag in flags.items():
        value = named.get(key)
        if value is not None:
            parts.append(f"{flag} {f'{value:g}s' if isinstance(value, float) else value}")
    return " ".join(parts)


def advice(scenario: Scenario, results: Sequence[ScenarioResult], changes: PoolChanges) -> list[str]:
    """Which settings to choose here, and why, in sentences."""
    goal = scenario.goal
    order = ranking(results, goal)
    best = next((result for result in order if result.contender in OURS), None)
    if best is None:
        return []
    waste = best.judged_waste_pct(goal)
    sentences = [
        f"the controller {best.contender!r}: {best.goodput_pct:.1f} % of what an oracle gets here, "
        f"{_waste_words(waste, goal)}"
    ]
    more = [
        result
        for result in order
        if result.goodput_pct > best.goodput_pct + 0.05 and result.judged_waste_pct(goal) > waste
    ]
    if more:
        least = min(more, key=lambda result: result.judged_waste_pct(goal))
        gain = least.goodput_pct - best.goodput_pct
        price = _waste_words(least.judged_waste_pct(goal), goal)
        sentences.append(f"{least.contender!r} gets {gain:.1f} points more and pays for it: {price}")
    pool: PoolChanges = {**scenario.pool, **changes}
    chosen = f"--controller {best.contender} " if best.contender != DEFAULT else ""
    sentences.append(f"flyball pool set NAME {chosen}{settings_words(pool)}")
    return sentences


def _waste_words(waste_pct: float, goal: Goal | None) -> str:
    if goal is not None and goal.slot_waste is not None:
        return f"{number(waste_pct)} % of slot time wasted"
    return f"{number(waste_pct)} rejected per 100 served"


def record(
    results: Sequence[ScenarioResult], *, seeds: Sequence[int], part: float = 1.0
) -> dict[str, object]:
    """Everything, for programs."""
    return {
        "tag": "simulated",
        "seeds": list(seeds),
        "part_of_horizon": part,
        "results": [
            {
                "scenario": result.scenario,
                "class": EVERY_SCENARIO[result.scenario].kind.value,
                "contender": result.contender,
                "goodput_pct": result.goodput_pct,
                "goodput_least_pct": result.goodput_least_pct,
                "waste_pct": result.waste_pct,
                "slot_waste_pct": result.slot_waste_pct,
                "jain": result.jain,
                "by_seed": [asdict(score) for score in result.scores],
            }
            for result in results
        ],
    }


# -- the whole table --------------------------------------------------------------------------------


def cell(result: ScenarioResult) -> str:
    """``99.9 / 0.31``: goodput, and the waste that counts in this scenario."""
    waste = result.judged_waste_pct(EVERY_SCENARIO[result.scenario].goal)
    fairness = f" ({result.jain:.2f})" if EVERY_SCENARIO[result.scenario].clients > 1 else ""
    return f"{result.goodput_pct:.1f} / {number(waste)}{fairness}"


def matrix(results: Sequence[ScenarioResult]) -> list[list[str]]:
    """A row per scenario and one of medians, a column per contender; the first row has the names."""
    contenders = list(dict.fromkeys(result.contender for result in results))
    scenarios = list(dict.fromkeys(result.scenario for result in results))
    by_name = {(result.scenario, result.contender): result for result in results}
    table = [
        ["scenario", *contenders],
        *([scenario, *(cell(by_name[scenario, name]) for name in contenders)] for scenario in scenarios),
    ]
    medians = [median_scores([by_name[scenario, name] for scenario in scenarios]) for name in contenders]
    table.append(["median", *(f"{goodput:.1f} / {number(waste)}" for goodput, waste in medians)])
    return table


def median_scores(results: Sequence[ScenarioResult]) -> tuple[float, float]:
    """Goodput and waste over scenarios, of the waste that counts in each."""
    wastes = [result.judged_waste_pct(EVERY_SCENARIO[result.scenario].goal) for result in results]
    return median(result.goodput_pct for result in results), median(wastes)


def markdown(table: Sequence[Sequence[str]]) -> str:
    head, *body = table
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def text(table: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[n]) for row in table) for n in range(len(table[0]))]
    lines = ["  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)) for row in table]
    return "\n".join(line.rstrip() for line in lines)
