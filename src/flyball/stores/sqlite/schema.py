"""Opening the shared file: what it must be, where it may lie, and how an older layout is brought forward.

``examine`` says what is the matter with a file that may be broken, newer, or another program's; it writes
nothing. ``set_aside`` moves a damaged file out of the way, and never deletes: what is in it may matter to a
person.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from flyball.errors import StoreError, StoreUnreadableError
from flyball.host.lock_file import LockFile
from flyball.host.resources import network_type
from flyball.stores.sqlite.clock import StoreClock
from flyball.stores.sqlite.errors import GARBLED, refused_by_system

APPLICATION_ID = 0x666C7962  # "flyb"
SCHEMA_VERSION = 7
OLDEST_SQLITE = (3, 35, 0)
BUSY_TIMEOUT_S = 10.0
LOG_LIMIT_PAGES = 16_000
"""Where no checkpoint came before, a commit itself moves the log into the file."""


FileId = tuple[int, int]


def file_id(path: Path) -> FileId | None:
    """Which file the path names now; None for none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


class StoreEmptyError(StoreError):
    """The file exists, but nothing has been written to it yet."""


def prepare_home(path: Path) -> None:
    """A folder and a file that only their owner can read, on a disk whose locks can be relied on."""
    home = path.parent
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"cannot make {home}: {error.strerror}; set FLYBALL_HOME to a folder you own"
        ) from error
    kind = network_type(str(home))
    if kind:
        raise StoreError(
            f"{home} is on a network file system ({kind}), where locks are not reliable; "
            "set FLYBALL_HOME to a local folder, or share a pool between machines with FLYBALL_URL=redis://..."
        )
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        pass
    except OSError as error:
        raise refused_by_system(path, error) from error


def open_for_writing(path: Path, clock: StoreClock, lock: LockFile) -> sqlite3.Connection:
    connection = _connect(f"file:{_quote(path)}")
    if _version(path, connection) != SCHEMA_VERSION or not clock.read(connection):
        lock.acquire()
        try:
            _upgrade(path, clock, connection)
        finally:
            lock.release()
    return connection


def open_for_reading(path: Path, clock: StoreClock) -> sqlite3.Connection:
    try:
        connection = _connect(f"file:{_quote(path)}?mode=ro")
        _version(path, connection)
    except sqlite3.OperationalError:
        # A folder we may not write to, and no process has the file open: its content cannot change.
        if Path(f"{path}-wal").exists():
            raise
        connection = _connect(f"file:{_quote(path)}?immutable=1")
    version = _version(path, connection)
    if version == 0:
        raise StoreEmptyError(f"{path} is still being made")
    if version != SCHEMA_VERSION:
        raise StoreUnreadableError(f"{path} has an old layout; any flyball command that writes upgrades it")
    if not clock.read(connection):
        clock.follow(connection)
    return connection


def _connect(uri: str) -> sqlite3.Connection:
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise StoreError(f"SQLite {sqlite3.sqlite_version} is too old; flyball needs 3.35 or newer")
    connection = sqlite3.connect(
        uri,
        uri=True,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )
    # In WAL mode NORMAL loses nothing to a killed process; only power loss may undo the last commits.
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA cache_size = -512")
    connection.execute(f"PRAGMA wal_autocheckpoint = {LOG_LIMIT_PAGES}")
    return connection


def _version(path: Path, connection: sqlite3.Connection) -> int:
    """The schema's version. Refuses files that are not ours or from the future."""
    version, application, tables = marks(connection)
    if (version or tables) and application != APPLICATION_ID:
        raise StoreUnreadableError(f"{path} is a database of another program; set FLYBALL_HOME elsewhere")
    _refuse_newer(path, version)
    return int(version)


