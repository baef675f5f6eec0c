"""A mailbox for a store on a server: whoever hands out a slot publishes, and a thread of ours listens.

One connection per process and server hears one channel; what it hears goes into the mailbox it names. It
says only "look at this claim". What is said while nobody listens is lost, so whenever listening begins, the
first time and after every break, everybody is told to look (``LOOK``); and when it breaks off, so that
whoever waits knows that its server is gone. The thread starts when somebody really waits: an ask that is
granted at once needs no ears.

The connection is one of a store that is open; when the last one for this server is closed or forgotten, the
thread ends, and its mailboxes are no longer good for anything. It also ends with the process, in silence.

A mailbox here looks like a socket's (mailbox.py): an address, a file descriptor to wait on, ``receive``.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import random
import socket
import threading
import weakref
from collections import deque
from collections.abc import Callable
from itertools import count
from types import MethodType
from typing import Any, Protocol

from flyball.errors import StoreClosedError
from flyball.host.background_thread import start_thread
from flyball.wake.mailbox import LOOK

_PING_S = 5.0
_SILENT_PINGS = 3
"""So many questions in a row without an answer: the connection is dead, whatever the system says."""
_AGAIN_S = (0.1, 5.0)
"""How soon a lost connection is tried again: at first, and at last."""
_WAYS_KEPT = 8
_leaving = threading.Event()
"""The process ends: nobody connects any more."""
atexit.register(_leaving.set)


class Listener(Protocol):
    """What a driver offers for hearing channels."""

    def subscribe(self, *channels: str) -> Any: ...

    def get_message(self, *, timeout: float) -> Any: ...

    def ping(self) -> Any: ...

    def close(self) -> None: ...


class ChannelBox:
    """One mailbox. ``address`` goes into the asks it waits for."""

    lossy = False

    def __init__(self, board: Subscriptions, number: int) -> None:
        self._board, self._number, self._pid = board, number, os.getpid()
        self.address = f"{board.channel}#{number}"
        self._mail: deque[int] = deque()
        self._bell, self._ear = socket.socketpair()
        self._bell.setblocking(False)
        self._ear.setblocking(False)
        self._closed = False
        self._forget = weakref.finalize(self, _close, self._bell, self._ear)

    def fileno(self) -> int:
        self._board.listen()
        return self._ear.fileno()

    @property
    def ours(self) -> bool:
        """False in a forked child, which must not read its parent's mail, and once nobody puts mail in."""
        return self._pid == os.getpid() and not self._closed and not self._board.closed

    def put(self, claim_id: int) -> None:
        """Called by the listening thread."""
        self._mail.append(claim_id)
        with contextlib.suppress(OSError):
            self._bell.send(b"!")

    def receive(self) -> int | None:
        if not self._mail:
            # The bell first, then the mail again: what arrives in between is not missed.
            with contextlib.suppress(OSError):
                self._ear.recv(4096)
        return self._mail.popleft() if self._mail else None

    def drain(self) -> list[int]:
        found: list[int] = []
        while (claim_id := self.receive()) is not None:
            found.append(claim_id)
        return found

    def mend(self) -> bool:
        """The listening thread sees to it, and says ``LOOK`` when it does."""
        return False

    def close(self) -> None:
        self._closed = True
        self._board.forget(self._number)
        self._forget()


def _close(*ends: socket.socket) -> None:
    for end in ends:
        end.close()


Connect = Callable[[], Listener]


