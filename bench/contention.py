"""Eight processes on one pool: grants per second, and how long the slowest hundredth of the asks took.

Free slots, nobody else there: the cost of the lock and the write. Free slots with 100 live leases: what each
lease that merely exists costs everybody else; a store that reads them all pays here. No free slots: eight
processes on two, each holding for a moment.

Beside flyball run a one-JSON-file-per-lease store (peers/json_store.py) and portalocker's semaphore. That one
keeps no record of who holds what and serves nobody in order, so it is close to the least that sharing slots
between processes can cost. While slots are short, whoever just released one takes it again before the others
look, so the slots are busy and most processes starve. The p99 hides that (the starved ask once, the others a
thousand times), so the longest wait is shown too, and how evenly each side served; a wait that begins within
a round counts in full. No target is set there: whoever serves in order hands every slot to another process,
and whoever does not keeps it where it is. The second case without free slots lets each process work elsewhere
between two asks, as programs do; there a slot has to change hands.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bench.fleet import Fleet, begin_together
from bench.homes import scratch
from bench.peers.doors import (
    FLYBALL,
    JSON,
    PATIENCE_S,
    PORTALOCKER,
    check_interval_s,
    open_door,
    prepared,
)
from bench.report import Figure, Progress, Section, Target, beside, percentile

NAME = "contention"
TITLE = "eight processes on one pool"


@dataclass(frozen=True, slots=True)
class Sizes:
    rounds: int = 5
    round_s: float = 0.8
    processes: int = 8
    live: int = 100
    short_slots: int = 2
    hold_s: float = 0.001


FULL = Sizes()
QUICK = Sizes(rounds=1, round_s=0.25)


@dataclass(frozen=True, slots=True)
class Case:
    """One situation: how many slots, how many of them taken for good, what each worker does."""

    cap: int
    live: int = 0
    hold_s: float = 0.0
    away_s: float = 0.0
    """How long a worker is busy elsewhere before it asks again."""


@dataclass(slots=True)
class Tally:
    """What one side did, round by round."""

    per_s: list[float] = field(default_factory=list)
    waits_s: list[float] = field(default_factory=list)
    evenness: list[float] = field(default_factory=list)
    """Grants of the least served worker over those of the best served."""


def run(sizes: Sizes, progress: Progress) -> Section:
    spare = 2 * sizes.processes
    free = _compare(Case(spare), (FLYBALL, JSON, PORTALOCKER), sizes, progress, "free slots")
    crowded = _compare(
        Case(spare + sizes.live, sizes.live), (FLYBALL, JSON), sizes, progress, f"{sizes.live} live leases"
    )
    short = _compare(
        Case(sizes.short_slots, hold_s=sizes.hold_s), (FLYBALL, PORTALOCKER), sizes, progress, "no free slots"
    )
    apart = _compare(
        Case(sizes.short_slots, hold_s=sizes.hold_s, away_s=sizes.hold_s),
        (FLYBALL, PORTALOCKER),
        sizes,
        progress,
        "no free slots, work between",
    )
    hold = f"{sizes.short_slots} slots held {sizes.hold_s * 1e3:g} ms"
    figures = (
        *_figures("slots free", free, JSON, Target("ratio", 1.5, at_least=True)),
        *_figures("slots free", free, PORTALOCKER, Target("ratio", 0.5, at_least=True)),
        *_figures(f"slots free, {sizes.live} live leases", crowded, JSON, Target("ratio", 10, at_least=True)),
        *_figures(f"{hold}, asked again at once", short, PORTALOCKER, None),
        *_figures(
            f"{hold}, asked again after as long", apart, PORTALOCKER, Target("ratio", 1.0, at_least=True)
        ),
    )
    return Section(NAME, TITLE, figures, (_settings_note(), _evenness_note(short, apart)))


def _figures(what: str, tallies: dict[str, Tally], peer: str, target: Target | None) -> tuple[Figure, ...]:
    ours, theirs = tallies[FLYBALL], tallies[peer]

    def wait(words: str, percent: float) -> Figure:
        return Figure(
            what=f"{what}: {words}",
            ours=percentile(ours.waits_s, percent) * 1e3,
            unit="ms",
            beside=peer,
            theirs=percentile(theirs.waits_s, percent) * 1e3,
        )

    return (
        beside(f"{what}: grants", ours.per_s, theirs.per_s, unit="/s", name=peer, target=target),
        wait("p99 wait", 99),
        wait("longest wait", 100),
    )


def _settings_note() -> str:
    return (
        f"portalocker.BoundedSemaphore with its default check_interval of {check_interval_s():g} s "
        f"and a timeout of {PATIENCE_S:g} s (its default of 5 s would fail the ask)"
    )


def _evenness_note(short: dict[str, Tally], apart: dict[str, Tally]) -> str:
    def least(tallies: dict[str, Tally], side: str) -> str:
        return f"{min(tallies[side].evenness):.2f}"

    return (
        "least served process over best served, worst round: "
        f"asked at once flyball {least(short, FLYBALL)}, portalocker {least(short, PORTALOCKER)}; "
        f"asked later flyball {least(apart, FLYBALL)}, portalocker {least(apart, PORTALOCKER)}"
    )


# -- one round --------------------------------------------------------------------------------------


def _compare(
    case: Case, sides: Sequence[str], sizes: Sizes, progress: Progress, words: str
) -> dict[str, Tally]:
    tallies = {side: Tally() for side in sides}
    with scratch() as folder, ExitStack() as stack:
        for side in sides:
            stack.enter_context(prepared(side, folder / side, case.cap, live=case.live))
        for turn in range(sizes.rounds):
            for side in sides:
                progress(f"{NAME}: {words}, round {turn + 1} of {sizes.rounds}, {side}")
                _round(side, folder / side, case, sizes, tallies[side])
    return tallies


def _round(side: str, home: Path, case: Case, sizes: Sizes, tally: Tally) -> None:
    arguments = [(side, home, case, sizes.round_s, f"w{i}") for i in range(sizes.processes)]
    with Fleet(_contend, arguments) as fleet:
        fleet.start_together()
        answers: list[tuple[int, list[float]]] = fleet.gather(timeout_s=sizes.round_s + PATIENCE_S)
    grants = [count for count, _ in answers]
    tally.per_s.append(sum(grants) / sizes.round_s)
    tally.evenness.append(min(grants) / max(1, *grants))
    for _, waits_s in answers:
        tally.waits_s.extend(waits_s)


def _contend(
    pipe: Connection[Any, Any], side: str, home: Path, case: Case, seconds: float, name: str
) -> None:
    """A worker: take and give back until the time is over."""
    door = open_door(side, home, case.cap, name)
    for _ in range(3):
        door.acquire()
        door.release()
    end = begin_together(pipe) + seconds
    grants, waits_s = 0, []
    while True:
        asked = time.monotonic()
        if asked >= end:
            break
        door.acquire()
        granted = time.monotonic()
        waits_s.append(granted - asked)
        grants += granted < end
        _pass(case.hold_s)
        door.release()
        _pass(case.away_s)
    pipe.send((grants, waits_s))
    door.close()


def _pass(seconds: float) -> None:
    if seconds:
        time.sleep(seconds)
