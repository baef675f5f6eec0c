"""A slot passing from process to process: how quickly, how densely, in what order.

A hundred processes of several projects get in line for two slots, one after the other, so the order of
asking is known from outside. Then the two slots are released, and each process in turn holds one for 20 ms.
The same processes do so round after round, as workers do; the first round, in which each asks and releases
for the first time in its life, is told apart.

latency       from the call of release in one process to the return of acquire in the next; releases and
              grants are matched in order of time
utilisation   the time the slots were really held, over two slots times the whole span
inversions    asks of one project that were granted, by the governor's own account, before an older one

Beside it: portalocker, whose waiters poll, and a bare datagram between two processes, the least a wake-up
costs on this machine.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import flyball
from bench.fleet import Fleet
from bench.homes import address, scratch
from bench.peers.doors import FLYBALL, POOL, PORTALOCKER, check_interval_s, open_door, prepared
from bench.report import Figure, Progress, Section, Target, beside, percentile
from flyball.governor.internals import internals

NAME = "handoff"
TITLE = "a line of waiting processes on two slots"


@dataclass(frozen=True, slots=True)
class Sizes:
    rounds: int = 5
    processes: int = 100
    projects: int = 4
    slots: int = 2
    hold_s: float = 0.020
    pings: int = 60


FULL = Sizes()
QUICK = Sizes(rounds=1, processes=30, pings=20)


@dataclass(frozen=True, slots=True)
class Turn:
    """One process's trip: the moments on the machine's one monotonic clock, and who came next."""

    asker: int
    project: str
    granted: float
    releasing: float
    released: float
    place: float = 0.0
    """When it was granted by the governor's own clock."""


@dataclass(slots=True)
class Tally:
    latencies_s: list[float] = field(default_factory=list)
    utilisations: list[float] = field(default_factory=list)
    inversions: list[int] = field(default_factory=list)
    seen_inversions: list[int] = field(default_factory=list)
    medians_s: list[float] = field(default_factory=list)


def run(sizes: Sizes, progress: Progress) -> Section:
    ours, theirs, first = Tally(), Tally(), Tally()
    pings: list[float] = []
    with _Line(FLYBALL, sizes) as flyballs, _Line(PORTALOCKER, sizes) as portalockers:
        for turn in range(sizes.rounds + 1):
            words = f"{NAME}: round {turn} of {sizes.rounds}" if turn else f"{NAME}: first round"
            progress(f"{words}, {sizes.processes} processes on flyball")
            flyballs.round(ours if turn else first)
            progress(f"{words}, {sizes.processes} processes on portalocker")
            portalockers.round(theirs if turn else Tally())
            progress(f"{words}, bare datagrams")
            pings.append(median(_pings(sizes.pings)))
    return Section(NAME, TITLE, _figures(ours, theirs, pings[1:], first), _notes(ours, theirs, sizes))


def _figures(ours: Tally, theirs: Tally, pings: Sequence[float], first: Tally) -> tuple[Figure, ...]:
    def ms(tally: Tally, percent: float) -> float:
        return percentile(tally.latencies_s, percent) * 1e3

    return (
        Figure(
            what="release to next acquire: p50",
            ours=ms(ours, 50),
            unit="ms",
            beside=PORTALOCKER,
            theirs=ms(theirs, 50),
            target=Target("value", 1.0),
        ),
        Figure(
            what="release to next acquire: p99",
            ours=ms(ours, 99),
            unit="ms",
            beside=PORTALOCKER,
            theirs=ms(theirs, 99),
            target=Target("value", 10.0),
        ),
        beside(
            "release to next acquire: p50",
            [value * 1e3 for value in ours.medians_s],
            [value * 1e3 for value in pings],
            unit="ms",
            name="a bare datagram",
        ),
        Figure(what="the same, the first in each process's life: p50", ours=ms(first, 50), unit="ms"),
        beside(
            "utilisation",
            ours.utilisations,
            theirs.utilisations,
            unit="",
            name=PORTALOCKER,
            target=Target("value", 0.9, at_least=True),
        ),
        Figure(
            what="order inversions within a project",
            ours=sum(ours.inversions),
            unit="",
            beside=PORTALOCKER,
            theirs=sum(theirs.inversions),
            target=Target("value", 0),
        ),
    )


def _notes(ours: Tally, theirs: Tally, sizes: Sizes) -> tuple[str, ...]:
    return (
        f"{sizes.rounds} rounds of {sizes.processes} processes of {sizes.projects} projects, "
        f"{sizes.slots} slots, {sizes.hold_s * 1e3:g} ms each",
        f"each portalocker waiter polls every {check_interval_s():g} s, spread evenly over that time",
        "inversions by the order in which acquire returned, two at once included: "
        f"flyball {sum(ours.seen_inversions)}, portalocker {sum(theirs.seen_inversions)}",
    )


# -- one round --------------------------------------------------------------------------------------


