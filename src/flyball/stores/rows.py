"""What the verbs need from a place that keeps rows.

``Rows`` is one open transaction: reads see its own writes, nothing is visible outside until it ends. What
only looks is given a ``RowReader``, which has no writes.
Counts change only inside ``add``, ``grant`` and ``remove``, in the same step as the claim itself; only the
doctor's recount writes them otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from flyball.core.pool.holder import Holder
from flyball.core.pool.model import (
    Ask,
    Candidate,
    Claim,
    Fact,
    IdempotencyRecord,
    Limits,
    Meters,
    PoolCounts,
    ProjectUse,
)
from flyball.core.pool.settings import MachineSettings
from flyball.core.share_lease.renewal import ShareBudget, ShareLease
from flyball.stores.port import Demand


@dataclass(slots=True)
class PoolRow:
    """What admission reads and writes of a pool. Settings and memory are texts of their own."""

    name: str
    limits: Limits
    meters: Meters
    counts: PoolCounts
    watcher_id: int
    """The waiting ask that watches the holders for the whole line; 0 for none."""
    next_id: int
    """The id of its next claim."""
    machine: MachineSettings


@dataclass(frozen=True, slots=True)
class Grant:
    """How things stood when a lease began: what a refusal is later measured against."""

    level: int
    marks: Mapping[str, float]


ID_BLOCK = 1000
"""Pools take ids by the block: no claim costs the write of a counter, and none is ever reused."""
ASK_FACTS_KEPT = 4096
POOL_FACTS_KEPT = 1024
HOSTS_KEPT = 256
"""Beyond this many, hosts that were silent for a day are forgotten."""


@dataclass(frozen=True, slots=True)
class Life:
    """Since when a store remembers everything: it was made, or its server was started or promoted, then."""

    epoch: str
    since: float


class RowReader(Protocol):
    """Reads alone: what code that only looks is given."""

    now: float
    """The time of this transaction on the store's clock: one step, one time."""
    epoch: str
    """Which life of the store this is: another one, where it may have lost what it knew."""

    def pool(self, name: str) -> PoolRow | None: ...

    def entry(self, pool: str, project: str) -> tuple[PoolRow, ProjectUse | None] | None:
        """A pool and one of its projects, in one read."""

    def leaving(self, claim_id: int) -> tuple[Claim, PoolRow] | None:
        """A claim and its pool, in one read."""

    def pools(self) -> list[str]: ...

    def settings(self, pool: str) -> str: ...

    def memory(self, pool: str) -> str: ...

    def newest_waiting(self, pool: str) -> Claim | None: ...

    def counts(self, pool: str) -> PoolCounts: ...

    def project(self, pool: str, name: str) -> ProjectUse | None: ...

    def projects(self, pool: str) -> list[ProjectUse]: ...

    def claim(self, claim_id: int) -> Claim | None: ...

    def find_grant(self, claim_id: int) -> tuple[str, float, int, int] | None:
        """Of a lease that need not be confirmed: its pool, when it was asked for, slots in use, and cap."""

    def granted_ids(self, mailbox: str) -> list[int]: ...

    def claims(self, pool: str | None) -> list[Claim]: ...

    def watched_claims(self, pool: str) -> list[Claim]:
        """The leases of a pool and the ask that watches them."""

    def holders(self, pool: str) -> list[Holder]:
        """The processes behind those, each once."""

    def expired_claims(self, now: float) -> list[Claim]: ...

    def oldest_lease(self, pool: str | None, project: str | None) -> Claim | None:
        """Of those that hold slots."""

    def leases_with_resources(self) -> list[Claim]: ...

    def line_heads(self, pool: str) -> list[tuple[Claim, ProjectUse]]:
        """The oldest waiting ask of each (project, priority), with its project."""

    def line_head(self, pool: str, project: str, priority: int, *, after: int = 0) -> Claim | None:
        """The oldest waiting ask of one of them, of those that came after this one."""

    def waiting(self, pool: str, *, limit: int) -> list[Candidate]:
        """The oldest waiting asks of a pool."""

    def waiting_before(self, pool: str, claim_id: int) -> int: ...

    def slots_in_use(self) -> int:
        """Over all pools."""

    def demands(self, pool: str | None) -> list[Demand]: ...

    def receipt(self, pool: str, key: str) -> IdempotencyRecord | None: ...

    def note(self, name: str) -> str | None:
        """A small text that the store keeps for all who use it."""

    def notes(self, prefix: str) -> dict[str, str]:
        """All whose names begin so."""

    def life(self) -> Life | None:
        """The life of the store that was written down last."""

    def share_budget(self, pool: str) -> ShareBudget | None:
        """What share leases of a pool divide, without terms; None where there never was one."""

    def share(self, pool: str, name: str) -> ShareLease | None: ...

    def shares(self, pool: str) -> list[ShareLease]:
        """In the order of their names."""

    def machine(self) -> MachineSettings: ...

    def facts(self, limit: int) -> list[Fact]: ...


