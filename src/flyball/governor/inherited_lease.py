"""A lease that ``exec`` passes on: work inside it uses it instead of waiting for itself.

``FLYBALL_LEASE`` names the leases a process runs under. They count only while the store still knows them,
so a daemon that outlives its ``exec`` asks like any other process. What cannot be understood counts as none.

As many asks as the lease has slots ride on it at once; the rest stand in line, until a slot of the pool or of
the lease is free. An ``exec`` that rides passes on what it rides on, and no more: a command inside it rides
on that. Who rides is known by locks on files, one for each slot. The kernel frees them with the process that
rides, so nothing is left behind by one that is killed, and no store has to know.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import cast

from flyball.core.pool.model import Claim
from flyball.core.server_url import redacted
from flyball.errors import StoreReadOnlyError, UsageError
from flyball.host.lock_file import LongLock

VARIABLE = "FLYBALL_LEASE"
_FOLDER = "riding"
_LEFT_S = 3600.0
"""A file that is older and not locked was left by a process that was killed."""


class Ride:
    """Slots of an outer lease that one ask uses."""

    def __init__(self, locks: list[LongLock], part: str) -> None:
        self._locks, self.part = locks, part
        """``part`` names the first of these slots for asks inside."""

    @property
    def slots(self) -> int:
        return len(self._locks)

    def pass_on(self) -> None:
        """A command that is started from now on rides too: it goes on where its starter is killed."""
        for lock in self._locks:
            if lock.fd is not None:
                os.set_inheritable(lock.fd, True)

    def end(self) -> None:
        for lock in self._locks:
            # While it is locked: one that comes later makes it anew.
            with suppress(OSError):
                os.unlink(lock.path)
            lock.release()


class OuterLease:
    """The part of a lease that this process works under, and the ride of one ask on it."""

    def __init__(self, claim: Claim, prefix: str, part: str, slots: int) -> None:
        self.claim, self.ride = claim, cast("Ride | None", None)
        self._prefix, self._part, self._slots = prefix, part, slots

    def try_ride(self, slots: int) -> bool:
        """Ride, if so many slots are not used by others inside."""
        names = [f"{self._part}.{number}" if self._part else str(number) for number in range(self._slots)]
        locks: list[LongLock] = []
        part = ""
        try:
            for name in names:
                lock = _lock(f"{self._prefix}-{name}") if len(locks) < slots else None
                if lock is not None:
                    part = part or name
                    locks.append(lock)
        except OSError as error:
            Ride(locks, part).end()
            words = f"cannot lock {self._prefix} ({error.strerror}), by which work inside a lease is counted"
            raise StoreReadOnlyError(f"{words}; set FLYBALL_HOME to a folder you can write to") from error
        if len(locks) < slots:
            Ride(locks, part).end()
            return False
        self.ride = Ride(locks, part)
        return True

    def get_off(self) -> None:
        """What was ridden for has come to nothing."""
        if self.ride is not None:
            self.ride.end()
            self.ride = None


def _lock(path: str) -> LongLock | None:
    lock = LongLock(path, inherited=True)
    if not lock.take():
        return None
    with suppress(OSError):
        if lock.fd is not None and os.path.samestat(os.stat(path), os.fstat(lock.fd)):
            return lock
    # The one that rode before removed it since we opened it: the next look finds it new.
    lock.release()
    return None


def outer_lease(address: str, pool: str, claim: Claim, home: Path) -> OuterLease:
    """The part of this claim that we run under. ``home``: the state's folder on this machine."""
    entry = _entry(address, pool) or {}
    part, slots = entry.get("part"), entry.get("slots")
    if not isinstance(part, str) or type(slots) is not int or not 0 < slots <= claim.slots:
        part, slots = "", claim.slots
    folder = home / _FOLDER
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _sweep(folder)
    except OSError as error:
        words = f"cannot use {folder} ({error.strerror}), by which work inside a lease is counted"
        raise StoreReadOnlyError(f"{words}; set FLYBALL_HOME to a folder you can write to") from error
    import zlib  # most processes work inside no lease

    # Memory is its process's own; the claims of servers have their numbers beside those of a file.
    at = f"{address}{os.getpid()}" if address == "memory:" else redacted(address)
    return OuterLease(claim, str(folder / f"{zlib.crc32(at.encode()):08x}-{claim.id}"), part, slots)


def _sweep(folder: Path) -> None:
    """Remove files that nothing locks and that killed processes left."""
    with os.scandir(folder) as entries:
        old = [entry.path for entry in entries if time.time() - entry.stat().st_mtime > _LEFT_S]
    for path in old:
        lock = _lock(path)
        if lock is not None:
            Ride([lock], "").end()


def variable_value(address: str, pool: str, claim_id: int, *, ride: Ride | None = None) -> str:
    """The value of the variable for a child that runs under this lease too, or under what rides on it."""
    # Without the password: an environment is read by many.
    at = redacted(address)
    kept = [entry for entry in _entries() if (entry.get("at"), entry.get("pool")) != (at, pool)]
    part = {} if ride is None else {"part": ride.part, "slots": ride.slots}
    return json.dumps([*kept, {"at": at, "pool": pool, "id": claim_id, **part}])


def inherited_id(address: str, pool: str) -> int | None:
    """The lease on this pool that we already run under, if any."""
    entry = _entry(address, pool)
    return None if entry is None else cast("int", entry["id"])


def inherited_ids(address: str) -> list[int]:
    """The leases on any pool of this state that we already run under, the innermost first."""
    pools = [str(entry.get("pool")) for entry in reversed(_entries())]
    found = (inherited_id(address, pool) for pool in dict.fromkeys(pools))
    return [claim_id for claim_id in found if claim_id is not None]


def check_fits(slots: int, outer: Claim) -> None:
    """What works inside a lease cannot have more than that."""
    if slots > outer.slots:
        raise UsageError(
            f"asks for {slots} slots of {outer.pool} inside a lease of {outer.slots}, "
            f"which it uses; give the outer one more (flyball exec --slots {slots})"
        )


def check_machine(pool: str, slots: int, outer: list[Claim], ceiling: int | None) -> None:
    """An ask that the machine's ceiling keeps out as long as the leases around it are held waits for ever."""
    held = sum(claim.slots for claim in outer)
    if ceiling is not None and outer and held + slots > ceiling:
        around = ", ".join(f"{claim.pool} ({claim.slots})" for claim in outer)
        raise UsageError(
            f"asks for {slots} of {pool} inside a lease of {around}, and the machine's ceiling is {ceiling}, "
            f"so it would wait for itself; raise that: flyball machine set --ceiling {held + slots}"
        )


def _entry(address: str, pool: str) -> dict[str, object] | None:
    entries = _entries()
    at = redacted(address) if entries else ""
    for entry in entries:
        found = entry.get("id")
        if (entry.get("at"), entry.get("pool")) == (at, pool) and type(found) is int and 0 < found < 2**63:
            return entry
    return None


def _entries() -> list[dict[str, object]]:
    text = os.environ.get(VARIABLE)
    if not text:
        return []
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []
