"""A pool on PostgreSQL: admit and release beside the least that a lock on a row can cost there.

The baseline takes the same kind of lock in the same number of commits: two statements that each change one
row, sent by the same client over the same connections, at the same ``synchronous_commit``. Whatever ours take
beyond it is the admission itself: the pool's row, the project's, and the lease. The server keeps its defaults
and writes every commit to its disk, so much of the time is the disk's; a second table, where it may answer
before it has written, shows the work alone. Rounds are short and take turns, so that whoever else uses the
machine meets both alike.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import psycopg

from bench.report import Figure, Progress, Section, Target, beside
from flyball.core.pool.model import Ask
from flyball.host.process import me, stands_still
from flyball.stores.port import Release
from flyball.stores.postgres.opening import open_postgres
from flyball.stores.postgres.store import PostgresStore
from tests.postgres_server import PostgresServer

NAME = "postgres"
TITLE = "leases on PostgreSQL, one client on the same machine"
FEW, MANY = "few", "many"
_BASELINE = "UPDATE baseline SET n = n + 1 WHERE id = %s RETURNING n"
_UNWRITTEN = f"?options={quote('-c synchronous_commit=off')}"


@dataclass(frozen=True, slots=True)
class Sizes:
    rounds: int = 41
    pairs: int = 120
    warm_up: int = 40
    connections: int = 8
    few: int = 10
    many: int = 10_000


FULL = Sizes()
QUICK = Sizes(rounds=5, pairs=40, many=1_000)


class Client:
    """One store, and the baseline over its own connections."""

    def __init__(self, url: str) -> None:
        self.store: PostgresStore = open_postgres(
            url, chance=random.random, here=me, stands_still=stands_still
        )
        self._asks = {
            pool: Ask(pool=pool, project="project-1", name="bench", holder=me()) for pool in (FEW, MANY)
        }
        for pool in (FEW, MANY):
            self.store.set_pool(pool, {"cap": 1_000_000, "adaptive": False})
        with self.store._server.lend() as link:
            link.execute(
                "CREATE TABLE IF NOT EXISTS baseline (id bigint PRIMARY KEY, n bigint) WITH (fillfactor = 50)"
            )
            link.execute("INSERT INTO baseline VALUES (1, 0) ON CONFLICT DO NOTHING")

    def baseline(self) -> None:
        for _ in range(2):
            with self.store._server.lend() as link:
                link.ask(_BASELINE, (1,))

    def pair(self, pool: str = FEW) -> None:
        self.store.release(Release(self.admit(pool)))

    def admit(self, pool: str) -> int:
        verdict, _ = self.store.admit(self._asks[pool], park=False)
        return verdict.claim_id


def run(sizes: Sizes, progress: Progress) -> Section:
    with _server() as server:
        client = Client(server.url)
        progress(f"{NAME}: round trips")
        trips = _statements(client, sizes)
        progress(f"{NAME}: beside a row lock")
        alone = _rates(client, sizes, threads=1)
        progress(f"{NAME}: beside a row lock, {sizes.connections} connections")
        crowd = _rates(client, sizes, threads=sizes.connections)
        unwritten = Client(server.url + _UNWRITTEN)
        progress(f"{NAME}: without waiting for the disk")
        quick_alone = _rates(unwritten, sizes, threads=1)
        quick_crowd = _rates(unwritten, sizes, threads=sizes.connections)
        progress(f"{NAME}: {sizes.many} live leases")
        many, few = _with_leases(client, unwritten, sizes)
        client.store.close()
        unwritten.store.close()
    at_least = Target("ratio", 0.6, at_least=True)
    lock = "two changes of one row"
    figures = (
        Figure(
            what="statements sent per admit and release", ours=trips, unit="", target=Target("value", 2.0)
        ),
        beside("pairs/s, 1 connection", *alone, unit="/s", name=lock, target=at_least),
        beside(f"pairs/s, {sizes.connections} connections", *crowd, unit="/s", name=lock, target=at_least),
        beside("pairs/s, 1 connection, disk not waited for", *quick_alone, unit="/s", name=lock),
        beside(
            f"pairs/s, {sizes.connections} connections, disk not waited for",
            *quick_crowd,
            unit="/s",
            name=lock,
        ),
        beside(
            f"pairs/s at {sizes.many:,} live leases",
            many,
            few,
            unit="/s",
            name=f"at {sizes.few}",
            target=Target("ratio", 0.8, at_least=True),
        ),
    )
    return Section(NAME, TITLE, figures)


@contextmanager
def _server() -> Iterator[PostgresServer]:
    server = PostgresServer(quick=False)
    try:
        yield server
    finally:
        server.close()


def _statements(client: Client, sizes: Sizes) -> float:
    client.pair()
    sent: list[str] = []
    execute: Any = psycopg.Cursor.execute

    def noted(*arguments: Any, **named: Any) -> Any:
        sent.append("statement")
        return execute(*arguments, **named)

    psycopg.Cursor.execute = noted  # type: ignore[method-assign]
    try:
        for _ in range(sizes.pairs):
            client.pair()
    finally:
        psycopg.Cursor.execute = execute  # type: ignore[method-assign]
    return len(sent) / sizes.pairs


def _rates(client: Client, sizes: Sizes, *, threads: int) -> tuple[list[float], list[float]]:
    """Pairs of ours and of the baseline per second, one of each per round."""
    for work in (client.pair, client.baseline):
        _timed(work, sizes.warm_up * threads, threads)
    ours, theirs = [], []
    for _ in range(sizes.rounds):
        theirs.append(sizes.pairs / _timed(client.baseline, sizes.pairs, threads))
        ours.append(sizes.pairs / _timed(client.pair, sizes.pairs, threads))
    return ours, theirs


def _timed(work: Callable[[], None], times: int, threads: int) -> float:
    def repeat() -> None:
        for _ in range(times // threads):
            work()

    running = [threading.Thread(target=repeat) for _ in range(threads)]
    start = time.perf_counter()
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return time.perf_counter() - start


def _with_leases(client: Client, filling: Client, sizes: Sizes) -> tuple[list[float], list[float]]:
    """Pairs per second in a pool of many leases and in one of few."""
    for pool, number in ((FEW, sizes.few), (MANY, sizes.many)):
        for _ in range(number):
            filling.admit(pool)
    many, few = [], []
    for _ in range(sizes.rounds):
        few.append(sizes.pairs / _timed(lambda: client.pair(FEW), sizes.pairs, 1))
        many.append(sizes.pairs / _timed(lambda: client.pair(MANY), sizes.pairs, 1))
    return many, few
