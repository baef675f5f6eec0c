"""One look at the store: everything, at one moment. Blocks; the watch calls it from a thread of its own.

The look has a connection of its own, so that it never stands in the way of an admission: on SQLite a reader,
on a server a second link. A state file that does not exist yet, or that was replaced by another, is found
again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import msgspec

from flyball.core.pool.model import Fact
from flyball.core.pool.settings import RESERVED
from flyball.errors import StoreError
from flyball.governor.governor import Governor
from flyball.governor.internals import internals
from flyball.governor.state_url import open_reader, path_of
from flyball.governor.status import PoolStatus, Status, status_from
from flyball.stores.memory import MemoryStore
from flyball.stores.port import Store
from flyball.stores.snapshot import PoolSnapshot

FACTS_SEEN = 500
"""How many of the newest facts a look reads: more than happen between two looks."""
_encoder = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class StoreSnapshot:
    """What was seen."""

    status: Status
    body: bytes
    """The status as JSON."""
    plain: Mapping[str, object]
    """The status as plain values, to be compared."""
    snapshots: Mapping[str, PoolSnapshot]
    facts: tuple[Fact, ...]
    """The newest, newest first."""
    store_now: float
    at: float
    """Seconds of this process's monotonic clock."""
    time: float
    """The same moment on the wall clock, for people."""

    def pool(self, name: str) -> PoolStatus | None:
        return next((pool for pool in self.status.pools if pool.name == name), None)


class Looking(Protocol):
    """Where looks come from."""

    def look(self) -> StoreSnapshot: ...

    def close(self) -> None: ...


class StoreReader:
    """Looks at the store behind a governor."""

    def __init__(self, governor: Governor) -> None:
        self._governor = governor
        self._reader: Store | None = None
        self._file: tuple[int, int] | None = None

    def look(self) -> StoreSnapshot:
        store = self._store()
        try:
            snapshot, facts = store.snapshot(), store.facts(limit=FACTS_SEEN)
        except StoreError:
            self.close()
            raise
        status = status_from(snapshot, self._governor.place)
        return StoreSnapshot(
            status=status,
            body=_encoder.encode(status),
            plain=msgspec.to_builtins(status),
            snapshots={pool.name: pool for pool in snapshot.pools},
            facts=tuple(fact for fact in facts if not fact.pool.startswith(RESERVED)),
            store_now=snapshot.now,
            at=time.monotonic(),
            time=time.time(),
        )

    def _store(self) -> Store:
        address = self._governor.address
        if address == "memory:":
            return internals(self._governor).store
        path = path_of(address)
        found = _identity(path) if path is not None else None
        if path is not None and (found is None or found != self._file):
            self.close()
        if self._reader is None:
            self._reader = open_reader(address)
            # In the place of a file that is not there yet, or only just being made, stands an empty one.
            self._file = None if isinstance(self._reader, MemoryStore) else found
        return self._reader

    def close(self) -> None:
        if self._reader is not None:
            with suppress(StoreError):
                self._reader.close()
        self._reader = None


def _identity(path: os.PathLike[str]) -> tuple[int, int] | None:
    """Which file it is; None where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
