"""A lease that ``exec`` passes on: work inside it uses it instead of waiting for itself.

``FLYBALL_LEASE`` names the leases a process runs under. It is a hint: a lease counts where the store says
that it is held, by this process or by one that it descends from. So a number that was read somewhere is
worth nothing, and a daemon that outlives its ``exec`` asks like any other process. What cannot be understood
counts as none.

As many asks as the lease has slots ride on it at once; the rest stand in line, until a slot of the pool or of
the lease is free. An ``exec`` that rides passes on what it rides on, and no more: a command inside it rides
on that. Who rides is known by files, one for each ride, each with the process that rides. A process that has
ended rides no more, so nothing is left behind by one that is killed, and no store has to know.

What rides may outlive the command around it. The lease then passes to it (``heir``) instead of ending.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import astuple
from pathlib import Path
from typing import NamedTuple, cast

from flyball.core.pool.holder import Holder
from flyball.core.pool.model import Claim
from flyball.core.server_url import redacted
from flyball.errors import StoreReadOnlyError, UsageError
from flyball.host.atomic_file import replace_file
from flyball.host.lock_file import LockFile
from flyball.host.process import alive, ancestors, here, identify, me

VARIABLE = "FLYBALL_LEASE"
_FOLDER = "riding"
_LEFT_S = 3600.0
"""A file that is older and whose process has ended was left by one that was killed."""
_PART = re.compile(r"[0-9]+(?:\.[0-9]+)*", re.ASCII)


class Rider(NamedTuple):
    """A process that rides, and on how many slots."""

    holder: Holder
    slots: int


class Ride:
    """Slots of an outer lease that one ask uses, named by ``part``: ``2.0`` is a ride inside ride ``2``."""

    def __init__(self, riders: Riders, part: str, rider: Rider, claim: Claim) -> None:
        self._riders, self.part, self.rider, self._claim = riders, part, rider, claim

    @property
    def slots(self) -> int:
        return self.rider.slots

    def pass_to(self, pid: int) -> None:
        """The command of this process rides from now on: it does where its starter is killed."""
        self.rider = Rider(identify(pid), self.slots)
        self._riders.write(self.part, self.rider)

    def inherited(self, claim: Claim | None) -> bool:
        """Has the lease passed to what rides here, as the command around it has ended?"""
        return claim is not None and claim.holder == self.rider.holder != self._claim.holder

    def end(self) -> None:
        self._riders.remove(self.part, self.rider)


class Riders:
    """The files of one lease: who rides on it."""

    def __init__(self, folder: Path, lease: str) -> None:
        self._folder, self._prefix = folder, f"{lease}-"

    def live(self) -> dict[str, Rider]:
        """Who rides now, by part."""
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return {}
        found: dict[str, Rider] = {}
        for name in names:
            part = name.removeprefix(self._prefix)
            if part != name and _PART.fullmatch(part) and (rider := self._read(name)) is not None:
                found[part] = rider
        return found

    def try_ride(self, claim: Claim, inside: str, slots: int) -> Ride | None:
        """Ride on what is free of the part ``inside``; empty: of the whole lease."""
        with self._changing():
            live = self.live()
            of = live[inside].slots if inside in live else claim.slots
            if _used(live, inside) + slots > of:
                return None
            taken = {_parts(part)[len(_parts(inside))] for part in live if _is_inside(part, inside)}
            number = next(n for n in range(len(taken) + 1) if n not in taken)
            ride = Ride(self, f"{inside}.{number}" if inside else str(number), Rider(me(), slots), claim)
            self.write(ride.part, ride.rider)
            return ride

    def write(self, part: str, rider: Rider) -> None:
        content = json.dumps([*astuple(rider.holder), rider.slots])
        with _refused(self._folder):
            replace_file(self._folder / f"{self._prefix}{part}", content.encode(), durable=False)

    def remove(self, part: str, rider: Rider) -> None:
        """A ride has ended. Its part may be another's by now, as its command ended before."""
        name = f"{self._prefix}{part}"
        with suppress(OSError, StoreReadOnlyError), self._changing():
            if self._told(name) == rider:
                os.unlink(self._folder / name)

    def _read(self, name: str) -> Rider | None:
        """The rider of a file; None for one that has ended, and for a file that makes no sense."""
        rider = self._told(name)
        return None if rider is None or alive(rider.holder) is False else rider

    def _told(self, name: str) -> Rider | None:
        try:
            host, boot, pidns, pid, start, slots = json.loads((self._folder / name).read_bytes())
            holder = Holder(str(host), str(boot), int(pidns), int(pid), int(start))
            return Rider(holder, max(1, int(slots)))
        except (OSError, ValueError, TypeError, RecursionError):
            return None

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with _refused(self._folder):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = LockFile.of(f"{self._folder}.lock")
            lock.acquire()
            try:
                self._sweep()
                yield
            finally:
                lock.release()

    def _sweep(self) -> None:
        """Remove files that killed processes left."""
        with os.scandir(self._folder) as entries:
            old = [each.name for each in entries if time.time() - each.stat().st_mtime > _LEFT_S]
        for name in old:
            if self._read(name) is None:
                os.unlink(self._folder / name)


