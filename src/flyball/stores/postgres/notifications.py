"""Listens for notifications: a LISTEN connection as the ``Listener`` that wake/pubsub.py asks for.

A step that hands out slots notifies, and the server passes that on when the step is committed: one message
per process, with everything that it has to look at.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections import deque
from collections.abc import Callable

import psycopg
from psycopg import sql

from flyball.errors import StoreClosedError
from flyball.stores.postgres.connection import Connection


class NotificationListener:
    """Implements ``Listener``, until its server is closed."""

    def __init__(self, link: Connection, is_closed: Callable[[], bool]) -> None:
        self._link, self._is_closed = link, is_closed
        self._messages: deque[dict[str, str]] = deque()
        # What comes along with the answer to something else.
        link.add_notify_handler(lambda notify: self._take(notify.payload))

    def subscribe(self, *channels: str) -> None:
        for channel in channels:
            self._check_open()
            self._link.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
            self._messages.append({"type": "subscribe"})

    def get_message(self, *, timeout: float) -> dict[str, str] | None:
        self._check_open()
        if not self._messages:
            poller = select.poll()
            poller.register(self._link.fileno(), select.POLLIN)
            if poller.poll(timeout * 1000):
                self._check_open()
                self._take_notifications()
        return self._messages.popleft() if self._messages else None

    def _take_notifications(self) -> None:
        self._link.pgconn.consume_input()
        while (notify := self._link.pgconn.notifies()) is not None:
            self._take(notify.extra.decode())

    def _take(self, payload: str) -> None:
        self._messages.extend({"type": "message", "data": words} for words in payload.split(","))

    def ping(self) -> None:
        """Raises where the server is gone; what came meanwhile is read next."""
        self._link.execute("SELECT 1")
        self._messages.append({"type": "pong"})

    def close(self) -> None:
        self._link.close()

    def _check_open(self) -> None:
        if self._is_closed():
            raise StoreClosedError("the listener was closed with its store")


def wake_listener(link: Connection) -> None:
    """Wakes the thread that waits on this connection."""
    with contextlib.suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(link.fileno())) as end:
        end.shutdown(socket.SHUT_RDWR)
