"""The tasks as a run sees them: read when they may have changed, and not before.

A source that lives in folders tells of changes; one that cannot is read again now and then. What the ledger
knows as merged counts as closed where its source has not heard of it yet: the file here says open because
this checkout stands elsewhere, or the source could not be told. Otherwise one that is open has been opened
again, and is work like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from flyball.core.tasks.readiness import TaskIndex
from flyball.core.tasks.task import Task, TaskStatus
from flyball.errors import SourceError
from flyball.factory.agents.process import ProcessWatch
from flyball.factory.git.repository import Repository
from flyball.factory.run.context import ProjectState
from flyball.factory.state.blocking_calls import run_in_thread
from flyball.factory.state.ledger import Ledger
from flyball.factory.tasks.port import LoadedTasks, TaskSource

LOOK_EVERY_S = 30.0
"""How often a source that cannot tell of changes is read again."""


def landed_tasks(
    ledger: Ledger, source: TaskSource, repository: Repository, still_open: Collection[str]
) -> set[str]:
    """Those among open tasks that have landed_tasks, and have not been opened again."""
    untold, git, tips = ledger.unreported_tasks(), repository.git, repository.tips()
    heads = [tip for tip in (tips.local, tips.remote) if tip is not None]
    if len(heads) > 1 and repository.contains(*heads):
        # What origin has, the branch here has too, and may have changed since.
        heads.pop()
    merged = ledger.merged_tasks().intersection(still_open)
    return {
        each for each in merged if each in untold or any(source.closed_at(each, git, head) for head in heads)
    }


class TaskView:
    def __init__(
        self,
        project: ProjectState,
        areas: Mapping[str, Sequence[str]],
        watch: ProcessWatch,
        *,
        changed: Callable[[], None],
        note: Callable[[str], None],
    ) -> None:
        self._project, self._areas, self._watch = project, areas, watch
        self._changed, self._note = changed, note
        self.loaded = LoadedTasks()
        self.index = TaskIndex(())
        self.merged: set[str] = set()
        self.stale = True
        self.blind = False
        """Not every change is told."""
        self._watched: set[Path] = set()

    @property
    def still_open(self) -> dict[str, Task]:
        return {task.id: task for task in self.loaded.tasks if task.status is not TaskStatus.CLOSED}

    async def load(self) -> None:
        self.stale = False
        try:
            loaded = await run_in_thread(self._project.source.load)
            if loaded is not self.loaded:
                self._project.tasks = {task.id: task for task in loaded.tasks}
                self.loaded, self.index = loaded, TaskIndex(loaded.tasks, areas=self._areas)
        except SourceError as error:
            # What was read before still holds.
            if not self.loaded.tasks:
                raise
            self._note(str(error))
        self.merged |= await run_in_thread(self._closed_elsewhere)
        self._watch_folders()

    def _closed_elsewhere(self) -> set[str]:
        project = self._project
        return landed_tasks(
            project.ledger, project.source, project.repository, self.still_open.keys() - self.merged
        )

    def _watch_folders(self) -> None:
        wanted = set(self._project.source.watch_folders())
        for folder in self._watched - wanted:
            self._watch.forget(folder)
        told = [self._watch.tell(folder, self._mark_stale) for folder in wanted - self._watched]
        self.blind = not wanted or not all(told) or (self.blind and bool(self._watched & wanted))
        self._watched = wanted

    def _mark_stale(self) -> None:
        self.stale = True
        self._changed()
