"""One connection: no wait on it is longer than an answer may take, and what a server must be like.

A session is one process of the server that serves this connection alone. Behind a pooler it may be another
one for each transaction (PgBouncer with ``pool_mode = transaction``): settings of a session, prepared
statements and LISTEN are then lost, or another session's. Such a pooler is refused, and nothing is set there
that outlives its statement. Where the process that serves us has the id that we were told when we connected,
there is no pooler in between, and no further look.

A session is set up so that no caller is kept waiting by a process that stands still: a lock is waited for, a
statement runs, and a step stays open only as long as its sender waits for an answer (``socket_timeout``).
Plans of statements are made once and by keys, whatever the server thinks of tables that were empty just then.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg.types.numeric import Int8Dumper

from flyball.errors import StoreError
from flyball.stores.postgres.address import Address
from flyball.stores.postgres.errors import NoAnswerError

POOLER_S = 1.0
POOLER_LOOKS = 4
_SHARED = (
    "{server} is a pooler that lends its sessions by the transaction, and what flyball sets in its own "
    "session would reach others; set pool_mode = session there for flyball's user or database, or name the "
    "PostgreSQL server itself in FLYBALL_URL"
)
R = TypeVar("R")
Values = tuple[object, ...] | Mapping[str, object]
OLDEST = 12
_EVENTS = {1: select.POLLIN, 2: select.POLLOUT, 3: select.POLLIN | select.POLLOUT}
_IDLE = psycopg.pq.TransactionStatus.IDLE
# One round trip: how the session is to be, and what the server is like. Where the session is not known to be
# ours alone, the settings are gone with the statement.
_SET_UP = """
    SELECT current_setting('transaction_read_only') = 'on' OR pg_is_in_recovery(),
        current_setting('server_encoding'),
        extract(epoch FROM clock_timestamp())::float8,
        pg_postmaster_start_time()::text || ' ' || CASE WHEN pg_is_in_recovery() THEN ''
            ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END,
        (SELECT backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()),
        pg_backend_pid(),
        set_config('search_path', quote_ident(%(space)s), unsure),
        set_config('lock_timeout', %(patience)s, unsure),
        set_config('statement_timeout', %(patience)s, unsure),
        set_config('idle_in_transaction_session_timeout', %(patience)s, unsure),
        set_config('plan_cache_mode', 'force_generic_plan', unsure),
        set_config('enable_seqscan', 'off', unsure),
        set_config('jit', 'off', unsure),
        set_config('client_min_messages', 'error', unsure),
        set_config('application_name', 'flyball', unsure)
    FROM (SELECT pg_backend_pid() <> %(pid)s AS unsure) AS session"""
# Not by to_regclass: that may remember from before a wait that there was no such table.
_KNOWN = "SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = %s AND tablename = 'layout'"


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """Used by one thread at a time. Closed by the code that opened it, in the same process."""

    answer_s: float = math.inf
    epoch = ""
    """Which life of which server this is: its start, and the timeline of its log."""
    layout: int = 0
    """The version of our tables there, when last looked; 0 for none."""
    looked_at = 0.0
    backend: tuple[int, str] = (0, "")
    """The process that serves us: its pid, and when it began."""
    idle_since = 0.0
    _given_up = False
    _batch: psycopg.Pipeline | None = None
    _asking: psycopg.Cursor[tuple[Any, ...]] | None = None
    _poller: select.poll | None = None

    def wait(self, gen: Generator[Any, Any, R], *_: Any, **__: Any) -> R:
        """The driver's own wait has no end."""
        socket, until = self.pgconn.socket, time.monotonic() + self.answer_s
        try:
            wanted = next(gen)
            while True:
                wanted = gen.send(self._ready(socket, wanted, until))
        except StopIteration as stop:
            value: R = stop.value
            return value
        except BaseException:
            with contextlib.suppress(Exception):
                gen.close()
            raise

    def _ready(self, socket: int, wanted: int, until: float) -> int:
        """Wait until we may read (1), write (2) or either of what is wanted."""
        poller = self._poller = self._poller or select.poll()
        poller.register(socket, _EVENTS[wanted])
        left_s = until - time.monotonic()
        found = poller.poll(max(0, math.ceil(left_s * 1000)) if left_s < math.inf else None)
        if not found:
            # What the server says from now on is not read.
            self._given_up = True
            self.pgconn.finish()
            raise NoAnswerError("no answer")
        happened = found[0][1]
        ready = (1 if happened & ~select.POLLOUT else 0) | (2 if happened & select.POLLOUT else 0)
        return ready & wanted or wanted

    @contextmanager
    def batch(self) -> Iterator[None]:
        """What only writes is sent along with the next question (``ask``), or at the end.

        What went wrong inside is raised as it is, also where leaving fails for the same reason.
        """
        error: BaseException | None = None
        try:
            with self.pipeline() as self._batch:
                try:
                    yield
                except BaseException as failure:
                    error = failure
        except psycopg.Error as late:
            error = error or (NoAnswerError("no answer") if self._given_up else late)
        finally:
            self._batch = None
        if error is not None:
            raise error

    def ask(self, query: str, values: Values = ()) -> list[tuple[Any, ...]]:
        """Run it and what was written before in one round trip.

        The server then knows that we think: only so it notices when we stand still in the middle of a step.
        """
        if self._batch is None:
            self._asking = self._asking or self.cursor()
            return self._asking.execute(query, values).fetchall()
        cursor = self.execute(query, values)
        self._batch.sync()
        return cursor.fetchall()

    def __del__(self, *_: object) -> None:
        """A forked child never closes what is its parent's; other processes have closed it before."""

    @property
    def idle(self) -> bool:
        return not self.closed and self.pgconn.transaction_status == _IDLE

    @property
    def usable(self) -> bool:
        """Idle, and the server has not hung up: it says nothing unasked but that."""
        if self.closed:
            return False
        poller = self._poller = self._poller or select.poll()
        poller.register(self.pgconn.socket, select.POLLIN)
        return self.idle and not poller.poll(0)

    def abandon(self) -> None:
        """In a forked child: let go of the parent's socket without a word to the server."""
        null = os.open(os.devnull, os.O_RDWR)
        try:
            os.dup2(null, self.pgconn.socket, inheritable=False)
        except (OSError, psycopg.Error):
            pass
        finally:
            os.close(null)


