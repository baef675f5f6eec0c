"""The connections of one process to one server: lent out, taken back, and left alone by forked children.

A library's pool would start threads, and neither they nor its locks survive a fork; a stack and a few tokens
do. A connection on which the server has hung up is found out before it is used, so a server that was
restarted costs no error. Nothing is ever sent twice by itself: a grant whose answer was lost must not
be made again (transaction.py). So a grant also carries the time until which its sender waits, on the server's
clock; one that arrives later, out of the buffer of a server that was stopped, changes nothing.

Whatever was opened is closed by ``close``, and without that call when the server is no longer used or
the process ends. A thread that was in the middle of something then cannot open anything again.

Our tables on the server, brought forward one numbered script at a time, each whole or not at all.

Hearing channels: a LISTEN connection in the words of a listener (wake/pubsub.py).

A step that hands out slots notifies, and the server passes that on when the step is committed: one message
per process, with everything that it has to look at.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import queue
import select
import socket
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.resources import files

import psycopg
from psycopg import sql

from flyball.errors import StoreBusyError, StoreClosedError, StoreUnreadableError
from flyball.stores.postgres.address import Address, parse
from flyball.stores.postgres.connection import Connection, connect, look_again
from flyball.stores.postgres.errors import VANISHED, as_store_error
from flyball.stores.postgres.queries import CLOCK


@cache
def scripts() -> list[tuple[int, str]]:
    """The numbered scripts beside this file, oldest first."""
    found = sorted((f for f in files(__package__).iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)
    return [(int(script.name[:3]), script.read_text(encoding="utf-8")) for script in found]


LAYOUT = 6


def check(link: Connection, address: Address) -> None:
    """Refuse what a newer flyball has written: it may mean other things by it."""
    if link.layout > LAYOUT:
        raise StoreUnreadableError(
            f"the state on {address.words} is of a newer flyball (layout {link.layout}, this one knows "
            f"{LAYOUT}); upgrade flyball here, or name another ?space= in FLYBALL_URL"
        )


def bring_forward(link: Connection, address: Address) -> None:
    """Make the tables, or change them into ours. Of several who come at once one does it."""
    if link.layout == LAYOUT:
        return
    space = sql.Identifier(address.space)
    with link.transaction():
        link.execute("SELECT pg_advisory_xact_lock(%s)", (_lock(address.space),))
        look_again(link, address.space)
        check(link, address)
        if not link.layout and not _exists(link, address.space):
            link.execute(sql.SQL("CREATE SCHEMA {}").format(space))
        for number, script in scripts()[link.layout :]:
            link.execute(script.encode())
            link.execute("UPDATE layout SET version = %s", (number,))
            link.layout = number


def _exists(link: Connection, space: str) -> bool:
    """Asked first: who may not make schemas may still have been given one."""
    found = link.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (space,)).fetchone()
    return found is not None


def _lock(space: str) -> int:
    """A number for the advisory lock of a space that has no tables yet."""
    return int.from_bytes(hashlib.sha256(f"flyball {space}".encode()).digest()[:8], "big", signed=True)


class NotificationListener:
    """Implements ``Listener``, until its server is closed."""

    def __init__(self, link: Connection, is_closed: Callable[[], bool]) -> None:
        self._link, self._is_closed = link, is_closed
        self._heard: deque[dict[str, str]] = deque()
        # What comes along with the answer to something else.
        link.add_notify_handler(lambda notify: self._take(notify.payload))

    def subscribe(self, *channels: str) -> None:
        for channel in channels:
            self._check_open()
            self._link.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
            self._heard.append({"type": "subscribe"})

    def get_message(self, *, timeout: float) -> dict[str, str] | None:
        self._check_open()
        if not self._heard:
            poller = select.poll()
            poller.register(self._link.fileno(), select.POLLIN)
            if poller.poll(timeout * 1000):
                self._check_open()
                self._take_notifications()
        return self._heard.popleft() if self._heard else None

    def _take_notifications(self) -> None:
        self._link.pgconn.consume_input()
        while (notify := self._link.pgconn.notifies()) is not None:
            self._take(notify.extra.decode())

    def _take(self, payload: str) -> None:
        self._heard.extend({"type": "message", "data": words} for words in payload.split(","))

    def ping(self) -> None:
        """Raises where the server is gone; what came meanwhile is read next."""
        self._link.execute("SELECT 1")
        self._heard.append({"type": "pong"})

    def close(self) -> None:
        self._link.close()

    def _check_open(self) -> None:
        if self._is_closed():
            raise StoreClosedError("the listener was closed with its store")


def hang_up(link: Connection) -> None:
    """Wakes the thread that waits on this connection."""
    with contextlib.suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(link.fileno())) as end:
        end.shutdown(socket.SHUT_RDWR)


SPARE_S = 60.0
"""A connection beyond the first that was not needed for so long is closed."""
_parents: list[Connection] = []
"""In a forked child: what is the parent's, kept so that it is not closed."""


