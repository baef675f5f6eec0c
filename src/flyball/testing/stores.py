"""Stores in a simulated world, and the conformance suite any store must pass.

    def make(world: FakeWorld) -> Store:
        return MyStore(..., world.ports())

    check_store(make)

``check_store`` runs every behaviour on a fresh store and names all that are broken. With pytest, parametrize
over ``STORE_CHECKS`` instead and give each a ``Scene(make)``: one test per behaviour. Nothing here sleeps.
"""

from __future__ import annotations

from pathlib import Path

from flyball.stores.memory import MemoryStore
from flyball.stores.sqlite.clock import StoreClock
from flyball.stores.sqlite.store import SqliteStore
from flyball.testing.store_checks import STORE_CHECKS
from flyball.testing.store_checks.scene import MakeStore, Scene
from flyball.testing.world import FakeWorld


def make_memory(world: FakeWorld) -> MemoryStore:
    """A store in this process."""
    return MemoryStore(world.ports())


def make_sqlite(world: FakeWorld, path: Path) -> SqliteStore:
    """A store over a real file; its clock is the world's."""
    clock = StoreClock(boot_s=world.clock, wall=world.clock, boot=lambda: world.here.boot)
    return SqliteStore(path, world.ports(clock), clock)


def check_store(make_store: MakeStore) -> None:
    """Run every check, each on a fresh store. Raises one group with all that failed."""
    failed: list[Exception] = []
    for check in STORE_CHECKS:
        scene = Scene(make_store)
        try:
            check(scene)
        except Exception as error:
            error.add_note(f"broken: {check.__name__.replace('_', ' ')}")
            failed.append(error)
        finally:
            scene.close()
    if failed:
        raise ExceptionGroup(f"{len(failed)} of {len(STORE_CHECKS)} behaviours are broken", failed)
