"""Locking and transactions of the shared file.

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
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from enum import Enum, auto
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from flyball.core.pool.model import Ask
from flyball.core.pool.settings import check_ask
from flyball.core.pool.verdict import Reason, Verdict, VerdictKind
from flyball.errors import StoreError, StoreReadOnlyError, StoreUnreadableError, invariant
from flyball.host.fork import survive_forks
from flyball.host.lock_file import LockFile
from flyball.host.log import tell_log
from flyball.stores.operations import StoreOperations
from flyball.stores.pool_session import Environment
from flyball.stores.port import AfterCommit, Release
from flyball.stores.rows import RowReader, Rows
from flyball.stores.sqlite import fast_path, schema
from flyball.stores.sqlite.clock import StoreClock
from flyball.stores.sqlite.errors import as_store_error
from flyball.stores.sqlite.rows import SqliteRows
from flyball.stores.transaction import ExclusiveSteps, operation

CHECKPOINT_EVERY = 300
MISSES_MOST = 16
LOOK_EVERY_S = 1.0
_GRANTED = partial(Verdict, kind=VerdictKind.GRANTED, reason=Reason.FREE)
_BUSY_TIMEOUT = f"PRAGMA busy_timeout = {schema.BUSY_TIMEOUT_S * 1000:.0f}"


class FileState(Enum):
    """Of the file, for the thread that has the mutex.

    ======  =====================================  ==========================================
    state   the file's lock, the transaction        left by
    ======  =====================================  ==========================================
    IDLE    neither                                 ``begin``, ``_at_once``, ``begin_together``
    LOCKED  the lock, for a step about to begin     ``begin``; ``_at_once`` that changed a row
    STEP    both, for one operation                 ``end``
    BATCH   both, for all until ``end_together``    ``end_together``
    ======  =====================================  ==========================================

    Whatever fails leads back to IDLE, but out of a BATCH, which only ``end_together`` ends.
    """

    IDLE = auto()
    LOCKED = auto()
    STEP = auto()
    BATCH = auto()


IDLE, LOCKED, STEP, BATCH = FileState


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


class SqliteStore(ExclusiveSteps, StoreOperations):
    """The one-machine store. Safe to use from many threads, and after a fork."""

    def __init__(self, path: Path, world: Environment, clock: StoreClock, *, read_only: bool = False) -> None:
        super().__init__(world)
        self.path = path
        self._clock = clock
        self._read_only = read_only
        self._rows: SqliteRows | None = None
        """The open connection; None before the first use and after a fork."""
        self._state = IDLE
        self._commits = 0
        self._misses = self._skips = 0
        """Where something is in the way again and again, most do not try the short way first."""
        self._inherited: SqliteRows | None = None
        self._file: schema.FileId | None = None
        self._look_at = 0.0
        survive_forks(self)
        with self._mutex, self._translated():
            self._ready()

    # -- transactions -----------------------------------------------------------------------------

    def _write(self) -> AbstractContextManager[Rows]:
        return _WriteStep(self)

    @contextmanager
    def _read(self) -> Iterator[RowReader]:
        with self._translated():
            self._look_for_the_file()
            rows = self._ready()
            if self._state is BATCH:
                yield rows
                return
            try:
                rows.connection.execute("BEGIN")
                rows.now, rows.epoch = self._clock(), self._world.epoch()
                yield rows
            finally:
                _roll_back(rows.connection)

    @contextmanager
    def _peek(self) -> Iterator[RowReader]:
        # Every hand-off waits for this: one block instead of two.
        try:
            self._look_for_the_file()
            yield self._ready()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise self._translate(error) from error

    def is_granted_now(self, claim_id: int) -> bool:
        """For an event loop: a small read, or nothing where another thread is at work."""
        if not self._mutex.acquire(blocking=False):
            return False
        try:
            idle = self._rows is not None and not self._inside and self._state is IDLE
            return idle and self._ready().find_grant(claim_id) is not None
        except sqlite3.Error:
            return False
        finally:
            self._mutex.release()

    def _roll_back(self) -> None:
        if self._state is not BATCH:
            if self._rows is not None:
                _roll_back(self._rows.connection)
            self._state = IDLE
            if not self._read_only:
                self._file_lock.let_go()

    def begin(self) -> SqliteRows:
        """Take the file's lock and open a write transaction."""
        try:
            if self._read_only:
                raise StoreReadOnlyError(f"{self.path} was opened for reading only")
            self._look_for_the_file()
            rows = self._ready()
            if self._state is not BATCH:
                if self._state is IDLE:
                    self._file_lock.acquire()
                self._open_step(rows)
                self._state = STEP
        except BaseException as error:
            raise self._translate(error) from error.__cause__
        return rows

    def _open_step(self, rows: SqliteRows) -> None:
        """Under the file's lock, which is let go if that fails."""
        connection = rows.connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            schema.check_layout(self.path, connection)
            rows.now, rows.actions = self._clock.note_time(connection), []
            rows.epoch = self._world.epoch()
        except BaseException:
            _roll_back(connection)
            self._state = IDLE
            self._file_lock.let_go()
            raise

    def end(self, error: BaseException | None) -> None:
        """Commit, or roll back on an error; let the file's lock go; raise what went wrong as ours."""
        if self._state is BATCH:
            if error is not None:
                raise self._translate(error)
            return
        rows = self._ready()
        self._close_step(rows, error)
        if self._commits >= CHECKPOINT_EVERY:
            self._checkpoint(rows.connection)

    def _close_step(self, rows: SqliteRows, error: BaseException | None) -> None:
        connection = rows.connection
        try:
            if error is None:
                connection.execute("COMMIT")
        except BaseException as failure:
            error = failure
        finally:
            _roll_back(connection)
            self._state = IDLE
            self._file_lock.release()
        if error is not None:
            raise self._translate(error)
        self._commits += 1
        for action in rows.actions:
            action()

    # -- with nothing in the way ----------------------------------------------------------------------

    @operation
    def admit(self, ask: Ask, *, park: bool) -> tuple[Verdict, AfterCommit]:
        check_ask(ask)
        values = fast_path.grant_values(ask)
        done = self._at_once((fast_path.GRANT,), values) if values is not None else None
        if not done:
            return self._admit_in_step(ask, park=park)
        claim_id, asked_at, in_use, cap = done[0]
        verdict = _GRANTED(pool=ask.pool, claim_id=claim_id, asked_at=asked_at, in_use=in_use, cap=cap)
        return verdict, AfterCommit()

    def grant_now(self, ask: Ask) -> Verdict | None:
        """For an event loop: neither a lock nor a checkpoint of the log is waited for."""
        check_ask(ask)
        values = fast_path.grant_values(ask)
        if values is None or not self._mutex.acquire(blocking=False):
            return None
        try:
            if self._inside or self._cut_off or self._state is not IDLE or self._skips:
                return None
            if not self._is_at_hand() or not self._file_lock.acquire_at_once():
                return None
            self._state = LOCKED
            done = self._change_now(fast_path.GRANT, values)
            if not done:
                return None
            claim_id, asked_at, in_use, cap = done[0]
            return _GRANTED(pool=ask.pool, claim_id=claim_id, asked_at=asked_at, in_use=in_use, cap=cap)
        except (sqlite3.Error, StoreError):
            return None
        finally:
            self._roll_back()
            self._mutex.release()

    def _is_at_hand(self) -> bool:
        """Nothing but a statement is due; whatever else is rides in a step."""
        self._look_for_the_file()
        return not (self._rows is None or self._read_only or self._unwritten)

    def _change_now(self, statement: str, values: fast_path.Values) -> list[tuple[Any, ...]]:
        connection, now = self._ready().connection, self._clock()
        if now >= self._clock.due_at:
            return []
        connection.execute("PRAGMA busy_timeout = 0")
        try:
            done: list[tuple[Any, ...]] = connection.execute(statement, (now, *values)).fetchall()
        finally:
            connection.execute(_BUSY_TIMEOUT)
        self._commits += len(done)
        return done

    @operation
    def release(self, release: Release) -> AfterCommit:
        end = fast_path.end_of(release, self._clock())
        try:
            if end is not None and self._at_once(*end) is not None:
                return AfterCommit()
            return self._end(release)
        except StoreError:
            raise
        except BaseException:
            self.remember(release)
            raise

    def _at_once(self, statements: tuple[str, ...], values: fast_path.Values) -> list[tuple[Any, ...]] | None:
        """Change a row, or one with each statement, in a transaction of its own; what the last one returned.
        None if nothing was changed: then the file's lock is kept for the step that comes next."""
        if self._skips:
            self._skips -= 1
            return None
        if time.monotonic() >= self._look_at:
            with self._translated():
                self._look_for_the_file()
        # Whatever else is due rides in a step.
        if self._rows is None or self._read_only or self._state is BATCH or self._unwritten:
            return None
        connection = self._rows.connection
        self._file_lock.acquire()
        self._state = LOCKED
        now = self._clock()
        if now >= self._clock.due_at:
            return None
        try:
            together = len(statements) > 1  # one is a transaction by itself
            if together:
                connection.execute("BEGIN IMMEDIATE")
            changed, done = True, list[tuple[Any, ...]]()
            for statement in statements:
                if changed:
                    cursor = connection.execute(statement, (now, *values))
                    done = cursor.fetchall()
                    changed = bool(done) or cursor.rowcount > 0
            if together:
                connection.execute("COMMIT" if changed else "ROLLBACK")
        except sqlite3.Error as error:
            raise self._translate(error) from error
        if not changed:
            self._misses = min(self._misses + 1, MISSES_MOST)
            self._skips = self._misses if self._misses > 1 else 0
            return None
        self._misses = 0
        self._state = IDLE
        self._file_lock.release()
        self._commits += 1
        if self._commits >= CHECKPOINT_EVERY:
            self._checkpoint(connection)
        return done

    # -- several verbs in one transaction -----------------------------------------------------------

    def begin_together(self) -> bool:
        """The verbs that this thread calls from now on are one transaction, until ``end_together``.

        False, without waiting, where another step is open or anything is wrong: a verb alone says what.
        """
        if self._read_only or not self._mutex.acquire(blocking=False):
            return False
        began = False
        try:
            if self._state is IDLE and not self._inside and self._opened_at_once():
                self._state, began = BATCH, True
        finally:
            if not began:
                self._mutex.release()
        return began

    def _opened_at_once(self) -> bool:
        rows = self._rows
        if rows is None or not self._file_lock.acquire_at_once():
            return False
        try:
            rows.connection.execute("PRAGMA busy_timeout = 0")
            self._open_step(rows)
        except (sqlite3.Error, StoreUnreadableError):
            return False
        finally:
            rows.connection.execute(_BUSY_TIMEOUT)
        return True

    def end_together(self, *, keep: bool) -> bool:
        """Commit what was done together, or undo it. False: none of it was done."""
        invariant(self._state is BATCH, "what ends together began together")
        try:
            self._close_step(self._ready(), None if keep else StoreError("undone"))
        except StoreError:
            return False
        finally:
            self._state = IDLE
            self._mutex.release()
        return True

    def _checkpoint(self, connection: sqlite3.Connection) -> None:
        """Move the log into the file while others may write, instead of inside one of their commits.

        A batch does not do it: the next single step does.
        """
        self._commits = 0
        with contextlib.suppress(sqlite3.Error):
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def _look_for_the_file(self) -> None:
        """Once a second, before a step: does the path still name this file? Else a process that opens it now
        works on another one, and each side grants the whole cap. And is its layout still ours?"""
        now = time.monotonic()
        if now < self._look_at or self._state is not IDLE or self._rows is None:
            return
        self._look_at = now + LOOK_EVERY_S
        if schema.file_id(self.path) != self._file:
            words = (
                "%s was removed or replaced; from now on the new one counts, without the leases of the old"
            )
            tell_log(words, self.path)
            self._rows.connection.close()
            self._rows = None
            return
        try:
            schema.check_layout(self.path, self._rows.connection)
        except StoreUnreadableError:
            self._look_at = 0.0
            raise

    def _ready(self) -> SqliteRows:
        if self._rows is None:
            self._rows = self._open()
        return self._rows

    def close(self) -> None:
        with self._mutex:
            if self._rows is not None:
                self._rows.connection.close()
            self._rows = None

    def _before_fork(self) -> None:
        self._mutex.acquire()

    def _after_fork_in_parent(self) -> None:
        self._mutex.release()

    def _after_fork_in_child(self) -> None:
        """No step was open, so the connection is idle; it is put away before this process opens its own.

        Merely abandoning it would not do: SQLite keeps one record per file and process, and would believe
        that the locks its parent holds are its own.
        """
        self._mutex = threading.RLock()
        self._unwritten_lock = threading.RLock()
        self._unwritten = []
        self._inherited, self._rows = self._rows, None

    # -- opening ----------------------------------------------------------------------------------

    def _open(self) -> SqliteRows:
        if self._inherited is not None:
            self._inherited.connection.close()
            self._inherited = None
        if self._read_only:
            connection = schema.open_for_reading(self.path, self._clock)
        else:
            schema.prepare_home(self.path)
            self._file_lock = LockFile.of(f"{self.path}.lock")
            connection = schema.open_for_writing(self.path, self._clock, self._file_lock)
        self._file = schema.file_id(self.path)
        return SqliteRows(connection)

    # -- errors -----------------------------------------------------------------------------------

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise as_store_error(self.path, error, busy_s=schema.BUSY_TIMEOUT_S) from error

    def _translate(self, error: BaseException) -> BaseException:
        """SQLite's errors as ours, with the way out; any other error as it is."""
        if not isinstance(error, (sqlite3.Error, UnicodeDecodeError)):
            return error
        ours = as_store_error(self.path, error, busy_s=schema.BUSY_TIMEOUT_S)
        ours.__cause__ = error
        return ours


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")
