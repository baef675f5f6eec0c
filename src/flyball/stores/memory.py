"""One process, nothing on disk. The reference the other stores are compared with."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from flyball.host.fork import survive_forks
from flyball.stores.memory_rows import MemoryRows
from flyball.stores.operations import StoreOperations
from flyball.stores.pool_session import Environment
from flyball.stores.rows import RowReader, Rows
from flyball.stores.transaction import ExclusiveSteps


class MemoryStore(ExclusiveSteps, StoreOperations):
    """Everything of the port within one process."""

    def __init__(self, world: Environment) -> None:
        super().__init__(world)
        self._rows = MemoryRows()
        survive_forks(self)

    def _before_fork(self) -> None:
        self._mutex.acquire()

    def _after_fork_in_parent(self) -> None:
        self._mutex.release()

    def _after_fork_in_child(self) -> None:
        """A copy of the settings and of what was learned goes on by itself, without claims and demands.

        Those are the parent's; their end would not be seen here. What could not be written is the parent's to
        write.
        """
        self._mutex = threading.RLock()
        self._unwritten_lock = threading.RLock()
        self._unwritten = []
        if not self._inside:  # else a signal's handler forked, in the middle of a step that goes on here, too
            self._forget_claims()

    def _forget_claims(self) -> None:
        with self._write() as rows:
            for claim in rows.claims(None):
                rows.remove(claim.id)
                rows.drop_receipt(claim.id)
            for demand in rows.demands(None):
                rows.drop_demand(demand)

    @contextmanager
    def _write(self) -> Iterator[Rows]:
        self._rows.begin(self.now(), self._world.epoch())
        yield self._rows
        self._rows.commit()

    def _roll_back(self) -> None:
        self._rows.rollback()

    def _peek(self) -> AbstractContextManager[RowReader]:
        return self._read()

    @contextmanager
    def _read(self) -> Iterator[RowReader]:
        self._rows.now, self._rows.epoch = self.now(), self._world.epoch()
        yield self._rows

    def close(self) -> None:
        return None