@contextmanager
def _refused(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        words = f"cannot use {folder} ({error.strerror}), by which work inside a lease is counted"
        raise StoreReadOnlyError(f"{words}; set FLYBALL_HOME to a folder you can write to") from error


def _parts(part: str) -> list[int]:
    return [int(number) for number in part.split(".")] if part else []


def _is_inside(part: str, outer: str) -> bool:
    return part != outer and (not outer or part.startswith(f"{outer}."))


def _used(live: dict[str, Rider], inside: str) -> int:
    """Slots of a part that are in use: by its riders, and by those inside a rider that has ended."""
    riding = [part for part in live if _is_inside(part, inside)]
    topmost = [part for part in riding if not any(_is_inside(part, other) for other in riding)]
    return sum(live[part].slots for part in topmost)


class OuterLease:
    """The part of a lease that this process works under, and the ride of one ask on it."""

    def __init__(self, claim: Claim, riders: Riders, inside: str) -> None:
        self.claim, self.ride = claim, cast("Ride | None", None)
        self._riders, self._inside = riders, inside

    def try_ride(self, slots: int) -> bool:
        """Ride, if so many slots are not used by others inside."""
        self.ride = self._riders.try_ride(self.claim, self._inside, slots)
        return self.ride is not None

    def get_off(self) -> None:
        """What was ridden for has come to nothing."""
        if self.ride is not None:
            self.ride.end()
            self.ride = None


def is_around_us(holder: Holder) -> bool:
    """Is it this process, or one that it descends from?"""
    return here(holder) and holder.pid in ancestors(os.getpid()) and bool(alive(holder))


def outer_lease(address: str, pool: str, claim: Claim, home: Path) -> OuterLease:
    """The part of this claim that we run under. ``home``: the state's folder on this machine."""
    riders = riders_of(address, claim.id, home)
    part = (_entry(address, pool) or {}).get("part")
    inside = part if isinstance(part, str) and _PART.fullmatch(part) else ""
    rider = riders.live().get(inside) if inside else None
    return OuterLease(claim, riders, inside if rider is not None and is_around_us(rider.holder) else "")


def riders_of(address: str, claim_id: int, home: Path) -> Riders:
    import zlib  # most processes work inside no lease

    # Memory is its process's own; the claims of servers have their numbers beside those of a file.
    at = f"{address}{os.getpid()}" if address == "memory:" else redacted(address)
    return Riders(home / _FOLDER, f"{zlib.crc32(at.encode()):08x}-{claim_id}")


def heir(address: str, claim_id: int, home: Path) -> Holder | None:
    """The process that a lease passes to whose holder has ended: one that still rides on it."""
    live = riders_of(address, claim_id, home).live()
    # The process that releases the lease ends what rides on it inside itself.
    left = [part for part in live if live[part].holder.pid != os.getpid()]
    return live[min(left, key=lambda part: (part.count("."), part))].holder if left else None


def variable_value(address: str, pool: str, claim_id: int, *, ride: Ride | None = None) -> str:
    """The value of the variable for a child that runs under this lease too, or under what rides on it."""
    # Without the password: an environment is read by many.
    at = redacted(address)
    kept = [entry for entry in _entries() if (entry.get("at"), entry.get("pool")) != (at, pool)]
    part = {} if ride is None else {"part": ride.part}
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
