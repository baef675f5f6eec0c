"""``flyball demo``: the same calls twice against a provider that answers 429, without and with the governor.

Real processes, a real HTTP port on the loopback, and the governor's state in a temporary folder: nothing of
the user's own is read or written, and nothing is left behind, however it ends (``--here``:
cli/shared/demo.py). Real calls take several seconds; these take less than one, and the pool's times are
shortened by the same factor, so that half a minute shows what otherwise takes several.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import NoReturn

from flyball.cli.shared import demo as screen
from flyball.cli.ui.render import BLANK, Block, Line, allow_any_name, print_json, show
from flyball.cli.ui.units import duration, whole
from flyball.core.pool.setting_table import resolve_pool
from flyball.core.pool.settings import PoolChanges
from flyball.errors import UsageError
from flyball.sim.demo.score import Standing, TrialScore, score
from flyball.sim.demo.trial_run import Setup, TrialRun
from flyball.sim.demo.worker import Team, Workload
from flyball.sim.provider.capacity import Capacity
from flyball.sim.provider.server import USUAL

SUMMARY = "Watch many processes share one provider that answers 429, without and with the governor."
EXAMPLE = """flyball demo
flyball demo --here
flyball demo --factory
flyball demo --quick --json"""

SECONDS = 34.0
QUICK_SECONDS = 14.0
SHORTEST_S, LONGEST_S = 2.0, 600.0

TEAMS = (Team("shop", 8), Team("blog", 5), Team("docs", 3))
"""Unequal on purpose: without a governor the project that runs more processes gets more."""
CAPACITY_HIGH, CAPACITY_LOW = 6, 3
SPEEDUP = 8.0
"""Calls of 0.3 to 1.2 s stand for calls of some six seconds."""
EXPECTED_USE = 0.75
"""The part of the capacity that is really used; sizes the workload only."""
FRAME_S = 0.125
LINE_EVERY_S = 2.0

Watch = Callable[[Standing], None]
Watcher = Callable[[TrialScore | None], Watch]
"""Makes the watch for a trial from the score of the one before it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    length = parser.add_mutually_exclusive_group()
    length.add_argument(
        "--seconds",
        type=duration,
        default=SECONDS,
        metavar="TIME",
        help=f"about how long both runs take together (default {SECONDS:g}s)",
    )
    length.add_argument("--quick", action="store_true", help=f"the same as --seconds {QUICK_SECONDS:g}")
    parser.add_argument("--seed", type=whole, default=1, help="which calls to make (default 1)")
    parser.add_argument(
        "--agent", action="store_true", help="be the scripted agent: do what the prompt on stdin says"
    )
    parser.add_argument(
        "--here",
        action="store_true",
        help="only the run with the governor, in your own state (pool demo): flyball serve shows it live",
    )
    parser.add_argument("--factory", action="store_true", help="show tasks becoming merged code instead")
    parser.add_argument("--json", action="store_true", help="only the result, with every sample, as JSON")


def run(args: argparse.Namespace) -> int:
    if args.agent:
        from flyball.sim.demo import scripted_agent

        return scripted_agent.main()
    if args.factory:
        from flyball.cli.shared import demo_factory

        return demo_factory.run(as_json=args.json)
    seconds = QUICK_SECONDS if args.quick else args.seconds
    try:
        with stopped_once():
            if args.here:
                from flyball.cli.shared import demo

                setup = replace(plan(seconds, seed=args.seed, runs=1), pool=demo.POOL)
                demo.run(setup, as_json=args.json, result=_trial_result)
            else:
                _show(plan(seconds, seed=args.seed), as_json=args.json)
    except KeyboardInterrupt:
        print("flyball: stopped; no process and no file is left behind", file=sys.stderr)
        return 128 + signal.SIGINT
    return 0


def _show(setup: Setup, *, as_json: bool) -> None:
    if as_json:
        print_json(_result(setup, *_compare(setup, lambda _: lambda _: None)))
    elif sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown"):
        _on_terminal(setup)
    else:
        show([*screen.intro(setup), BLANK])
        sys.stdout.flush()
        trials = _compare(setup, _line_writer)
        show([BLANK, *_card(setup, *trials)])


def plan(seconds: float, *, seed: int, runs: int = 2) -> Setup:
    """A workload and a provider whose runs take about that long together."""
    if not SHORTEST_S <= seconds <= LONGEST_S:
        raise UsageError(f"--seconds must be between {SHORTEST_S:g} and {LONGEST_S:g}, not {seconds:g}")
    heat_s = seconds / runs
    capacity = Capacity(((0.0, CAPACITY_HIGH), (heat_s / 3, CAPACITY_LOW), (heat_s * 2 / 3, CAPACITY_HIGH)))
    workload = Workload(teams=TEAMS, calls_each=1, seed=seed)
    call_s = (workload.tokens_low + workload.tokens_high) / 2 / USUAL.tokens_per_s
    seats = (2 * CAPACITY_HIGH + CAPACITY_LOW) / 3
    calls_each = max(1, round(heat_s * seats * EXPECTED_USE / call_s / len(TEAMS)))
    return Setup(
        workload=Workload(teams=TEAMS, calls_each=calls_each, seed=seed),
        capacity=capacity,
        settings=faster_settings(SPEEDUP),
        limit_s=20 + 4 * heat_s,
    )


