"""A slot passing from process to process: how quickly, how densely, in what order.

A hundred processes of several projects get in line for two slots, one after the other, so the order of
asking is known from outside. Then the two slots are released, and each process in turn holds one for 20 ms.
All processes are there before the clock starts, and stay until it has stopped.

latency       from the call of release in one process to the return of acquire in the next; releases and
              grants are matched in order of time
utilisation   the time the slots were really held, over two slots times the whole span
inversions    asks of one project that were granted, by the governor's own account, before an older one

Beside it: portalocker, whose waiters poll, and a bare datagram between two processes, the least a wake-up
costs on this machine.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import flyball
from bench.fleet import Fleet
from bench.homes import address, scratch
from bench.peers.doors import FLYBALL, POOL, PORTALOCKER, check_interval_s, open_door, prepared
from bench.report import Figure, Progress, Section, Target, beside, percentile

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
    warm: bool = True
    """Whether the processes have handed a slot over before: a first time in a process's life costs more."""


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
    ours, theirs = Tally(), Tally()
    pings: list[float] = []
    for turn in range(sizes.rounds):
        words = f"{NAME}: round {turn + 1} of {sizes.rounds}"
        progress(f"{words}, {sizes.processes} processes on flyball")
        _round(FLYBALL, sizes, ours)
        progress(f"{words}, {sizes.processes} processes on portalocker")
        _round(PORTALOCKER, sizes, theirs)
        progress(f"{words}, bare datagrams")
        pings.append(median(_pings(sizes.pings)))
    progress(f"{NAME}: {sizes.processes} processes that never did it before")
    first = Tally()
    _round(FLYBALL, replace(sizes, warm=False), first)
    return Section(NAME, TITLE, _figures(ours, theirs, pings, first), _notes(ours, theirs, sizes))


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


def _round(side: str, sizes: Sizes, tally: Tally) -> None:
    with scratch() as folder, ExitStack() as stack:
        home = folder / side
        stack.enter_context(prepared(side, home, sizes.slots))
        openers = [open_door(side, home, sizes.slots, f"opener-{i}") for i in range(sizes.slots)]
        for door in openers:
            door.acquire()
            stack.callback(door.close)
        arguments = [(home, i, f"project-{i % sizes.projects}", sizes) for i in range(sizes.processes)]
        fleet = stack.enter_context(Fleet(_flyball_turn if side == FLYBALL else _portalocker_turn, arguments))
        fleet.gather()
        for i in range(sizes.processes):
            fleet.tell(i, "ask")
            fleet.hear(i)
            if side == PORTALOCKER:
                # Waiters that poll do best when they do not all poll at the same moment.
                time.sleep(check_interval_s() / sizes.processes)
        opened = []
        for door in openers:
            opened.append(time.monotonic())
            door.release()
        # Reading answers while others still run would take their processor time.
        time.sleep(sizes.processes * sizes.hold_s / sizes.slots)
        fleet.tell_all("report")
        turns: list[Turn] = fleet.gather(timeout_s=60.0)
        fleet.tell_all("leave")
    _count(turns, opened, sizes, tally)


def _flyball_turn(pipe: Connection[Any, Any], home: Path, asker: int, project: str, sizes: Sizes) -> None:
    governor = flyball.Governor(address(home))
    if sizes.warm:
        _work_before(governor, asker)
    pipe.send("here")
    pipe.recv()
    lease = governor.acquire(
        POOL, project=project, name=str(asker), on_wait=lambda _: pipe.send("parked"), timeout=60.0
    )
    granted = time.monotonic()
    claim = governor.store.claim(lease.id)
    time.sleep(sizes.hold_s)
    releasing = time.monotonic()
    governor.release(lease)
    place = claim.granted_at if claim is not None and claim.granted_at is not None else 0.0
    turn = Turn(asker, project, granted, releasing, time.monotonic(), place)
    _answer(pipe, turn)


def _work_before(governor: flyball.Governor, asker: int) -> None:
    """Hand one slot over inside this process, as a worker has that did not start a moment ago."""
    pool = f"before-{asker}"
    governor.set_pool(pool, cap=1, adaptive=False)
    first = governor.acquire(pool)
    second = threading.Thread(target=lambda: governor.acquire(pool, timeout=60.0).release())
    second.start()
    while not governor.store.holders(pool) or not any(
        p.waiting for p in governor.status().pools if p.name == pool
    ):
        time.sleep(0.001)
    governor.release(first)
    second.join()


def _portalocker_turn(pipe: Connection[Any, Any], home: Path, asker: int, project: str, sizes: Sizes) -> None:
    door = open_door(PORTALOCKER, home, sizes.slots, str(asker))
    pipe.send("here")
    pipe.recv()
    pipe.send("asking")
    door.acquire()
    granted = time.monotonic()
    time.sleep(sizes.hold_s)
    releasing = time.monotonic()
    door.release()
    _answer(pipe, Turn(asker, project, granted, releasing, time.monotonic()))


def _answer(pipe: Connection[Any, Any], turn: Turn) -> None:
    """Report when asked to, and stay until everybody has: an exiting Python would slow the others down."""
    with suppress(EOFError):
        pipe.recv()
        pipe.send(turn)
        pipe.recv()


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
