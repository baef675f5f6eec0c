"""For your own tests: time that stands still, stores that fail on purpose, the suites every store and every
runtime passes."""

from __future__ import annotations

from flyball.testing.clock import ManualClock
from flyball.testing.faults import FaultyStore
from flyball.testing.runtime_checks import RUNTIME_CHECKS, Recording, check_runtime
from flyball.testing.store_checks import STORE_CHECKS
from flyball.testing.store_checks.scene import MakeStore, Scene
from flyball.testing.stores import check_store, make_memory, make_sqlite
from flyball.testing.world import FakeWorld

__all__ = [
    "RUNTIME_CHECKS",
    "STORE_CHECKS",
    "FakeWorld",
    "FaultyStore",
    "MakeStore",
    "ManualClock",
    "Recording",
    "Scene",
    "check_runtime",
    "check_store",
    "make_memory",
    "make_sqlite",
]
