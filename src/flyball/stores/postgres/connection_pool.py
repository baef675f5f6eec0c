"""The connections of one process to one server: lent out, taken back, and left alone by forked children.

A library's pool would start threads, and neither they nor its locks survive a fork; a stack and a few tokens
do. A connection on which the server has hung up is found out before it is used, so a server that was
restarted costs no error. Nothing is ever sent twice by itself: a grant whose answer was lost must not be
made again (lost_replies.py). So a grant also carries the time until which its sender waits, on the server's
clock; one that arrives later, out of the buffer of a server that was stopped, changes nothing.

Whatever was opened is closed by ``close``, and without that call when the server is no longer used or
the process ends. A thread that was in the middle of something then cannot open anything again.
"""

from __future__ import annotations

import contextlib
import queue
import time
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import psycopg

from flyball.errors import StoreBusyError, StoreClosedError, StoreError, StoreUnreadableError
from flyball.stores.postgres.address import Address, parse
from flyball.stores.postgres.connection import Connection, connect, look_again
from flyball.stores.postgres.errors import VANISHED, as_store_error, maybe_done
from flyball.stores.postgres.migrations import LAYOUT, bring_forward, check
from flyball.stores.postgres.notifications import NotificationListener, wake_listener
from flyball.stores.postgres.queries import CLOCK

SPARE_S = 60.0
"""A connection beyond the first that was not needed for so long is closed."""
LOOK_EVERY_S = 1.0
"""So often a connection that is used looks whether a newer flyball has changed our tables."""
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
        self._listening: weakref.WeakSet[Connection] = weakref.WeakSet()
        weakref.finalize(self, _let_go, self._idle, self._all, self._listening)
        self._room = self._tokens()
        self._offset_s = 0.0

    def __repr__(self) -> str:
        return f"<ConnectionPool {self.words}>"

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
            link = self._take()
            try:
                if link.layout != LAYOUT or time.monotonic() - link.looked_at >= LOOK_EVERY_S:
                    self._prepare(link, writing=writing)
                yield link
            except psycopg.Error as error:
                if isinstance(error, psycopg.errors.ReadOnlySqlTransaction) or error.sqlstate in VANISHED:
                    # No connection is what it was: the next one looks anew.
                    link.close()
                    self._drop_idle()
                ours = as_store_error(error, self.address)
                if isinstance(ours, StoreError):
                    ours.maybe_done = maybe_done(error)
                raise ours from error
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
        """A connection of its own that listens to channels."""
        link = self._open()
        self._listening.add(link)
        me = weakref.ref(self)
        return NotificationListener(link, lambda: (server := me()) is None or server.closed)

    def close(self) -> None:
        """Close all; nothing is opened again."""
        self.closed = True
        self._drop_idle()
        for link in list(self._listening):
            wake_listener(link)

    def _drop_idle(self) -> None:
        _close_all(self._idle)

    def after_fork_in_child(self) -> None:
        """The sockets are the parent's."""
        for link in self._all:
            link.abandon()
            _parents.append(link)
        self._idle.clear()
        self._all.clear()
        self._listening.clear()
        self._room = self._tokens()

    def _tokens(self) -> queue.SimpleQueue[None]:
        """As many tokens as connections may be lent at once."""
        room: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(self.address.connections):
            room.put(None)
        return room

    def _take(self) -> Connection:
        while self._idle:
            try:
                link = self._idle.pop()
            except IndexError:
                break
            if link.usable:
                return link
            link.close()
        return self._open()

    def _open(self) -> Connection:
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
        if not link.layout or time.monotonic() - link.looked_at >= LOOK_EVERY_S:
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
        # Another thread may have taken it already.
        spare = next(iter(self._idle), link)
        if spare is not link and link.idle_since - spare.idle_since > SPARE_S:
            try:
                self._idle.remove(spare)
            except ValueError:
                return
            spare.close()


def _close_all(idle: list[Connection]) -> None:
    """What is taken out of the list is used by no other thread."""
    while idle:
        with contextlib.suppress(IndexError):
            idle.pop().close()


def _let_go(idle: list[Connection], links: Iterable[Connection], listening: Iterable[Connection]) -> None:
    """Of what a pool leaves behind.

    At the end of the process a thread may be in the middle of something. Its connection is hung up and not
    closed: the driver would free what that thread reads.
    """
    _close_all(idle)
    for link in {*links, *listening}:
        wake_listener(link)
