"""What a simulation came to, for people. Values in, blocks out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from flyball.cli.render import BLANK, Block, Column, Line, Piece, Style, Table, Words
from flyball.core.settings import PoolChanges
from flyball.sim.compare import Result
from flyball.sim.contenders import CONTENDERS
from flyball.sim.held_out import EVERY_SCENARIO, HELD_OUT
from flyball.sim.report import PRICE, Row, advice, number, rows, settings_words
from flyball.sim.scenario import SCENARIOS, Goal, Scenario

LEGEND = (
    "goodput: of what an oracle gets that knows the limits; rejected: attempts per 100 served, beyond the "
    "oracle's; slot time: spent on being rejected"
)


def listing() -> list[Block]:
    """Every scenario, and everyone who can be compared."""
    blocks: list[Block] = [Line("scenarios", label="")]
    blocks += [_scenarios(SCENARIOS.values()), BLANK, Line("held out: nobody tunes on these")]
    blocks += [_scenarios(HELD_OUT.values()), BLANK, Line("controllers, and what others do")]
    people = [[name, contender.words] for name, contender in CONTENDERS.items()]
    return [*blocks, Table([Column("NAME"), Column("WHAT", wraps=True)], people)]


def listing_record() -> dict[str, object]:
    """The same for programs."""
    return {
        "scenarios": [
            {"name": one.name, "class": one.kind.value, "what": one.words, "held_out": one.name in HELD_OUT}
            for one in (*SCENARIOS.values(), *HELD_OUT.values())
        ],
        "contenders": [{"name": name, "what": one.words} for name, one in CONTENDERS.items()],
    }


def _scenarios(scenarios: Iterable[Scenario]) -> Table:
    columns = [Column("NAME"), Column("CLASS"), Column("WHAT", wraps=True)]
    return Table(columns, [[one.name, one.kind.value, one.words] for one in scenarios])


def results(found: Sequence[Result], changes: PoolChanges) -> list[Block]:
    """A row per scenario and controller, with what is good there."""
    columns = [Column("SCENARIO"), Column("CONTROLLER"), Column("GOODPUT", right=True)]
    columns += [Column("REJECTED", right=True), Column("SLOT TIME", right=True), Column("GOAL", wraps=True)]
    lines = [_result_row(result) for result in found]
    blocks: list[Block] = [Table(columns, lines), BLANK, Line(LEGEND)]
    if changes:
        blocks.append(Line(settings_words(changes) or "as named", label="settings"))
    if len(found) == 1:
        name = found[0].scenario
        blocks.append(Line(f"flyball simulate {name} --compare       beside everybody else", label="next"))
        blocks.append(Line(f"flyball simulate {name} --plot {name}.svg    as a picture", label=" "))
    return blocks


def _result_row(result: Result) -> Sequence[Words]:
    goal = EVERY_SCENARIO[result.scenario].goal
    return [
        result.scenario,
        result.contender,
        f"{result.goodput_pct:.2f} %",
        number(result.waste_pct),
        f"{number(result.slot_waste_pct)} %",
        _verdict(result, goal),
    ]


def _verdict(result: Result, goal: Goal | None) -> Words:
    if goal is None:
        return Piece("not judged", Style.QUIET)
    word = Piece("met", Style.GOOD) if result.meets(goal) else Piece("short", Style.WARN)
    return [word, Piece(f" ({goal_words(goal)})", Style.QUIET)]


def goal_words(goal: Goal) -> str:
    """``99 % / 0.5``."""
    parts = [f"at least {goal.goodput:g} %"]
    if goal.waste is not None:
        parts.append(f"at most {goal.waste:g} rejected")
    if goal.slot_waste is not None:
        parts.append(f"at most {goal.slot_waste:g} % of slot time")
    if goal.jain is not None:
        parts.append(f"fairness at least {goal.jain:g}")
    return ", ".join(parts)


def comparison(found: Sequence[Result], changes: PoolChanges) -> list[Block]:
    """One table per scenario, best first, and which settings to choose."""
    by_scenario: dict[str, list[Result]] = {}
    for result in found:
        by_scenario.setdefault(result.scenario, []).append(result)
    blocks: list[Block] = []
    for name, group in by_scenario.items():
        blocks += [*_compared(EVERY_SCENARIO[name], group, changes), BLANK]
    chosen = _same_choice(by_scenario)
    return [*blocks, Line(LEGEND), *([Line(chosen, label="in all")] if chosen else [])]


def _compared(scenario: Scenario, group: Sequence[Result], changes: PoolChanges) -> Iterator[Block]:
    yield Line([Piece(scenario.name, Style.STRONG), f"  {scenario.words}"])
    kind = "% of slot time" if scenario.goal and scenario.goal.slot_waste is not None else "rejected in 100"
    order = f"by goodput, less {PRICE:g} points for each {kind}"
    yield Line(Piece(order, Style.QUIET), indent=2)
    several = scenario.clients > 1
    columns = [Column("CONTROLLER"), Column("GOODPUT", right=True), Column("REJECTED", right=True)]
    columns += [Column("SLOT TIME", right=True), *([Column("FAIR", right=True)] * several)]
    lines = [_compared_row(row, several=several) for row in rows(group, scenario.goal)]
    yield Table([*columns, Column("", wraps=True)], lines)
    for n, sentence in enumerate(advice(scenario, group, changes)):
        yield Line(sentence, label="choose" if n == 0 else " ")


def _compared_row(row: Row, *, several: bool) -> Sequence[Words]:
    fairness = [row.fairness] * several
    return [row.contender, row.goodput, row.rejected, row.slot_time, *fairness, Piece(row.words, Style.QUIET)]


def _same_choice(by_scenario: Mapping[str, Sequence[Result]]) -> str:
    """Which of ours comes first most often, and how often it does."""
    if len(by_scenario) < 2:
        return ""
    best: dict[str, int] = {}
    for name, group in by_scenario.items():
        ours = [row.contender for row in rows(group, EVERY_SCENARIO[name].goal)]
        first = next(contender for contender in ours if CONTENDERS[contender].ours)
        best[first] = best.get(first, 0) + 1
    chosen = max(best, key=lambda contender: best[contender])
    return f"{chosen!r} is the best of flyball's own in {best[chosen]} of {len(by_scenario)} scenarios"
