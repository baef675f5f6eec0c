"""Counting claims again, for the doctor: kept counts must equal what the claims add up to.

Counts move with their claim in one step, so a difference means a bug or a hand-edited file.
"""

from __future__ import annotations

from dataclasses import dataclass

from flyball.core.model import PoolCounts, ProjectUse
from flyball.stores.rows import Rows
from flyball.stores.seen import Miscount


@dataclass(frozen=True, slots=True)
class Recounted:
    pool: str
    counts: PoolCounts
    projects: list[ProjectUse]
    wrong: list[Miscount]


def recounted(rows: Rows, pool: str) -> Recounted:
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
    kept_uses = {use.name: use for use in rows.projects(pool)}
    for name in kept_uses:
        uses.setdefault(name, ProjectUse(name))
    kept = rows.counts(pool)
    wrong = [
        Miscount(pool, "", what, getattr(kept, what), getattr(counts, what))
        for what in ("in_use", "low_in_use", "waiting")
        if getattr(kept, what) != getattr(counts, what)
    ]
    for name, use in sorted(uses.items()):
        kept_use = kept_uses.get(name) or ProjectUse(name)
        wrong += [
            Miscount(pool, name, what, getattr(kept_use, what), getattr(use, what))
            for what in ("in_use", "waiting")
            if getattr(kept_use, what) != getattr(use, what)
        ]
    return Recounted(pool, counts, list(uses.values()), wrong)


def write(rows: Rows, found: Recounted) -> None:
    """Set the counts; a project that lost its row gets one back."""
    known = {use.name for use in rows.projects(found.pool)}
    for use in found.projects:
        if use.name not in known:
            rows.put_project(found.pool, ProjectUse(use.name))
    rows.put_counts(found.pool, found.counts, found.projects)