def connect(address: Address) -> tuple[Connection, float]:
    """A connection that is set up, and the server's time. A server is refused where leases are not safe."""
    link = Connection.connect(address.conninfo, autocommit=True, **_options(address))
    try:
        return link, _set_up(link, address)
    except BaseException:
        link.close()
        raise


def _options(address: Address) -> dict[str, Any]:
    """The driver's own defaults where the address says nothing."""
    named = psycopg.conninfo.conninfo_to_dict(address.conninfo)
    options: dict[str, Any] = {"client_encoding": "utf8"}
    if "connect_timeout" not in named:
        # Less than two seconds the driver does not know.
        options["connect_timeout"] = max(2, math.ceil(address.answer_s))
    return options


def _set_up(link: Connection, address: Address) -> float:
    link.answer_s = address.answer_s
    link.prepared_max = 200
    # One type for whole numbers, whatever their size: a statement is prepared once.
    link.adapters.register_dumper(int, Int8Dumper)
    _check_version(link.info.server_version, address.words)
    patience = f"{max(1, round(address.patience_s * 1000))}ms"
    words = {"space": address.space, "patience": patience, "pid": link.info.backend_pid}
    (about,) = link.ask(_SET_UP, words)
    if about[5] != link.info.backend_pid:
        _check_pooler(link, about[5], address)
        (about,) = link.ask(_SET_UP, {**words, "pid": about[5]})
    follows, encoding, now, link.epoch, began, pid = about[:6]
    link.backend = (pid, str(began))
    if follows:
        raise psycopg.errors.ReadOnlySqlTransaction("it follows another server")
    if encoding != "UTF8":
        raise StoreError(
            f"{address.words} is encoded as {encoding}, which cannot hold all names; flyball needs a "
            "database that is encoded as UTF8 (CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0)"
        )
    look_again(link, address.space)
    return float(now)


def _check_pooler(link: Connection, pid: int, address: Address) -> None:
    """Refuse a pooler that shares sessions: where it does, ours moves, or serves a second connection too.

    A quiet pooler lends the session that was used last, so the second connection gets ours; in a busy one
    ours moves. A second connection that is not served has to wait for a session of its own.
    """
    try:
        with Connection.connect(address.conninfo, autocommit=True, **_options(address)) as second:
            second.answer_s = min(POOLER_S, address.answer_s)
            for _ in range(POOLER_LOOKS):
                ours, others = (each.ask("SELECT pg_backend_pid()")[0][0] for each in (link, second))
                if ours != pid or others == pid:
                    raise StoreError(_SHARED.format(server=address.words))
    except NoAnswerError:
        if link.closed:
            raise


def look_again(link: Connection, space: str) -> None:
    """Which version of our tables is there?"""
    known = link.ask(_KNOWN, (space,))
    link.layout = int(link.ask("SELECT version FROM layout")[0][0]) if known else 0
    link.looked_at = time.monotonic()


def _check_version(version: int, words: str) -> None:
    if version < OLDEST * 10_000:
        raise StoreError(f"{words} is PostgreSQL {version // 10_000}; flyball needs {OLDEST} or newer")
