"""One process, one pool with free slots: what acquire+release costs through SQLite.

Beside the same statements bare: they are recorded from one real pair (recording.py) and run on a plain
connection to a copy of the file. The ratio is what flyball's lock, checks, records and flow add to the work
SQLite has to do anyway.

Ten thousand live leases beside ten: the ratio is what leases that merely exist cost. Counts that are kept
instead of counted leave it near 1.
"""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import flyball
from bench.homes import address, scratch
from bench.peers.doors import POOL
from bench.recording import Playback, Recording, Step, recorded
from bench.report import Figure, Progress, Section, Target, beside, percentile

NAME = "store-cost"
TITLE = "acquire+release through SQLite, one process, slots free"
_WARM_UP = 50


@dataclass(frozen=True, slots=True)
class Sizes:
    rounds: int = 15
    pairs: int = 300
    few: int = 10
    many: int = 10_000


FULL = Sizes()
QUICK = Sizes(rounds=5, pairs=100, many=2_000)


def run(sizes: Sizes, progress: Progress) -> Section:
    with scratch() as folder, ExitStack() as stack:
        progress(f"{NAME}: recording")
        bare, statements = _bare(folder / "recorded", folder / "bare.db")
        stack.callback(bare.close)
        progress(f"{NAME}: beside the same statements bare")
        few = _holding(folder / "few", sizes.few, stack)
        cost, floor = _in_turn(_pair_of(few), bare.pair, sizes, before=bare.again)
        progress(f"{NAME}: taking {sizes.many} leases")
        many = _holding(folder / "many", sizes.many, stack)
        progress(f"{NAME}: {sizes.many} live leases beside {sizes.few}")
        crowded, quiet = _in_turn(_pair_of(many), _pair_of(few), sizes)
    figures = (
        beside(
            "p50",
            _p50s(cost),
            _p50s(floor),
            unit="us",
            name=f"the same {statements} statements bare",
            target=Target("ratio", 2.5),
        ),
        Figure(
            what="p99",
            ours=_percentile_us(cost, 99),
            unit="us",
            beside="the same statements bare",
            theirs=_percentile_us(floor, 99),
        ),
        beside(
            f"p50 at {sizes.many:,} live leases",
            _p50s(crowded),
            _p50s(quiet),
            unit="us",
            name=f"at {sizes.few}",
            target=Target("ratio", 1.5),
        ),
    )
    return Section(NAME, TITLE, figures)


def _holding(home: Path, live: int, stack: ExitStack) -> flyball.Governor:
    """A governor with so many leases taken, and plenty of slots left."""
    governor = flyball.Governor(address(home))
    stack.callback(governor.close)
    governor.set_pool(POOL, cap=2 * live + 10, adaptive=False)
    for i in range(live):
        governor.acquire_nowait(POOL, project=f"project-{i % 10}", name=f"live-{i}")
    return governor


def _pair_of(governor: flyball.Governor) -> Callable[[], None]:
    def pair() -> None:
        governor.release(governor.acquire(POOL, project="project-1", name="bench"))

    return pair


# -- timing -----------------------------------------------------------------------------------------


def _in_turn(
    ours: Callable[[], None],
    theirs: Callable[[], None],
    sizes: Sizes,
    *,
    before: Callable[[], None] = lambda: None,
) -> tuple[list[list[float]], list[list[float]]]:
    """Seconds per pair, one list per round, the two sides taking turns; ``before`` each pair of theirs."""
    for _ in range(_WARM_UP):
        ours()
        before()
        theirs()
    rounds_of_ours, rounds_of_theirs = [], []
    for _ in range(sizes.rounds):
        rounds_of_ours.append([_timed(ours) for _ in range(sizes.pairs)])
        rounds_of_theirs.append([_timed(theirs, before) for _ in range(sizes.pairs)])
    return rounds_of_ours, rounds_of_theirs


def _timed(pair: Callable[[], None], before: Callable[[], None] = lambda: None) -> float:
    before()
    start = time.perf_counter()
    pair()
    return time.perf_counter() - start


def _p50s(rounds: list[list[float]]) -> list[float]:
    return [median(durations) * 1e6 for durations in rounds]


def _percentile_us(rounds: list[list[float]], percent: float) -> float:
    return percentile([duration for durations in rounds for duration in durations], percent) * 1e6


# -- the baseline -----------------------------------------------------------------------------------


def _bare(home: Path, copy: Path) -> tuple[Playback, int]:
    """The baseline over a copy of a real file, and how many statements a pair is."""
    with recorded() as recording, ExitStack() as stack:
        governor = _holding(home, FULL.few, stack)
        governor.acquire_nowait(POOL, project="project-1", name="bench").release()
        opening = recording.take()
        pairs = [_record_pair(governor, recording) for _ in range(9)]
    usual = Counter(tuple(step.sql for step in steps) for steps, _ in pairs).most_common(1)[0][0]
    steps, lease_id = next(pair for pair in pairs if tuple(step.sql for step in pair[0]) == usual)
    with sqlite3.connect(home / "governor.db") as source, sqlite3.connect(copy) as target:
        source.backup(target)
    target.execute("PRAGMA journal_mode = WAL")
    source.close()
    target.close()
    pragmas = [step.sql for step in opening if step.sql.startswith("PRAGMA") and "=" in step.sql]
    bare = Playback(recording, pragmas, f"file:{copy}", steps, lease_id)
    bare.check()
    return bare, len(steps)


def _record_pair(governor: flyball.Governor, recording: Recording) -> tuple[list[Step], int]:
    recording.take()
    lease = governor.acquire(POOL, project="project-1", name="bench")
    governor.release(lease)
    return recording.take(), lease.id
