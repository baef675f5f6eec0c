"""Looking after leases on a server, for this host.

A lease belongs to a process, and only its own host can tell whether that lives. So while a process holds
leases on a server, a thread of its own (never the user's event loop) says every second that the host is
there; and one process of the host, whichever is first, looks at all holders of the host now and then and
takes back what the dead ones left, also those whose wrapper is gone. A release that could not be written goes
out with the next beat that gets through.

A lease that is not confirmed stays counted until its holder is known to be dead or the backstop has passed
since the last word from its host: a missed beat never ends any work. A server that cannot be reached is
tried again at the next beat.
"""

from __future__ import annotations

import atexit
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from flyball.errors import StoreError
from flyball.governor import acquisition
from flyball.governor.flow_drivers import run_sync
from flyball.host.background_thread import Linger, PeriodicThread
from flyball.host.log import tell_log
from flyball.stores.port import Store

BEAT_S = 1.0
LOOK_S = 10.0
"""How often a process of a host looks at its holders."""
_LINGER_S = 10.0


class SharedStore(Store, Protocol):
    """A store that many machines share."""

    def beat(self, pool: str, *, look_s: float) -> bool:
        """This host is there. True: it is this process's turn to look at the host's holders."""


class Heartbeat:
    """One per process and server. The thread lives while leases are held, and a little longer."""

    def __init__(
        self,
        store: SharedStore,
        observers: Sequence[acquisition.Observer],
        *,
        beat_s: float = BEAT_S,
        look_s: float = LOOK_S,
        ensure_host_agent: Callable[[], None] = lambda: None,
        heir: acquisition.Heir = lambda _claim_id: None,
    ) -> None:
        """``ensure_host_agent`` starts a process that looks after our leases if we are killed."""
        self._store, self._observers, self._heir = store, observers, heir
        self._look_s, self._ensure_host_agent = look_s, ensure_host_agent
        self._held: Counter[str] = Counter()
        self._owed: set[str] = set()
        """Pools with a release that could not be written; the next beat takes it along."""
        self._lock = threading.Lock()
        self._thread = PeriodicThread(self._beat_all, name="flyball-heartbeat")
        self._linger, self._guarded = Linger(beat_s, _LINGER_S), False
        _hearts.add(self)

    def keep(self, pool: str) -> None:
        """A lease of this pool is now ours."""
        with self._lock:
            self._held[pool] += 1
        self._thread.start()

    def let_go(self, pool: str) -> None:
        with self._lock:
            self._held[pool] -= 1
            if self._held[pool] <= 0:
                del self._held[pool]

    def owe(self, pool: str) -> None:
        """A release of this pool could not be written: go on until it was."""
        with self._lock:
            self._owed.add(pool)
        self._thread.start()

    def close(self) -> None:
        self._thread.close()

    # -- in the thread ------------------------------------------------------------------------------

    def _beat_all(self) -> float | None:
        if not self._guarded:
            self._guarded = True
            self._ensure_host_agent()
        with self._lock:
            pools = list(self._held.keys() | self._owed)
        for pool in pools:
            self._beat(pool)
        next_s = self._linger.next_s(busy=bool(pools))
        self._guarded = next_s is not None
        return next_s

    def _beat(self, pool: str) -> None:
        try:
            due = self._store.beat(pool, look_s=self._look_s)
            with self._lock:
                self._owed.discard(pool)
            if due:
                run_sync(acquisition.reap(self._store, pool, self._observers, heir=self._heir), None)
        except StoreError as error:
            tell_log("no heartbeat for %s: %s", pool, error, debug=True)
        except Exception:
            tell_log("the heartbeat for %s failed", pool, error=True)


_hearts: weakref.WeakSet[Heartbeat] = weakref.WeakSet()


def _stop_all() -> None:
    """The process ends: nothing connects any more."""
    for heart in list(_hearts):
        heart.close()


atexit.register(_stop_all)
