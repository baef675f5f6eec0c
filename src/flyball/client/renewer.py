"""Renewals, on a thread of their own: an event loop that is busy for a minute must not cost a lease.

One thread renews all leases of one client, each three times in its time to live. A renewal that fails is
tried again soon; a missed one is harmless as long as one comes in time. A lease that the server has taken
back is told: ``lease.lost``, and ``on_lost``. Running work is never interrupted.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from flyball.client.requests import GONE
from flyball.host.background_thread import start_thread

if TYPE_CHECKING:
    from flyball.client.lease import Held

BEATS = 3
_AGAIN_S = 1.0
Renew = Callable[["Held"], int]


class Heart:
    """``renew`` asks the server and says with which status it answered; 0 for none."""

    def __init__(self, renew: Renew) -> None:
        self._renew = renew
        self._due: dict[Held, float] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def keep(self, lease: Held) -> None:
        with self._changed:
            self._due[lease] = time.monotonic() + lease.ttl_s / BEATS
            if self._thread is None:
                self._thread = start_thread(self._beat, name="flyball-heartbeat")
            self._changed.notify()

    def let_go(self, lease: Held) -> None:
        with self._changed:
            self._due.pop(lease, None)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(2 * _AGAIN_S)

    def _beat(self) -> None:
        while (lease := self._next()) is not None:
            status = self._renew(lease)
            with self._changed:
                if lease not in self._due:
                    continue
                if status == GONE:
                    del self._due[lease]
                else:
                    again_s = lease.ttl_s / BEATS
                    self._due[lease] = time.monotonic() + (
                        again_s if status == 200 else min(_AGAIN_S, again_s / 4)
                    )
            if status == GONE:
                _tell(lease)

    def _next(self) -> Held | None:
        """The next lease to renew, once its time has come; None at the end."""
        with self._changed:
            while not self._closed:
                lease = min(self._due, key=self._due.__getitem__, default=None)
                left_s = self._due[lease] - time.monotonic() if lease is not None else None
                if lease is not None and left_s is not None and left_s <= 0:
                    return lease
                self._changed.wait(left_s)
        return None


def _tell(lease: Held) -> None:
    try:
        lease.lose()
    except Exception:
        logging.getLogger("flyball").exception("on_lost of %r failed", lease)
