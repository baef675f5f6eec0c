"""The statements of a real acquire and release, recorded from flyball itself and played back bare.

The baseline cannot drift from the code: while flyball runs, a connection class that notes every execute,
its parameters and how its rows were fetched stands in for SQLite's own. SQLite's trace is kept beside it
and must tell the same story. Played back, the statements run on a plain connection opened with the same
arguments and pragmas, over a pool whose next lease is the recorded one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, cast
from unittest.mock import patch


@dataclass(slots=True)
class Step:
    """One execute."""

    sql: str
    parameters: tuple[object, ...] | dict[str, object]
    fetch: str = ""
    """How its rows were read: ``one``, ``all``, or not at all."""


@dataclass(slots=True)
class Recording:
    steps: list[Step] = field(default_factory=list)
    traced: list[str] = field(default_factory=list)
    """SQLite's own account of the same, with parameters filled in."""
    database: str = ""
    options: dict[str, Any] = field(default_factory=dict)

    def take(self) -> list[Step]:
        """What was noted since the last call. Raises if SQLite's trace tells another story."""
        steps, self.steps = self.steps, []
        # A statement that fires triggers is traced once more for each statement of theirs.
        traced = [text for text, _ in groupby(self.traced)]
        self.traced.clear()
        noted = [step for step, _ in groupby(steps, key=lambda step: (step.sql, step.parameters))]
        if [_opening(sql) for sql, _ in noted] != [_opening(text) for text in traced]:
            raise AssertionError(f"recorded {noted}, but SQLite ran {traced}")
        return steps


def _opening(sql: str) -> str:
    """A statement up to its first parameter, spaces aside."""
    return " ".join(sql.split())[:20]


@contextmanager
def recorded() -> Iterator[Recording]:
    """Note what every connection opened inside the block runs."""
    recording = Recording()
    connect = sqlite3.connect

    class NotingCursor(sqlite3.Cursor):
        step = Step("", ())

        def execute(self, sql: str, parameters: Any = ()) -> NotingCursor:
            self.step = Step(sql, dict(parameters) if isinstance(parameters, dict) else tuple(parameters))
            recording.steps.append(self.step)
            super().execute(sql, parameters)
            return self

        def fetchone(self) -> Any:
            self.step.fetch = self.step.fetch or "one"
            return super().fetchone()

        def fetchall(self) -> list[Any]:
            self.step.fetch = "all"
            return super().fetchall()

        def __next__(self) -> Any:
            self.step.fetch = "all"
            return super().__next__()

    class NotingConnection(sqlite3.Connection):
        def cursor(self, factory: Any = NotingCursor) -> Any:
            return super().cursor(factory)

        def execute(self, sql: str, parameters: Any = ()) -> Any:
            return self.cursor().execute(sql, parameters)

    def noting_connect(database: str, **options: Any) -> sqlite3.Connection:
        recording.database, recording.options = database, options
        connection = cast(sqlite3.Connection, connect(database, factory=NotingConnection, **options))
        connection.set_trace_callback(recording.traced.append)
        return connection

    with patch.object(sqlite3, "connect", noting_connect):
        yield recording


class Playback:
    """Runs recorded steps on a plain connection: no file lock, no decisions."""

    def __init__(
        self, recording: Recording, pragmas: Sequence[str], database: str, pair: Sequence[Step], lease_id: int
    ) -> None:
        self._connection = sqlite3.connect(database, **recording.options)
        for pragma in pragmas:
            self._connection.execute(pragma)
        self._plan = [(step.sql, step.parameters, step.fetch) for step in pair]
        self._lease_id = lease_id

    def again(self) -> None:
        """Before a pair: the pool's next lease is the recorded one."""
        self._connection.execute("UPDATE pool SET next_id = ?", (self._lease_id,))

    def pair(self) -> None:
        """Every statement of one acquire and one release."""
        execute = self._connection.execute
        for sql, parameters, fetch in self._plan:
            cursor = execute(sql, parameters)
            if fetch == "all":
                cursor.fetchall()
            elif fetch == "one":
                cursor.fetchone()

    def check(self) -> None:
        """Raises if a pair does not do what it did when it was recorded."""
        count = "SELECT total_changes()"
        self.again()
        (before,) = self._connection.execute(count).fetchone()
        self.pair()
        (after,) = self._connection.execute(count).fetchone()
        left = self._connection.execute("SELECT 1 FROM claim WHERE id = ?", (self._lease_id,)).fetchall()
        if after - before < 2 or left:
            raise AssertionError(f"played back, lease {self._lease_id} was not given and taken back")

    def close(self) -> None:
        self._connection.close()
