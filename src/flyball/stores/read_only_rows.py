"""Rows on which planning can run and nothing is written: what would be, without making it so."""

from __future__ import annotations

from typing import Any, cast

from flyball.core.pool.model import Claim, ProjectUse
from flyball.core.share_lease.renewal import ShareBudget, ShareLease
from flyball.stores.rows import Rows

_WRITES = frozenset(
    [
        "add_pool",
        "put_settings",
        "put_plan",
        "put_meters",
        "put_watcher",
        "put_counts",
        "drop_idle_projects",
        "put_turn",
        "add",
        "grant",
        "remove",
        "rebind",
        "put_mailbox",
        "confirm",
        "put_demand",
        "drop_demand",
        "put_machine",
        "expire",
        "put_receipt",
        "drop_receipt",
        "put_note",
        "put_life",
        "add_facts",
    ]
)


class ReadOnlyRows:
    """Reads pass through; writes are forgotten, but for what planning reads back."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._memory: dict[str, str] = {}
        self._shares: dict[tuple[str, str], int | None] = {}
        self._budgets: dict[str, ShareBudget] = {}
        self._leases: dict[str, dict[str, ShareLease]] = {}
        self._oldest: dict[tuple[str | None, str | None], Claim | None] = {}

    def __getattr__(self, name: str) -> Any:
        return (lambda *_args, **_kwargs: None) if name in _WRITES else getattr(self._rows, name)

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
        self._leases_of(pool)[lease.name] = lease

    def drop_share(self, pool: str, name: str) -> None:
        del self._leases_of(pool)[name]

    def shares(self, pool: str) -> list[ShareLease]:
        return list(self._leases_of(pool).values())

    def _leases_of(self, pool: str) -> dict[str, ShareLease]:
        if pool not in self._leases:
            self._leases[pool] = {lease.name: lease for lease in self._rows.shares(pool)}
        return self._leases[pool]

    def oldest_lease(self, pool: str | None, project: str | None) -> Claim | None:
        """A snapshot of a long line asks this for each ask in it; nothing here ever ends a lease."""
        if (pool, project) not in self._oldest:
            self._oldest[pool, project] = self._rows.oldest_lease(pool, project)
        return self._oldest[pool, project]

    def take_block(self) -> int:
        return 0

    def project(self, pool: str, name: str) -> ProjectUse | None:
        use = self._rows.project(pool, name)
        return self._with_share(pool, use) if use is not None else None

    def projects(self, pool: str) -> list[ProjectUse]:
        return [self._with_share(pool, use) for use in self._rows.projects(pool)]

    def _with_share(self, pool: str, use: ProjectUse) -> ProjectUse:
        use.share = self._shares.get((pool, use.name), use.share)
        return use


def read_only(rows: Rows) -> Rows:
    return cast(Rows, ReadOnlyRows(rows))
