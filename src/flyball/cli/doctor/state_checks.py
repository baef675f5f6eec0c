"""What the doctor can find about the place of the state: folder, files and their modes, disk, lock, clock.

Works on a file that cannot be opened as a store. A user who may read the file but not write it, or may not
open the lock, is refused every slot, though all that can be seen looks well. Modes do not tell everything
(root on ``/proc``), so where nothing was ever written a folder is made and removed again.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from flyball.cli.doctor.pool_checks import AHEAD_S, FIX, DoctorFinding, Severity
from flyball.cli.ui.units import counted
from flyball.core.pool.verdict import span_words
from flyball.errors import StoreError
from flyball.host.clock import OFF_LIMIT_S, boot_seconds
from flyball.host.lock_file import LockFile
from flyball.host.process import boot_id
from flyball.host.resources import is_full, network_type
from flyball.host.state_folder import FILE_NAME, home
from flyball.host.user_home import user_home
from flyball.stores.sqlite.schema import OLDEST_SQLITE, ClockRow, Diagnosis, Examination
from flyball.wake.mailbox import abandoned, folder_for

_FILE_MODE = 0o600
_FOLDER_MODE = 0o700


def check_folder(folder: Path, *, used: bool) -> Iterator[DoctorFinding]:
    """A folder that is there must be usable; one that is not must be possible to make.

    ``used``: there is a state in it.
    """
    try:
        if not stat.S_ISDIR(folder.stat().st_mode):
            yield unusable_finding(f"{folder} is not a folder")
        elif not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            yield unusable_finding(f"{folder} may not be read and written by you")
        elif not used and (why := _takes_nothing(folder)):
            yield unusable_finding(f"nothing can be made in {folder}: {why}")
    except FileNotFoundError:
        above = next(parent for parent in folder.parents if parent.exists())
        if not os.access(above, os.W_OK | os.X_OK):
            yield unusable_finding(f"{folder} cannot be made: {above} may not be written by you")
        elif why := _takes_nothing(above):
            yield unusable_finding(f"{folder} cannot be made: {above} takes nothing new ({why})")
    except OSError as error:
        yield unusable_finding(f"{folder}: {error.strerror}")


def _takes_nothing(folder: Path) -> str:
    """Why nothing can be made in a folder that says it may be written; empty if something can."""
    try:
        os.rmdir(tempfile.mkdtemp(prefix=".flyball-", dir=folder))
    except OSError as error:
        return error.strerror or str(error)
    return ""


def unusable_finding(words: str) -> DoctorFinding:
    return DoctorFinding(
        kind="unusable",
        words=words,
        meaning="the state cannot be used from here, so nothing is admitted",
        remedy="make the folder readable and writable, or set FLYBALL_HOME to one that is",
    )


# -- the files --------------------------------------------------------------------------------------


def inaccessible_files(path: Path) -> list[Path]:
    """The files of the state that we may not both read and write."""
    shut = [file for file in _files(path) if file.is_file() and not os.access(file, os.R_OK | os.W_OK)]
    # The last process to close the state removes some of them, maybe in between.
    return [file for file in shut if file.exists()]


def check_files(path: Path) -> Iterator[DoctorFinding]:
    odd = [file for file in _files(path) if not file.is_file()]
    if odd:
        yield unusable_finding(f"{odd[0]} is not a file")
    shut = inaccessible_files(path)
    if shut:
        told = ", ".join(f"{file.name} is {_mode(file):04o}" for file in shut)
        mine = all(_is_mine(file) for file in shut)
        yield DoctorFinding(
            kind="barred",
            words=f"you may not read and write the state in {path.parent}: {told}",
            meaning="nothing is admitted: every ask has to write it, and to take its lock",
            remedy=f"{FIX} makes it readable and writable for you again"
            if mine
            else "it is another user's: ask for access, or set FLYBALL_HOME to a folder you own",
            fixable=mine,
        )


def make_usable(path: Path) -> None:
    for file in inaccessible_files(path):
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


def check_permissions(path: Path) -> Iterator[DoctorFinding]:
    modes = {p: _mode(p) for p, _ in _private_paths(path)}
    shared = [p for p, mode in modes.items() if mode & 0o077]
    if shared:
        told = ", ".join(f"{p if p.is_dir() else p.name} is {modes[p]:04o}" for p in shared)
        mine = all(_is_mine(p) for p in shared)
        yield DoctorFinding(
            kind="permissions",
            words=f"other users may read or change the state: {told}",
            meaning="names of projects and tasks are visible, or any user may take every slot",
            remedy=f"{FIX} makes it private" if mine else f"its owner should run {FIX}",
            fixable=mine,
        )


def make_private(path: Path) -> None:
    for each, mode in _private_paths(path):
        each.chmod(_mode(each) & mode)


_LOCK_LOOKS = 4
_LOCK_NAP_S = 0.25


def check_environment(path: Path) -> Iterator[DoctorFinding]:
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        yield DoctorFinding(
            kind="old-sqlite",
            words=f"SQLite {sqlite3.sqlite_version} is too old",
            meaning="flyball cannot keep its state with it",
            remedy="use a Python with SQLite 3.35 or newer",
        )
    kind = network_type(str(path.parent))
    if kind:
        yield DoctorFinding(
            kind="network-disk",
            words=f"{path.parent} is on a network file system ({kind})",
            meaning="locks are not reliable there, so two processes could take one slot",
            remedy="set FLYBALL_HOME to a local folder",
        )
    if os.environ.get("FLYBALL_URL") and os.environ.get("FLYBALL_HOME") and home() / FILE_NAME != path:
        yield _two_homes(path)


def check_disk(path: Path) -> Iterator[DoctorFinding]:
    folder = next(parent for parent in path.parents if os.path.isdir(parent))
    if is_full(str(folder)):
        yield disk_full_finding(f"no space is left on the disk of {folder}")


def disk_full_finding(words: str) -> DoctorFinding:
    return DoctorFinding(
        kind="disk-full",
        words=words,
        meaning="the state cannot grow: asks and releases fail as soon as it has to; what runs goes on",
        remedy="free some disk space, or set FLYBALL_HOME to a folder on another disk, everywhere alike",
    )


def _two_homes(path: Path) -> DoctorFinding:
    other = home() / FILE_NAME
    used = other.exists()
    return DoctorFinding(
        kind="two-homes",
        severity=Severity.PROBLEM if used else Severity.NOTE,
        words=f"FLYBALL_URL and FLYBALL_HOME are both set; the state is {path}, not {other}",
        meaning="a process that sees only one of them counts against a cap of its own"
        if used
        else "FLYBALL_URL wins",
        remedy="unset one of them, everywhere alike",
    )


def check_lock(path: Path) -> Iterator[DoctorFinding]:
    """Every step takes the lock for a moment; the same turn seen for a whole second is stuck."""
    name = f"{path}.lock"
    if not os.path.exists(name):
        return
    try:
        lock = LockFile.of(name)
        seen = lock.waits_for()
        for _ in range(_LOCK_LOOKS):
            if seen is None:
                return
            time.sleep(_LOCK_NAP_S)
            if lock.waits_for() != seen:
                return
    except StoreError:
        return
    if seen is not None:
        yield DoctorFinding(
            kind="lock-stuck",
            words=f"{seen.holder} holds the lock {name} and makes no progress",
            meaning="no process can take or give back a slot until it goes on",
            remedy=seen.way_out,
        )


def check_sockets(folder: Path) -> Iterator[DoctorFinding]:
    try:
        left = abandoned(folder_for(folder))
    except OSError:
        return
    if left:
        yield DoctorFinding(
            kind="sockets",
            severity=Severity.NOTE,
            words=f"{counted(len(left), 'socket')} without a listener in {left[0].parent}",
            meaning="left behind by killed waiters; harmless",
            remedy=f"{FIX} sweeps them",
            fixable=True,
        )


# -- the file itself ------------------------------------------------------------------------------


def check_file(path: Path, seen: Examination) -> Iterator[DoctorFinding]:
    if seen.diagnosis is Diagnosis.DAMAGED:
        yield DoctorFinding(
            kind="damaged",
            words=f"{path} is damaged: {seen.words}",
            meaning="nothing can be admitted; settings, leases and learned state in it cannot be read",
            remedy=f"{FIX} sets it aside as {path.name}.damaged-N and starts anew without its settings; work "
            "that runs now is then not counted, so let it finish first if you can",
            fixable=True,
        )
    elif seen.diagnosis is Diagnosis.NEWER:
        yield DoctorFinding(
            kind="newer-layout",
            words=f"{path} was written by a newer flyball: {seen.words}",
            meaning="this version would misread it, so it touches nothing",
            remedy="upgrade flyball, or set FLYBALL_HOME to another folder",
        )
    elif seen.diagnosis is Diagnosis.FOREIGN:
        yield DoctorFinding(
            kind="foreign-file",
            words=f"{path} is not flyball's: {seen.words}",
            meaning="flyball does not write into other programs' files",
            remedy="set FLYBALL_HOME or FLYBALL_URL to a place of its own",
        )
    elif seen.diagnosis is Diagnosis.OLD:
        yield DoctorFinding(
            kind="old-layout",
            severity=Severity.NOTE,
            words=f"{path} is from an older flyball: {seen.words}",
            meaning="it cannot be shown before it is upgraded",
            remedy=f"any command that writes upgrades it; {FIX} does",
            fixable=True,
        )
    elif seen.diagnosis is Diagnosis.BARRED:
        yield unusable_finding(f"{path}: {seen.words}")


def check_emptiness(path: Path) -> Iterator[DoctorFinding]:
    """What an interrupted first use leaves looks like a file that was emptied: either is taken for new."""
    if path.is_file() and path.stat().st_size == 0:
        yield DoctorFinding(
            kind="empty",
            severity=Severity.NOTE,
            words=f"{path} is empty: its first use was interrupted, or it was emptied",
            meaning="the next use starts it anew; settings and leases that were in it are gone",
            remedy="if it was in use before, put a copy of yours in its place or set the pools again; "
            "let work that runs finish first, for it is not counted",
        )


def set_aside_finding(finding: DoctorFinding, path: Path, aside: Path) -> DoctorFinding:
    """The damaged file is out of the way: say loudly what that means."""
    return replace(
        finding,
        fixed=True,
        words=f"{path} was damaged and is now {aside}; a new, empty state was started",
        meaning="settings are the defaults again; work that runs now is not counted, and an ask that "
        "waits now waits in the old file: start both again",
    )


def unreachable_finding(words: str) -> DoctorFinding:
    return DoctorFinding(
        kind="unreachable",
        words=words,
        meaning="the state is on a server that cannot be used from here, so nothing is admitted",
        remedy="mend the server or the connection to it; FLYBALL_URL names it",
    )


def check_clock(clock: ClockRow | None) -> Iterator[DoctorFinding]:
    if clock is None:
        return
    if clock.boot != boot_id():
        off_s = time.time() - clock.seen_wall
        wrong = off_s < 0 or off_s > OFF_LIMIT_S
        side = "before" if off_s < 0 else "after"
        odd = f"; the wall clock says {span_words(abs(off_s))} {side} the last use"
        yield DoctorFinding(
            kind="other-boot",
            severity=Severity.NOTE,
            words=f"the machine was started again since the state was last used{odd if wrong else ''}",
            meaning="breaks and settles go on from where they were, counting how long it was off"
            + (", within reason" if wrong else ""),
            remedy=f"any command that writes goes on from there; {FIX} does",
            fixable=True,
        )
    elif clock.seen_at > boot_seconds() + clock.offset_s + AHEAD_S:
        ahead_s = clock.seen_at - boot_seconds() - clock.offset_s
        yield DoctorFinding(
            kind="clock",
            words=f"the state was last used {span_words(ahead_s)} in the future",
            meaning="a process with another boot clock (a container with its own time) shares this state",
            remedy="give each container its own FLYBALL_HOME; waits end late until the clock has caught up",
        )
