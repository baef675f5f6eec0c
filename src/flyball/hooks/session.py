"""What is kept of a session between its hooks: a small file for each agent's process.

Each hook is a process of its own, and several of one session run at once. They read and change the record
under one lock, which is held for a moment and never while a slot is waited for. The file is named after the
process; what a dead one left is swept up when a session begins.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from flyball.core.pool.holder import Holder
from flyball.hooks.subagents import SessionRecord, dump_record, parse_record
from flyball.host.atomic_file import UNFINISHED, replace_file
from flyball.host.lock_file import LockFile
from flyball.host.process import alive

R = TypeVar("R")


class SessionFile:
    """The record of the session that one process is."""

    def __init__(self, folder: Path, holder: Holder) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder, self.holder = folder, holder
        self.path = folder / f"{holder.boot}.{holder.pidns}.{holder.pid}.{holder.start}.json"

    def change(self, act: Callable[[SessionRecord | None], tuple[SessionRecord | None, R]]) -> R:
        """One step: ``act`` is given what is there, and returns what is to be there and its own answer."""
        lock = LockFile.of(str(self.folder / "lock"))
        lock.acquire()
        try:
            record, answer = act(self.read())
            if record is None:
                self.path.unlink(missing_ok=True)
            else:
                replace_file(self.path, json.dumps(dump_record(record)).encode(), durable=False)
            return answer
        finally:
            lock.release()

    def read(self) -> SessionRecord | None:
        """What is there. None also for what another version wrote: its session is then counted anew."""
        try:
            return parse_record(json.loads(self.path.read_bytes()))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def sweep(self) -> None:
        """Remove what dead processes left, as far as they can be told from here."""
        for path in self.folder.glob("*.json"):
            parts = path.name.split(".")
            with suppress(ValueError, OSError):
                boot, pidns, pid, start = parts[0], *map(int, parts[1:4])
                if alive(Holder(self.holder.host, boot, pidns, pid, start)) is False:
                    path.unlink(missing_ok=True)
        for left in self.folder.glob(UNFINISHED):
            with suppress(OSError):
                if os.stat(left).st_mtime < os.stat(self.folder).st_mtime - 60.0:
                    left.unlink()
