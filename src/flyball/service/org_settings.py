"""What is known about orgs: how many runs each may have at once, and on which terms.

An org is a project of one pool, ``runs``. Its maximum and its weight are settings of that pool, so the store
itself keeps to them. Its terms (time to live, heartbeat) concern only how runs are started: they are notes in
the store. Every server sees all of it. A run carries its own terms in its id.

What is shown of limits may be a second old, and terms a few. What is decided is not: the store decides.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from flyball.core.pool.setting_table import merge_changes
from flyball.core.pool.settings import PoolChanges
from flyball.core.suggestions import did_you_mean, nearest
from flyball.errors import StoreError
from flyball.governor.internals import internals
from flyball.service.lease_schemas import OrgSettings, OrgView
from flyball.service.problems import ProblemError
from flyball.service.state import Service

if TYPE_CHECKING:
    from flyball.service.store_reader import StoreSnapshot

POOL = "runs"
RUNS_CAP = 10_000
"""The cap of all orgs together, until the pool's own cap is set."""
_NOTE = "org-terms:"
_FRESH_S, _TERMS_S = 1.0, 5.0


class RunTerms(msgspec.Struct, frozen=True):
    """How long a run lasts after its last heartbeat, and how often that should come."""

    ttl_s: float = 60.0
    heartbeat_s: float = 20.0


class RunTermsStore:
    """The terms that were set for orgs: notes in the store, so that every server has them."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._known: dict[str, RunTerms] = {}
        self._at = float("-inf")
        self._reading: asyncio.Task[None] | None = None

    async def of(self, org: str) -> RunTerms:
        """An org's own, as they were a moment ago."""
        if self._at == float("-inf"):
            await self._read()
        elif time.monotonic() - self._at > _TERMS_S and (self._reading is None or self._reading.done()):
            # They may have been set elsewhere; no request waits to learn of it.
            self._reading = asyncio.create_task(self._read_quietly())
        return self._known.get(org, RunTerms())

    async def put(self, org: str, terms: RunTerms) -> None:
        text = msgspec.json.encode(terms).decode()
        store = internals(self._service.governor).store
        await self._service.call(partial(store.set_note, f"{_NOTE}{org}", text))
        await self._read()

    async def _read_quietly(self) -> None:
        with suppress(StoreError):
            await self._read()

    async def _read(self) -> None:
        found = await self._service.call(partial(internals(self._service.governor).store.notes, _NOTE))
        self._known = {name.removeprefix(_NOTE): _terms(text) for name, text in found.items()}
        self._at = time.monotonic()


def _terms(text: str) -> RunTerms:
    """What a newer server wrote may say more; what cannot be understood is as good as nothing."""
    try:
        return msgspec.json.decode(text, type=RunTerms)
    except msgspec.MsgspecError:
        return RunTerms()


class OrgRegistry:
    """Use from one event loop only."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._terms = RunTermsStore(service)
        self._named: PoolChanges = {}
        self._at = self._set_at = float("-inf")
        """When we looked, on our clock; and when we last set something, on the store's."""

    async def terms(self, org: str) -> RunTerms:
        return await self._terms.of(org)

    async def limit(self, org: str) -> int:
        """How many runs it may have at once."""
        maxima = self._named.get("maxima", {})
        if org not in maxima:
            await self._look(at_most_old_s=_FRESH_S)
            maxima = self._named.get("maxima", {})
        elif time.monotonic() - self._at > _FRESH_S:
            # A limit may have been set elsewhere; no request waits to learn of it.
            self._take(self._service.watch.last)
            maxima = self._named.get("maxima", {})
        if org not in maxima:
            close = nearest(org, maxima, at_most=1)
            hint = (
                did_you_mean(org, maxima) or f'PUT /v1/orgs/{org} with {{"max_concurrent_runs": 2}} makes it'
            )
            words = f"there is no org {org!r}; {hint}"
            raise ProblemError(404, "unknown-org", words, nearest=close[0] if close else None)
        return maxima[org]

    async def _look(self, *, at_most_old_s: float = 0.0) -> StoreSnapshot | None:
        if time.monotonic() - self._at < at_most_old_s:
            return None
        look = await self._service.watch.fresh()
        self._take(look)
        return look

    def _take(self, look: StoreSnapshot | None) -> None:
        # A look from before a change of ours does not know of it.
        if look is not None and look.at > self._at and look.store_now > self._set_at:
            snapshot = look.snapshots.get(POOL)
            self._named = snapshot.named if snapshot is not None else {}
            self._at = look.at

    async def view(self, org: str) -> OrgView:
        """How it stands now."""
        look = await self._look()
        return await self._view(org, await self.limit(org), look)

    async def _view(self, org: str, maximum: int, look: StoreSnapshot | None) -> OrgView:
        snapshot = look.snapshots.get(POOL) if look is not None else None
        standings = snapshot.projects if snapshot is not None else ()
        standing = next((use for use in standings if use.name == org), None)
        terms = await self.terms(org)
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
        """Change what is named; the rest stays. How it stood at the last look."""
        await self._look(at_most_old_s=_FRESH_S)
        if given.max_concurrent_runs is None and org not in self._named.get("maxima", {}):
            words = f'{org!r} is new: say how many runs it may have, {{"max_concurrent_runs": 2}}'
            raise ProblemError(400, "bad-setting", words, setting="max_concurrent_runs")
        known = await self.terms(org)
        terms = RunTerms(given.ttl_s or known.ttl_s, given.heartbeat_s or known.heartbeat_s)
        if terms.heartbeat_s >= terms.ttl_s:
            words = f"heartbeat_s ({terms.heartbeat_s:g}) must be below ttl_s ({terms.ttl_s:g})"
            raise ProblemError(400, "bad-setting", words, setting="heartbeat_s")
        if changes := self._changes(org, given):
            await self._service.call(partial(self._service.governor.set_pool, POOL, **changes))
            self._set_at = internals(self._service.governor).store.now()
            self._named = merge_changes(self._named, changes)
        if terms != known:
            await self._terms.put(org, terms)
        return await self._view(org, self._named.get("maxima", {}).get(org, 0), self._service.watch.last)

    def _changes(self, org: str, given: OrgSettings) -> PoolChanges:
        changes: PoolChanges = {}
        if "cap" not in self._named:
            changes |= {"cap": RUNS_CAP, "adaptive": False}
        if given.max_concurrent_runs not in (None, self._named.get("maxima", {}).get(org)):
            changes["maxima"] = {org: given.max_concurrent_runs or 0}
        if given.weight not in (None, self._named.get("weights", {}).get(org)):
            changes["weights"] = {org: given.weight or 0.0}
        return changes
