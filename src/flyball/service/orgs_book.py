"""What is known about orgs: how many runs each may have at once, and on which terms.

An org is a project of one pool, ``runs``. Its maximum and its weight are settings of that pool, so the store
itself keeps to them, and every server sees them. Its terms (time to live, heartbeat) concern only how runs
are started: they are in a file beside the server's tokens. A run carries its own in its id.

What is shown of limits may be a second old. What is decided is not: the store decides.
"""

from __future__ import annotations

import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from flyball.core.nearest import did_you_mean, nearest
from flyball.core.settings import PoolChanges, merge_changes
from flyball.errors import StoreReadOnlyError, StoreUnreadableError
from flyball.governor.location import mail_home
from flyball.host.lockfile import LockFile
from flyball.host.wholefile import replace_file
from flyball.service.contract_bodies import OrgSettings, OrgView
from flyball.service.problems import ProblemError
from flyball.service.serving import Service

if TYPE_CHECKING:
    from flyball.service.looking import Look

POOL = "runs"
RUNS_CAP = 10_000
"""Of all orgs together, until somebody sets the pool's own cap."""
FILE_NAME = "orgs.json"
_FRESH_S = 1.0


class Terms(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long a run lasts after its last heartbeat, and how often that should come."""

    ttl_s: float = 60.0
    heartbeat_s: float = 20.0


class TermsFile:
    """The terms that somebody named. Without a path they are kept in this process only."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._stamp: tuple[int, ...] | None = None
        self._known: dict[str, Terms] = {}

    def of(self, org: str) -> Terms:
        return self._all().get(org, Terms())

    def _all(self) -> dict[str, Terms]:
        if self._path is None:
            return self._known
        stamp = _stamp(self._path)
        with self._lock:
            if stamp != self._stamp:
                self._known, self._stamp = self._read(self._path), stamp
            return self._known

    def _read(self, path: Path) -> dict[str, Terms]:
        try:
            return msgspec.json.decode(path.read_bytes(), type=dict[str, Terms])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError) as error:
            words = f"{path} cannot be understood ({error}); move it away and set the orgs again"
            raise StoreUnreadableError(words) from error

    def put(self, org: str, terms: Terms) -> None:
        if self._path is None:
            self._known = {**self._known, org: terms}
            return
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = LockFile.of(f"{self._path}.lock")
            lock.acquire()
            try:
                known = {**self._read(self._path), org: terms}
                replace_file(self._path, msgspec.json.encode(known, order="sorted"), mode=0o600)
            finally:
                lock.release()
        except OSError as error:
            raise StoreReadOnlyError(f"cannot write {self._path} ({error.strerror})") from error


def _stamp(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino


class OrgBook:
    """Use from one event loop only."""

    def __init__(self, service: Service) -> None:
        address = service.governor.address
        folder = None if address == "memory:" else mail_home(address)
        self._service = service
        self._terms = TermsFile(folder / FILE_NAME if folder is not None else None)
        self._named: PoolChanges = {}
        self._at = self._set_at = float("-inf")
        """When we looked, on our clock; and when we last set something, on the store's."""

    def terms(self, org: str) -> Terms:
        return self._terms.of(org)

    async def limit(self, org: str) -> int:
        """How many runs it may have at once."""
        maxima = self._named.get("maxima", {})
        if org not in maxima:
            await self._look(at_most_old_s=_FRESH_S)
            maxima = self._named.get("maxima", {})
        elif time.monotonic() - self._at > _FRESH_S:
            # Somebody may have set a limit elsewhere; nobody waits to hear of it.
            self._take(self._service.watch.last)
            maxima = self._named.get("maxima", {})
        if org not in maxima:
            raise self._unknown(org)
        return maxima[org]

    async def _look(self, *, at_most_old_s: float = 0.0) -> Look | None:
        if time.monotonic() - self._at < at_most_old_s:
            return None
        look = await self._service.watch.fresh()
        self._take(look)
        return look

    def _take(self, look: Look | None) -> None:
        # A look from before a change of ours does not know of it.
        if look is not None and look.at > self._at and look.store_now > self._set_at:
            snapshot = look.snapshots.get(POOL)
            self._named = snapshot.named if snapshot is not None else {}
            self._at = look.at

    def _unknown(self, org: str) -> ProblemError:
        known = [*self._named.get("maxima", {})]
        close = nearest(org, known, at_most=1)
        hint = did_you_mean(org, known) or f'PUT /v1/orgs/{org} with {{"max_concurrent_runs": 2}} makes it'
        words = f"there is no org {org!r}; {hint}"
        return ProblemError(404, "unknown-org", words, nearest=close[0] if close else None)

    async def view(self, org: str) -> OrgView:
        """How it stands now."""
        look = await self._look()
        return self._view(org, await self.limit(org), look)

    def _view(self, org: str, maximum: int, look: Look | None) -> OrgView:
        snapshot = look.snapshots.get(POOL) if look is not None else None
        standings = snapshot.projects if snapshot is not None else ()
        standing = next((use for use in standings if use.name == org), None)
        terms = self.terms(org)
        return OrgView(
            org=org,
            max_concurrent_runs=maximum,
            weight=self._named.get("weights", {}).get(org, 1.0),
            ttl_s=terms.ttl_s,
            heartbeat_s=terms.heartbeat_s,
            active=standing.in_use if standing is not None else 0,
            queued=standing.waiting if standing is not None else 0,
        )

    async def put(self, org: str, given: OrgSettings) -> OrgView:
        """Change what is named; the rest stays. How it stood when somebody looked last."""
        await self._look(at_most_old_s=_FRESH_S)
        if given.max_concurrent_runs is None and org not in self._named.get("maxima", {}):
            words = f'{org!r} is new: say how much it may do, {{"max_concurrent_runs": 2}}'
            raise ProblemError(400, "bad-setting", words, setting="max_concurrent_runs")
        known = self.terms(org)
        terms = Terms(given.ttl_s or known.ttl_s, given.heartbeat_s or known.heartbeat_s)
        if terms.heartbeat_s >= terms.ttl_s:
            words = f"heartbeat_s ({terms.heartbeat_s:g}) must be below ttl_s ({terms.ttl_s:g})"
            raise ProblemError(400, "bad-setting", words, setting="heartbeat_s")
        if changes := self._changes(org, given):
            await self._service.call(partial(self._service.governor.set_pool, POOL, **changes))
            self._set_at = self._service.governor.store.now()
            self._named = merge_changes(self._named, changes)
        if terms != known:
            await self._service.call(partial(self._terms.put, org, terms))
        return self._view(org, self._named.get("maxima", {}).get(org, 0), self._service.watch.last)

    def _changes(self, org: str, given: OrgSettings) -> PoolChanges:
        changes: PoolChanges = {}
        if "cap" not in self._named:
            changes |= {"cap": RUNS_CAP, "adaptive": False}
        if given.max_concurrent_runs not in (None, self._named.get("maxima", {}).get(org)):
            changes["maxima"] = {org: given.max_concurrent_runs or 0}
        if given.weight not in (None, self._named.get("weights", {}).get(org)):
            changes["weights"] = {org: given.weight or 0.0}
        return changes