class ConnectionPool:
    """Safe to use from many threads, and after a fork."""

    def __init__(self, url: str) -> None:
        self.address: Address = parse(url)
        self.words, self.answer_s = self.address.words, self.address.answer_s
        self.closed = False
        self._idle: list[Connection] = []
        self._all: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._ears: weakref.WeakSet[Connection] = weakref.WeakSet()
        weakref.finalize(self, _let_go, self._all, self._ears)
        self._room = self._all_free()
        self._offset_s = 0.0

    def __repr__(self) -> str:
        return f"<Server {self.words}>"

    # -- time ---------------------------------------------------------------------------------------

    def now(self) -> float:
        """The server's own time, asked for."""
        with self.lend() as link:
            return self.note_time(float(link.ask(CLOCK)[0][0]))

    def note_time(self, now: float) -> float:
        """Note what the server just said about the time."""
        self._offset_s = now - time.monotonic()
        return now

    def deadline(self) -> float:
        """Until when, on the server's clock, we wait for what is sent now."""
        return time.monotonic() + self._offset_s + self.answer_s

    # -- connections --------------------------------------------------------------------------------

    @contextmanager
    def lend(self, *, writing: bool = False) -> Iterator[Connection]:
        """A connection for one piece of work. ``writing``: our tables are there, and of this version."""
        room = self._room
        try:
            room.get(timeout=self.answer_s)
        except queue.Empty:
            raise StoreBusyError(
                f"all {self.address.connections} connections of this process to {self.words} were in use for "
                f"{self.answer_s:g} s; connections= in FLYBALL_URL allows more"
            ) from None
        try:
            link = self._found()
            try:
                if link.layout != LAYOUT:
                    self._prepare(link, writing=writing)
                yield link
            except psycopg.Error as error:
                if isinstance(error, psycopg.errors.ReadOnlySqlTransaction) or error.sqlstate in VANISHED:
                    # No connection is what it was: the next one looks anew.
                    link.close()
                    self._drop_idle()
                raise as_store_error(error, self.address) from error
            except Exception:
                raise
            except BaseException:
                # Interrupted in the middle of something: whether it was done is found out by its end.
                link.close()
                raise
            finally:
                self._take_back(link)
        finally:
            room.put(None)

    def listener(self) -> NotificationListener:
        """A connection of its own, for hearing channels."""
        link = self._opened()
        self._ears.add(link)
        me = weakref.ref(self)
        return NotificationListener(link, lambda: (server := me()) is None or server.closed)

    def close(self) -> None:
        """For good."""
        self.closed = True
        self._drop_idle()
        for link in list(self._ears):
            hang_up(link)

    def _drop_idle(self) -> None:
        idle, self._idle = self._idle, []
        for link in idle:
            link.close()

    def after_fork_in_child(self) -> None:
        """The sockets are the parent's."""
        for link in self._all:
            link.abandon()
            _parents.append(link)
        self._idle = []
        self._all.clear()
        self._ears.clear()
        self._room = self._all_free()

    def _all_free(self) -> queue.SimpleQueue[None]:
        """As many tokens as connections may be lent at once."""
        room: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(self.address.connections):
            room.put(None)
        return room

    def _found(self) -> Connection:
        while self._idle:
            try:
                link = self._idle.pop()
            except IndexError:
                break
            if link.usable:
                return link
            link.close()
        return self._opened()

    def _opened(self) -> Connection:
        self._check_open()
        try:
            link, now = connect(self.address)
        except psycopg.Error as error:
            raise as_store_error(error, self.address) from error
        self._all.add(link)
        self.note_time(now)
        if self.closed:
            link.close()
        self._check_open()
        return link

    def _check_open(self) -> None:
        if self.closed:
            raise StoreClosedError(f"{self.words} was closed here; open it again")

    def _prepare(self, link: Connection, *, writing: bool) -> None:
        if not link.layout:
            look_again(link, self.address.space)
        check(link, self.address)
        if writing:
            bring_forward(link, self.address)
        elif 0 < link.layout < LAYOUT:
            raise StoreUnreadableError(
                f"the state on {self.words} has an old layout; any flyball command that writes upgrades it"
            )

    def _take_back(self, link: Connection) -> None:
        if not link.idle or self.closed:
            link.close()
            return
        link.idle_since = time.monotonic()
        self._idle.append(link)
        spare = self._idle[0]
        if spare is not link and link.idle_since - spare.idle_since > SPARE_S:
            try:
                self._idle.remove(spare)
            except ValueError:
                return
            spare.close()


def _let_go(links: Iterable[Connection], ears: Iterable[Connection]) -> None:
    """Of what a server leaves behind; who listens closes its connection by itself."""
    listening = set(ears)
    for link in listening:
        hang_up(link)
    for link in set(links) - listening:
        link.close()
