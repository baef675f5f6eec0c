"""``flyball status``: what runs, what waits, why, and what to do next. Looks, never touches."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from flyball.cli.ui.pool_status import status_screen
from flyball.cli.ui.render import print_json, show
from flyball.cli.ui.units import duration, pool_name
from flyball.core.suggestions import did_you_mean
from flyball.errors import UsageError
from flyball.governor.governor import Governor
from flyball.governor.status import Status

SUMMARY = "Show every pool: its cap and why, who runs, who waits and for what. Changes nothing."
EXAMPLE = """flyball status
flyball status --watch anthropic"""

WATCH_S = 2.0
_SHORTEST_S = 0.1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "pools", nargs="*", type=pool_name, metavar="POOL", help="only these pools (default: all)"
    )
    parser.add_argument(
        "--watch",
        nargs="?",
        const="",
        metavar="SECONDS",
        help=f"show it again and again until Ctrl-C (every {WATCH_S:g} s)",
    )
    parser.add_argument("--json", action="store_true", help="the whole record as JSON")


def run(args: argparse.Namespace) -> int:
    pools = list(args.pools)
    if args.watch is None:
        status = _look(pools)
        if args.json:
            print_json(status)
        else:
            show(status_screen(status))
        return 0
    every_s = _interval(args.watch, pools)
    try:
        if sys.stdout.isatty() and not args.json:
            _watch_on_terminal(pools, every_s)
        else:
            _watch_as_text(pools, every_s, as_json=args.json)
    except KeyboardInterrupt:
        return 0
    return 0


def _interval(text: str, pools: list[str]) -> float:
    """``--watch anthropic`` names a pool: the interval may be left out."""
    try:
        interval_s = duration(text) if text else WATCH_S
        if interval_s < _SHORTEST_S:
            raise UsageError(f"--watch looks every {_SHORTEST_S:g} s at most, not every {text}")
        return interval_s
    except argparse.ArgumentTypeError:
        pools.insert(0, text)
        return WATCH_S


def _look(pools: Sequence[str]) -> Status:
    status = Governor().status()
    if not pools:
        return status
    known = [pool.name for pool in status.pools]
    for name in pools:
        if name not in known:
            hint = did_you_mean(name, known) or f"in use: {', '.join(known) or 'none yet'}"
            raise UsageError(f"there is no pool {name!r}; {hint}")
    return replace(status, pools=tuple(pool for pool in status.pools if pool.name in pools))


def _watch_as_text(pools: Sequence[str], every_s: float, *, as_json: bool) -> None:
    """For a pipe or a file: one JSON line, or one block of text and an empty line, each time."""
    while True:
        status = _look(pools)
        if as_json:
            print(msgspec.json.encode(status).decode(), flush=True)
        else:
            show(status_screen(status))
            print(flush=True)
        time.sleep(every_s)


def _watch_on_terminal(pools: Sequence[str], every_s: float) -> None:
    from rich.live import Live

    from flyball.cli.ui.render import allow_any_name, console, renderable

    allow_any_name(sys.stdout)
    terminal = console(sys.stdout)
    with Live(console=terminal, screen=True, auto_refresh=False) as live:
        while True:
            live.update(renderable(status_screen(_look(pools)), width=terminal.width), refresh=True)
            time.sleep(every_s)