class _Line:
    """A fleet that gets in line and is served, as often as it is told to."""

    def __init__(self, side: str, sizes: Sizes) -> None:
        self._side, self._sizes = side, sizes
        self._stack = ExitStack()

    def __enter__(self) -> _Line:
        side, sizes, stack = self._side, self._sizes, self._stack
        home = stack.enter_context(scratch()) / side
        stack.enter_context(prepared(side, home, sizes.slots))
        self._openers = [open_door(side, home, sizes.slots, f"opener-{i}") for i in range(sizes.slots)]
        for door in self._openers:
            stack.callback(door.close)
        arguments = [(home, i, f"project-{i % sizes.projects}", sizes) for i in range(sizes.processes)]
        work = _flyball_turns if side == FLYBALL else _portalocker_turns
        self._fleet = stack.enter_context(Fleet(work, arguments))
        self._fleet.gather()
        return self

    def __exit__(self, *_: object) -> None:
        self._fleet.tell_all("leave")
        self._stack.close()

    def round(self, tally: Tally) -> None:
        sizes, fleet = self._sizes, self._fleet
        for door in self._openers:
            door.acquire()
        for i in range(sizes.processes):
            fleet.tell(i, "ask")
            fleet.hear(i)
            if self._side == PORTALOCKER:
                # Waiters that poll do best when they do not all poll at the same moment.
                time.sleep(check_interval_s() / sizes.processes)
        opened = []
        for door in self._openers:
            opened.append(time.monotonic())
            door.release()
        # Reading answers while others still run would take their processor time.
        time.sleep(sizes.processes * sizes.hold_s / sizes.slots)
        fleet.tell_all("report")
        _count(fleet.gather(timeout_s=60.0), opened, sizes, tally)


def _flyball_turns(pipe: Connection[Any, Any], home: Path, asker: int, project: str, sizes: Sizes) -> None:
    governor = flyball.Governor(address(home))
    pipe.send("here")
    while pipe.recv() == "ask":
        lease = governor.acquire(
            POOL, project=project, name=str(asker), on_wait=lambda _: pipe.send("parked"), timeout=60.0
        )
        granted = time.monotonic()
        claim = internals(governor).store.claim(lease.id)
        time.sleep(sizes.hold_s)
        releasing = time.monotonic()
        governor.release(lease)
        released = time.monotonic()
        place = claim.granted_at if claim is not None and claim.granted_at is not None else 0.0
        _answer(pipe, Turn(asker, project, granted, releasing, released, place))


def _portalocker_turns(
    pipe: Connection[Any, Any], home: Path, asker: int, project: str, sizes: Sizes
) -> None:
    door = open_door(PORTALOCKER, home, sizes.slots, str(asker))
    pipe.send("here")
    while pipe.recv() == "ask":
        pipe.send("asking")
        door.acquire()
        granted = time.monotonic()
        time.sleep(sizes.hold_s)
        releasing = time.monotonic()
        door.release()
        _answer(pipe, Turn(asker, project, granted, releasing, time.monotonic()))


def _answer(pipe: Connection[Any, Any], turn: Turn) -> None:
    """Report when asked to, not before: the others still work."""
    pipe.recv()
    pipe.send(turn)


# -- counting ---------------------------------------------------------------------------------------


def _count(turns: Sequence[Turn], opened: Sequence[float], sizes: Sizes, tally: Tally) -> None:
    seen = sorted(turns, key=lambda turn: turn.granted)
    placed = sorted(turns, key=lambda turn: (turn.place, turn.granted))
    latencies_s = latencies(turns, opened)
    span_s = max(turn.releasing for turn in turns) - min(opened)
    held_s = sum(turn.releasing - turn.granted for turn in turns)
    tally.latencies_s.extend(latencies_s)
    tally.medians_s.append(median(latencies_s))
    tally.utilisations.append(held_s / (sizes.slots * span_s))
    tally.seen_inversions.append(inversions([turn.asker for turn in seen], sizes.projects))
    tally.inversions.append(inversions([turn.asker for turn in placed], sizes.projects))


def latencies(turns: Sequence[Turn], opened: Sequence[float]) -> list[float]:
    """From each release to the grant it led to. The last releases found nobody waiting."""
    releases = sorted([*opened, *(turn.releasing for turn in turns)])
    grants = sorted(turn.granted for turn in turns)
    return [grant - release for release, grant in zip(releases, grants, strict=False)]


def inversions(order: Sequence[int], projects: int) -> int:
    """How many askers of a project came after a later asker of the same project; askers count upwards."""
    latest: dict[int, int] = {}
    late = 0
    for asker in order:
        project = asker % projects
        late += asker < latest.get(project, -1)
        latest[project] = max(asker, latest.get(project, -1))
    return late


# -- the least a wake-up costs ----------------------------------------------------------------------


def _pings(count: int) -> list[float]:
    """Seconds from sending a datagram to a sleeping process until it is awake and has read it."""
    found: list[float] = []
    with scratch() as folder, Fleet(_listen, [(folder / "socket", count)]) as fleet:
        fleet.gather()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            for _ in range(count):
                time.sleep(0.002)
                start = time.monotonic()
                sender.sendto(b"1", str(folder / "socket"))
                found.append(fleet.hear(0) - start)
    return found


def _listen(pipe: Connection[Any, Any], path: Path, count: int) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(path))
        pipe.send("here")
        for _ in range(count):
            receiver.recv(32)
            pipe.send(time.monotonic())
