"""For your own tests: time that stands still, stores that fail on purpose, the suite every store passes."""

from __future__ import annotations

from flyball.testing.clock import ManualClock
from flyball.testing.faults import FaultyStore
from flyball.testing.store_checks import STORE_CHECKS
from flyball.testing.store_checks.scene import MakeStore, Scene
from flyball.testing.stores import check_store, make_memory, make_sqlite
from flyball.testing.world import FakeWorld

__all__ = [
    "STORE_CHECKS",
    "FakeWorld",
    "FaultyStore",
    "MakeStore",
    "ManualClock",
    "Scene",
    "check_store",
    "make_memory",
    "make_sqlite",
]
