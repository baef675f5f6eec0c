"""``flyball simulate``: which settings suit a provider, tried in simulated time. Touches no state.

What a simulation came to, for people. Values in, blocks out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

from flyball.cli.ui.pool_settings import add_flag, named_changes
from flyball.cli.ui.progress import ProgressLine
from flyball.cli.ui.render import (
    BLANK,
    Block,
    Column,
    Line,
    Piece,
    Style,
    Table,
    Words,
    print_json,
    say,
    show,
)
from flyball.cli.ui.units import whole
from flyball.core.pool.setting_table import SETTINGS, resolve_pool
from flyball.core.pool.settings import PoolChanges
from flyball.core.suggestions import did_you_mean
from flyball.errors import UsageError
from flyball.sim.simulator.compare import ScenarioResult, compare, cores
from flyball.sim.simulator.controllers import CONTENDERS, DEFAULT
from flyball.sim.simulator.held_out import EVERY_SCENARIO, HELD_OUT
from flyball.sim.simulator.plot import draw, picture
from flyball.sim.simulator.report import PRICE, advice, number, record, rows, settings_words
from flyball.sim.simulator.scenario import SCENARIOS, Goal, Scenario

LEGEND = (
    "goodput: of what an oracle gets that knows the limits; rejected: attempts per 100 served, beyond the "
    "oracle's; slot time: spent on being rejected"
)


def listing() -> list[Block]:
    """Every scenario, and all controllers that can be compared."""
    blocks: list[Block] = [Line("scenarios", label="")]
    blocks += [_scenarios(SCENARIOS.values()), BLANK, Line("held out: no settings were tuned on these")]
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


def results_table(found: Sequence[ScenarioResult], changes: PoolChanges) -> list[Block]:
    """A row per scenario and controller, with what is good there."""
    columns = [Column("SCENARIO"), Column("CONTROLLER"), Column("GOODPUT", right=True)]
    columns += [Column("REJECTED", right=True), Column("SLOT TIME", right=True), Column("GOAL", wraps=True)]
    lines = [_result_row(result) for result in found]
    blocks: list[Block] = [Table(columns, lines), BLANK, Line(LEGEND)]
    if changes:
        blocks.append(Line(settings_words(changes) or "as named", label="settings"))
    if len(found) == 1:
        name = found[0].scenario
        blocks.append(Line(f"flyball simulate {name} --compare       beside all the others", label="next"))
        blocks.append(Line(f"flyball simulate {name} --plot {name}.svg    as a picture", label=" "))
    return blocks


def _result_row(result: ScenarioResult) -> Sequence[Words]:
    goal = EVERY_SCENARIO[result.scenario].goal
    return [
        result.scenario,
        result.contender,
        f"{result.goodput_pct:.2f} %",
        number(result.waste_pct),
        f"{number(result.slot_waste_pct)} %",
        _verdict(result, goal),
    ]


def _verdict(result: ScenarioResult, goal: Goal | None) -> Words:
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


def comparison_table(found: Sequence[ScenarioResult], changes: PoolChanges) -> list[Block]:
    """One table per scenario, best first, and which settings to choose."""
    by_scenario: dict[str, list[ScenarioResult]] = {}
    for result in found:
        by_scenario.setdefault(result.scenario, []).append(result)
    blocks: list[Block] = []
    for name, group in by_scenario.items():
        blocks += [*_comparison(EVERY_SCENARIO[name], group, changes), BLANK]
    chosen = _same_choice(by_scenario)
    return [*blocks, Line(LEGEND), *([Line(chosen, label="in all")] if chosen else [])]


def _comparison(scenario: Scenario, group: Sequence[ScenarioResult], changes: PoolChanges) -> Iterator[Block]:
    yield Line([Piece(scenario.name, Style.STRONG), f"  {scenario.words}"])
    kind = "% of slot time" if scenario.goal and scenario.goal.slot_waste is not None else "rejected in 100"
    order = f"by goodput, less {PRICE:g} points for each {kind}"
    yield Line(Piece(order, Style.QUIET), indent=2)
    several = scenario.clients > 1
    columns = [Column("CONTROLLER"), Column("GOODPUT", right=True), Column("REJECTED", right=True)]
    columns += [Column("SLOT TIME", right=True), *([Column("FAIR", right=True)] * several)]
    lines: list[Sequence[Words]] = [
        [
            row.contender,
            row.goodput,
            row.rejected,
            row.slot_time,
            *([row.fairness] * several),
            Piece(row.words, Style.QUIET),
        ]
        for row in rows(group, scenario.goal)
    ]
    yield Table([*columns, Column("", wraps=True)], lines)
    for n, sentence in enumerate(advice(scenario, group, changes)):
        yield Line(sentence, label="choose" if n == 0 else " ")


def _same_choice(by_scenario: Mapping[str, Sequence[ScenarioResult]]) -> str:
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


SUMMARY = """Run controllers against providers with hidden limits, in simulated time. All of them get the same
seeded work; goodput is counted against an oracle that knows the limits. Changes nothing."""
EXAMPLE = """flyball simulate --list
flyball simulate constant outages
flyball simulate step --compare
flyball simulate step --profile calls --ceiling 24 --plot step.svg
flyball simulate neighbour --controller measured --controller netflix-aimd --json"""

ORDINARY = ("constant", "step", "neighbour", "bucket-headers", "bucket-bare", "agents-step", "outages")
"""What is compared where no scenario is named."""
MOST_LINES = 4
"""A plot with more of them cannot be read."""
_SETTINGS = ("profile", "cap", "cap_floor", "cap_ceiling", "settle_s", "probe_s", "spacing_s")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "scenarios", nargs="*", metavar="SCENARIO", help="see --list (default: all but the held-out ones)"
    )
    parser.add_argument("--list", action="store_true", help="show the scenarios and who can be compared")
    parser.add_argument(
        "--controller",
        dest="contenders",
        action="append",
        metavar="NAME",
        help=f"who decides; repeatable (default {DEFAULT})",
    )
    parser.add_argument(
        "--compare", action="store_true", help="every controller and every peer, and which settings to choose"
    )
    pool = parser.add_argument_group("settings of the pool, where they differ from the scenario's own")
    for name in _SETTINGS:
        add_flag(pool, SETTINGS[name])
    running = parser.add_argument_group("running")
    running.add_argument(
        "--seed", dest="seeds", type=whole, action="append", metavar="N", help="repeatable (default 1)"
    )
    running.add_argument(
        "--part", type=float, default=1.0, metavar="0.25", help="only this part of the simulated time"
    )
    running.add_argument(
        "--processes", type=whole, default=cores(), metavar="N", help="use N at once (all cores)"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="draw one scenario")
    parser.add_argument("--json", action="store_true", help="the whole record as JSON")


def run(args: argparse.Namespace) -> int:
    if args.list:
        if args.json:
            print_json(listing_record())
        else:
            show(listing())
        return 0
    names = _check_names("scenario", args.scenarios, EVERY_SCENARIO)
    chosen = _check_names("controller", args.contenders or [DEFAULT], CONTENDERS)
    changes = named_changes(args)
    if not 0 < args.part <= 1:
        raise UsageError(f"--part must be above 0 and at most 1, not {args.part:g}")
    scenarios = names or list(ORDINARY if args.compare else SCENARIOS)
    for name in scenarios:
        resolve_pool(cast(PoolChanges, {**EVERY_SCENARIO[name].pool, **changes}))
    seeds = args.seeds or [1]
    if args.plot is not None:
        _plot(args.plot, scenarios, chosen, seeds[0], changes, args.part)
        if not args.compare:
            say(f"{args.plot}: {scenarios[0]} under {', '.join(chosen)}")
            return 0
    progress = ProgressLine(sys.stderr)
    try:
        results = compare(
            scenarios,
            list(CONTENDERS) if args.compare else chosen,
            seeds,
            part=args.part,
            changes=changes,
            processes=args.processes,
            report=progress.tell,
        )
    finally:
        progress.clear()
    if args.json:
        print_json(record(results, seeds=seeds, part=args.part))
    else:
        show(comparison_table(results, changes) if args.compare else results_table(results, changes))
    return 0


def _check_names(what: str, names: Sequence[str], known: Iterable[str]) -> list[str]:
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known) or "flyball simulate --list shows them"
            raise UsageError(f"there is no {what} {name!r}; {hint}")
    return list(dict.fromkeys(names))


def _plot(
    file: Path, scenarios: Sequence[str], chosen: Sequence[str], seed: int, changes: PoolChanges, part: float
) -> None:
    if file.suffix.lower() != ".svg":
        raise UsageError(f"plots are written as SVG: name the file {file.with_suffix('.svg')}")
    if len(scenarios) != 1:
        raise UsageError("a plot shows one scenario; for example: flyball simulate step --plot step.svg")
    if len(chosen) > MOST_LINES:
        raise UsageError(f"a plot shows at most {MOST_LINES} controllers")
    if not file.parent.is_dir():
        raise UsageError(f"cannot write {file}: there is no folder {file.parent}")
    scenario = EVERY_SCENARIO[scenarios[0]].shorten(part)
    try:
        file.write_text(draw(picture(scenario, chosen, seed, changes=changes)), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}") from error
