"""``flyball metrics``: what the factory's work came to, from its ledger. Looks, never touches."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from flyball.cli.ui.render import BLANK, Block, Column, Line, Piece, Style, Table, Words, print_json, show
from flyball.cli.ui.units import counted, duration
from flyball.core.budget.estimate import EstimateScore, score
from flyball.core.pool.verdict import span_words
from flyball.core.tasks.statistics import Measures, SpendTotals, build_run_totals, measure
from flyball.factory.budget.ledger_usage import Lessons
from flyball.factory.project_view import open_ledger, open_project_at

SUMMARY = """Summarise the project's results: merged changes per hour, tokens and cost per merged change
and on work that never merged, what tasks waited for, all by model, and how good the estimates were. Changes
nothing."""
EXAMPLE = """flyball metrics
flyball metrics --since 7d --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--since", type=duration, metavar="AGE", help="only what ended within this time, such as 12h or 7d"
    )
    parser.add_argument("--json", action="store_true", help="everything as JSON")


def run(args: argparse.Namespace) -> int:
    project, now = open_project_at(Path.cwd()), time.time()
    lessons = Lessons()
    with open_ledger(project.state) as ledger:
        runs = build_run_totals(ledger.entries()) if ledger is not None else []
        if ledger is not None:
            lessons.learn(ledger)
    estimates = {"cost_usd": score(lessons.costs), "duration_s": score(lessons.durations)}
    found = measure(runs, now=now, since=now - args.since if args.since is not None else None)
    if args.json:
        print_json({**asdict(found), "estimates": estimates})
    else:
        show(screen(project.config.project.id, found))
        show(_estimates(estimates))
    return 0


def _estimates(scores: Mapping[str, EstimateScore]) -> Iterator[Block]:
    """How good the estimates were that launches were admitted by."""
    names = {"cost_usd": "cost", "duration_s": "duration"}
    rows: list[list[Words]] = []
    for name, each in scores.items():
        if each.within_p90 is not None and each.median_error is not None:
            off = f"{each.median_error:.0%}" if each.median_error < 10 else "more than 10 times"
            rows.append([names[name], str(each.count), f"{each.within_p90:.0%}", off])
    if rows:
        columns = [Column("ESTIMATE OF"), Column("LAUNCHES"), Column("BELOW P90"), Column("P50 OFF BY")]
        yield BLANK
        yield Table(columns, rows, indent=0)


def screen(name: str, found: Measures) -> Iterator[Block]:
    over = f"{found.merged} merged, {found.blocked} blocked, {found.parked} waiting for a person"
    when = f" in the last {span_words(found.until - found.since)}" if found.since is not None else ""
    yield Line([Piece(name, Style.STRONG), f"  {over}, {found.under_way} under way{when}"])
    if not found.merged and not found.models:
        yield Line("No agent has worked here yet; flyball run starts some.")
        return
    yield Line(_pace(found), label="pace")
    each = "nothing merged"
    if found.spend_per_merged:
        each = f"{_spend(found.spend_per_merged)} per merged change"
    wasted = f"{_spend(found.wasted)} on work that never merged"
    yield Line(f"{each}; {wasted}; {_spend(found.spend)} in all", label="cost")
    if found.waits:
        yield BLANK
        yield _waits(found)
    if found.models:
        yield BLANK
        yield _models(found)


def _pace(found: Measures) -> str:
    each = f", half of them within {span_words(found.median_to_merge_s)}" if found.median_to_merge_s else ""
    if found.over_s < 3600:
        # What a few minutes would come to in an hour is nothing to count on.
        return f"{found.merged} merged in {span_words(found.over_s)}{each}"
    per_hour = found.merged_per_hour
    return f"{per_hour:{',.0f' if per_hour >= 10 else '.2g'}} merged per hour{each}"


def _spend(spend: SpendTotals) -> str:
    if spend.usd is None:
        dollars = "unknown cost"
    else:
        usd = f"${spend.usd:.2f}" if spend.usd >= 0.01 or not spend.usd else f"${spend.usd:.2g}"
        dollars = f"at least {usd}" if spend.unpriced else usd
    return f"{dollars} ({counted(spend.tokens, 'token')})"


def _waits(found: Measures) -> Table:
    total = sum(found.waits.values())
    rows: list[list[Words]] = []
    for what, seconds in found.waits.items():
        # Short ones differ by less than the seconds that words of time are made of.
        time_ = span_words(seconds) if seconds >= 10 else f"{seconds:.1f} s"
        rows.append([what, time_, f"{seconds / total:.0%}"])
    return Table([Column("TIME WENT TO"), Column("IN ALL"), Column("PART")], rows, indent=0)


def _models(found: Measures) -> Table:
    rows: list[list[Words]] = [
        [name, str(each.launches), str(each.merged), _spend(each.spend), _spend(each.wasted)]
        for name, each in found.models.items()
    ]
    columns = [Column("MODEL"), Column("LAUNCHES"), Column("MERGED"), Column("SPENT"), Column("NEVER MERGED")]
    return Table(columns, rows, indent=0)
