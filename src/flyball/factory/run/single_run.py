"""One run of a project at a time, wherever its clones are.

Two runs of one project would do every task twice: each clone has a ledger of its own, and none knows of the
other's. So a run claims its project in the state that both share, and a second one is refused.

    a file beside the state     a lock that the kernel lets go of with the process
    a server                    besides, a lease of the only slot of a pool that is kept for it: it is bound
                                to the process, and its host gives it back when the process is gone

The pool is flyball's own and is not shown by ``status`` (``core/pool/settings.py``, ``RESERVED``).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from flyball.core.pool.settings import RESERVED
from flyball.core.pool.verdict import span_words
from flyball.errors import RefusedError, UsageError
from flyball.factory.project.project_key import project_key
from flyball.factory.state.locks import RunLock, read_holder
from flyball.governor.governor import Governor
from flyball.governor.internals import internals
from flyball.governor.lease import Lease
from flyball.governor.state_url import home, on_server, path_of, resolve
from flyball.governor.status import status_from

FOLDER = "runs"


@dataclass(slots=True)
class OnlyRun:
    """Held by this process from ``take`` to ``release``."""

    root: Path
    project: str
    _lock: RunLock | None = field(default=None)
    _governor: Governor | None = field(default=None)
    _lease: Lease | None = field(default=None)

    def take(self) -> None:
        """UsageError where another run of the project goes on, with where it is."""
        key = project_key(self.root)
        file = path_of(resolve())
        lock = RunLock((file.parent if file is not None else home()) / FOLDER / f"{key}.lock")
        if not lock.take(since=time.time(), folder=str(self.root)):
            raise UsageError(self._refusal(*_holder(lock.path)))
        self._lock = lock
        if on_server(resolve()):
            self._take_lease(f"{RESERVED}run:{key}")

    def _take_lease(self, pool: str) -> None:
        self._governor = governor = Governor()
        if not internals(governor).named_settings(pool):
            governor.set_pool(pool, cap=1, adaptive=False, spacing_s=0.0)
        try:
            self._lease = governor.acquire_nowait(pool, project=self.project, name=str(self.root)[-100:])
        except RefusedError as refused:
            pools = status_from(internals(governor).store.snapshot(), governor.place, reserved=True).pools
            leases = [lease for each in pools if each.name == pool for lease in each.leases]
            if not leases:
                words = f"it cannot be told yet whether another run of {self.project} goes on"
                raise UsageError(f"{words}: {refused}; try again") from refused
            other = leases[0]
            where = f"on {other.host} (pid {other.pid}) in {other.name}"
            gone = f". Where that host is gone for good: flyball lease drop {other.id}"
            raise UsageError(self._refusal(where, other.held_s) + gone) from refused

    def _refusal(self, where: str, since_s: float | None) -> str:
        since = f", for {span_words(since_s)}" if since_s is not None else ""
        return (
            f"a run of {self.project} is going on {where}{since}; two would do every task twice. "
            "End it there with flyball drain or flyball stop, or wait until it is over"
        )

    def release(self) -> None:
        if self._governor is not None:
            if self._lease is not None:
                self._governor.release(self._lease)
            self._governor.close()
        if self._lock is not None:
            self._lock.release()


def _holder(path: Path) -> tuple[str, float | None]:
    found = read_holder(path)
    if found is None:
        return "on this machine", None
    holder, fields = found
    since = fields.get("since")
    age_s = max(0.0, time.time() - since) if isinstance(since, int | float) else None
    return f"on {holder.host} (pid {holder.pid}) in {fields.get('folder', 'another folder')}", age_s