class Rows(RowReader, Protocol):
    """Reads and writes."""

    def on_commit(self, action: Callable[[], None]) -> None:
        """Run ``action`` once this transaction is committed."""

    def add_pool(self, row: PoolRow, *, settings: str, memory: str) -> None: ...

    def drop_pool(self, pool: str) -> None:
        """Forget a pool without claims, and everything that is about it."""

    def put_settings(self, pool: str, settings: str) -> None: ...

    def put_memory(self, pool: str, memory: str) -> None: ...

    def put_plan(self, row: PoolRow) -> None:
        """Write limits and meters together."""

    def take_block(self) -> int:
        """The first of a block of ids that no other pool will use."""

    def put_meters(self, row: PoolRow) -> None: ...

    def put_watcher(self, pool: str, claim_id: int) -> None: ...

    def put_counts(self, pool: str, counts: PoolCounts, projects: Sequence[ProjectUse]) -> None:
        """The doctor's: replace the counts of a pool and of projects it already has."""

    def put_project(self, pool: str, use: ProjectUse) -> None:
        """Insert a project, or update its weight, maximum and share (never its counts)."""

    def put_turn(self, pool: str, project: str, turn: float) -> None: ...

    def drop_idle_projects(self, pool: str, *, keep: int) -> None:
        """Once there are more than ``keep``, forget those that hold nothing and wait for nothing."""

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
        """A lease where a grant is given, else an ask that waits."""

    def grant(self, claim_id: int, grant: Grant, *, now: float, expires_at: float | None) -> None: ...

    def remove(self, claim_id: int) -> None: ...

    def rebind(self, claim_id: int, holder: Holder, *, launcher_pid: int) -> bool:
        """False: it is not a lease."""

    def put_mailbox(self, claim_id: int, mailbox: str) -> None:
        """The ask is woken there from now on."""

    def confirm(self, claim_id: int) -> None:
        """Its holder has shown that it lives: the lease no longer expires."""

    def put_demand(self, demand: Demand) -> None: ...

    def drop_demand(self, demand: Demand) -> None: ...

    def expire(self, claim_id: int, at: float) -> None:
        """The claim ends then, unless it is extended before."""

    def put_receipt(self, pool: str, key: str, receipt: IdempotencyRecord) -> None:
        """Some that are over by now are forgotten on the way."""

    def drop_receipt(self, claim_id: int) -> None:
        """The client that asked for this claim may ask again under the same key."""

    def put_note(self, name: str, text: str) -> None: ...

    def put_life(self, life: Life) -> None: ...

    def put_share_budget(self, pool: str, budget: ShareBudget) -> None: ...

    def put_share(self, pool: str, lease: ShareLease) -> None:
        """Counts follow: what share leases hold is in use."""

    def drop_share(self, pool: str, name: str) -> None: ...

    def put_machine(self, machine: MachineSettings) -> None: ...

    def add_facts(self, facts: Sequence[Fact]) -> None: ...
