"""A look at a state file that may be broken, newer, or somebody else's. Writes nothing.

``set_aside`` moves a damaged file out of the way. It never deletes: what is in it may matter to a person.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from flyball.host.lockfile import LockFile
from flyball.stores.sqlite.ailments import GARBLED
from flyball.stores.sqlite.opening import APPLICATION_ID, SCHEMA_VERSION, marks


class Ailment(Enum):
    """Why a file cannot be used as it is."""

    DAMAGED = "damaged"
    NEWER = "newer"
    FOREIGN = "foreign"
    OLD = "old"
    BARRED = "barred"


@dataclass(frozen=True, slots=True)
class ClockRow:
    """What the file remembers about time (see clock.py)."""

    boot: str
    offset_s: float
    seen_at: float
    seen_wall: float


@dataclass(frozen=True, slots=True)
class Examination:
    ailment: Ailment | None = None
    words: str = ""
    clock: ClockRow | None = None


def examine(path: Path) -> Examination:
    """What is the matter with an existing file, if anything."""
    try:
        with contextlib.closing(_connect(path)) as connection:
            return _look(connection)
    except sqlite3.Error as error:
        return Examination(_ailment_of(error), str(error))
    except UnicodeDecodeError:
        # SQLite quotes what it found in the schema; Python cannot read the quotation.
        return Examination(Ailment.DAMAGED, GARBLED)
    except OSError as error:
        return Examination(Ailment.BARRED, error.strerror or str(error))


def _connect(path: Path) -> sqlite3.Connection:
    quoted = str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    # In a folder we may not write to, a file that nobody has open can be read as it is.
    frozen = not os.access(path.parent, os.W_OK) and not Path(f"{path}-wal").exists()
    return sqlite3.connect(f"file:{quoted}?{'immutable=1' if frozen else 'mode=ro'}", uri=True, timeout=5.0)


def _look(connection: sqlite3.Connection) -> Examination:
    version, application, tables = marks(connection)
    if not version and not tables:
        return Examination()
    if application != APPLICATION_ID:
        return Examination(Ailment.FOREIGN, "it is a database of another program")
    if version > SCHEMA_VERSION:
        return Examination(Ailment.NEWER, f"its layout is {version}, this flyball knows {SCHEMA_VERSION}")
    found = [row[0] for row in connection.execute("PRAGMA quick_check(3)")]
    if found != ["ok"]:
        return Examination(Ailment.DAMAGED, "; ".join(found))
    if version < SCHEMA_VERSION:
        return Examination(Ailment.OLD, f"its layout is {version}, this flyball writes {SCHEMA_VERSION}")
    row = connection.execute("SELECT boot, offset_s, seen_at, seen_wall FROM clock").fetchone()
    return Examination(clock=ClockRow(*row) if row is not None else None)


def _ailment_of(error: sqlite3.Error) -> Ailment | None:
    """None: the file could not be judged just now, such as while it is being written."""
    name = getattr(error, "sqlite_errorname", "") or ""
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return None
    # Only what is certain counts as damage: a file is set aside for it. A missing table says SQLITE_ERROR.
    damaged = name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")) or name == "SQLITE_ERROR"
    return Ailment.DAMAGED if damaged else Ailment.BARRED


def set_aside(path: Path, *, still_bad: Callable[[], bool]) -> Path | None:
    """Rename a damaged file and what belongs to it; where it is now. None: it was mended meanwhile."""
    lock = LockFile.of(f"{path}.lock")
    lock.acquire()
    try:
        if not still_bad():
            return None
        number = 1
        while Path(f"{path}.damaged-{number}").exists():
            number += 1
        aside = Path(f"{path}.damaged-{number}")
        # The journal first: left beside a new file, it would be replayed into that one.
        for suffix in ("-wal", "-shm", ""):
            with contextlib.suppress(FileNotFoundError):
                os.rename(f"{path}{suffix}", f"{aside}{suffix}")
        return aside
    finally:
        lock.release()
