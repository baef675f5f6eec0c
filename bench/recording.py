"""The statements of a real acquire and release, recorded from flyball itself and played back bare.

The baseline cannot drift from the code: while flyball runs, a connection class that notes every execute,
its parameters and how its rows were fetched stands in for SQLite's own. SQLite's trace is kept beside it
and must tell the same story. Played back, the statements run on a plain connection opened with the same
arguments and pragmas, with only the lease's id replaced by the one the playback was just given.
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
    parameters: tuple[object, ...]
    row_id: int | None = None
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
            self.step = Step(sql, tuple(parameters))
            recording.steps.append(self.step)
            super().execute(sql, parameters)
            self.step.row_id = self.lastrowid
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
        gives = [step for step in pair if step.row_id == lease_id and step.sql.lstrip().startswith("INSERT")]
        if len(gives) != 1:
            raise AssertionError(f"one statement should have made lease {lease_id}, not {gives}")
        self._plan = [
            (
                step.sql,
                step.parameters,
                [i for i, value in enumerate(step.parameters) if value == lease_id],
                step.fetch,
                step is gives[0],
            )
            for step in pair
        ]

    def pair(self) -> None:
        """Every statement of one acquire and one release."""
        execute, lease_id = self._connection.execute, 0
        for sql, parameters, places, fetch, gives in self._plan:
            if places:
                filled = list(parameters)
                for i in places:
                    filled[i] = lease_id
                cursor = execute(sql, filled)
            else:
                cursor = execute(sql, parameters)
            if gives:
                lease_id = cursor.lastrowid or 0
            if fetch == "all":
                cursor.fetchall()
            elif fetch == "one":
                cursor.fetchone()

    def close(self) -> None:
        self._connection.close()
