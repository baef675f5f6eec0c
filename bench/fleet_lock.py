"""A hundred starts at once against a limit of two: a lock with a count behind it, and one script.

Everybody gets an answer: yes for two of them, no for the rest. What differs is how long they wait for it, how
often they ask, and how many hear neither (503). All through one driver in one process.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from bench.fleet_leases import all_at_once
from bench.fleet_server import POOL, Client, ask, counted_commands
from bench.peers.redis_lock import LockedAdmission, LockUnavailableError
from bench.report import Figure, Progress, Target, percentile

LIMIT = 2
_FIXED, _JITTERED = "lock, retry every 10 ms", "lock, jittered retry"


@dataclass(frozen=True, slots=True)
class Sizes:
    rounds: int = 7
    starts: int = 100


@dataclass(slots=True)
class Tally:
    """Over all rounds."""

    took_s: list[float] = field(default_factory=list)
    admitted: list[int] = field(default_factory=list)
    errors: int = 0
    commands: int = 0

    @property
    def starts(self) -> int:
        return len(self.took_s)


def figures(url: str, sizes: Sizes, progress: Progress) -> list[Figure]:
    client = Client(url)
    ours, locks = Tally(), {_FIXED: Tally(), _JITTERED: Tally()}
    try:
        client.store.set_pool(POOL, {"cap": LIMIT})
        # The server knows our script afterwards, as it does the lock's.
        client.admit()
        client.clear()
        for turn in range(sizes.rounds):
            progress(f"fleet: {sizes.starts} starts at once, round {turn + 1} of {sizes.rounds}")
            for name, tally in locks.items():
                gate = LockedAdmission(client.link, limit=LIMIT, jittered=name == _JITTERED)
                _round(client, sizes, tally, gate.admit)
                gate.clear()
            _round(client, sizes, ours, _one_script(client))
            client.clear()
    finally:
        client.store.close()
    for tally in (ours, *locks.values()):
        assert set(tally.admitted) == {LIMIT}, tally.admitted
    return [figure for name, theirs in locks.items() for figure in _beside(sizes, ours, name, theirs)]


def _one_script(client: Client) -> Callable[[str], bool]:
    mine = ask("project-1")
    return lambda _: client.store.admit(mine, park=False)[0].granted


def _round(client: Client, sizes: Sizes, tally: Tally, admit: Callable[[str], bool]) -> None:
    granted: list[bool] = []

    def one(number: int) -> None:
        start = time.perf_counter()
        try:
            granted.append(admit(f"run-{number}"))
        except LockUnavailableError:
            tally.errors += 1
        tally.took_s.append(time.perf_counter() - start)

    with counted_commands() as given:
        all_at_once(one, sizes.starts, first=client.noop_alike)
    tally.commands += given[0] - sizes.starts
    tally.admitted.append(sum(granted))


def _beside(sizes: Sizes, ours: Tally, name: str, theirs: Tally) -> list[Figure]:
    starts = f"{sizes.starts} starts at once"

    def figure(what: str, mine: float, other: float, unit: str, target: Target | None = None) -> Figure:
        return Figure(
            what=f"{starts}, {what}", ours=mine, unit=unit, beside=name, theirs=other, target=target
        )

    ms = [[percentile(tally.took_s, part) * 1e3 for tally in (ours, theirs)] for part in (50, 95)]
    calls = ours.commands / ours.starts, theirs.commands / theirs.starts
    errors = 100 * ours.errors / ours.starts, 100 * theirs.errors / theirs.starts
    return [
        figure("calls per start", *calls, "", Target("value", 1.0)),
        figure("p50", ms[0][0], ms[0][1], "ms"),
        figure("p95", ms[1][0], ms[1][1], "ms"),
        figure("without an answer (503)", *errors, "%", Target("value", 0.0)),
    ]
