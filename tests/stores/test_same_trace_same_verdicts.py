"""Memory and SQLite live through the same trace and say the same at every step."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hypothesis import settings
from hypothesis.stateful import invariant

from flyball.testing import Scene, make_memory, make_sqlite
from tests.stores.traces import Trace

SOAK = bool(os.environ.get("FLYBALL_SOAK"))


class MemoryAndSqlite(Trace):
    def open_scenes(self) -> Sequence[Scene]:
        self.folder = Path(tempfile.mkdtemp(prefix="flyball-trace-"))
        return [Scene(make_memory), Scene(lambda world: make_sqlite(world, self.folder / "governor.db"))]

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.folder)

    @invariant()
    def snapshots_are_the_same(self) -> None:
        memory, sqlite = (scene.store.snapshot() for scene in self.scenes)
        assert memory == sqlite

    @invariant()
    def facts_are_the_same(self) -> None:
        memory, sqlite = (scene.store.facts(limit=20) for scene in self.scenes)
        assert memory == sqlite

    @invariant()
    def counts_are_what_a_recount_says(self) -> None:
        assert [scene.store.miscounts() for scene in self.scenes] == [[], []]


TestMemoryAndSqlite = MemoryAndSqlite.TestCase
TestMemoryAndSqlite.settings = settings(
    max_examples=1000 if SOAK else 40, stateful_step_count=80 if SOAK else 40
)
