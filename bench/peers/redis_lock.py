"""Admission behind a lock, as the article on workflow admission builds it: lock, count, write, unlock.

One lock per tenant in Redis (SET NX with a token and a time to live, released by a script that compares the
token), tried again every ten milliseconds, or at a random moment around that, for two seconds at most. Who
does not get it by then answers 503.
"""

from __future__ import annotations

import random
import time
import uuid
from typing import Any

LOCK_S, RETRY_S, WAIT_S = 10.0, 0.010, 2.0
_RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"


class LockUnavailableError(Exception):
    """The answer is 503: the lock could not be had in time."""


class LockedAdmission:
    def __init__(self, link: Any, *, limit: int, jittered: bool) -> None:
        self._link, self._limit, self._jittered = link, limit, jittered
        self._release = link.script_load(_RELEASE)
        self._lock_key, self._runs_key = "admission:lock:{org}", "admission:runs:{org}"

    def admit(self, run: str) -> bool:
        """Whether the run may start."""
        token = self._locked()
        try:
            if self._link.scard(self._runs_key) >= self._limit:
                return False
            self._link.sadd(self._runs_key, run)
            return True
        finally:
            self._link.execute_command("EVALSHA", self._release, 1, self._lock_key, token)

    def _locked(self) -> str:
        token, deadline = uuid.uuid4().hex, time.monotonic() + WAIT_S
        while not self._link.set(self._lock_key, token, nx=True, px=int(LOCK_S * 1000)):
            if time.monotonic() >= deadline:
                raise LockUnavailableError
            time.sleep(random.uniform(0, 2 * RETRY_S) if self._jittered else RETRY_S)
        return token

    def clear(self) -> None:
        self._link.delete(self._lock_key, self._runs_key)
