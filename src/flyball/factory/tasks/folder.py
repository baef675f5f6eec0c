"""A folder of task files, looked at again and again: a file is read when it has changed, and only then.

Each look asks the file system for every file's stamp (number, times, size). A file with the stamp of the last
look is what it was. One that was changed within the clock's own grain before it was read may change once more
without a new stamp, so it is read again the next time.

Subfolders count like the folder itself. Passed over: names that begin with a dot, ``README.md``, files that
do not end in ``.md``. Symbolic links are not followed; one in the place of a task or a folder is a problem.
A file that vanishes while we look is gone, which is not a problem. Closed tasks are kept without their body.

The folder may be filled by others. Paths are walked one folder at a time and no symbolic link is followed, so
nothing outside can be read or written through a link that lies in the way, not even through one that appears
while we walk.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from flyball.core.tasks.task import Task, TaskStatus
from flyball.errors import SourceError
from flyball.factory.tasks.port import TaskProblem
from flyball.factory.tasks.task_text import SIZE_LIMIT, read_task, without_body

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, opening a pipe that lies there would wait for its other end.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def read_inside(base: Path, path: str, *, limit: int) -> bytes:
    """The first ``limit`` bytes of ``base/path``. OSError where there is no plain file."""
    with _open_parent(base, path) as (folder, name):
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
        _open_parent(base, path, make=True) as (folder, name),
        open(os.open(name, _WRITE, 0o666, dir_fd=folder), "wb") as file,
    ):
        file.write(data)


@contextmanager
def _open_parent(base: Path, path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
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


_GRAIN_S = 0.05
"""Kernels stamp files by a clock that ticks every 1 to 10 ms."""


Stamp = tuple[int, int, int, int]
"""Number, size, time of the last change of the text, time of the last change of anything."""


class ReadTask(NamedTuple):
    stamp: Stamp | None
    """None: read it again."""
    found: Task | TaskProblem | None


class FolderScan:
    """What was in the folder."""

    __slots__ = ("barred", "changed", "files", "folders")

    def __init__(self) -> None:
        self.files: dict[str, ReadTask] = {}
        """By path relative to the root, in no order."""
        self.folders: list[str] = []
        self.barred: list[TaskProblem] = []
        """Folders that could not be read."""
        self.changed = False
        """Something is new since the last look."""

    def paths(self, task_id: str) -> list[str]:
        return [
            path for path, (_, found) in self.files.items() if type(found) is Task and found.id == task_id
        ]


def scan(root: Path, folder: str, last: FolderScan) -> FolderScan:
    """Read what has changed since the ``last`` look, and keep the rest."""
    now = FolderScan()
    left = [folder]
    while left:
        inner = left.pop()
        try:
            with os.scandir(root / inner) as entries:
                now.folders.append(inner)
                _take_all(now, inner, entries, last.files, left)
        except FileNotFoundError:
            continue
        except OSError as error:
            if inner == folder:
                raise SourceError(
                    f"the task folder {root / inner} cannot be read: {error.strerror}"
                ) from error
            now.barred.append(
                TaskProblem(_name_words(inner), f"a folder that cannot be read: {error.strerror}")
            )
    now.changed |= last.files.keys() != now.files.keys() or last.barred != now.barred
    return now


def _take_all(
    now: FolderScan,
    folder: str,
    entries: Iterable[os.DirEntry[str]],
    before: dict[str, ReadTask],
    left: list[str],
) -> None:
    """What nothing has happened to costs one question to the file system and little else."""
    for entry in entries:
        path = f"{folder}/{entry.name}"
        last = before.get(path)
        if last is not None and last.stamp is not None and last.stamp == _stamp(entry):
            now.files[path] = last
        elif is_task_name(entry.name):
            _take(now, path, entry, last)
        elif not entry.name.startswith("."):
            _pass(now, path, entry, left)


def _pass(now: FolderScan, path: str, entry: os.DirEntry[str], left: list[str]) -> None:
    if entry.is_dir(follow_symlinks=False):
        left.append(path)
    elif entry.is_symlink() and entry.is_dir():
        now.barred.append(TaskProblem(_name_words(path), _LINK))


def _take(now: FolderScan, path: str, entry: os.DirEntry[str], last: ReadTask | None) -> None:
    stamp, wall_s = _stamp(entry), time.time()
    try:
        found = _read(path, entry)
    except FileNotFoundError:
        return
    if last is None or last.found != found:
        now.changed = True
    else:
        found = last.found
    settled = stamp is not None and not 0 <= wall_s - stamp[2] / 1e9 < _GRAIN_S
    now.files[path] = ReadTask(stamp if settled else None, found)


def _read(path: str, entry: os.DirEntry[str]) -> Task | TaskProblem | None:
    if why := _why_unreadable(entry):
        return TaskProblem(_name_words(path), why)
    try:
        data = read_at(entry.path, limit=SIZE_LIMIT + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        return TaskProblem(path, f"cannot be read: {error.strerror or error}")
    found = read_task(data, path)
    if isinstance(found, Task) and found.status is TaskStatus.CLOSED:
        return without_body(found)
    return found


def _stamp(entry: os.DirEntry[str]) -> Stamp | None:
    try:
        stat = entry.stat(follow_symlinks=False)
    except OSError:
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


def is_task_name(name: str) -> bool:
    """Could a file of this name be a task?

    >>> [is_task_name(name) for name in ("t-1.md", "README.md", ".t-1.md", "notes.txt")]
    [True, False, False, False]
    """
    lower = name.casefold()
    return lower.endswith(".md") and lower != "readme.md" and not name.startswith(".")


_LINK = "a symbolic link, which is not followed; put the file or folder itself here"


def _name_words(path: str) -> str:
    """Names are bytes to the file system; those that are not text are shown by their numbers."""
    return os.fsencode(path).decode(errors="backslashreplace")


def _why_unreadable(entry: os.DirEntry[str]) -> str:
    if not entry.name.isprintable():
        return "its name is not printable UTF-8; rename it"
    if entry.is_symlink():
        return _LINK
    if entry.is_dir(follow_symlinks=False):
        return "a folder, not a file; take .md off its name"
    if not entry.is_file(follow_symlinks=False):
        return "not a plain file"
    return ""
