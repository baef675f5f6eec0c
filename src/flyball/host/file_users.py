"""Which living processes may have made a file, and may need it still.

Those that have it open; and since a program may make a file, close it, and go on needing it, as git does with
its locks, also those of the program's name that work in one of some folders and were there when the file was
last written. One that was started later cannot have made it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

_SLACK_S = 2.0
"""Between the clock of file systems and that of processes."""


def find_users(path: Path, *, program: str, folders: Sequence[Path]) -> list[int] | None:
    """Their pids; None where this system does not tell. FileNotFoundError if the file is gone."""
    if not os.path.exists("/proc/self/stat"):
        return None
    written_at, name = path.lstat().st_mtime, os.path.realpath(path)
    return [
        pid
        for pid in (int(each) for each in os.listdir("/proc") if each.isdigit())
        if pid != os.getpid()
        and (_has_open(pid, name) or _works_beside(pid, program, folders, before=written_at + _SLACK_S))
    ]


def _has_open(pid: int, name: str) -> bool:
    try:
        return any(os.readlink(f"/proc/{pid}/fd/{fd}") == name for fd in os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        # It ended, or belongs to another user; then its name and its folder have to tell.
        return False


def _works_beside(pid: int, program: str, folders: Sequence[Path], *, before: float) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return False
    # The name may contain anything, brackets included.
    name, fields = text[text.find(b"(") + 1 : text.rfind(b")")], text[text.rfind(b")") + 2 :].split()
    if name.partition(b"-")[0] != program.encode() or fields[0] in (b"Z", b"X"):
        return False
    with open("/proc/stat", "rb") as file:
        boot = next(int(line.split()[1]) for line in file if line.startswith(b"btime"))
    if boot + int(fields[19]) / os.sysconf("SC_CLK_TCK") > before:
        return False
    try:
        where = Path(os.readlink(f"/proc/{pid}/cwd"))
    except PermissionError:
        return True
    except OSError:
        return False
    return any(where.is_relative_to(folder) for folder in folders)
