"""Stores in a simulated world, and the conformance suite any store must pass.

    def make(world: FakeWorld) -> Store:
        return MyStore(..., world.ports())

    check_store(make)

``check_store`` runs every behaviour on a fresh store and names all that are broken. With pytest, parametrize
over ``STORE_CHECKS`` instead and give each a ``Scene(make)``: one test per behaviour. Nothing here sleeps.

A store that many machines share passes ``check_store(make, checks=FLEET_CHECKS)``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flyball.stores.memory import MemoryStore
from flyball.stores.sqlite.clock import StoreClock
from flyball.stores.sqlite.store import SqliteStore
from flyball.testing.store_checks import STORE_CHECKS
from flyball.testing.store_checks.scenario import MakeStore, Scene, StoreCheck
from flyball.testing.world import FakeWorld

if TYPE_CHECKING:
    from flyball.stores.postgres.store import PostgresStore
    from flyball.stores.redis.store import RedisStore


def make_memory(world: FakeWorld) -> MemoryStore:
    """A store in this process."""
    return MemoryStore(world.ports())


def make_sqlite(world: FakeWorld, path: Path) -> SqliteStore:
    """A store over a real file; its clock is the world's."""
    clock = StoreClock(boot_s=world.clock, wall=world.clock, boot=lambda: world.here.boot)
    return SqliteStore(path, world.ports(clock), clock)


def make_redis(world: FakeWorld, url: str, *, space: str | None = None) -> RedisStore:
    """A store on a real server, in a space of its own; its clock is the world's."""
    from flyball.stores.redis.connection import RedisConnections
    from flyball.stores.redis.store import RedisStore
    from flyball.stores.rows import ID_BLOCK

    # Blocks of ids as the other stores have them: the same trace then gives the same ids.
    return RedisStore(
        RedisConnections(url),
        world.ports(),
        server_time=False,
        id_block=ID_BLOCK,
        space=space or f"test-{os.urandom(8).hex()}",
    )


def make_postgres(world: FakeWorld, url: str, *, space: str | None = None) -> PostgresStore:
    """A store on a real server, in a space of its own; its clock is the world's."""
    from flyball.stores.postgres.connection_pool import ConnectionPool
    from flyball.stores.postgres.store import PostgresStore

    named = f"{url}{'&' if '?' in url else '?'}space={space or f'test-{os.urandom(8).hex()}'}"
    return PostgresStore(ConnectionPool(named), world.ports(), server_time=False)


def check_store(make_store: MakeStore, *, checks: Sequence[StoreCheck] = STORE_CHECKS) -> None:
    """Run every check, each on a fresh store. Raises one group with all that failed."""
    failed: list[Exception] = []
    for check in checks:
        scene = Scene(make_store)
        try:
            check(scene)
        except Exception as error:
            error.add_note(f"broken: {check.__name__.replace('_', ' ')}")
            failed.append(error)
        finally:
            scene.close()
    if failed:
        raise ExceptionGroup(f"{len(failed)} of {len(checks)} behaviours are broken", failed)
