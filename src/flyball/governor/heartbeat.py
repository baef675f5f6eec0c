"""Looking after leases on a server, for this host.

A lease belongs to a process, and only its own host can tell whether that lives. So while a process holds
leases on a server, a thread of its own (never the user's event loop) says every second that the host is
there; and one process of the host, whichever is first, looks at all holders of the host now and then and
takes back what the dead ones left, also those whose wrapper is gone.

A lease that nobody confirms stays counted until its holder is known to be dead or the backstop has passed
since the last word from its host: a missed beat never ends anybody's work. A server that cannot be reached is
tried again at the next beat.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from flyball.errors import StoreError
from flyball.governor import flow
from flyball.governor.doors import run_sync
from flyball.stores.port import Store

BEAT_S = 1.0
LOOK_S = 10.0
"""How often somebody of a host looks at its holders."""
_LINGER_S = 10.0


class Beating(Store, Protocol):
    """A store that many machines share."""

    def beat(self, pool: str, *, look_s: float) -> bool:
        """This host is there. True: it is this process's turn to look at the host's holders."""


class Heartbeat:
    """One per process and server. The thread lives while leases are held, and a little longer."""

    def __init__(
        self,
        store: Beating,
        observers: Sequence[flow.Observer],
        *,
        beat_s: float = BEAT_S,
        look_s: float = LOOK_S,
    ) -> None:
        self._store, self._observers = store, observers
        self._beat_s, self._look_s = beat_s, look_s
        self._held: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def keep(self, pool: str) -> None:
        """A lease of this pool is now ours."""
        with self._lock:
            self._held[pool] += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="flyball-heart", daemon=True)
                self._thread.start()

    def let_go(self, pool: str) -> None:
        with self._lock:
            self._held[pool] -= 1
            if self._held[pool] <= 0:
                del self._held[pool]

    def close(self) -> None:
        self._stop.set()

    # -- in the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        idle_s = 0.0
        while idle_s < _LINGER_S and not self._stop.is_set():
            pools = self._pools()
            idle_s = 0.0 if pools else idle_s + self._beat_s
            for pool in pools:
                self._beat(pool)
            self._stop.wait(self._beat_s)
        with self._lock:
            self._thread = None
            # Somebody may have come while we left.
            if self._held and not self._stop.is_set():
                self._thread = threading.Thread(target=self._run, name="flyball-heart", daemon=True)
                self._thread.start()

    def _pools(self) -> list[str]:
        with self._lock:
            return list(self._held)

    def _beat(self, pool: str) -> None:
        try:
            if self._store.beat(pool, look_s=self._look_s):
                run_sync(flow.reap(self._store, pool, self._observers), None)
        except StoreError as error:
            logging.getLogger("flyball").debug("no heartbeat for %s: %s", pool, error)
        except Exception:
            logging.getLogger("flyball").exception("the heartbeat for %s failed", pool)
