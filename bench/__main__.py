"""``python -m bench [NAME...] [--quick] [--json FILE]``: run the benches, print the tables, keep the results.

A whole run writes bench/results/one-machine.json and .md, which the docs quote; ``limiter`` writes a result
file of its own whenever it runs in full. A quick or partial run writes nothing else unless ``--json`` says
where, nor does a bench that could measure nothing. Exits with 0 whether or not the targets are met: a figure
is a finding, not a failure.

The suite ``control`` runs only where it is named, and alone: a whole run of it takes some ten minutes and
writes bench/results/control.json and .md, and docs/plots.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

from bench import (
    agents,
    choosing,
    classify,
    contention,
    control,
    factory,
    fleet_figures,
    gateway,
    handoff,
    landing,
    limiter,
    machine,
    postgres,
    service,
    startup,
    steps,
    store_cost,
    stray,
    workspaces,
)
from bench.quote import README, RUNBOOK, quote, runbook, table
from bench.report import Progress, Section, as_markdown, as_record, as_text
from flyball.sim.simulator.report import matrix
from flyball.sim.simulator.report import text as as_table

BENCHES: Mapping[str, ModuleType] = {
    module.NAME: module
    for module in (
        store_cost,
        contention,
        handoff,
        startup,
        classify,
        limiter,
        choosing,
        factory,
        landing,
        fleet_figures,
        gateway,
        postgres,
        service,
        stray,
        steps,
        agents,
        workspaces,
    )
}
RESULTS = Path(__file__).parent / "results" / "one-machine.json"
OWN_RESULTS: Mapping[str, Path] = {
    name: RESULTS.with_name(f"{name}.json")
    for name in (
        limiter.NAME,
        choosing.NAME,
        factory.NAME,
        landing.NAME,
        fleet_figures.NAME,
        gateway.NAME,
        postgres.NAME,
        service.NAME,
        startup.NAME,
        stray.NAME,
        workspaces.NAME,
        steps.NAME,
        agents.NAME,
    )
}
"""Benches that say nothing about processes sharing a machine keep their figures apart."""


def main(argv: list[str] | None = None) -> int:
    parser = _parser()
    arguments = parser.parse_args(argv)
    if control.NAME in arguments.names:
        if len(arguments.names) > 1:
            parser.error(f"{control.NAME} runs alone")
        return run_control(quick=arguments.quick, file=arguments.json)
    names = arguments.names or list(BENCHES)
    described = machine.describe()
    sections = []
    for name in names:
        section = run_bench(name, quick=arguments.quick, progress=_progress())
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")
        print(as_text(section), end="\n\n", flush=True)
        sections.append(section)
    if arguments.json:
        keep(arguments.json, sections, described)
    elif not arguments.quick:
        _keep_each(sections, described)
    print(_summary(sections))
    return 0


def _keep_each(sections: list[Section], described: dict[str, object]) -> None:
    for section in sections:
        if section.name in OWN_RESULTS and section.figures:
            keep(OWN_RESULTS[section.name], [section], described)
        if section.name == service.NAME:
            quote([OWN_RESULTS[service.NAME]], RUNBOOK, runbook)
        if section.name == startup.NAME:
            quote([RESULTS, OWN_RESULTS[startup.NAME]], README, table)
    shared = [section for section in sections if section.name not in OWN_RESULTS]
    if {section.name for section in shared} == BENCHES.keys() - OWN_RESULTS.keys():
        keep(RESULTS, shared, described)
        quote([RESULTS, OWN_RESULTS[startup.NAME]], README, table)


def run_bench(name: str, *, quick: bool, progress: Progress) -> Section:
    bench = BENCHES[name]
    run: Callable[[object, Progress], Section] = bench.run
    return run(bench.QUICK if quick else bench.FULL, progress)


def run_control(*, quick: bool, file: Path | None) -> int:
    """A suite of its own: minutes of simulated hours, a table too wide for the others, and plots."""
    progress = _progress()
    outcome = control.run(control.QUICK if quick else control.FULL, progress)
    if not quick and file is None:
        file = control.RESULTS
        control.draw_all(control.PLOTS, progress)
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
    for name, results in outcome.tables.items():
        print(f"the {name} table\n{as_table(matrix(results))}", end="\n\n")
    for section in outcome.sections:
        print(as_text(section), end="\n\n")
    if file is not None:
        control.keep(file, outcome, machine.describe())
    print(_summary(list(outcome.sections)))
    return 0


def keep(file: Path, sections: list[Section], described: dict[str, object]) -> None:
    """The record as JSON, and the tables as Markdown beside it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(as_record(sections, described), indent=2) + "\n", encoding="utf-8")
    file.with_suffix(".md").write_text(as_markdown(sections, described), encoding="utf-8")


def _summary(sections: list[Section]) -> str:
    judged = [figure for section in sections for figure in section.figures if figure.met is not None]
    short = [figure.what for figure in judged if not figure.met]
    words = f"{len(judged) - len(short)} of {len(judged)} targets met"
    return f"{words}; short: {'; '.join(short)}" if short else words


def _progress() -> Progress:
    """One line on stderr that is written over; where it cannot be, only the first one."""
    over = sys.stderr.isatty()
    shown: list[str] = []

    def show(words: str) -> None:
        if over or not shown:
            sys.stderr.write(f"\r\x1b[K{words}" if over else f"{words}\n")
            sys.stderr.flush()
            shown.append(words)

    return show


def _bench_name(name: str) -> str:
    if name not in (*BENCHES, control.NAME):
        known = ", ".join((*BENCHES, control.NAME))
        raise argparse.ArgumentTypeError(f"there is no bench {name!r}; there are {known}")
    return name


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure flyball beside its peers.")
    known = f"{', '.join(BENCHES)} (default: these), or {control.NAME} alone"
    parser.add_argument("names", nargs="*", type=_bench_name, metavar="NAME", help=known)
    parser.add_argument("--quick", action="store_true", help="small sizes: does it run, not how fast is it")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the results here, and a .md beside it"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
