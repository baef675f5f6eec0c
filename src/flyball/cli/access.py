"""What the doctor can find about who may use the place of the state: its folder, its files, their modes.

Whoever may read the file but not write it, or may not open the lock, is refused every slot, though all that
can be seen looks well. What the modes promise is not always kept (root on ``/proc``), so where nothing was
ever written a folder is made and removed again; nothing stays behind.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from flyball.cli.findings import FIX, Finding
from flyball.governor.location import home
from flyball.host.user_home import user_home

_FILE_MODE = 0o600
_FOLDER_MODE = 0o700


def of_folder(folder: Path, *, used: bool) -> Iterator[Finding]:
    """A folder that is there must be usable; one that is not must be possible to make.

    ``used``: there is a state in it.
    """
    try:
        if not stat.S_ISDIR(folder.stat().st_mode):
            yield unusable(f"{folder} is not a folder")
        elif not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            yield unusable(f"{folder} may not be read and written by you")
        elif not used and (why := _takes_nothing(folder)):
            yield unusable(f"nothing can be made in {folder}: {why}")
    except FileNotFoundError:
        above = next(parent for parent in folder.parents if parent.exists())
        if not os.access(above, os.W_OK | os.X_OK):
            yield unusable(f"{folder} cannot be made: {above} may not be written by you")
        elif why := _takes_nothing(above):
            yield unusable(f"{folder} cannot be made: {above} takes nothing new ({why})")
    except OSError as error:
        yield unusable(f"{folder}: {error.strerror}")


def _takes_nothing(folder: Path) -> str:
    """Why nothing can be made in a folder that says it may be written; empty if something can."""
    try:
        os.rmdir(tempfile.mkdtemp(prefix=".flyball-", dir=folder))
    except OSError as error:
        return error.strerror or str(error)
    return ""


def unusable(words: str) -> Finding:
    return Finding(
        kind="unusable",
        words=words,
        meaning="the state cannot be used from here, so nothing is admitted",
        remedy="make the folder readable and writable, or set FLYBALL_HOME to one that is",
    )


# -- the files --------------------------------------------------------------------------------------


def barred(path: Path) -> list[Path]:
    """The files of the state that we may not both read and write."""
    shut = [file for file in _files(path) if file.is_file() and not os.access(file, os.R_OK | os.W_OK)]
    # Whoever was the last to close the state removes some of them, maybe in between.
    return [file for file in shut if file.exists()]


def of_files(path: Path) -> Iterator[Finding]:
    odd = [file for file in _files(path) if not file.is_file()]
    if odd:
        yield unusable(f"{odd[0]} is not a file")
    shut = barred(path)
    if shut:
        told = ", ".join(f"{file.name} is {_mode(file):04o}" for file in shut)
        mine = all(_is_mine(file) for file in shut)
        yield Finding(
            kind="barred",
            words=f"you may not read and write the state in {path.parent}: {told}",
            meaning="nothing is admitted: every ask has to write it, and to take its lock",
            remedy=f"{FIX} makes it readable and writable for you again"
            if mine
            else "it is another user's: ask for access, or set FLYBALL_HOME to a folder you own",
            fixable=mine,
        )


def make_usable(path: Path) -> None:
    for file in barred(path):
        file.chmod(_FILE_MODE)


def _files(path: Path) -> list[Path]:
    files = [Path(f"{path}{suffix}") for suffix in ("", "-wal", "-shm", ".lock")]
    return [file for file in files if os.path.exists(file)]


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _is_mine(path: Path) -> bool:
    return path.stat().st_uid == os.getuid()


# -- what others may do -----------------------------------------------------------------------------


def _private_paths(path: Path) -> list[tuple[Path, int]]:
    """What must be private, with the permissions it should have."""
    folders = [path.parent] if path.parent == home() and path.parent != user_home() else []
    return [(file, _FILE_MODE) for file in _files(path)] + [(folder, _FOLDER_MODE) for folder in folders]


def of_permissions(path: Path) -> Iterator[Finding]:
    modes = {p: _mode(p) for p, _ in _private_paths(path)}
    shared = [p for p, mode in modes.items() if mode & 0o077]
    if shared:
        told = ", ".join(f"{p if p.is_dir() else p.name} is {modes[p]:04o}" for p in shared)
        mine = all(_is_mine(p) for p in shared)
        yield Finding(
            kind="permissions",
            words=f"other users may read or change the state: {told}",
            meaning="names of projects and tasks are visible, or anybody may take every slot",
            remedy=f"{FIX} makes it private" if mine else f"its owner should run {FIX}",
            fixable=mine,
        )


def make_private(path: Path) -> None:
    for each, mode in _private_paths(path):
        each.chmod(_mode(each) & mode)
