"""Reading and writing a file inside a folder that somebody else may have filled.

Paths are walked one folder at a time and no symbolic link is followed, so nothing outside can be read or
written through a link that lies in the way, not even through one that appears while we walk.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, opening a pipe that somebody put there would wait for its other end.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def read_inside(base: Path, path: str, *, limit: int) -> bytes:
    """The first ``limit`` bytes of ``base/path``. OSError where there is no plain file."""
    with _folder_of(base, path) as (folder, name):
        return read_at(name, limit=limit, folder=folder)


def read_at(name: str, *, limit: int, folder: int | None = None) -> bytes:
    """The first ``limit`` bytes of one file."""
    handle = os.open(name, _READ, dir_fd=folder)
    with open(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(f"{name} is not a plain file")
        return file.read(limit)


def write_inside(base: Path, path: str, data: bytes) -> None:
    """Write ``base/path``, making its folders; a file that was there keeps its permissions."""
    with (
        _folder_of(base, path, make=True) as (folder, name),
        open(os.open(name, _WRITE, 0o666, dir_fd=folder), "wb") as file,
    ):
        file.write(data)


@contextmanager
def _folder_of(base: Path, path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
    *folders, name = PurePosixPath(path).parts
    if ".." in folders or name == ".." or path.startswith("/"):
        raise OSError(f"{path} leads out of {base}")
    handle = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for folder in folders:
            inner = _open_folder(folder, handle, make=make)
            os.close(handle)
            handle = inner
        yield handle, name
    finally:
        os.close(handle)


def _open_folder(name: str, above: int, *, make: bool) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=above)
    except FileNotFoundError:
        if not make:
            raise
    os.mkdir(name, dir_fd=above)
    return os.open(name, _FOLDER, dir_fd=above)
