"""Memory and Redis live through the same trace and say the same at every step."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import cast

from hypothesis import settings
from hypothesis.stateful import invariant, run_state_machine_as_test

from flyball.core.pool.model import Fact
from flyball.stores.pool_session import Environment
from flyball.stores.port import WakeUp
from flyball.stores.rows import ID_BLOCK
from flyball.testing import FakeWorld, Scene, make_memory, make_redis
from tests.redis_server import RedisServer
from tests.stores.trace_words import POOLS
from tests.stores.traces import Told, Trace

SOAK = bool(os.environ.get("FLYBALL_SOAK"))
EXAMPLES = settings(max_examples=500 if SOAK else 20, stateful_step_count=80 if SOAK else 40)


class SteadyWorld(FakeWorld):
    """Chance is always the same: a step that fails may have asked for it or not."""

    def ports(self, clock: Callable[[], float] | None = None) -> Environment:
        ports = super().ports(clock)
        ports.chance = lambda: 0.3
        return ports


class MemoryAndRedis(Trace):
    """What happens in two pools has no order on a server, so everything is compared by pool."""

    one_machine = False
    url = ""

    def open_scenes(self) -> Sequence[Scene]:
        return [
            Scene(make_memory, SteadyWorld()),
            Scene(lambda world: make_redis(world, self.url), SteadyWorld()),
        ]

    def do(self, step: Callable[[Scene], Told]) -> Told:
        return super().do(lambda scene: tuple(by_pool(part) for part in step(scene)))

    @invariant()
    def snapshots_are_the_same(self) -> None:
        memory, redis = (scene.store.snapshot() for scene in self.scenes)
        assert memory.pools == redis.pools

    @invariant()
    def facts_are_the_same(self) -> None:
        for pool in POOLS:
            memory, redis = ([f for f in s.store.facts(limit=500) if f.pool == pool] for s in self.scenes)
            assert memory[:20] == redis[:20]

    @invariant()
    def counts_are_what_a_recount_says(self) -> None:
        assert [scene.store.miscounts() for scene in self.scenes] == [[], []]


def by_pool(part: object) -> object:
    if not isinstance(part, list):
        return part
    return sorted(part, key=_pool_of)


def _pool_of(told: object) -> tuple[str, int]:
    if isinstance(told, Fact):
        return told.pool, 0
    if isinstance(told, str):
        return told, 0
    return "", cast(WakeUp, told).claim_id // ID_BLOCK


def test_memory_and_redis_say_the_same(redis_server: RedisServer) -> None:
    machine = type("OnThisServer", (MemoryAndRedis,), {"url": redis_server.url})
    run_state_machine_as_test(machine, settings=EXAMPLES)
