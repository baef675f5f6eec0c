"""A log that a command writes by itself, kept short while it does: of what is endless, the beginning and the
end are worth reading.

The command's descriptors append, so cutting the file makes it go on at the new end. What it prints between
our last look at the end and the cut, one system call after the other, is lost with what lies in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

LIMIT_BYTES = 8 << 20
HEAD_BYTES = 1 << 20
TAIL_BYTES = 2 << 20
_CHASE_BYTES = 64 << 20
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
    with contextlib.suppress(OSError), open(log, "r+b", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        if size <= LIMIT_BYTES:
            return
        tail = _end_of(file, size - TAIL_BYTES)
        left_out = file.tell() - HEAD_BYTES - len(tail)
        file.truncate(HEAD_BYTES)
        with open(log, "ab", buffering=0) as end:
            end.write(f"\n[flyball: {left_out >> 20} MB left out here]\n".encode() + tail)


def _end_of(file: BinaryIO, start: int) -> bytes:
    """The last of what is there from ``start`` on, and of what is added while we read: its last words count.

    Whoever writes faster than we read has no last words yet.
    """
    file.seek(start)
    tail = b""
    while (part := file.read(TAIL_BYTES)) and file.tell() < start + _CHASE_BYTES:
        tail = (tail + part)[-TAIL_BYTES:]
    return tail
