"""A file that another process still writes, read on from where the last read ended.

A read never waits: an empty one says that nothing new is there yet. When to look again is the caller's
(``host/file_watch.py`` says when a file has grown). Each read names its place, because the descriptor may be
the writer's own: no position is shared or moved.
"""

from __future__ import annotations

import os

PIECE_BYTES = 1 << 18


class GrowingFile:
    """``at`` is how many bytes have been read."""

    def __init__(self, fd: int, *, at: int = 0) -> None:
        self.fd, self.at = fd, at

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> GrowingFile:
        return cls(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def read(self) -> bytes:
        """What has been written since the last read, up to a piece."""
        piece = os.pread(self.fd, PIECE_BYTES, self.at)
        self.at += len(piece)
        return piece

    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def close(self) -> None:
        os.close(self.fd)
