"""One door per contestant: take a slot, give it back. The loops that measure know nothing else.

Every door is used by one thread of one process. ``acquire`` waits until it has a slot.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

import portalocker

import flyball
from bench.homes import address
from bench.peers.json_store import JsonStore

POOL = "bench"
PROJECT = "blog"
"""All of one project: the JSON store reads a file more per project, and the others do not."""
FLYBALL, JSON, PORTALOCKER = "flyball", "json", "portalocker"
PATIENCE_S = 60.0
"""portalocker gives up after 5 s by default and would then fail; here it keeps asking."""


class Door(Protocol):
    def acquire(self) -> None: ...

    def release(self) -> None: ...

    def close(self) -> None: ...


class FlyballDoor:
    def __init__(self, home: Path, cap: int, name: str) -> None:
        del cap  # set once with the pool
        self._governor = flyball.Governor(address(home))
        self._name = name
        self._lease: flyball.Lease | None = None

    def acquire(self) -> None:
        self._lease = self._governor.acquire(POOL, project=PROJECT, name=self._name)

    def release(self) -> None:
        if self._lease is not None:
            self._governor.release(self._lease)

    def close(self) -> None:
        self._governor.close()


class JsonDoor:
    def __init__(self, home: Path, cap: int, name: str) -> None:
        self._store = JsonStore(home, cap)
        self._store.announce(PROJECT, os.getpid())
        self._name = name
        self._file: Path | None = None

    def acquire(self) -> None:
        while True:
            self._file = self._store.acquire(PROJECT, self._name, os.getpid())
            if self._file is not None:
                return
            time.sleep(0.001)

    def release(self) -> None:
        if self._file is not None:
            self._store.release(self._file)

    def close(self) -> None:
        self._store.close()


class PortalockerDoor:
    """``BoundedSemaphore`` as it comes: it sweeps the slots' lock files, then sleeps ``check_interval``."""

    def __init__(self, home: Path, cap: int, name: str) -> None:
        del name
        self._semaphore = portalocker.BoundedSemaphore(
            maximum=cap, name=POOL, directory=str(home), timeout=PATIENCE_S
        )

    def acquire(self) -> None:
        self._semaphore.acquire()

    def release(self) -> None:
        self._semaphore.release()

    def close(self) -> None:
        self._semaphore.release()


_DOORS: dict[str, type[FlyballDoor] | type[JsonDoor] | type[PortalockerDoor]] = {
    FLYBALL: FlyballDoor,
    JSON: JsonDoor,
    PORTALOCKER: PortalockerDoor,
}


def open_door(side: str, home: Path, cap: int, name: str) -> Door:
    """``name`` tells this user of the pool from the others."""
    return _DOORS[side](home, cap, name)


@contextmanager
def prepared(side: str, home: Path, cap: int, *, live: int = 0) -> Iterator[None]:
    """A fresh pool, of which this process keeps ``live`` slots taken."""
    home.mkdir()
    with ExitStack() as stack:
        if side == FLYBALL:
            governor = flyball.Governor(address(home))
            stack.callback(governor.close)
            governor.set_pool(POOL, cap=cap, adaptive=False)
            for i in range(live):
                governor.acquire_nowait(POOL, project=PROJECT, name=f"live-{i}")
        else:
            for i in range(live):
                door = open_door(side, home, cap, f"live-{i}")
                stack.callback(door.close)
                door.acquire()
        yield


def check_interval_s() -> float:
    return float(portalocker.utils.DEFAULT_CHECK_INTERVAL)
