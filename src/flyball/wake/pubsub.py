"""A mailbox for a store on a server: the process that hands out a slot publishes, and a thread here listens.

One connection per process and server hears one channel; what it hears goes into the mailbox it names. It
says only "look at this claim". What is said while no process listens is lost, so whenever listening begins,
the first time and after every break, all waiters are told to look (``LOOK``); and when it breaks off, so that
they know that the server is gone. The thread starts with the first waiter: an ask that is granted at once
does not need it.

The connection is one of a store that is open; when the last one for this server is closed or forgotten, the
thread ends, and its mailboxes are no longer good for anything. It also ends with the process, in silence.

A mailbox here looks like a socket's (mailbox.py): an address, a file descriptor to wait on, ``receive``.
"""

from __future__ import annotations

import atexit
import contextlib
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
from flyball.host.log import tell_log
from flyball.wake.mailbox import LOOK

_PING_S = 5.0
_SILENT_PINGS = 3
"""So many questions in a row without an answer: the connection is dead, whatever the system says."""
_AGAIN_S = (0.1, 5.0)
"""How soon a lost connection is tried again: at first, and at last."""
_WAYS_KEPT = 8
_leaving = threading.Event()
"""The process ends: no thread connects any more."""
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

    def __init__(self, subscriptions: Subscriptions, number: int) -> None:
        self._subscriptions, self._number, self._pid = subscriptions, number, os.getpid()
        self.address = f"{subscriptions.channel}#{number}"
        self._mail: deque[int] = deque()
        self._signal, self._readable = socket.socketpair()
        self._signal.setblocking(False)
        self._readable.setblocking(False)
        self._closed = False
        self._forget = weakref.finalize(self, _close, self._signal, self._readable)

    def fileno(self) -> int:
        self._subscriptions.listen()
        return self._readable.fileno()

    @property
    def ours(self) -> bool:
        """False in a forked child, which must not read its parent's mail, and once no mail is put in."""
        return self._pid == os.getpid() and not self._closed and not self._subscriptions.closed

    def put(self, claim_id: int) -> None:
        """Called by the listening thread."""
        self._mail.append(claim_id)
        with contextlib.suppress(OSError):
            self._signal.send(b"!")

    def receive(self) -> int | None:
        if not self._mail:
            # The socket first, then the mail again: what arrives in between is not missed.
            with contextlib.suppress(OSError):
                self._readable.recv(4096)
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
        self._subscriptions.forget(self._number)
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
        # A method is held weakly: it would keep its store alive.
        way = weakref.WeakMethod(connect) if isinstance(connect, MethodType) else lambda: connect
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
        """Start the listening thread, unless it runs."""
        if self._thread is not None or self.closed:
            return
        with self._lock:
            if self._thread is None:
                self._thread = start_thread(self._listen, name="flyball-listener")

    # -- in the thread ------------------------------------------------------------------------------

    def _listen(self) -> None:
        """Listen until there is no mailbox left, or no way to the server."""
        while (way := self._way_left()) is not None:
            try:
                self._hear_all(way)
            except Exception as error:
                # Waiters also look by themselves; the thread listens again when the server is back.
                tell_log("not listening for wakes: %s", type(error).__name__, debug=True)
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
        """Listen until the connection is lost or not needed, or its store is closed."""
        listener: Listener | None = None
        try:
            # The store is not held on to meanwhile: one that is forgotten closes its connections.
            connect = way()
            if connect is None:
                raise StoreClosedError("the store is gone")
            listener = connect()
            del connect
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
        """Read one message, or ask whether the server is there; False where nothing came."""
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


_subscriptions: dict[tuple[int, str], Subscriptions] = {}
_subscriptions_lock = threading.Lock()
os.register_at_fork(after_in_child=lambda: globals().update(_subscriptions_lock=threading.Lock()))


def open_subscriptions(address: str, connect: Connect, prefix: str) -> Subscriptions:
    """The subscriptions of this process to a server; a forked child makes its own."""
    key = (os.getpid(), address)
    with _subscriptions_lock:
        if key not in _subscriptions or _subscriptions[key].closed:
            _subscriptions[key] = Subscriptions(prefix)
        found = _subscriptions[key]
    found.reach_by(connect)
    return found
