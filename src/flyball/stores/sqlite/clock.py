"""The store's clock: seconds since boot plus an offset kept in the file.

Within a boot it cannot be set, and it counts sleep. After a reboot the first to open the file moves the
offset so that time goes on from the last moment seen, plus how long the machine seems to have been off.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable

from flyball.host.clock import boot_seconds, clock_offset
from flyball.host.process import boot_id

SEEN_EVERY_S = 30.0


class StoreClock:
    """Call it for the time. ``enter`` and ``note_time`` run inside a write transaction."""

    def __init__(
        self,
        *,
        boot_s: Callable[[], float] = boot_seconds,
        wall: Callable[[], float] = time.time,
        boot: Callable[[], str] = boot_id,
    ) -> None:
        self._boot_s, self._wall, self._boot = boot_s, wall, boot
        self._offset_s = 0.0
        self.due_at = 0.0
        """When ``seen`` notes the time again."""

    def __call__(self) -> float:
        return self._boot_s() + self._offset_s

    def read(self, connection: sqlite3.Connection) -> bool:
        """Take the offset from the file; False if it belongs to another boot or is missing."""
        row = connection.execute("SELECT boot, offset_s FROM clock").fetchone()
        if row is None or row[0] != self._boot():
            return False
        self._offset_s = row[1]
        return True

    def follow(self, connection: sqlite3.Connection) -> None:
        """Go on from the last boot as ``enter`` would, writing nothing."""
        row = connection.execute("SELECT seen_at, seen_wall FROM clock").fetchone()
        if row is not None:
            self._offset_s = clock_offset(
                seen_at=row[0], seen_wall=row[1], wall=self._wall(), boot_s=self._boot_s()
            )

    def enter(self, connection: sqlite3.Connection) -> None:
        """Start the clock for this boot, or join it if it is already running."""
        if self.read(connection):
            return
        self.follow(connection)
        connection.execute(
            "INSERT OR REPLACE INTO clock (one, boot, offset_s, seen_at, seen_wall) VALUES (1, ?, ?, ?, ?)",
            (self._boot(), self._offset_s, self(), self._wall()),
        )

    def note_time(self, connection: sqlite3.Connection) -> float:
        """The time; noted now and then in the file, so that after a reboot one knows where to go on."""
        now = self()
        if now < self.due_at:
            return now
        self.due_at = now + SEEN_EVERY_S
        connection.execute("UPDATE clock SET seen_at = max(seen_at, ?), seen_wall = ?", (now, self._wall()))
        return now
