"""Being told that a file has grown or a folder has changed, without asking again and again.

inotify on Linux, through the C library that Python itself stands on. Elsewhere, and where the system has
run out of watches, no notices come: ``fd`` is None or ``watch`` says False, and the caller looks now
and then.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys

_MODIFY, _MOVED_TO, _CREATE, _DELETE, _MOVED_FROM = 0x2, 0x80, 0x100, 0x200, 0x40
_CLOSE_WRITE = 0x8
_FILE = _MODIFY
_FOLDER = _CLOSE_WRITE | _MOVED_TO | _MOVED_FROM | _CREATE | _DELETE
_HEADER = struct.Struct("iIII")


class FileWatcher:
    """One queue of notices. ``fd`` becomes readable when there are some."""

    def __init__(self) -> None:
        self.fd: int | None = None
        self._paths: dict[int, str] = {}
        self._libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
        if self._libc is not None:
            found = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
            self.fd = found if found >= 0 else None

    def watch(self, path: str | os.PathLike[str]) -> bool:
        """Be told when a file grows, or when something in a folder is written, made, moved or removed."""
        if self._libc is None or self.fd is None:
            return False
        mask = _FOLDER if os.path.isdir(path) else _FILE
        number = self._libc.inotify_add_watch(self.fd, os.fsencode(path), mask)
        if number < 0:
            return False
        self._paths[number] = os.fspath(path)
        return True

    def unwatch(self, path: str | os.PathLike[str]) -> None:
        for number in [n for n, watched in self._paths.items() if watched == os.fspath(path)]:
            del self._paths[number]
            if self._libc is not None and self.fd is not None:
                self._libc.inotify_rm_watch(self.fd, number)

    def read(self) -> set[str]:
        """The watched paths that have news; all of them where notices were lost."""
        if self.fd is None:
            return set()
        try:
            data = os.read(self.fd, 1 << 16)
        except BlockingIOError:
            return set()
        found, at = set(), 0
        while at + _HEADER.size <= len(data):
            number, _mask, _cookie, length = _HEADER.unpack_from(data, at)
            at += _HEADER.size + length
            if number < 0:
                return set(self._paths.values())
            if number in self._paths:
                found.add(self._paths[number])
        return found

    def close(self) -> None:
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None
