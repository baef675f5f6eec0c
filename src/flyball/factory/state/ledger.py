"""The factory's memory: an append-only SQLite file under the project's ``.flyball``.

An entry is on disk before the effect it announces, and another after it. Nothing is ever changed or
removed, so the file can be read while a run goes on and after anything that happened to it. Commits
outrank it: what the ledger says about work is checked against the repository before it is believed.

Requests of people to a run go through it too, each with its answer: an outcome for code, words for people.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, is_dataclass
from enum import Enum
from importlib.resources import files
from pathlib import Path
from typing import Any

from flyball.core.tasks.task_run import LedgerEntry, RunPhase, State, Step, TaskRecord, apply_entry
from flyball.errors import InvariantError, StoreError, StoreFullError, StoreUnreadableError


class RequestOutcome(Enum):
    """What became of a request. The ledger keeps the value."""

    DONE = "done"
    """It was done, or has begun."""
    UNCHANGED = "unchanged"
    """There was nothing to do: it is so already, or nothing is under way."""
    REFUSED = "refused"
    """It cannot be done as things stand; the words say why."""
    LATE = "late"
    """The run that it was meant for was over."""


@dataclass(frozen=True, slots=True)
class RequestAnswer:
    outcome: RequestOutcome
    words: str

    @property
    def accepted(self) -> bool:
        """Are things as they were asked to be, or on their way there?"""
        return self.outcome in (RequestOutcome.DONE, RequestOutcome.UNCHANGED)


def answer_done(words: str) -> RequestAnswer:
    return RequestAnswer(RequestOutcome.DONE, words)


def answer_unchanged(words: str) -> RequestAnswer:
    return RequestAnswer(RequestOutcome.UNCHANGED, words)


def answer_refused(words: str) -> RequestAnswer:
    return RequestAnswer(RequestOutcome.REFUSED, words)


FILE_NAME = "ledger.db"
VERSION = 4
_FINAL_STEPS = (Step.MERGED, Step.PARK, Step.BLOCK)
COSTLY = (Step.END, Step.STAGE, Step.REVIEW)
"""What an agent's cost is written down with."""
_LAST = "(SELECT task, step, max(id) FROM entry WHERE step <> 'tell' GROUP BY task)"
"""Every task's last step. What its source is told does not say how far its work has come, and may follow
later."""
_BUSY_S = 20.0
_NOWHERE = ":memory:"


