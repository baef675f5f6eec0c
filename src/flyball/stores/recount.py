"""Counting claims and share leases again, for the doctor: kept counts must equal what they add up to.

Counts move with their claim in one step, so a difference means a bug or a hand-edited file.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from flyball.core.pool.model import PoolCounts, ProjectUse
from flyball.core.share_lease.renewal import ShareBudget
from flyball.stores.rows import RowReader, Rows


@dataclass(frozen=True, slots=True)
class CountMismatch:
    """A kept count that differs from the claims themselves. ``project`` is empty for the pool's own."""

    pool: str
    project: str
    what: str
    kept: int
    found: int


@dataclass(frozen=True, slots=True)
class Recount:
    pool: str
    counts: PoolCounts
    projects: list[ProjectUse]
    budget: ShareBudget | None
    wrong: list[CountMismatch]


def recount_pool(rows: RowReader, pool: str) -> Recount:
    """What one pool's claims add up to, and where the kept counts differ."""
    counts = PoolCounts()
    uses: dict[str, ProjectUse] = {}
    for claim in rows.claims(pool):
        use = uses.setdefault(claim.project, ProjectUse(claim.project))
        slots = claim.slots if claim.held else 0
        counts.in_use += slots
        counts.low_in_use += slots if claim.priority <= 0 else 0
        counts.waiting += not claim.held
        use.in_use += slots
        use.waiting += not claim.held
    shared = sum(lease.slots for lease in rows.shares(pool))
    counts.in_use += shared
    counts.low_in_use += shared
    kept_uses = {use.name: use for use in rows.projects(pool)}
    for name in kept_uses:
        uses.setdefault(name, ProjectUse(name))
    kept = rows.counts(pool)
    wrong = [
        CountMismatch(pool, "", what, getattr(kept, what), getattr(counts, what))
        for what in ("in_use", "low_in_use", "waiting")
        if getattr(kept, what) != getattr(counts, what)
    ]
    for name, use in sorted(uses.items()):
        kept_use = kept_uses.get(name) or ProjectUse(name)
        wrong += [
            CountMismatch(pool, name, what, getattr(kept_use, what), getattr(use, what))
            for what in ("in_use", "waiting")
            if getattr(kept_use, what) != getattr(use, what)
        ]
    budget = _recount_budget(rows, pool)
    return Recount(pool, counts, list(uses.values()), budget, wrong + _budget_mismatches(rows, pool, budget))


def _recount_budget(rows: RowReader, pool: str) -> ShareBudget | None:
    kept, leases = rows.share_budget(pool), rows.shares(pool)
    if kept is None:
        return None
    return replace(
        kept,
        held=sum(lease.slots for lease in leases),
        nodes=sum(not lease.draining for lease in leases),
        busy=sum(lease.busy for lease in leases),
        active=sum(lease.active for lease in leases),
    )


def _budget_mismatches(rows: RowReader, pool: str, found: ShareBudget | None) -> list[CountMismatch]:
    kept = rows.share_budget(pool)
    return [
        CountMismatch(pool, "", f"{what} of share leases", getattr(kept, what), getattr(found, what))
        for what in ("held", "nodes", "busy", "active")
        if getattr(kept, what, 0) != getattr(found, what, 0)
    ]


def write_counts(rows: Rows, found: Recount) -> None:
    """Set the counts; a project that lost its row gets one back."""
    known = {use.name for use in rows.projects(found.pool)}
    for use in found.projects:
        if use.name not in known:
            rows.put_project(found.pool, ProjectUse(use.name))
    rows.put_counts(found.pool, found.counts, found.projects)
    if found.budget is not None:
        rows.put_share_budget(found.pool, found.budget)
