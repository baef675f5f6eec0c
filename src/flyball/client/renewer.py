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

from flyball.client.requests import GONE, LOST
from flyball.errors import FlyballError
from flyball.host.background_thread import PeriodicThread

if TYPE_CHECKING:
    from flyball.client.lease import Held

BEATS = 3
_AGAIN_S = 1.0
_IDLE_S = 60.0
Renew = Callable[["Held"], int]


class LeaseRenewer:
    """``renew`` asks the server and says with which status it answered; ``LOST`` for none."""

    def __init__(self, renew: Renew) -> None:
        self._renew = renew
        self._due: dict[Held, float] = {}
        self._lock = threading.Lock()
        self._thread = PeriodicThread(self._renew_next, name="flyball-heartbeat")

    def keep(self, lease: Held) -> None:
        with self._lock:
            self._due[lease] = time.monotonic() + lease.ttl_s / BEATS
        self._thread.wake()

    def let_go(self, lease: Held) -> None:
        with self._lock:
            self._due.pop(lease, None)

    def close(self) -> None:
        self._thread.close(join_s=2 * _AGAIN_S)

    def _renew_next(self) -> float:
        """Renew the lease whose time has come; in how many seconds to look again."""
        with self._lock:
            lease = min(self._due, key=self._due.__getitem__, default=None)
            if lease is None:
                return _IDLE_S
            left_s = self._due[lease] - time.monotonic()
        if left_s > 0:
            return left_s
        try:
            status = self._renew(lease)
        except FlyballError:
            # Something between us and the server answered in its place.
            status = LOST
        with self._lock:
            if lease not in self._due:
                return 0.0
            if status == GONE:
                del self._due[lease]
            else:
                again_s = lease.ttl_s / BEATS
                again_s = again_s if status == 200 else min(_AGAIN_S, again_s / 4)
                self._due[lease] = time.monotonic() + again_s
        if status == GONE:
            _tell(lease)
        return 0.0


def _tell(lease: Held) -> None:
    try:
        lease.lose()
    except Exception:
        logging.getLogger("flyball").exception("on_lost of %r failed", lease)
