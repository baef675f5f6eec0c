"""Rows in dictionaries, with a journal that undoes a step that failed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import replace
from typing import TypeVar

from flyball.core.pool.holder import Holder
from flyball.core.pool.model import (
    ASK_FACTS,
    Ask,
    Candidate,
    Claim,
    Fact,
    IdempotencyRecord,
    PoolCounts,
    ProjectUse,
)
from flyball.core.pool.settings import MachineSettings
from flyball.core.share_lease.renewal import ShareBudget, ShareLease
from flyball.stores.port import Demand
from flyball.stores.rows import ASK_FACTS_KEPT, ID_BLOCK, POOL_FACTS_KEPT, Grant, Life, PoolRow

K = TypeVar("K")
V = TypeVar("V")


class MemoryRows:
    """Tables as dictionaries of values that are replaced, never changed in place.

    Every change notes its inverse first, so a failed step can be undone like a transaction.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._pools: dict[str, PoolRow] = {}
        self._texts: dict[tuple[str, str], str] = {}
        self._projects: dict[tuple[str, str], ProjectUse] = {}
        self._claims: dict[int, Claim] = {}
        self._held: dict[tuple[str, int], None] = {}
        self._expiring: dict[int, None] = {}
        self._demands: dict[tuple[str, str, Holder], Demand] = {}
        self._machine: dict[str, MachineSettings] = {"machine": MachineSettings()}
        self._ids: dict[str, int] = {"block": 0, "fact": 0}
        self.epoch = ""
        self._lives: dict[str, Life] = {}
        self._budgets: dict[str, ShareBudget] = {}
        self._receipts: dict[tuple[str, str], IdempotencyRecord] = {}
        self._notes: dict[str, str] = {}
        self._shares: dict[str, dict[str, ShareLease]] = {}
        self._lines: dict[tuple[str, str, int], dict[int, None]] = {}
        self._ask_facts: deque[tuple[int, Fact]] = deque(maxlen=ASK_FACTS_KEPT)
        self._pool_facts: deque[tuple[int, Fact]] = deque(maxlen=POOL_FACTS_KEPT)
        self._new_facts: list[Fact] = []
        self._undo: list[Callable[[], object]] = []
        self._actions: list[Callable[[], None]] = []

    # -- transactions -----------------------------------------------------------------------------

    def begin(self, now: float, epoch: str = "") -> None:
        self.now, self.epoch = now, epoch
        self._undo, self._actions, self._new_facts = [], [], []

    def commit(self) -> None:
        self._undo = []
        for fact in self._new_facts:
            self._ids["fact"] += 1
            kept = self._ask_facts if fact.kind in ASK_FACTS else self._pool_facts
            kept.append((self._ids["fact"], fact))
        self._new_facts = []
        for action in self._actions:
            action()

    def rollback(self) -> None:
        """Undo the open step, if there is one. May be cut off, and done again."""
        while self._undo:
            self._undo[-1]()
            self._undo.pop()
        self._lines = {}
        for claim in sorted(self._claims.values(), key=lambda c: c.id):
            if not claim.held:
                self._line(claim)[claim.id] = None

    def on_commit(self, action: Callable[[], None]) -> None:
        self._actions.append(action)

    def _set(self, table: MutableMapping[K, V], key: K, value: V) -> None:
        if key in table:
            old = table[key]
            self._undo.append(lambda: table.__setitem__(key, old))
        else:
            self._undo.append(lambda: table.pop(key, None))
        table[key] = value

    def _delete(self, table: MutableMapping[K, V], key: K) -> None:
        old = table[key]
        self._undo.append(lambda: table.__setitem__(key, old))
        del table[key]

    # -- pools ------------------------------------------------------------------------------------

    def pool(self, name: str) -> PoolRow | None:
        row = self._pools.get(name)
        return replace(_copy(row), machine=self.machine()) if row is not None else None

    def entry(self, pool: str, project: str) -> tuple[PoolRow, ProjectUse | None] | None:
        row = self.pool(pool)
        return (row, self.project(pool, project)) if row is not None else None

    def leaving(self, claim_id: int) -> tuple[Claim, PoolRow] | None:
        claim = self._claims.get(claim_id)
        row = self.pool(claim.pool) if claim is not None else None
        return (claim, row) if claim is not None and row is not None else None

    def pools(self) -> list[str]:
        return sorted(self._pools)

    def add_pool(self, row: PoolRow, *, settings: str, memory: str) -> None:
        self._set(self._pools, row.name, _copy(row))
        self.put_settings(row.name, settings)
        self.put_memory(row.name, memory)

    def drop_pool(self, pool: str) -> None:
        for lease in self.shares(pool):
            self.drop_share(pool, lease.name)
        for demand in self.demands(pool):
            self.drop_demand(demand)
        for text in ("settings", "memory"):
            self._delete(self._texts, (pool, text))
        for project in [key for key in self._projects if key[0] == pool]:
            self._delete(self._projects, project)
        for receipt in [key for key in self._receipts if key[0] == pool]:
            self._delete(self._receipts, receipt)
        if pool in self._budgets:
            self._delete(self._budgets, pool)
        self._delete(self._pools, pool)
        self.on_commit(lambda: self._forget_facts(pool))

    def _forget_facts(self, pool: str) -> None:
        for kept in (self._ask_facts, self._pool_facts):
            others = [entry for entry in kept if entry[1].pool != pool]
            kept.clear()
            kept.extend(others)

    def settings(self, pool: str) -> str:
        return self._texts[pool, "settings"]

    def memory(self, pool: str) -> str:
        return self._texts[pool, "memory"]

    def put_settings(self, pool: str, settings: str) -> None:
        self._set(self._texts, (pool, "settings"), settings)

    def put_memory(self, pool: str, memory: str) -> None:
        self._set(self._texts, (pool, "memory"), memory)

    def take_block(self) -> int:
        first = self._ids["block"] * ID_BLOCK + 1
        self._set(self._ids, "block", self._ids["block"] + 1)
        return first

    def put_plan(self, row: PoolRow) -> None:
        self._change_pool(
            row.name,
            lambda mine: replace(mine, limits=row.limits, meters=replace(row.meters)),
        )

    def put_meters(self, row: PoolRow) -> None:
        self._change_pool(row.name, lambda mine: replace(mine, meters=replace(row.meters)))

    def put_watcher(self, pool: str, claim_id: int) -> None:
        self._change_pool(pool, lambda mine: replace(mine, watcher_id=claim_id))

    def newest_waiting(self, pool: str) -> Claim | None:
        ids = [next(reversed(line)) for (of, _, _), line in self._lines.items() if of == pool]
        return self._claims[max(ids)] if ids else None

    def counts(self, pool: str) -> PoolCounts:
        return replace(self._pools[pool].counts)

    def put_counts(self, pool: str, counts: PoolCounts, projects: Sequence[ProjectUse]) -> None:
        self._change_pool(pool, lambda mine: replace(mine, counts=replace(counts)))
        for use in projects:
            old = self._projects[pool, use.name]
            self._set(self._projects, (pool, use.name), replace(old, in_use=use.in_use, waiting=use.waiting))

    def slots_in_use(self) -> int:
        return sum(row.counts.in_use for row in self._pools.values())

    def _change_pool(self, pool: str, change: Callable[[PoolRow], PoolRow]) -> None:
        self._set(self._pools, pool, change(self._pools[pool]))

    # -- projects ---------------------------------------------------------------------------------

    def project(self, pool: str, name: str) -> ProjectUse | None:
        use = self._projects.get((pool, name))
        return replace(use) if use is not None else None

    def projects(self, pool: str) -> list[ProjectUse]:
        return [replace(use) for (of, _), use in sorted(self._projects.items()) if of == pool]

    def put_project(self, pool: str, use: ProjectUse) -> None:
        old = self._projects.get((pool, use.name)) or ProjectUse(use.name)
        changed = replace(old, weight=use.weight, maximum=use.maximum, share=use.share)
        self._set(self._projects, (pool, use.name), changed)

    def put_turn(self, pool: str, project: str, turn: float) -> None:
        self._set(self._projects, (pool, project), replace(self._projects[pool, project], turn=turn))

    def drop_idle_projects(self, pool: str, *, keep: int) -> None:
        mine = [(key, use) for key, use in self._projects.items() if key[0] == pool]
        if len(mine) > keep:
            for key, use in mine:
                if not use.in_use and not use.waiting:
                    self._delete(self._projects, key)

    # -- claims -----------------------------------------------------------------------------------

    def add(
        self,
        claim_id: int,
        ask: Ask,
        *,
        now: float,
        launcher_pid: int,
        grant: Grant | None = None,
        why: str = "",
    ) -> None:
        claim = Claim(
            claim_id,
            ask.pool,
            ask.project,
            ask.name,
            ask.holder,
            ask.slots,
            ask.priority,
            dict(ask.resources),
            ask.model,
            ask.mailbox,
            launcher_pid,
            now,
            now if grant is not None else None,
            None,
            why,
            grant.level if grant is not None else 0,
            dict(ask.cost),
            grant.marks if grant is not None else {},
            ask.unread,
        )
        self._change_pool(ask.pool, lambda mine: replace(mine, next_id=claim_id + 1))
        self._enter(claim)

    def grant(self, claim_id: int, grant: Grant, *, now: float, expires_at: float | None) -> None:
        claim = self._claims[claim_id]
        self.remove(claim_id)
        self._enter(
            replace(claim, granted_at=now, expires_at=expires_at, level=grant.level, marks=grant.marks)
        )

    def remove(self, claim_id: int) -> None:
        claim = self._claims.get(claim_id)
        if claim is None:
            return
        self._delete(self._claims, claim_id)
        if claim_id in self._expiring:
            self._delete(self._expiring, claim_id)
        if claim.held:
            self._delete(self._held, (claim.pool, claim_id))
        else:
            line = self._line(claim)
            del line[claim_id]
            if not line:
                del self._lines[claim.pool, claim.project, claim.priority]
        self._count(claim, -1)

    def _enter(self, claim: Claim) -> None:
        self._set(self._claims, claim.id, claim)
        if claim.expires_at is not None:
            self._set(self._expiring, claim.id, None)
        if claim.held:
            self._set(self._held, (claim.pool, claim.id), None)
        else:
            self._line(claim)[claim.id] = None
        self._count(claim, +1)

    def _line(self, claim: Claim) -> dict[int, None]:
        return self._lines.setdefault((claim.pool, claim.project, claim.priority), {})

    def _count(self, claim: Claim, sign: int) -> None:
        """The counterpart of the SQL triggers: counts move with the claim or not at all."""
        slots = sign * claim.slots if claim.held else 0
        waits = 0 if claim.held else sign
        counts = self._pools[claim.pool].counts
        moved = PoolCounts(
            counts.in_use + slots,
            counts.low_in_use + (slots if claim.priority <= 0 else 0),
            counts.waiting + waits,
        )
        self._change_pool(claim.pool, lambda mine: replace(mine, counts=moved))
        key = (claim.pool, claim.project)
        use = self._projects.get(key) or ProjectUse(claim.project)
        self._set(self._projects, key, replace(use, in_use=use.in_use + slots, waiting=use.waiting + waits))

    def rebind(self, claim_id: int, holder: Holder, *, launcher_pid: int) -> bool:
        claim = self._claims.get(claim_id)
        if claim is None or not claim.held:
            return False
        self._set(self._claims, claim_id, replace(claim, holder=holder, launcher_pid=launcher_pid))
        return True

    def put_mailbox(self, claim_id: int, mailbox: str) -> None:
        self._set(self._claims, claim_id, replace(self._claims[claim_id], mailbox=mailbox))

    def confirm(self, claim_id: int) -> None:
        self._set(self._claims, claim_id, replace(self._claims[claim_id], expires_at=None))

    def claim(self, claim_id: int) -> Claim | None:
        return self._claims.get(claim_id)

    def find_grant(self, claim_id: int) -> tuple[str, float, int, int] | None:
        claim = self._claims.get(claim_id)
        if claim is None or not claim.held or claim.expires_at is not None:
            return None
        row = self._pools[claim.pool]
        return claim.pool, claim.asked_at, row.counts.in_use, row.limits.cap

    def granted_ids(self, mailbox: str) -> list[int]:
        return sorted(claim_id for _, claim_id in self._held if self._claims[claim_id].mailbox == mailbox)

    def claims(self, pool: str | None) -> list[Claim]:
        found = [c for c in self._claims.values() if pool is None or c.pool == pool]
        return sorted(found, key=lambda c: c.id)

    def watched_claims(self, pool: str) -> list[Claim]:
        watcher = self._pools[pool].watcher_id if pool in self._pools else 0
        return [c for c in self.claims(pool) if c.held or c.id == watcher]

    def holders(self, pool: str) -> list[Holder]:
        return sorted({c.holder for c in self.watched_claims(pool)}, key=lambda holder: holder.pid)

    def expired_claims(self, now: float) -> list[Claim]:
        found = (self._claims[claim_id] for claim_id in sorted(self._expiring))
        return [c for c in found if c.expires_at is not None and c.expires_at <= now]

    def oldest_lease(self, pool: str | None, project: str | None) -> Claim | None:
        held = (self._claims[claim_id] for of, claim_id in self._held if pool in (None, of))
        mine = [c for c in held if project in (None, c.project) and not c.rests]
        return min(mine, key=lambda c: c.id, default=None)

    def leases_with_resources(self) -> list[Claim]:
        return [c for c in self.claims(None) if c.held and c.resources]

    def line_heads(self, pool: str) -> list[tuple[Claim, ProjectUse]]:
        heads = (next(iter(line)) for (of, _, _), line in sorted(self._lines.items()) if of == pool)
        claims = [self._claims[claim_id] for claim_id in heads]
        return [(claim, replace(self._projects[pool, claim.project])) for claim in claims]

    def line_head(self, pool: str, project: str, priority: int, *, after: int = 0) -> Claim | None:
        line = self._lines.get((pool, project, priority), {})
        first = next((claim_id for claim_id in line if claim_id > after), None)
        return self._claims[first] if first is not None else None

    def waiting(self, pool: str, *, limit: int) -> list[Candidate]:
        ids = sorted(claim_id for (of, _, _), line in self._lines.items() if of == pool for claim_id in line)
        found = (self._claims[claim_id] for claim_id in ids[:limit])
        return [
            Candidate(c.id, c.project, c.priority, c.slots, c.resources, c.asked_at, name=c.name)
            for c in found
        ]

    def waiting_before(self, pool: str, claim_id: int) -> int:
        lines = (line for (of, _, _), line in self._lines.items() if of == pool)
        return sum(1 for line in lines for other in line if other < claim_id)

    # -- keys and notes ---------------------------------------------------------------------------

    def expire(self, claim_id: int, at: float) -> None:
        self._set(self._claims, claim_id, replace(self._claims[claim_id], expires_at=at))
        self._set(self._expiring, claim_id, None)

    def receipt(self, pool: str, key: str) -> IdempotencyRecord | None:
        return self._receipts.get((pool, key))

    def put_receipt(self, pool: str, key: str, receipt: IdempotencyRecord) -> None:
        for over in [known for known, kept in self._receipts.items() if kept.until <= self.now]:
            self._delete(self._receipts, over)
        self._set(self._receipts, (pool, key), receipt)

    def drop_receipt(self, claim_id: int) -> None:
        for known in [each for each, kept in self._receipts.items() if kept.claim_id == claim_id]:
            self._delete(self._receipts, known)

    def note(self, name: str) -> str | None:
        return self._notes.get(name)

    def notes(self, prefix: str) -> dict[str, str]:
        return {name: text for name, text in self._notes.items() if name.startswith(prefix)}

    def put_note(self, name: str, text: str) -> None:
        self._set(self._notes, name, text)

    # -- share leases -----------------------------------------------------------------------------

    def life(self) -> Life | None:
        return self._lives.get("life")

    def put_life(self, life: Life) -> None:
        self._set(self._lives, "life", life)

    def share_budget(self, pool: str) -> ShareBudget | None:
        return self._budgets.get(pool)

    def put_share_budget(self, pool: str, budget: ShareBudget) -> None:
        self._set(self._budgets, pool, budget)

    def share(self, pool: str, name: str) -> ShareLease | None:
        return self._shares.get(pool, {}).get(name)

    def shares(self, pool: str) -> list[ShareLease]:
        return sorted(self._shares.get(pool, {}).values(), key=lambda lease: lease.name)

    def put_share(self, pool: str, lease: ShareLease) -> None:
        known = self.share(pool, lease.name)
        self._set(self._shares.setdefault(pool, {}), lease.name, lease)
        self._count_share(pool, lease.slots - (known.slots if known is not None else 0))

    def drop_share(self, pool: str, name: str) -> None:
        known = self._shares[pool][name]
        self._delete(self._shares[pool], name)
        self._count_share(pool, -known.slots)

    def _count_share(self, pool: str, slots: int) -> None:
        if not slots:
            return
        counts = self._pools[pool].counts
        moved = replace(counts, in_use=counts.in_use + slots, low_in_use=counts.low_in_use + slots)
        self._change_pool(pool, lambda mine: replace(mine, counts=moved))

    # -- the rest ---------------------------------------------------------------------------------

    def demands(self, pool: str | None) -> list[Demand]:
        found = [d for d in self._demands.values() if pool in (None, d.pool)]
        return sorted(found, key=lambda d: (d.pool, d.project, d.holder.pid))

    def put_demand(self, demand: Demand) -> None:
        self._set(self._demands, (demand.pool, demand.project, demand.holder), demand)

    def drop_demand(self, demand: Demand) -> None:
        key = (demand.pool, demand.project, demand.holder)
        if key in self._demands:
            self._delete(self._demands, key)

    def machine(self) -> MachineSettings:
        return self._machine["machine"]

    def put_machine(self, machine: MachineSettings) -> None:
        self._set(self._machine, "machine", machine)

    def add_facts(self, facts: Sequence[Fact]) -> None:
        self._new_facts.extend(facts)

    def facts(self, limit: int) -> list[Fact]:
        newest = sorted((*self._ask_facts, *self._pool_facts), key=lambda entry: entry[0])[-limit:]
        return [fact for _, fact in reversed(newest)]


def _copy(row: PoolRow) -> PoolRow:
    return replace(row, meters=replace(row.meters), counts=replace(row.counts))
