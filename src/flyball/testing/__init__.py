"""For your own tests: time that stands still, stores that fail on purpose, the suites that every store, every
runtime and every task source passes."""

from __future__ import annotations

from flyball.testing.faults import FaultyStore
from flyball.testing.runtime_checks import LAUNCH_CHECKS, RUNTIME_CHECKS, Recording, check_runtime
from flyball.testing.store_checks import FLEET_CHECKS, STORE_CHECKS
from flyball.testing.store_checks.scenario import MakeStore, Scene
from flyball.testing.stores import check_store, make_memory, make_postgres, make_redis, make_sqlite
from flyball.testing.task_checks import TASK_CHECKS, MakeSource, TaskScene, check_tasks
from flyball.testing.world import FakeWorld, ManualClock

__all__ = [
    "FLEET_CHECKS",
    "LAUNCH_CHECKS",
    "RUNTIME_CHECKS",
    "STORE_CHECKS",
    "TASK_CHECKS",
    "FakeWorld",
    "FaultyStore",
    "MakeSource",
    "MakeStore",
    "ManualClock",
    "Recording",
    "Scene",
    "TaskScene",
    "check_runtime",
    "check_store",
    "check_tasks",
    "make_memory",
    "make_postgres",
    "make_redis",
    "make_sqlite",
]
