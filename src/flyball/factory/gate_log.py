"""A log that a command writes by itself, kept short while it does: of what is endless, the beginning and the
end are worth reading.

The command's descriptors append, so cutting the file makes it go on at the new end. What it prints in the
very moment of a cut may be lost, as is what lies in between; the log says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

LIMIT_BYTES = 8 << 20
HEAD_BYTES = 1 << 20
TAIL_BYTES = 2 << 20
_LOOK_EVERY_S = 0.5


@contextlib.asynccontextmanager
async def kept_short(log: Path) -> AsyncIterator[None]:
    """Around the time in which somebody writes it."""
    looks = asyncio.create_task(_looking(log))
    try:
        yield
    finally:
        looks.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await looks
        _shortened(log)


async def _looking(log: Path) -> None:
    while True:
        await asyncio.sleep(_LOOK_EVERY_S)
        _shortened(log)


def _shortened(log: Path) -> None:
    """A disk that is full, or a log that somebody took away, is no reason to stop a gate."""
    with contextlib.suppress(OSError), open(log, "r+b") as file:
        size = file.seek(0, os.SEEK_END)
        if size <= LIMIT_BYTES:
            return
        file.seek(size - TAIL_BYTES)
        tail = file.read(TAIL_BYTES)
        file.truncate(HEAD_BYTES)
        words = f"\n[flyball: {(size - HEAD_BYTES - TAIL_BYTES) >> 20} MB left out here]\n".encode()
        with open(log, "ab", buffering=0) as end:
            end.write(words + tail)