class Subscriptions:
    """Everything this process hears from one server."""

    def __init__(self, prefix: str) -> None:
        self.channel = f"{prefix}{os.urandom(9).hex()}"
        self.closed = False
        self._ways: deque[Callable[[], Connect | None]] = deque(maxlen=_WAYS_KEPT)
        self._boxes: weakref.WeakValueDictionary[int, ChannelBox] = weakref.WeakValueDictionary()
        self._numbers = count(1)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._pause_s = _AGAIN_S[0]
        """Before the server is tried again; the first of these while it is heard."""

    def reach_by(self, connect: Connect) -> None:
        """One more way to the server, as long as its store lives and is open."""
        way = _way(connect)
        with self._lock:
            if way not in self._ways:
                self._ways.append(way)

    def open_box(self) -> ChannelBox:
        number = next(self._numbers)
        box = self._boxes[number] = ChannelBox(self, number)
        return box

    def forget(self, number: int) -> None:
        self._boxes.pop(number, None)

    def listen(self) -> None:
        """Begin to listen, if nobody does yet."""
        if self._thread is not None or self.closed:
            return
        with self._lock:
            if self._thread is None:
                self._thread = start_thread(self._listen, name="flyball-listener")

    # -- in the thread ------------------------------------------------------------------------------

    def _listen(self) -> None:
        """Until nobody is left who could be told, or no way to the server."""
        while (way := self._way_left()) is not None:
            try:
                self._hear_all(way)
            except Exception as error:
                # Waiters also look by themselves; ears come back when the server does.
                logging.getLogger("flyball").debug("not listening for wakes: %s", type(error).__name__)
                if self._pause_s == _AGAIN_S[0]:
                    self._tell_all()
                _leaving.wait(self._pause_s * (0.5 + random.random()))
                self._pause_s = min(2 * self._pause_s, _AGAIN_S[1])

    def _way_left(self) -> Callable[[], Connect | None] | None:
        with self._lock:
            if self._ways and self._boxes and not _leaving.is_set():
                return self._ways[-1]
            self._thread, self.closed = None, not self._ways
        if self.closed:
            self._tell_all()
        return None

    def _hear_all(self, way: Callable[[], Connect | None]) -> None:
        """Listen until the connection is lost or not needed, or the way is none any more."""
        listener: Listener | None = None
        try:
            # The store is not held on to meanwhile: one that is forgotten closes its connections.
            listener = _connected(way)
            listener.subscribe(self.channel)
            unheard = 0
            while self._boxes and unheard <= _SILENT_PINGS:
                unheard = 0 if self._hear(listener) else unheard + 1
        except StoreClosedError:
            with self._lock, contextlib.suppress(ValueError):
                self._ways.remove(way)
        finally:
            if listener is not None:
                with contextlib.suppress(Exception):
                    listener.close()

    def _hear(self, listener: Listener) -> bool:
        """One message, or a question whether anybody is there; False where nothing came."""
        message = listener.get_message(timeout=_PING_S)
        if message is None:
            listener.ping()
            return False
        if message["type"] == "subscribe":
            self._pause_s = _AGAIN_S[0]
            self._tell_all()
        elif message["type"] == "message":
            number, _, claim_id = str(message["data"]).partition(" ")
            told = self._boxes.get(int(number))
            if told is not None:
                told.put(int(claim_id) if claim_id else LOOK)
        return True

    def _tell_all(self) -> None:
        for box in list(self._boxes.values()):
            box.put(LOOK)


def _way(connect: Connect) -> Callable[[], Connect | None]:
    return weakref.WeakMethod(connect) if isinstance(connect, MethodType) else lambda: connect


def _connected(way: Callable[[], Connect | None]) -> Listener:
    connect = way()
    if connect is None:
        raise StoreClosedError("the store is gone")
    return connect()


_boards: dict[tuple[int, str], Subscriptions] = {}
_boards_lock = threading.Lock()
os.register_at_fork(after_in_child=lambda: globals().update(_boards_lock=threading.Lock()))


def switchboard(address: str, connect: Connect, prefix: str) -> Subscriptions:
    """This process's own for a server; a forked child makes another."""
    key = (os.getpid(), address)
    with _boards_lock:
        if key not in _boards or _boards[key].closed:
            _boards[key] = Subscriptions(prefix)
        board = _boards[key]
    board.reach_by(connect)
    return board