def check_layout(path: Path, connection: sqlite3.Connection) -> None:
    """Of a file that was ours when it was opened: a newer flyball may have brought it forward since."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    _refuse_newer(path, version)


def _refuse_newer(path: Path, version: int) -> None:
    if version > SCHEMA_VERSION:
        raise StoreUnreadableError(
            f"{path} was written by a newer flyball (layout {version}, this one knows "
            f"{SCHEMA_VERSION}); upgrade flyball, or set FLYBALL_HOME to another folder"
        )


def marks(connection: sqlite3.Connection) -> tuple[int, int, int]:
    """Version, whose it is, and how many tables: of one moment, as another process may be making them."""
    began = not connection.in_transaction
    if began:
        connection.execute("BEGIN")
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    finally:
        if began:
            connection.execute("ROLLBACK")
    return version, application, tables


def _upgrade(path: Path, clock: StoreClock, connection: sqlite3.Connection) -> None:
    """Bring the schema forward, in numbered steps, all of them or none: no process sees it half done."""
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        # A commit writes whole pages; the rows are small.
        connection.execute("PRAGMA page_size = 1024")
        connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("BEGIN IMMEDIATE")
    try:
        for number, script in schema_steps()[_version(path, connection) :]:
            for statement in _statements(script):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {number}")
        clock.enter(connection)
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def schema_steps() -> list[tuple[int, str]]:
    """The numbered scripts beside this file, oldest first."""
    scripts = sorted(Path(__file__).parent.glob("[0-9][0-9][0-9]_*.sql"))
    return [(int(script.name[:3]), script.read_text(encoding="utf-8")) for script in scripts]


def _statements(script: str) -> Iterator[str]:
    """Split a script; a trigger's inner semicolons do not end it."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _quote(path: Path) -> str:
    return str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")


class Diagnosis(Enum):
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
    """What is the matter with a file, in words too; no diagnosis: nothing."""

    diagnosis: Diagnosis | None = None
    words: str = ""
    clock: ClockRow | None = None


def examine(path: Path) -> Examination:
    """What is the matter with an existing file, if anything."""
    try:
        with contextlib.closing(_connect_to_read(path)) as connection:
            return _look(connection)
    except sqlite3.Error as error:
        return Examination(_diagnose(error), str(error))
    except UnicodeDecodeError:
        # SQLite quotes what it found in the schema; Python cannot read the quotation.
        return Examination(Diagnosis.DAMAGED, GARBLED)
    except OSError as error:
        return Examination(Diagnosis.BARRED, error.strerror or str(error))


def _connect_to_read(path: Path) -> sqlite3.Connection:
    # In a folder we may not write to, a file that no process has open can be read as it is.
    frozen = not os.access(path.parent, os.W_OK) and not Path(f"{path}-wal").exists()
    mode = "immutable=1" if frozen else "mode=ro"
    return sqlite3.connect(f"file:{_quote(path)}?{mode}", uri=True, timeout=5.0)


def _look(connection: sqlite3.Connection) -> Examination:
    version, application, tables = marks(connection)
    if not version and not tables:
        return Examination()
    if application != APPLICATION_ID:
        return Examination(Diagnosis.FOREIGN, "it is a database of another program")
    if version > SCHEMA_VERSION:
        return Examination(Diagnosis.NEWER, f"its layout is {version}, this flyball knows {SCHEMA_VERSION}")
    found = [row[0] for row in connection.execute("PRAGMA quick_check(3)")]
    if found != ["ok"]:
        return Examination(Diagnosis.DAMAGED, "; ".join(found))
    if version < SCHEMA_VERSION:
        return Examination(Diagnosis.OLD, f"its layout is {version}, this flyball writes {SCHEMA_VERSION}")
    row = connection.execute("SELECT boot, offset_s, seen_at, seen_wall FROM clock").fetchone()
    return Examination(clock=ClockRow(*row) if row is not None else None)


def _diagnose(error: sqlite3.Error) -> Diagnosis | None:
    """None: the file could not be judged just now, such as while it is being written."""
    name = getattr(error, "sqlite_errorname", "") or ""
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return None
    # Only what is certain counts as damage: a file is set aside for it. A missing table says SQLITE_ERROR.
    damaged = name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")) or name == "SQLITE_ERROR"
    return Diagnosis.DAMAGED if damaged else Diagnosis.BARRED


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
