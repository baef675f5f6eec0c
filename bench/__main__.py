"""``python -m bench [NAME...] [--quick] [--json FILE]``: run the benches, print the tables, keep the results.

A whole run writes bench/results/one-machine.json and .md, which the docs quote. A quick or partial run
writes nothing unless ``--json`` says where. Exits with 0 whether or not the targets are met: a figure is a
finding, not a failure.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

from bench import contention, handoff, machine, startup, store_cost
from bench.quote import quote
from bench.report import Progress, Section, as_markdown, as_record, as_text

BENCHES: Mapping[str, ModuleType] = {
    module.NAME: module for module in (store_cost, contention, handoff, startup)
}
RESULTS = Path(__file__).parent / "results" / "one-machine.json"


def main(argv: list[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    names = arguments.names or list(BENCHES)
    described = machine.describe()
    sections = []
    for name in names:
        section = run_bench(name, quick=arguments.quick, progress=_progress())
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")
        print(as_text(section), end="\n\n", flush=True)
        sections.append(section)
    whole = not arguments.quick and set(names) == set(BENCHES)
    file = arguments.json or (RESULTS if whole else None)
    if file is not None:
        keep(file, sections, described)
    if file == RESULTS:
        quote(RESULTS)
    print(_summary(sections))
    return 0


def run_bench(name: str, *, quick: bool, progress: Progress) -> Section:
    bench = BENCHES[name]
    run: Callable[[object, Progress], Section] = bench.run
    return run(bench.QUICK if quick else bench.FULL, progress)


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
    if name not in BENCHES:
        raise argparse.ArgumentTypeError(f"there is no bench {name!r}; there are {', '.join(BENCHES)}")
    return name


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure flyball beside its peers.")
    parser.add_argument("names", nargs="*", type=_bench_name, metavar="NAME", help=", ".join(BENCHES))
    parser.add_argument("--quick", action="store_true", help="small sizes: does it run, not how fast is it")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the results here, and a .md beside it"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
