"""Locks that are held for long: by a run on its project, by a landing on its repository.

The file says who holds it (process and start time), for messages and for processes that want to talk to it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from flyball.core.pool.holder import Holder
from flyball.host.lock_file import LongLock
from flyball.host.process import alive, me

_TRY_EVERY_S = 0.3


class RunLock:
    """A ``LongLock`` whose file names its holder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = LongLock(path)

    def take(self, **fields: Any) -> bool:
        """Take it now, or not; ``fields`` are for others to read."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        taken = self._lock.take()
        if taken:
            self._lock.write(json.dumps({"holder": asdict(me()), **fields}).encode())
        return taken

    async def wait(self, told: Callable[[], None] = lambda: None, **fields: Any) -> None:
        """Take it, however long another process holds it; ``told`` once if it has to be waited for."""
        waited = False
        while not self.take(**fields):
            if not waited:
                waited = True
                told()
            await asyncio.sleep(_TRY_EVERY_S)

    def release(self) -> None:
        self._lock.write(b"")
        self._lock.release()


def read_holder(path: Path) -> tuple[Holder, dict[str, Any]] | None:
    """Which process holds the lock now and what it says about itself; None if no living one does."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        holder = Holder(**fields.pop("holder"))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return (holder, fields) if alive(holder) is not False else None
