"""Locks that are held for long: by a run on its project, by a landing on its repository.

The kernel lets go of them with the process, however it ends, so a stale one cannot exist. The file says
who holds it (process and start time), for messages and for whoever wants to talk to that process.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from flyball.core.pool.model import Holder
from flyball.host.process import alive, me

_TRY_EVERY_S = 0.3
_taken: dict[tuple[int, str], int] = {}
_guard = threading.Lock()


class LongLock:
    """One file. Of one process only one object may hold it: record locks belong to the whole process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._key = (os.getpid(), str(path))

    def take(self, **fields: Any) -> bool:
        """Take it now, or not; ``fields`` are for others to read."""
        with _guard:
            if self._key in _taken:
                return False
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(fd)
                return False
            _taken[self._key] = fd
        text = json.dumps({"holder": asdict(me()), **fields}).encode()
        with contextlib.suppress(OSError):
            os.ftruncate(fd, 0)
            os.pwrite(fd, text, 0)
        return True

    async def wait(self, told: Callable[[], None] = lambda: None, **fields: Any) -> None:
        """Take it, however long another process holds it; ``told`` once if it has to be waited for."""
        waited = False
        while not self.take(**fields):
            if not waited:
                waited = True
                told()
            await asyncio.sleep(_TRY_EVERY_S)

    def release(self) -> None:
        with _guard:
            fd = _taken.pop(self._key, None)
        if fd is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(fd, 0)
            os.close(fd)


def holder_of(path: Path) -> tuple[Holder, dict[str, Any]] | None:
    """Who holds the lock now and what it says about itself; None if nobody alive does."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        holder = Holder(**fields.pop("holder"))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return (holder, fields) if alive(holder) is not False else None