class Ledger:
    """Safe to share between threads. One connection; every append is its own transaction."""

    def __init__(self, folder: Path | None, *, run: str = "", read_only: bool = False) -> None:
        """``folder`` None: nothing was ever written down, and nothing will be kept."""
        self.path = folder / FILE_NAME if folder is not None else Path(_NOWHERE)
        self.run = run
        self._lock = threading.Lock()
        self.records: dict[str, TaskRecord] = {}
        """Every task's run that is not over, and those that ended since this ledger was opened."""
        self._db = self._open(read_only)

    def _open(self, read_only: bool) -> sqlite3.Connection:
        if read_only and not self.path.exists():
            raise FileNotFoundError(self.path)
        if not read_only and str(self.path) != _NOWHERE:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path.touch(mode=0o600)
        try:
            db = sqlite3.connect(self.path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
            if not read_only:
                db.execute("PRAGMA journal_mode = WAL")
                db.execute("PRAGMA synchronous = NORMAL")
            self._migrate(db, read_only=read_only)
        except sqlite3.DatabaseError as error:
            raise _store_error(error, self.path) from error
        return db

    def _migrate(self, db: sqlite3.Connection, *, read_only: bool) -> None:
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version > VERSION:
            words = f"{self.path} was written by a newer flyball (layout {version}, this one knows {VERSION})"
            raise StoreUnreadableError(f"{words}; upgrade flyball")
        if version == 0 and read_only:
            # Another process is about to make it, or was killed before.
            raise FileNotFoundError(self.path)
        if version == 0:
            script = (files("flyball.factory.state") / "ledger.sql").read_text(encoding="utf-8")
            db.executescript(f"BEGIN IMMEDIATE;\n{script}\nCOMMIT;")
        elif version < VERSION and not read_only:
            self._upgrade(db)

    def _upgrade(self, db: sqlite3.Connection) -> None:
        """What is written from here on, an older flyball would not understand."""
        db.execute("BEGIN IMMEDIATE")
        try:
            # Another process may have been faster.
            if "outcome" not in [column[1] for column in db.execute("PRAGMA table_info(answer)")]:
                db.execute("ALTER TABLE answer ADD COLUMN outcome TEXT NOT NULL DEFAULT 'done'")
            db.execute(f"PRAGMA user_version = {VERSION}")
        except BaseException:
            db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")

    # -- writing --------------------------------------------------------------------------------------

    def note(self, task: str, step: Step, mark: RunPhase = RunPhase.DONE, /, **fields: Any) -> TaskRecord:
        """Write one entry; the state of the task's run after it. An entry that cannot follow is refused."""
        with self._lock:
            kept = {
                key: asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
                for key, value in fields.items()
                if value is not None
            }
            entry = LedgerEntry(
                id=0, at=time.time(), run=self.run, task=task, step=step, mark=mark, fields=kept
            )
            record = apply_entry(self.records.get(task), entry)
            self._insert(
                "INSERT INTO entry (at, run, task, step, mark, fields) VALUES (?, ?, ?, ?, ?, ?)",
                (entry.at, self.run, task, step.value, mark.value, _json(kept)),
            )
            self.records[task] = record
        return record

    def ask(self, verb: str, task: str = "", **fields: Any) -> int:
        """A person's request to the run of the project, this one or the next."""
        with self._lock:
            return self._insert(
                "INSERT INTO request (at, verb, task, fields) VALUES (?, ?, ?, ?)",
                (time.time(), verb, task, _json(fields)),
            )

    def answer(self, request: int, answer: RequestAnswer) -> None:
        with self._lock:
            self._insert(
                "INSERT OR IGNORE INTO answer (request, at, run, words, outcome) VALUES (?, ?, ?, ?, ?)",
                (request, time.time(), self.run, answer.words, answer.outcome.value),
            )

    def _insert(self, sql: str, values: tuple[Any, ...]) -> int:
        try:
            return self._db.execute(sql, values).lastrowid or 0
        except sqlite3.Error as error:
            raise _store_error(error, self.path) from error

    # -- reading --------------------------------------------------------------------------------------

    def load(self) -> None:
        """Read every task's run that is not over."""
        finals = ", ".join(f"'{step.value}'" for step in _FINAL_STEPS)
        self.records = self._fold_rows(
            f"""SELECT * FROM entry WHERE task IN (
                  SELECT task FROM {_LAST} WHERE step NOT IN ({finals})
                ) ORDER BY id"""  # noqa: S608 - constants of ours
        )

    def load_task(self, task: str) -> TaskRecord | None:
        """Read one task's run, over or not; it can be continued."""
        found = self._fold_rows("SELECT * FROM entry WHERE task = ? ORDER BY id", (task,)).get(task)
        if found is not None:
            self.records[task] = found
        return found

    def tasks(self) -> set[str]:
        """Every task that was ever begun."""
        return {row[0] for row in self._rows("SELECT DISTINCT task FROM entry", ())}

    def merged_tasks(self) -> set[str]:
        """Tasks whose last run ended in the default branch."""
        sql = f"SELECT task FROM {_LAST} WHERE step = ?"  # noqa: S608 - constants of ours
        return {row[0] for row in self._rows(sql, (Step.MERGED.value,))}

    def has_landed(self, commit: str) -> bool:
        """Has a landing moved the default branch to this commit, or was it about to?"""
        sql = "SELECT 1 FROM entry WHERE step = ? AND json_extract(fields, '$.new') = ? LIMIT 1"
        return bool(self._rows(sql, (Step.ADVANCE.value, commit)))

    def unreported_tasks(self) -> set[str]:
        """Merged tasks that could not be closed in their source, as far as we know."""
        sql = """SELECT task FROM (SELECT task, mark, max(id) FROM entry WHERE step = ? GROUP BY task)
                 WHERE mark = ?"""
        begun = {row[0] for row in self._rows(sql, (Step.TELL.value, RunPhase.BEGUN.value))}
        return begun & self.merged_tasks() if begun else begun

    def runs_in(self, state: State) -> dict[str, TaskRecord]:
        """Last runs of tasks that are over in this state."""
        step = {State.BLOCKED: Step.BLOCK, State.PARKED: Step.PARK, State.MERGED: Step.MERGED}[state]
        sql = f"""SELECT * FROM entry WHERE task IN (SELECT task FROM {_LAST} WHERE step = ?)
                 ORDER BY id"""  # noqa: S608 - constants of ours
        return self._fold_rows(sql, (step.value,))

    def entries(self) -> Iterator[LedgerEntry]:
        """Everything, in order; read in pieces, as a ledger may be long."""
        last = 0
        while rows := self._rows("SELECT * FROM entry WHERE id > ? ORDER BY id LIMIT 5000", (last,)):
            yield from map(_entry, rows)
            last = rows[-1][0]

    def history(self, task: str) -> list[LedgerEntry]:
        return [_entry(row) for row in self._rows("SELECT * FROM entry WHERE task = ? ORDER BY id", (task,))]

    def launches(self, *, after: int = 0) -> list[LedgerEntry]:
        """Where an agent began and where it ended, stages and reviews included: what cost something."""
        steps = ", ".join(f"'{step.value}'" for step in COSTLY)
        # A stage's cost is known before what comes of it, so it may stand beside its beginning.
        where = f"id > ? AND (step IN ({steps}) OR (step = 'launch' AND mark = 'done'))"
        sql = f"SELECT * FROM entry WHERE {where} ORDER BY id"  # noqa: S608 - constants of ours
        return [_entry(row) for row in self._rows(sql, (after,))]

    def requests(self, *, after: int = 0) -> list[tuple[int, str, str, dict[str, Any]]]:
        """Requests without an answer: (id, verb, task, fields)."""
        sql = """SELECT id, verb, task, fields FROM request
                 WHERE id > ? AND id NOT IN (SELECT request FROM answer) ORDER BY id"""
        return [(row[0], row[1], row[2], json.loads(row[3])) for row in self._rows(sql, (after,))]

    def answer_to(self, request: int) -> RequestAnswer | None:
        rows = self._rows("SELECT outcome, words FROM answer WHERE request = ?", (request,))
        return RequestAnswer(RequestOutcome(rows[0][0]), rows[0][1]) if rows else None

    def last_run(self) -> str:
        rows = self._rows("SELECT run FROM entry ORDER BY id DESC LIMIT 1", ())
        return rows[0][0] if rows else ""

    def _fold_rows(self, sql: str, values: tuple[Any, ...] = ()) -> dict[str, TaskRecord]:
        found: dict[str, TaskRecord] = {}
        try:
            for row in self._rows(sql, values):
                entry = _entry(row)
                found[entry.task] = apply_entry(found.get(entry.task), entry)
        except (InvariantError, ValueError, TypeError, KeyError) as error:
            words = f"{self.path} cannot be understood ({error})"
            raise StoreUnreadableError(
                f"{words}; move it away to start anew, commits are not touched"
            ) from error
        return found

    def _rows(self, sql: str, values: Iterable[Any]) -> list[tuple[Any, ...]]:
        with self._lock:
            try:
                return self._db.execute(sql, tuple(values)).fetchall()
            except sqlite3.Error as error:
                raise _store_error(error, self.path) from error

    def close(self) -> None:
        with self._lock:
            self._db.close()


def _entry(row: tuple[Any, ...]) -> LedgerEntry:
    number, at, run, task, step, mark, fields = row
    return LedgerEntry(
        id=number, at=at, run=run, task=task, step=Step(step), mark=RunPhase(mark), fields=json.loads(fields)
    )


def _json(fields: dict[str, Any]) -> str:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def _store_error(error: sqlite3.Error, path: Path) -> StoreError:
    # Without a code it is Python's own refusal, such as of a closed connection.
    name, words = getattr(error, "sqlite_errorname", None) or "", str(error)
    if name == "SQLITE_FULL":
        return StoreFullError(f"no room on the disk for {path}; make some, then run `flyball run` to go on")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        way_out = "move it away to start anew; commits are not touched"
        return StoreUnreadableError(f"{path} is damaged ({words}); {way_out}")
    return StoreError(f"cannot use {path}: {words}")
