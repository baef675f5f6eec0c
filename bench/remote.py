"""A pool on Redis: what a lease costs there, beside a script that does nothing, sent by the same client.

The no-op is the least that any script can cost from here: the driver, the socket and the server's own work of
finding a script. Whatever ours takes beyond it is the admission itself. Rounds take turns.

Asks in a crowd: a hundred threads ask at once. On a hot pool all of them have to stand in line, each with its
whole verdict (place, blocker, estimate); on an idle one all are granted. The driver is Python, so most of the
time they wait for each other here, not for the server: what matters is how much longer a line takes.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bench.report import Figure, Progress, Section, Target, beside, percentile
from flyball.core.model import Ask
from flyball.host.process import me
from flyball.stores.port import Release
from flyball.stores.redis.store import RedisStore, open_redis
from tests.redis_server import RedisServer

NAME = "remote"
TITLE = "leases on Redis, one client on the same machine"
POOL = "bench"
_WARM_UP = 200


@dataclass(frozen=True, slots=True)
class Sizes:
    rounds: int = 11
    admits: int = 1_000
    threads: int = 4
    crowd: int = 100
    crowd_rounds: int = 7
    many: int = 10_000


FULL = Sizes()
QUICK = Sizes(rounds=3, admits=200, crowd_rounds=2, many=2_000)


class Client:
    """One store, and the no-op through its own connection."""

    def __init__(self, url: str) -> None:
        self.store: RedisStore = open_redis(url, chance=random.random, here=me)
        self.store.set_pool(POOL, {"cap": 1_000_000, "adaptive": False})
        self.link: Any = self.store._server._ready()
        self._noop = self.link.script_load("return ''")
        self.ask = ask("project-1")

    def noop(self) -> None:
        self.link.execute_command("EVALSHA", self._noop, 1, "flyball:{bench}:", "now", "what")

    def admit(self) -> None:
        self.store.admit(self.ask, park=False)

    def clear(self) -> None:
        """Give everything back."""
        for claim in self.store.watched(POOL).claims:
            self.store.release(Release(claim.id))

    def server_us(self) -> float:
        """The server's processor time so far."""
        cpu = self.link.info("cpu")
        return float(cpu["used_cpu_sys"] + cpu["used_cpu_user"]) * 1e6


def ask(project: str) -> Ask:
    return Ask(pool=POOL, project=project, name="bench", holder=me())


def run(sizes: Sizes, progress: Progress) -> Section:
    with _server() as server:
        client = Client(server.url)
        progress(f"{NAME}: round trips")
        trips = _round_trips(client, sizes)
        progress(f"{NAME}: beside a no-op")
        alone = _rates(client, sizes, threads=1)
        progress(f"{NAME}: beside a no-op, {sizes.threads} threads")
        crowd = _rates(client, sizes, threads=sizes.threads)
        cpu = _server_cpu(client, sizes)
        progress(f"{NAME}: {sizes.crowd} asks at once")
        hot, idle = _crowds(client, sizes)
        progress(f"{NAME}: {sizes.many} live leases")
        many, few = _with_leases(client, sizes)
        client.store.close()
    figures = (
        Figure(what="scripts run per admit", ours=trips, unit="", target=Target("value", 1.0)),
        beside(
            "admits/s",
            *alone,
            unit="/s",
            name="no-op EVALSHA",
            target=Target("ratio", 0.6, at_least=True),
        ),
        beside(
            f"admits/s, {sizes.threads} threads",
            *crowd,
            unit="/s",
            name="no-op EVALSHA",
            target=Target("ratio", 0.6, at_least=True),
        ),
        beside("server CPU per admit", *cpu, unit="us", name="no-op EVALSHA"),
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
            name="at none",
            target=Target("ratio", 1.5),
        ),
    )
    return Section(NAME, TITLE, figures)


@contextmanager
def _server() -> Iterator[RedisServer]:
    server = RedisServer()
    try:
        yield server
    finally:
        server.close()


def _round_trips(client: Client, sizes: Sizes) -> float:
    client.admit()
    client.link.config_resetstat()
    for _ in range(sizes.admits):
        client.admit()
    scripts = client.link.info("commandstats")["cmdstat_evalsha"]["calls"]
    client.clear()
    return float(scripts) / sizes.admits


def _rates(client: Client, sizes: Sizes, *, threads: int) -> tuple[list[float], list[float]]:
    """Admits and no-ops per second, one of each per round."""
    for work in (client.admit, client.noop):
        _timed(work, _WARM_UP, threads)
    client.clear()
    ours, theirs = [], []
    for _ in range(sizes.rounds):
        theirs.append(sizes.admits / _timed(client.noop, sizes.admits, threads))
        ours.append(sizes.admits / _timed(client.admit, sizes.admits, threads))
        client.clear()
    return ours, theirs


def _timed(work: Callable[[], None], times: int, threads: int) -> float:
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
            _timed(work, sizes.admits, 1)
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
    barrier = threading.Barrier(sizes.crowd)

    def one(number: int) -> None:
        mine = ask(f"project-{number % 4}")
        # The connection is there already.
        client.noop()
        barrier.wait()
        start = time.perf_counter()
        client.store.admit(mine, park=True)
        took.append(time.perf_counter() - start)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(sizes.crowd)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return percentile(took, 95) * 1e3


def _with_leases(client: Client, sizes: Sizes) -> tuple[list[float], list[float]]:
    """What an admit takes in us, with many leases in the pool and with none."""
    few = [_timed(client.admit, 100, 1) / 100 * 1e6 for _ in range(sizes.rounds)]
    for _ in range(sizes.many):
        client.admit()
    many = [_timed(client.admit, 100, 1) / 100 * 1e6 for _ in range(sizes.rounds)]
    return many, few
