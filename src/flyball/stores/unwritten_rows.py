"""What would be, without making it so: rows on which a stale plan is made anew and not written.

A reader is given a ``RowReader`` and can write nothing. But how an ask stands follows from the plan of its
pool, which has to be made anew where it is stale. So a session may run on these rows: what a plan writes is
kept here as far as it reads it back, and forgotten otherwise. There is no other write: a session that grants,
ends or parks on them fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from flyball.core.pool.model import Claim, Fact, ProjectUse
from flyball.core.share_lease.renewal import ShareBudget, ShareLease
from flyball.stores.rows import Life, PoolRow, RowReader, Rows

_READS = frozenset([*RowReader.__annotations__, *vars(RowReader)])


class UnwrittenRows:
    def __init__(self, rows: RowReader) -> None:
        self._rows = rows
        self._memory: dict[str, str] = {}
        self._shares: dict[tuple[str, str], int | None] = {}
        self._budgets: dict[str, ShareBudget] = {}
        self._leases: dict[str, dict[str, ShareLease]] = {}
        self._oldest: dict[tuple[str | None, str | None], Claim | None] = {}

    def __getattr__(self, name: str) -> Any:
        """The reads, as they are."""
        if name not in _READS:
            raise AttributeError(f"{name} is not a read, nor written by a plan")
        return getattr(self._rows, name)

    # -- written by a plan, and read back ---------------------------------------------------------------

    def put_project(self, pool: str, use: ProjectUse) -> None:
        self._shares[pool, use.name] = use.share

    def put_memory(self, pool: str, memory: str) -> None:
        self._memory[pool] = memory

    def memory(self, pool: str) -> str:
        return self._memory.get(pool) or self._rows.memory(pool)

    def put_share_budget(self, pool: str, budget: ShareBudget) -> None:
        self._budgets[pool] = budget

    def share_budget(self, pool: str) -> ShareBudget | None:
        return self._budgets.get(pool) or self._rows.share_budget(pool)

    def put_share(self, pool: str, lease: ShareLease) -> None:
        self._leases_in(pool)[lease.name] = lease

    def drop_share(self, pool: str, name: str) -> None:
        del self._leases_in(pool)[name]

    def shares(self, pool: str) -> list[ShareLease]:
        return list(self._leases_in(pool).values())

    def _leases_in(self, pool: str) -> dict[str, ShareLease]:
        if pool not in self._leases:
            self._leases[pool] = {lease.name: lease for lease in self._rows.shares(pool)}
        return self._leases[pool]

    def oldest_lease(self, pool: str | None, project: str | None) -> Claim | None:
        """A snapshot of a long line asks this for each ask in it; nothing here ever ends a lease."""
        if (pool, project) not in self._oldest:
            self._oldest[pool, project] = self._rows.oldest_lease(pool, project)
        return self._oldest[pool, project]

    def project(self, pool: str, name: str) -> ProjectUse | None:
        use = self._rows.project(pool, name)
        return self._with_share(pool, use) if use is not None else None

    def projects(self, pool: str) -> list[ProjectUse]:
        return [self._with_share(pool, use) for use in self._rows.projects(pool)]

    def _with_share(self, pool: str, use: ProjectUse) -> ProjectUse:
        use.share = self._shares.get((pool, use.name), use.share)
        return use

    # -- written by a plan, and forgotten ---------------------------------------------------------------

    def put_plan(self, row: PoolRow) -> None:
        """The session has it."""

    def drop_idle_projects(self, pool: str, *, keep: int) -> None:
        """They are there for those who look."""

    def put_life(self, life: Life) -> None:
        """Of no use to a reader."""

    def add_facts(self, facts: Sequence[Fact]) -> None:
        """It has not happened."""


def as_unwritten(rows: RowReader) -> Rows:
    """For a session that says how things stand. It writes what a plan writes, and no more."""
    return cast(Rows, UnwrittenRows(rows))
