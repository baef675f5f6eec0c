"""``flyball simulate``: which settings suit a provider, tried in simulated time. Touches no state."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import cast

from flyball.cli import simulate_screen as screen
from flyball.cli.progress import Progress
from flyball.cli.render import print_json, say, show
from flyball.cli.units import duration, whole
from flyball.core.nearest import did_you_mean
from flyball.core.settings import PROFILES, PoolChanges, resolve_pool
from flyball.errors import UsageError
from flyball.sim.compare import compare, cores
from flyball.sim.contenders import CONTENDERS, DEFAULT
from flyball.sim.held_out import EVERY_SCENARIO
from flyball.sim.plot import draw, picture
from flyball.sim.report import record
from flyball.sim.scenario import SCENARIOS

SUMMARY = """Run controllers against providers with hidden limits, in simulated time. Everybody gets the same
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
    pool.add_argument("--profile", choices=list(PROFILES), help="a set of constants for this kind of work")
    pool.add_argument("--cap", type=whole, metavar="N", help="where the cap starts")
    pool.add_argument("--floor", dest="cap_floor", type=whole, metavar="N", help="never below")
    pool.add_argument("--ceiling", dest="cap_ceiling", type=whole, metavar="N", help="never above")
    pool.add_argument("--settle", dest="settle_s", type=duration, metavar="8s", help="freeze after a change")
    pool.add_argument(
        "--probe", dest="probe_s", type=duration, metavar="20s", help="quiet time before growing"
    )
    pool.add_argument("--spacing", dest="spacing_s", type=duration, metavar="3s", help="between two starts")
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
            print_json(screen.listing_record())
        else:
            show(screen.listing())
        return 0
    names = _known("scenario", args.scenarios, EVERY_SCENARIO)
    chosen = _known("controller", args.contenders or [DEFAULT], CONTENDERS)
    changes = _changes(args)
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
    progress = Progress(sys.stderr)
    try:
        results = compare(
            scenarios,
            list(CONTENDERS) if args.compare else chosen,
            seeds,
            part=args.part,
            changes=changes,
            processes=args.processes,
            told=progress.tell,
        )
    finally:
        progress.clear()
    if args.json:
        print_json(record(results, seeds=seeds, part=args.part))
    else:
        show(screen.comparison(results, changes) if args.compare else screen.results(results, changes))
    return 0


def _known(what: str, names: Sequence[str], known: Iterable[str]) -> list[str]:
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known) or "flyball simulate --list shows them"
            raise UsageError(f"there is no {what} {name!r}; {hint}")
    return list(dict.fromkeys(names))


def _changes(args: argparse.Namespace) -> PoolChanges:
    """What the command line names, and nothing else."""
    named = {key: value for key in _SETTINGS if (value := getattr(args, key)) is not None}
    return cast(PoolChanges, named)


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
    scenario = EVERY_SCENARIO[scenarios[0]].shortened(part)
    try:
        file.write_text(draw(picture(scenario, chosen, seed, changes=changes)), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}") from error
