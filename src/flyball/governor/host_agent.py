"""A small process of a host that looks after its leases on a server when no other process does.

A lease there follows the life of a process, and only that process's own host can tell whether it lives.
A process that holds leases beats for its host (heartbeat.py); but a wrapper may be killed and leave its agent
running, and a program may be killed and leave its slots. Then no process of the host would be left to say so,
and the slots would count for a day. So the first on a host to hold a lease on a server starts this one, one
per host and server. It beats for the host, takes back what the dead left, and ends when the host has held
nothing for a while, when the server has not answered for so long that it has given all away, or when the
state folder is gone.

    FLYBALL_URL=... python -m flyball.governor.host_agent

``FLYBALL_HOST_AGENT=off`` keeps it from being started.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

from flyball.core.pool.settings import LEASE_BACKSTOP_S
from flyball.core.server_url import redacted
from flyball.errors import FlyballError, StoreError
from flyball.governor import acquisition
from flyball.governor.flow_drivers import run_sync
from flyball.governor.inherited_lease import heir
from flyball.governor.state_url import home, mail_home, open_store, resolve
from flyball.host.background_thread import Linger
from flyball.host.lock_file import LongLock
from flyball.host.process import alive, me

if TYPE_CHECKING:
    from flyball.core.pool.holder import Holder
    from flyball.governor.heartbeat import SharedStore

VARIABLE = "FLYBALL_HOST_AGENT"
BEAT_S = 1.0
CENSUS_S = 5.0
"""How often it asks the server what its host holds."""
LINGER_S = 20.0


def ensure(address: str) -> None:
    """Start the agent of this host, unless there is one. Where it cannot be started the caller goes on."""
    if os.environ.get(VARIABLE) == "off":
        return
    with contextlib.suppress(OSError):
        lock = _lock(address)
        free = lock.take()
        lock.release()
        if free:
            import subprocess  # mostly there is one, and every process that takes a lease looks

            # It forks and lets go of us at once.
            command = [sys.executable, "-m", "flyball.governor.host_agent"]
            kept = {key: value for key, value in os.environ.items() if not key.startswith("FLYBALL_LEASE")}
            subprocess.run(
                command,
                env={**kept, "FLYBALL_URL": address},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=False,
            )


def _lock(address: str) -> LongLock:
    """Held by the one agent of this host for a server, as long as it lives."""
    host, folder = me(), home()
    where = f"{redacted(address)} {host.host} {host.boot} {host.pidns}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return LongLock(folder / f"host-agent-{hashlib.sha256(where.encode()).hexdigest()[:16]}.lock")


class HostAgent:
    """Looks after what one host holds. ``look`` once a beat."""

    def __init__(
        self, store: SharedStore, here: Holder, heir: acquisition.Heir = lambda _claim_id: None
    ) -> None:
        self._store, self._here, self._heir = store, here, heir
        self._mine: dict[str, list[Holder]] = {}
        """Per pool, the holders of this host."""
        self._asked_at = float("-inf")
        self._answered_at: float | None = None

    def look(self, now: float) -> bool:
        """Beat, and take back what the dead left; whether this host holds anything."""
        if self._answered_at is None:
            self._answered_at = now
        try:
            if now - self._asked_at >= CENSUS_S:
                self._mine, self._asked_at = self._census(), now
            for pool, holders in self._mine.items():
                due = self._store.beat(pool, look_s=CENSUS_S)
                if due or any(alive(holder) is False for holder in holders):
                    run_sync(acquisition.reap(self._store, pool, (), heir=self._heir), None)
                    self._asked_at = float("-inf")
        except StoreError:
            # Tried again at the next beat. What is held is not known to have ended.
            return now - self._answered_at < LEASE_BACKSTOP_S
        self._answered_at = now
        return bool(self._mine)

    def _census(self) -> dict[str, list[Holder]]:
        found: dict[str, list[Holder]] = {}
        census, here = self._store.census(), self._here
        held = [(claim.pool, claim.holder) for claim in census.claims]
        for pool, holder in (*held, *((demand.pool, demand.holder) for demand in census.demands)):
            if (holder.host, holder.boot, holder.pidns) == (here.host, here.boot, here.pidns):
                found.setdefault(pool, []).append(holder)
        return found


def main() -> int:
    address = resolve()
    # The thread that started this process blocks signals, and this process inherited that.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    if os.fork():
        # Nothing has to wait for a process that lives as long as leases do.
        os._exit(0)
    os.setsid()
    lock = _lock(address)
    if not lock.take():
        return 0
    try:
        store: SharedStore = open_store(address)  # type: ignore[assignment]
    except FlyballError:
        return 1
    agent, linger = (
        HostAgent(store, me(), lambda claim_id: heir(address, claim_id, mail_home(address))),
        Linger(BEAT_S, LINGER_S),
    )
    while (
        os.path.exists(lock.path) and (next_s := linger.next_s(busy=agent.look(time.monotonic()))) is not None
    ):
        time.sleep(next_s)
    store.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
