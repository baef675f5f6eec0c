"""Opening, locking and transactions of the shared file.

Processes queue on a lock file of their own before they begin a transaction: SQLite's busy waiting is
unfair (one of eight processes waited over a second). The lock is held for one short transaction.

Mind, all of it tried:
- The database file is never opened by hand: closing such a descriptor would drop SQLite's own locks.
- A fork waits until no transaction is open. The child closes the idle connection it inherited, then opens its
  own: with the inherited one still known to it, SQLite would take no locks of its own in the child.
- On a full disk even a DELETE fails; the verbs keep such a release and write it with the next step.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import cast

from flyball.errors import StoreError, StoreReadOnlyError, StoreUnreadableError, invariant
from flyball.host.filesystem import network_type
from flyball.host.fork import survive_forks
from flyball.host.lockfile import LockFile
from flyball.stores.desk import World
from flyball.stores.rows import Rows
from flyball.stores.sqlite.ailments import as_store_error, unwritable
from flyball.stores.sqlite.clock import StoreClock
from flyball.stores.sqlite.rows import SqliteRows
from flyball.stores.verbs import Verbs

APPLICATION_ID = 0x666C7962  # "flyb"
BUSY_TIMEOUT_S = 10.0
OLDEST_SQLITE = (3, 35, 0)
CHECKPOINT_EVERY = 1000
LOG_LIMIT_PAGES = 16_000
"""Where nobody got to it before, a commit itself moves the log into the file."""


class StoreEmptyError(StoreError):
    """The file exists, but nothing has been written to it yet."""


class _WriteStep:
    """One write transaction as a ``with`` block. A class, because every acquire and release pays for it."""

    __slots__ = ("_store",)

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    def __enter__(self) -> Rows:
        return self._store.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._store.end(error)


class SqliteStore(Verbs):
    """The one-machine store. Safe to use from many threads, and after a fork."""

    def __init__(self, path: Path, world: World, clock: StoreClock, *, read_only: bool = False) -> None:
        super().__init__(world)
        self.path = path
        self._clock = clock
        self._read_only = read_only
        self._mutex = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._rows: SqliteRows | None = None
        self._commits = 0
        self._together = False
        """The steps of the thread that has the mutex share one transaction."""
        self._inherited: sqlite3.Connection | None = None
        survive_forks(self)
        with self._mutex, self._translated():
            self._open()

    # -- transactions -----------------------------------------------------------------------------

    def _write(self) -> AbstractContextManager[Rows]:
        return _WriteStep(self)

    @contextmanager
    def _read(self) -> Iterator[Rows]:
        with self._mutex, self._translated():
            connection, rows = self._ready()
            if self._together:
                yield rows
                return
            connection.execute("BEGIN")
            try:
                rows.now, rows.epoch = self._clock(), self._world.epoch()
                yield rows
            finally:
                connection.execute("ROLLBACK")

    @contextmanager
    def _peek(self) -> Iterator[Rows]:
        with self._mutex, self._translated():
            yield self._ready()[1]

    def begin(self) -> SqliteRows:
        """Take the locks and open a write transaction; everything is let go if that fails."""
        self._mutex.acquire()
        try:
            if self._read_only:
                raise StoreReadOnlyError(f"{self.path} was opened for reading only")
            connection, rows = self._ready()
            if not self._together:
                self._file_lock.acquire()
                self._open_step(connection, rows)
        except BaseException as error:
            self._mutex.release()
            raise self._translate(error) from error.__cause__
        return rows

    def _open_step(self, connection: sqlite3.Connection, rows: SqliteRows) -> None:
        """Under the file's lock, which is let go if that fails."""
        try:
            connection.execute("BEGIN IMMEDIATE")
            try:
                rows.now, rows.actions = self._clock.seen(connection), []
                rows.epoch = self._world.epoch()
            except BaseException:
                connection.execute("ROLLBACK")
                raise
        except BaseException:
            self._file_lock.release()
            raise

    def end(self, error: BaseException | None) -> None:
        """Commit, or roll back on an error; let the locks go; raise what went wrong as ours."""
        try:
            if self._together:
                if error is not None:
                    raise self._translate(error)
                return
            connection, rows = self._ready()
            self._close_step(connection, rows, error)
            self._checkpoint_now_and_then(connection)
        finally:
            self._mutex.release()

    def _close_step(
        self, connection: sqlite3.Connection, rows: SqliteRows, error: BaseException | None
    ) -> None:
        try:
            if error is None:
                connection.execute("COMMIT")
        except BaseException as failure:
            error = failure
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            self._file_lock.release()
        if error is not None:
            raise self._translate(error)
        self._commits += 1
        for action in rows.actions:
            action()

    # -- several verbs in one transaction -----------------------------------------------------------

    def begin_together(self) -> bool:
        """The verbs that this thread calls from now on are one transaction, until ``end_together``.

        False, without waiting, where somebody is in the way or anything is wrong: whoever goes alone is told.
        """
        if self._read_only or not self._mutex.acquire(blocking=False):
            return False
        try:
            self._together = self._opened_at_once()
        finally:
            if not self._together:
                self._mutex.release()
        return self._together

    def _opened_at_once(self) -> bool:
        connection, rows = self._connection, self._rows
        if connection is None or rows is None or not self._file_lock.acquire_at_once():
            return False
        try:
            connection.execute("PRAGMA busy_timeout = 0")
            self._open_step(connection, rows)
        except sqlite3.Error:
            return False
        finally:
            connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_S * 1000:.0f}")
        return True

    def end_together(self, *, keep: bool) -> bool:
        """Commit what was done together, or undo it. False: none of it was done."""
        invariant(self._together, "what ends together began together")
        try:
            connection, rows = self._ready()
            self._close_step(connection, rows, None if keep else StoreError("undone"))
        except StoreError:
            return False
        finally:
            self._together = False
            self._mutex.release()
        return True

    def _checkpoint_now_and_then(self, connection: sqlite3.Connection) -> None:
        """Move the log into the file while others may write, instead of inside somebody's commit.

        Those who do something together are in a hurry: the next who is not does it.
        """
        if self._commits >= CHECKPOINT_EVERY:
            self._commits = 0
            with contextlib.suppress(sqlite3.Error):
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def _ready(self) -> tuple[sqlite3.Connection, SqliteRows]:
        if self._connection is None or self._rows is None:
            self._open()
        invariant(self._connection is not None and self._rows is not None, "the store is open")
        return cast("tuple[sqlite3.Connection, SqliteRows]", (self._connection, self._rows))

    def close(self) -> None:
        with self._mutex:
            if self._connection is not None:
                self._connection.close()
            self._connection = self._rows = None

    def before_fork(self) -> None:
        self._mutex.acquire()

    def after_fork_in_parent(self) -> None:
        self._mutex.release()

    def after_fork_in_child(self) -> None:
        """Nobody was inside, so the connection is idle; it is put away before this process opens its own.

        Merely abandoning it would not do: SQLite keeps one record per file and process, and would believe
        that the locks its parent holds are its own.
        """
        self._mutex = threading.RLock()
        self._unwritten_lock = threading.Lock()
        self._unwritten = []
        self._inherited, self._connection, self._rows = self._connection, None, None

    # -- opening ----------------------------------------------------------------------------------

    def _open(self) -> None:
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            raise StoreError(f"SQLite {sqlite3.sqlite_version} is too old; flyball needs 3.35 or newer")
        if self._inherited is not None:
            self._inherited.close()
            self._inherited = None
        if not self._read_only:
            self._prepare_home()
            self._file_lock = LockFile.of(f"{self.path}.lock")
        connection = self._open_for_reading() if self._read_only else self._open_for_writing()
        self._connection, self._rows = connection, SqliteRows(connection)

    def _open_for_writing(self) -> sqlite3.Connection:
        connection = self._connect(f"file:{_quoted(self.path)}")
        if self._version(connection) != SCHEMA_VERSION or not self._clock.read(connection):
            self._file_lock.acquire()
            try:
                self._upgrade(connection)
            finally:
                self._file_lock.release()
        return connection

    def _prepare_home(self) -> None:
        home = self.path.parent
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
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            pass
        except OSError as error:
            raise unwritable(self.path, error.strerror or str(error)) from error

    def _open_for_reading(self) -> sqlite3.Connection:
        try:
            connection = self._connect(f"file:{_quoted(self.path)}?mode=ro")
            self._version(connection)
        except sqlite3.OperationalError:
            # A folder we may not write to, and nobody has the file open: its content cannot change.
            if Path(f"{self.path}-wal").exists():
                raise
            connection = self._connect(f"file:{_quoted(self.path)}?immutable=1")
        version = self._version(connection)
        if version == 0:
            raise StoreEmptyError(f"{self.path} is still being made")
        if version != SCHEMA_VERSION:
            raise StoreUnreadableError(
                f"{self.path} has an old layout; any flyball command that writes upgrades it"
            )
        if not self._clock.read(connection):
            self._clock.follow(connection)
        return connection

    def _connect(self, uri: str) -> sqlite3.Connection:
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

    def _version(self, connection: sqlite3.Connection) -> int:
        """The schema's version. Refuses files that are not ours or from the future."""
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if (version or tables) and application != APPLICATION_ID:
            raise StoreUnreadableError(
                f"{self.path} is a database of another program; set FLYBALL_HOME elsewhere"
            )
        if version > SCHEMA_VERSION:
            raise StoreUnreadableError(
                f"{self.path} was written by a newer flyball (layout {version}, this one knows "
                f"{SCHEMA_VERSION}); upgrade flyball, or set FLYBALL_HOME to another folder"
            )
        return int(version)

    def _upgrade(self, connection: sqlite3.Connection) -> None:
        """Bring the schema forward, one numbered step at a time, each whole or not at all."""
        if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            # A commit writes whole pages; the rows are small.
            connection.execute("PRAGMA page_size = 1024")
            connection.execute("PRAGMA journal_mode = WAL")
        for number, script in schema_steps()[self._version(connection) :]:
            connection.execute("BEGIN IMMEDIATE")
            try:
                for statement in _statements(script):
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {number}")
                connection.execute("COMMIT")
            except BaseException:
                connection.execute("ROLLBACK")
                raise
        connection.execute("BEGIN IMMEDIATE")
        self._clock.enter(connection)
        connection.execute("COMMIT")

    # -- errors -----------------------------------------------------------------------------------

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise as_store_error(self.path, error, busy_s=BUSY_TIMEOUT_S) from error

    def _translate(self, error: BaseException) -> BaseException:
        """SQLite's errors as ours, with the way out; any other error as it is."""
        if not isinstance(error, (sqlite3.Error, UnicodeDecodeError)):
            return error
        translated = as_store_error(self.path, error, busy_s=BUSY_TIMEOUT_S)
        translated.__cause__ = error
        return translated


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


def _quoted(path: Path) -> str:
    return str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")


SCHEMA_VERSION = 4
