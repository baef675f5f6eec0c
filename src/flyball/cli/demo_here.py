"""``flyball demo --here``: the governed run alone, in the user's own state, for whoever watches.

The pool ``demo`` is set up for it and stays, with what it learned; no other pool is touched. Slots of
processes that are stopped half way are given back.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from flyball.cli import demo_screen as screen
from flyball.cli.render import BLANK, Block, Line, print_json, show
from flyball.errors import UsageError
from flyball.governor.governor import Governor
from flyball.governor.location import resolve
from flyball.sim.heat import Heat, Setup
from flyball.sim.score import score

POOL = "demo"
FRAME_S, LINE_EVERY_S = 0.125, 2.0


def run(setup: Setup, *, as_json: bool, result: Callable[[Heat], dict[str, object]]) -> None:
    address = resolve()
    if address == "memory:":
        raise UsageError("memory: is what one process keeps for itself; unset FLYBALL_URL to see --here")
    if not as_json:
        show([*screen.intro(setup), *_where(address), BLANK])
        sys.stdout.flush()
    heat = _run(setup, address, quiet=as_json)
    if as_json:
        print_json({"tag": "measured", "pool": setup.pool, "with": {**result(heat), "facts": heat.story}})
    else:
        show([BLANK, Line(screen.in_a_line(score(heat.record)), label="with"), *_next()])


def _run(setup: Setup, address: str, *, quiet: bool) -> Heat:
    next_line_s = 0.0
    with (
        tempfile.TemporaryDirectory(prefix="flyball-demo-", ignore_cleanup_errors=True) as folder,
        Heat(setup, governed=True, folder=Path(folder), address=address) as heat,
    ):
        while not heat.over:
            heat.step(FRAME_S)
            standing = heat.standing()
            if not quiet and standing.t_s >= next_line_s:
                next_line_s += LINE_EVERY_S
                print(screen.progress(standing), flush=True)
    return heat


def _where(address: str) -> list[Block]:
    return [
        Line(f"Governed by the pool {POOL} of {Governor(address).place}."),
        Line("flyball serve --open           shows it on a page, live", label="watch"),
        Line(f"flyball status {POOL} --watch    shows it here", label=" "),
    ]


def _next() -> list[Block]:
    return [Line(f"flyball status {POOL}   how it stands now; the pool stays as it is", label="next")]
