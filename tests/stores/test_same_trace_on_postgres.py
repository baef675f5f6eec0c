"""PostgreSQL lives through the same trace as the others and says the same at every step.

Beside memory alone it does so to the letter. All four together are compared by pool: what happens in two
pools has no order on Redis.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, run_state_machine_as_test

from flyball.testing import Scene, make_memory, make_postgres, make_redis, make_sqlite
from tests.postgres_server import PostgresServer
from tests.redis_server import RedisServer
from tests.stores.test_same_trace_on_redis import SteadyWorld, by_pool
from tests.stores.trace_words import POOLS
from tests.stores.traces import Told, Trace

SOAK = bool(os.environ.get("FLYBALL_SOAK"))
STEPS = 80 if SOAK else 40


class WithPostgres(Trace):
    one_machine = False
    server: PostgresServer

    def on_postgres(self) -> Scene:
        self.space = self.server.space()
        return Scene(lambda world: make_postgres(world, self.server.url, space=self.space), SteadyWorld())

    def teardown(self) -> None:
        super().teardown()
        self.server.leave(self.space)

    @invariant()
    def counts_are_what_a_recount_says(self) -> None:
        assert [scene.store.miscounts() for scene in self.scenes] == [[]] * len(self.scenes)


class MemoryAndPostgres(WithPostgres):
    def open_scenes(self) -> Sequence[Scene]:
        return [Scene(make_memory, SteadyWorld()), self.on_postgres()]

    @invariant()
    def snapshots_are_the_same(self) -> None:
        memory, postgres = (scene.store.snapshot() for scene in self.scenes)
        assert memory == postgres

    @invariant()
    def facts_are_the_same(self) -> None:
        memory, postgres = (scene.store.facts(limit=20) for scene in self.scenes)
        assert memory == postgres


class AllFour(WithPostgres):
    redis_url = ""

    def open_scenes(self) -> Sequence[Scene]:
        self.folder = Path(tempfile.mkdtemp(prefix="flyball-trace-"))
        return [
            Scene(make_memory, SteadyWorld()),
            Scene(lambda world: make_sqlite(world, self.folder / "governor.db"), SteadyWorld()),
            Scene(lambda world: make_redis(world, self.redis_url), SteadyWorld()),
            self.on_postgres(),
        ]

    def do(self, step: Callable[[Scene], Told]) -> Told:
        return super().do(lambda scene: tuple(by_pool(part) for part in step(scene)))

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.folder)

    @invariant()
    def snapshots_are_the_same(self) -> None:
        first, *others = (scene.store.snapshot().pools for scene in self.scenes)
        assert all(other == first for other in others)

    @invariant()
    def facts_are_the_same(self) -> None:
        for pool in POOLS:
            told = [[f for f in s.store.facts(limit=500) if f.pool == pool][:20] for s in self.scenes]
            assert all(other == told[0] for other in told)


def live_through(machine: type[RuleBasedStateMachine], examples: int, **places: object) -> None:
    here = type("OnTheseServers", (machine,), places)
    run_state_machine_as_test(here, settings=settings(max_examples=examples, stateful_step_count=STEPS))


def test_memory_and_postgres_say_the_same(postgres_server: PostgresServer) -> None:
    live_through(MemoryAndPostgres, 300 if SOAK else 15, server=postgres_server)


def test_all_four_say_the_same(postgres_server: PostgresServer, redis_server: RedisServer) -> None:
    live_through(AllFour, 150 if SOAK else 10, server=postgres_server, redis_url=redis_server.url)