def faster_settings(speedup: float) -> PoolChanges:
    """The ``calls`` profile for a world that runs faster by that factor."""
    usual = resolve_pool(PoolChanges(profile="calls"))
    return PoolChanges(
        profile="calls",
        settle_s=usual.settle_s / speedup,
        probe_s=usual.probe_s / speedup,
        burst_window_s=usual.burst_window_s / speedup,
        trip_window_s=usual.trip_window_s / speedup,
        break_s=usual.break_s / speedup,
        break_max_s=usual.break_max_s / speedup,
    )


# -- running both ---------------------------------------------------------------------------------


def _compare(setup: Setup, watcher: Watcher) -> tuple[TrialRun, TrialRun]:
    without = _run_trial(setup, watcher(None), governed=False)
    return without, _run_trial(setup, watcher(score(without.record)), governed=True)


def _run_trial(setup: Setup, watch: Watch, *, governed: bool) -> TrialRun:
    with (
        tempfile.TemporaryDirectory(prefix="flyball-demo-", ignore_cleanup_errors=True) as folder,
        TrialRun(setup, governed=governed, folder=Path(folder)) as trial,
    ):
        while not trial.over:
            trial.step(FRAME_S)
            watch(trial.standing())
    return trial


@contextmanager
def stopped_once() -> Iterator[None]:
    """The first Ctrl-C, TERM or HUP ends the demo; further ones do not disturb the clearing up."""
    watched = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in watched}

    def stop(number: int, _: FrameType | None) -> NoReturn:
        for each in watched:
            signal.signal(each, signal.SIG_IGN)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)

    try:
        for number in watched:
            signal.signal(number, stop)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# -- showing --------------------------------------------------------------------------------------


def _line_writer(_: TrialScore | None) -> Watch:
    """One line now and then, for a pipe or a file."""
    next_line_s = 0.0

    def watch(standing: Standing) -> None:
        nonlocal next_line_s
        if standing.t_s >= next_line_s:
            next_line_s += LINE_EVERY_S
            print(screen.progress(standing), flush=True)

    return watch


def _on_terminal(setup: Setup) -> None:
    from rich.live import Live

    from flyball.cli.ui.render import console, renderable

    allow_any_name(sys.stdout)
    glyphs = screen.glyphs_for(sys.stdout.encoding)
    show([*screen.intro(setup), BLANK])
    with Live(console=console(sys.stdout), auto_refresh=False, transient=True) as live:

        def painter(before: TrialScore | None) -> Watch:
            def watch(standing: Standing) -> None:
                width = live.console.width
                blocks = screen.frame(standing, before, glyphs=glyphs, width=width)
                live.update(renderable(blocks, width=width), refresh=True)

            return watch

        trials = _compare(setup, painter)
    show(_card(setup, *trials))


def _card(setup: Setup, without: TrialRun, governed: TrialRun) -> list[Block]:
    settings = resolve_pool(setup.settings)
    note = (
        f"Time runs {SPEEDUP:g}x faster here: settle {settings.settle_s:g} s, "
        f"break {settings.break_s:g} s, retry-after {setup.manner.retry_after_s:g} s."
    )
    blocks = screen.card(
        score(without.record),
        score(governed.record),
        (without.record.samples, governed.record.samples),
        note=note,
    )
    return [
        *blocks,
        BLANK,
        Line('flyball exec -- claude -p "fix the tests"   the same for any agent', label="next"),
        Line("flyball status --watch                      who runs, who waits, why", label=" "),
        Line("flyball pool set anthropic --profile calls  the profile used here", label=" "),
    ]


def _result(setup: Setup, without: TrialRun, governed: TrialRun) -> dict[str, object]:
    return {
        "tag": "measured",
        "seed": setup.workload.seed,
        "projects": {team.project: {"processes": team.workers} for team in setup.workload.teams},
        "calls_each": setup.workload.calls_each,
        "capacity": setup.capacity.steps,
        "speedup": SPEEDUP,
        "pool": setup.settings,
        "without": _trial_result(without),
        "with": {**_trial_result(governed), "facts": governed.story},
    }


def _trial_result(trial: TrialRun) -> dict[str, object]:
    return {
        "score": score(trial.record),
        "throttles_by_project": trial.record.throttles,
        "seconds": trial.record.tally.as_json()["seconds"],
        "samples": trial.record.samples,
    }
