"""The tasks as a run sees them: read when they may have changed, and not before.

A source that lives in folders tells of changes; one that cannot is read again now and then. What the ledger
knows as merged counts as closed even where the file here says open, because this checkout stands elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from flyball.core.task import Task, TaskStatus
from flyball.errors import SourceError
from flyball.factory.tasks.port import Loaded
from flyball.factory.threads import off_loop
from flyball.factory.workshop import Workshop

LOOK_EVERY_S = 30.0
"""How often a source that cannot tell of changes is read again."""


class Frontier:
    def __init__(self, shop: Workshop, *, changed: Callable[[], None], note: Callable[[str], None]) -> None:
        self._shop, self._changed, self._note = shop, changed, note
        self.loaded = Loaded()
        self.merged: set[str] = set()
        self.stale = True
        self.blind = False
        """Nobody tells us of every change."""
        self._watched: set[Path] = set()

    @property
    def still_open(self) -> dict[str, Task]:
        return {task.id: task for task in self.loaded.tasks if task.status is not TaskStatus.CLOSED}

    async def load(self) -> None:
        self.stale = False
        try:
            self.loaded = await off_loop(self._shop.source.load)
        except SourceError as error:
            # What was read before still holds.
            if not self.loaded.tasks:
                raise
            self._note(str(error))
        self.merged |= await off_loop(self._closed_elsewhere)
        self._watch()

    def _closed_elsewhere(self) -> set[str]:
        merged = (self._shop.ledger.merged() & self.still_open.keys()) - self.merged
        git, branch = self._shop.repository.git, self._shop.repository.default
        return {task_id for task_id in merged if self._shop.source.closed_at(task_id, git, branch)}

    def _watch(self) -> None:
        wanted = set(self._shop.source.watched())
        for folder in self._watched - wanted:
            self._shop.watch.forget(folder)
        told = [self._shop.watch.tell(folder, self._told) for folder in wanted - self._watched]
        self.blind = not wanted or not all(told) or (self.blind and bool(self._watched & wanted))
        self._watched = wanted

    def _told(self) -> None:
        self.stale = True
        self._changed()
