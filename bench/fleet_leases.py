"""A pool on Redis: what a lease costs there, beside a script that does nothing, sent by the same client.

The no-op is what a script costs that does nothing: the driver, the socket and the server's own work of
finding it. The store sends its scripts over connections that it keeps (stores/redis/script_connections.py),
which takes the driver less; so a second line compares with a no-op that is sent like that. Rounds are short
and take turns, so that other work on the machine meets both alike.

Asks in a crowd: a hundred threads ask at once. On a hot pool all of them have to stand in line, each with its
whole verdict (place, blocker, estimate); on an idle one all are granted. The driver is Python, so most of the
time they wait for each other here, not for the server: what matters is how much longer a line takes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from bench.fleet_server import POOL, Client, ask, counted_sends
from bench.report import Figure, Progress, Target, beside, percentile

_WARM_UP = 200
_NO_OP = "no-op EVALSHA"
CROWDED = "crowded"


@dataclass(frozen=True, slots=True)
class Sizes:
    rounds: int = 41
    admits: int = 300
    threads: int = 4
    crowd: int = 100
    crowd_rounds: int = 7
    many: int = 10_000


def figures(url: str, sizes: Sizes, progress: Progress) -> list[Figure]:
    client = Client(url)
    try:
        progress("fleet: round trips of an admit")
        trips, scripts = _round_trips(client, sizes)
        progress("fleet: admits beside a no-op")
        alone = _rates(client, sizes, threads=1)
        together = _rates(client, sizes, threads=sizes.threads)
        alike = _rates(client, sizes, threads=1, noop=client.noop_alike)
        cpu = _server_cpu(client, sizes)
        progress(f"fleet: {sizes.crowd} asks at once")
        hot, idle = _crowds(client, sizes)
        progress(f"fleet: {sizes.many:,} live leases")
        many, few = _with_leases(client, sizes)
    finally:
        client.store.close()
    enough, once = Target("ratio", 0.6, at_least=True), Target("value", 1.0)
    return [
        Figure(what="round trips per admit", ours=trips, unit="", target=once),
        Figure(what="scripts run per admit", ours=scripts, unit="", target=once),
        beside("admits/s", *alone, unit="/s", name=_NO_OP, target=enough),
        beside(f"admits/s, {sizes.threads} threads", *together, unit="/s", name=_NO_OP, target=enough),
        beside("admits/s", *alike, unit="/s", name=f"{_NO_OP} over a kept connection"),
        beside("server CPU per admit", *cpu, unit="us", name=_NO_OP),
        beside(
            f"{sizes.crowd} asks at once, p95, all parked",
            hot,
            idle,
            unit="ms",
            name="all granted",
            target=Target("ratio", 3.0),
        ),
        beside(
            f"admit at {sizes.many:,} live leases",
            many,
            few,
            unit="us",
            name="below 100",
            target=Target("ratio", 1.5),
        ),
    ]


def _round_trips(client: Client, sizes: Sizes) -> tuple[float, float]:
    """What the driver sent per admit, and how many scripts the server ran for it."""
    client.admit()
    client.link.config_resetstat()
    with counted_sends() as sends:
        for _ in range(sizes.admits):
            client.admit()
    scripts = client.link.info("commandstats")["cmdstat_evalsha"]["calls"]
    client.clear()
    return sum(sends.values()) / sizes.admits, float(scripts) / sizes.admits


def _rates(
    client: Client, sizes: Sizes, *, threads: int, noop: Callable[[], None] | None = None
) -> tuple[list[float], list[float]]:
    """Admits and no-ops per second, one of each per round."""
    noop = noop or client.noop
    for work in (client.admit, noop):
        timed(work, _WARM_UP, threads)
    client.clear()
    ours, theirs = [], []
    for _ in range(sizes.rounds):
        theirs.append(sizes.admits / timed(noop, sizes.admits, threads))
        ours.append(sizes.admits / timed(client.admit, sizes.admits, threads))
        client.clear()
    return ours, theirs


def timed(work: Callable[[], None], times: int, threads: int) -> float:
    def repeat() -> None:
        for _ in range(times // threads):
            work()

    if threads == 1:
        start = time.perf_counter()
        repeat()
        return time.perf_counter() - start
    running = [threading.Thread(target=repeat) for _ in range(threads)]
    start = time.perf_counter()
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return time.perf_counter() - start


def _server_cpu(client: Client, sizes: Sizes) -> tuple[list[float], list[float]]:
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(max(2, sizes.rounds // 2)):
        for work, found in ((client.noop, theirs), (client.admit, ours)):
            before = client.server_us()
            timed(work, sizes.admits, 1)
            found.append((client.server_us() - before) / sizes.admits)
        client.clear()
    return ours, theirs


def _crowds(client: Client, sizes: Sizes) -> tuple[list[float], list[float]]:
    hot, idle = [], []
    for _ in range(sizes.crowd_rounds):
        client.store.set_pool(POOL, {"cap": 1_000_000})
        idle.append(_crowd(client, sizes))
        client.clear()
        client.store.set_pool(POOL, {"cap": 1})
        client.admit()
        hot.append(_crowd(client, sizes))
        for waiting in client.store.snapshot().pools[0].asks:
            client.store.withdraw(waiting.claim.id)
        client.clear()
    client.store.set_pool(POOL, {"cap": 1_000_000})
    return hot, idle


def _crowd(client: Client, sizes: Sizes) -> float:
    """Everybody asks at once, ready to wait; the p95 of how long the answer took, in ms."""
    took: list[float] = []

    def one(number: int) -> None:
        mine = ask(f"project-{number % 4}")
        start = time.perf_counter()
        client.store.admit(mine, park=True)
        took.append(time.perf_counter() - start)

    all_at_once(one, sizes.crowd, first=client.noop_alike)
    return percentile(took, 95) * 1e3


def all_at_once(work: Callable[[int], None], crowd: int, *, first: Callable[[], None]) -> None:
    """``work`` in so many threads, begun together; each has done ``first``, so its connection is there."""
    barrier = threading.Barrier(crowd)

    def one(number: int) -> None:
        first()
        barrier.wait()
        work(number)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(crowd)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _with_leases(client: Client, sizes: Sizes) -> tuple[list[float], list[float]]:
    """What an admit takes in us, in a pool of many leases and in one of at most a hundred, in turn."""
    crowded = replace(client.ask, pool=CROWDED)
    client.store.set_pool(CROWDED, {"cap": 1_000_000, "adaptive": False})

    def admit() -> None:
        client.store.admit(crowded, park=False)

    for _ in range(sizes.many):
        admit()
    many, few = [], []
    for _ in range(sizes.rounds):
        few.append(timed(client.admit, 100, 1) / 100 * 1e6)
        client.clear()
        many.append(timed(admit, 100, 1) / 100 * 1e6)
    return many, few
