"""The usual way to count slots between processes: one JSON file per lease, one lock over the folder.

A small copy of the machine governor's store that flyball's rules come from. Under a lock on the folder it
reads the settings, reads every lease and every project's demand, drops those of dead processes, counts the
rest, works out the asker's fair share, and writes its own lease by rename. A release removes the file under
the same lock. Nothing is synced to disk.

Each live lease costs every later ask an open, a read, a parse and a liveness check: that is what the bench
shows.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LEASE_TTL_S = 24 * 3600.0
DEMAND_TTL_S = 600.0
ROTATION_S = 60.0
_POOL = "anthropic"


class JsonStore:
    def __init__(self, folder: Path, cap: int) -> None:
        self._slots = folder / "slots"
        self._demand = self._slots / "demand"
        self._demand.mkdir(parents=True, exist_ok=True)
        self._settings = folder / "governor.json"
        if not self._settings.exists():
            _write(self._settings, {"pools": {_POOL: {"max_global_agents": cap}}})
        self._lock = os.open(self._slots / ".lock", os.O_RDWR | os.O_CREAT, 0o600)

    def announce(self, project: str, pid: int) -> None:
        """A project's heartbeat: it has ready work."""
        with self._locked():
            _write(self._demand / f"{project}.json", {"project": project, "pid": pid, "at": time.time()})

    def acquire(self, project: str, task: str, pid: int) -> Path | None:
        """The lease's file, or None when there is no slot for this project."""
        with self._locked():
            with open(self._settings, "rb") as file:
                cap = json.load(file)["pools"][_POOL]["max_global_agents"]
            leases = _live(self._slots, LEASE_TTL_S)
            demanders = sorted(
                {demand["project"] for demand in _live(self._demand, DEMAND_TTL_S)} | {project}
            )
            mine = sum(lease["project"] == project for lease in leases)
            if len(leases) >= cap or mine >= _fair_share(project, demanders, cap):
                return None
            path = self._slots / f"{project}-{task}-{pid}.json"
            lease = {"project": project, "task": task, "pid": pid, "pool": _POOL, "at": time.time()}
            _write(path, lease)
            return path

    def release(self, path: Path) -> None:
        with self._locked():
            path.unlink(missing_ok=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def close(self) -> None:
        os.close(self._lock)


def _live(folder: Path, ttl_s: float) -> list[dict[str, Any]]:
    """Every record in the folder whose process lives; the others are removed."""
    live = []
    now = time.time()
    for entry in os.scandir(folder):
        if not entry.name.endswith(".json"):
            continue
        with open(entry.path, "rb") as file:
            record = json.loads(file.read())
        if now - record["at"] > ttl_s or not _alive(record["pid"]):
            os.unlink(entry.path)
        else:
            live.append(record)
    return live


def _fair_share(project: str, demanders: list[str], cap: int) -> int:
    base, rest = divmod(cap, len(demanders))
    place = (demanders.index(project) + int(time.time() / ROTATION_S)) % len(demanders)
    return base + (place < rest)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _write(path: Path, record: dict[str, Any]) -> None:
    draft = f"{path}.{os.getpid()}.tmp"
    with open(draft, "w", encoding="utf-8") as file:
        json.dump(record, file)
    os.replace(draft, path)
