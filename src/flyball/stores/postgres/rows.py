"""One connection seen as rows: statements in, values out.

The connection is in a batch: what only writes is sent along with the next question or the commit. What was
read stays known until the next write, and some of it is read along with the lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from psycopg import Cursor

from flyball.core.pool.control.registry import controller_for
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
from flyball.errors import StoreUnreadableError
from flyball.stores import codec
from flyball.stores.codec import BUDGET, CLAIM_WIDTH, FACT, LIMITS, METERS, SHARE, WHO, names, parse_claim
from flyball.stores.fast_path import is_fast_path
from flyball.stores.port import Demand
from flyball.stores.postgres import queries as sql
from flyball.stores.postgres.connection import Connection, Values
from flyball.stores.rows import ASK_FACTS_KEPT, ID_BLOCK, POOL_FACTS_KEPT, Grant, Life, PoolRow


@dataclass(slots=True)
class PoolBlob:
    """Settings, learned state and share budget of one pool: read together, once in a step with its lock."""

    settings: str
    memory: str
    budget: ShareBudget | None


class ShareRows:
    """The part of ``Rows`` that only plans and share leases need, and how all parts ask."""

    def __init__(self, link: Connection) -> None:
        self._link = link
        self._minds: dict[str, PoolBlob] = {}
        self._pools: dict[str, PoolRow] = {}
        self._uses: dict[tuple[str, str], ProjectUse | None] = {}
        self._found: dict[int, Claim | None] = {}

    def _run(self, query: str, values: Values = ()) -> None:
        """Write something; it goes out with the next question, and what was read may no longer be true."""
        self._pools.clear()
        self._uses.clear()
        self._found.clear()
        self._link.execute(query, values)

    def _all(self, query: str, values: Values = ()) -> list[tuple[Any, ...]]:
        return self._link.ask(query, values)

    def _one(self, query: str, values: Values = ()) -> tuple[Any, ...] | None:
        found = self._link.ask(query, values)
        return found[0] if found else None

    def _mind(self, pool: str) -> PoolBlob:
        if pool not in self._minds:
            row = self._one(sql.MIND, (pool,))
            if row is None:
                raise StoreUnreadableError(f"pool {pool!r} has lost its settings")
            settings, memory, *found = row
            budget = codec.parse_budget(found) if found[0] is not None else None
            self._minds[pool] = PoolBlob(settings, memory, budget)
        return self._minds[pool]

    def settings(self, pool: str) -> str:
        return self._mind(pool).settings

    def memory(self, pool: str) -> str:
        return self._mind(pool).memory

    def put_settings(self, pool: str, settings: str) -> None:
        traits = fast_path_traits(settings)
        self._mind(pool).settings = settings
        self._run(sql.PUT_SETTINGS, (settings, pool))
        self._run(sql.PUT_TRAITS, (*traits, pool))

    def put_memory(self, pool: str, memory: str) -> None:
        self._mind(pool).memory = memory
        self._run(sql.PUT_MEMORY, (memory, pool))

    def life(self) -> Life | None:
        row = self._one(sql.LIFE)
        return Life(*row) if row is not None else None

    def put_life(self, life: Life) -> None:
        self._run(sql.PUT_LIFE, (life.epoch, life.since))

    def share_budget(self, pool: str) -> ShareBudget | None:
        return self._mind(pool).budget

    def put_share_budget(self, pool: str, budget: ShareBudget) -> None:
        self._mind(pool).budget = budget
        self._run(sql.PUT_BUDGET, {"pool": pool, **_fields(BUDGET, codec.budget_values(budget))})

    def share(self, pool: str, name: str) -> ShareLease | None:
        row = self._one(sql.SHARE_BY_NAME, (pool, name))
        return codec.parse_share(row) if row is not None else None

    def shares(self, pool: str) -> list[ShareLease]:
        return [codec.parse_share(row) for row in self._all(sql.SHARES, (pool,))]

    def put_share(self, pool: str, lease: ShareLease) -> None:
        self._run(
            sql.PUT_SHARE, {"pool": pool, "name": lease.name, **_fields(SHARE, codec.share_values(lease))}
        )

    def drop_share(self, pool: str, name: str) -> None:
        self._run(sql.DROP_SHARE, (pool, name))


def fast_path_traits(settings: str) -> tuple[bool, bool]:
    """What the short way has to know of a pool's settings: do maxima exist, does success grow the cap?"""
    resolved = codec.load_settings(settings)
    return bool(resolved.maxima), controller_for(resolved).by_success


def _fields(columns: str, values: Iterable[object]) -> dict[str, object]:
    return dict(zip(names(columns), values, strict=True))


def _demand_fields(demand: Demand) -> dict[str, object]:
    holder = _fields(WHO, codec.holder_values(demand.holder))
    return {"pool": demand.pool, "project": demand.project, **holder, "until": demand.until}


def storable(value: object) -> object:
    """Any text in a form that the server takes: it knows no NUL, and nothing that UTF-8 cannot hold."""
    if not isinstance(value, str) or value.isprintable():
        return value
    return value.replace("\0", "\ufffd").encode(errors="replace").decode()


ONE_MACHINE = MachineSettings()
"""Limits over all pools of one machine have no place on a server that many share."""


class PostgresRows(ShareRows):
    """One connection seen as ``Rows``. The store opens and ends the transactions."""

    def __init__(
        self,
        link: Connection,
        *,
        now: float | None = None,
        clock: Cursor[Any] | None = None,
        epoch: str = "",
        tag: int = 0,
    ) -> None:
        """``clock``: where the time is asked for already, and fetched when it is needed."""
        super().__init__(link)
        self._now, self._clock = now, clock
        self.epoch = epoch
        self._tag = tag
        self.actions: list[Callable[[], None]] = []

    @property
    def now(self) -> float:
        if self._now is None:
            told = self._clock.fetchone() if self._clock is not None else None
            self._now = float(told[0]) if told is not None else 0.0
        return self._now

    @now.setter
    def now(self, now: float) -> None:
        self._now = now

    def on_commit(self, action: Callable[[], None]) -> None:
        self.actions.append(action)

    # -- what was read along with the lock ----------------------------------------------------------

    def keep_pool(self, row: Sequence[Any]) -> None:
        name, *pool = row
        self._pools[name] = codec.parse_pool(name, pool, ONE_MACHINE)

    def keep_project(self, pool: str, project: str, found: Sequence[Sequence[Any]]) -> None:
        self._uses[pool, project] = ProjectUse(*found[0]) if found else None

    def keep_claim(self, claim_id: int, found: Sequence[Sequence[Any]]) -> None:
        self._found[claim_id] = parse_claim(found[0]) if found else None

    # -- pools ------------------------------------------------------------------------------------

    def pool(self, name: str) -> PoolRow | None:
        # Taken, not lent: the caller changes it.
        known = self._pools.pop(name, None)
        if known is not None:
            return known
        row = self._one(sql.POOL_BY_NAME, (name,))
        return codec.parse_pool(name, row, ONE_MACHINE) if row is not None else None

    def entry(self, pool: str, project: str) -> tuple[PoolRow, ProjectUse | None] | None:
        row = self.pool(pool)
        return (row, self.project(pool, project)) if row is not None else None

    def leaving(self, claim_id: int) -> tuple[Claim, PoolRow] | None:
        claim = self.claim(claim_id)
        row = self.pool(claim.pool) if claim is not None else None
        return (claim, row) if claim is not None and row is not None else None

    def pools(self) -> list[str]:
        return [name for (name,) in self._all(sql.POOLS)]

    def add_pool(self, row: PoolRow, *, settings: str, memory: str) -> None:
        bounded, by_success = fast_path_traits(settings)
        rest = {"next_id": row.next_id, "bounded": bounded, "by_success": by_success}
        self._run(sql.ADD_POOL, {**self._plan_fields(row), **rest})
        self._run(sql.ADD_MIND, (row.name, settings, memory))
        self._minds[row.name] = PoolBlob(settings, memory, None)

    def drop_pool(self, pool: str) -> None:
        for statement in sql.DROP_POOL:
            self._run(statement, (pool,))
        self._minds.pop(pool, None)

    def take_block(self) -> int:
        (number,) = self._all(sql.TAKE_BLOCK)[0]
        return int(number) * ID_BLOCK + 1

    def put_plan(self, row: PoolRow) -> None:
        self._run(sql.PUT_PLAN, self._plan_fields(row))

    def put_meters(self, row: PoolRow) -> None:
        self._run(sql.PUT_METERS, self._meter_fields(row))

    def _plan_fields(self, row: PoolRow) -> dict[str, object]:
        return {**_fields(LIMITS, codec.limit_values(row.limits)), **self._meter_fields(row)}

    def _meter_fields(self, row: PoolRow) -> dict[str, object]:
        meters = _fields(METERS, codec.meter_values(row.meters))
        return {**meters, "plain": is_fast_path(row, self.now), "name": row.name}

    def put_watcher(self, pool: str, claim_id: int) -> None:
        self._run(sql.PUT_WATCHER, (claim_id, pool))

    def newest_waiting(self, pool: str) -> Claim | None:
        return self._claim(sql.NEWEST_WAITING, (pool,))

    def counts(self, pool: str) -> PoolCounts:
        return PoolCounts(*self._all(sql.COUNTS_OF, (pool,))[0])

    def put_counts(self, pool: str, counts: PoolCounts, projects: Sequence[ProjectUse]) -> None:
        self._run(sql.PUT_COUNTS, {**asdict(counts), "name": pool})
        for use in projects:
            self._run(sql.PUT_USE, (use.in_use, use.waiting, pool, use.name))

    def slots_in_use(self) -> int:
        return int(self._all(sql.SLOTS_IN_USE)[0][0])

    # -- projects ---------------------------------------------------------------------------------

    def project(self, pool: str, name: str) -> ProjectUse | None:
        if (pool, name) not in self._uses:
            row = self._one(sql.PROJECT, (pool, name))
            self._uses[pool, name] = ProjectUse(*row) if row is not None else None
        use = self._uses[pool, name]
        return replace(use) if use is not None else None

    def projects(self, pool: str) -> list[ProjectUse]:
        return [ProjectUse(*row) for row in self._all(sql.PROJECTS, (pool,))]

    def put_project(self, pool: str, use: ProjectUse) -> None:
        self._run(sql.PUT_PROJECT, (pool, use.name, use.weight, use.maximum, use.share))

    def put_turn(self, pool: str, project: str, turn: float) -> None:
        self._run(sql.PUT_TURN, (turn, pool, project))

    def drop_idle_projects(self, pool: str, *, keep: int) -> None:
        self._run(sql.DROP_IDLE, (pool, pool, keep))

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
        claim = codec.claim_fields(claim_id, ask, now=now, launcher_pid=launcher_pid, grant=grant, why=why)
        self._run(sql.ADD, {**{name: storable(value) for name, value in claim.items()}, "tag": self._tag})

    def grant(self, claim_id: int, grant: Grant, *, now: float, expires_at: float | None) -> None:
        marks = codec.dump_amounts(grant.marks)
        lease = {"granted_at": now, "expires_at": expires_at, "level": grant.level, "marks": marks}
        self._run(sql.GRANT, {**lease, "id": claim_id})

    def remove(self, claim_id: int) -> None:
        self._run(sql.REMOVE, (claim_id,))

    def rebind(self, claim_id: int, holder: Holder, *, launcher_pid: int) -> bool:
        self._found.clear()
        rebound = {**_fields(WHO, codec.holder_values(holder)), "launcher_pid": launcher_pid, "id": claim_id}
        return self._one(sql.REBIND, rebound) is not None

    def put_mailbox(self, claim_id: int, mailbox: str) -> None:
        self._found.clear()
        self._run(sql.PUT_MAILBOX, (storable(mailbox), claim_id))

    def confirm(self, claim_id: int) -> None:
        self._run(sql.CONFIRM, (claim_id,))

    def claim(self, claim_id: int) -> Claim | None:
        if claim_id not in self._found:
            self._found[claim_id] = self._claim(sql.BY_ID, (claim_id,))
        return self._found[claim_id]

    def _claim(self, query: str, values: tuple[object, ...] = ()) -> Claim | None:
        row = self._one(query, values)
        return parse_claim(row) if row is not None else None

    def _claims(self, query: str, values: tuple[object, ...] = ()) -> list[Claim]:
        return [parse_claim(row) for row in self._all(query, values)]

    def find_grant(self, claim_id: int) -> tuple[str, float, int, int] | None:
        row = self._one(sql.GRANT_OF, (claim_id,))
        if row is None:
            return None
        pool, asked_at, in_use, cap = row
        return pool, asked_at, in_use, cap

    def granted_ids(self, mailbox: str) -> list[int]:
        return [claim_id for (claim_id,) in self._all(sql.GRANTED, (mailbox,))]

    def claims(self, pool: str | None) -> list[Claim]:
        return self._claims(sql.ALL) if pool is None else self._claims(sql.ALL_OF_POOL, (pool,))

    def watched_claims(self, pool: str) -> list[Claim]:
        return self._claims(sql.WATCHED, (pool, pool))

    def holders(self, pool: str) -> list[Holder]:
        return [Holder(*row) for row in self._all(sql.HOLDERS, (pool, pool))]

    def expired_claims(self, now: float) -> list[Claim]:
        return self._claims(sql.EXPIRED, (now,))

    def oldest_lease(self, pool: str | None, project: str | None) -> Claim | None:
        if pool is None:
            return self._claim(sql.OLDEST)
        if project is None:
            return self._claim(sql.OLDEST_OF_POOL, (pool,))
        return self._claim(sql.OLDEST_OF_PROJECT, (pool, project))

    def leases_with_resources(self) -> list[Claim]:
        """Resources are counted per machine; a server that many share has none."""
        return []

    def line_heads(self, pool: str) -> list[tuple[Claim, ProjectUse]]:
        found = self._all(sql.LINE_HEADS, {"pool": pool})
        return [(parse_claim(row[:CLAIM_WIDTH]), ProjectUse(*row[CLAIM_WIDTH:])) for row in found]

    def line_head(self, pool: str, project: str, priority: int, *, after: int = 0) -> Claim | None:
        return self._claim(sql.LINE_HEAD, (pool, project, priority, after))

    def waiting(self, pool: str, *, limit: int) -> list[Candidate]:
        return [codec.parse_candidate(row) for row in self._all(sql.WAITING, (pool, limit))]

    def waiting_before(self, pool: str, claim_id: int) -> int:
        return int(self._all(sql.WAITING_BEFORE, (pool, claim_id))[0][0])

    # -- keys and notes ---------------------------------------------------------------------------

    def expire(self, claim_id: int, at: float) -> None:
        self._run(sql.EXPIRE, (at, claim_id))

    def receipt(self, pool: str, key: str) -> IdempotencyRecord | None:
        row = self._one(sql.RECEIPT_BY_KEY, (pool, key))
        return IdempotencyRecord(*row) if row is not None else None

    def put_receipt(self, pool: str, key: str, receipt: IdempotencyRecord) -> None:
        self._run(sql.DROP_OLD_RECEIPTS, (pool, pool, self.now))
        self._run(sql.PUT_RECEIPT, {"pool": pool, "key": key, **asdict(receipt)})

    def drop_receipt(self, claim_id: int) -> None:
        self._run(sql.DROP_RECEIPT, (claim_id,))

    def note(self, name: str) -> str | None:
        row = self._one(sql.NOTE, (name,))
        return str(row[0]) if row is not None else None

    def notes(self, prefix: str) -> dict[str, str]:
        return {str(name): str(text) for name, text in self._all(sql.NOTES, (prefix,))}

    def put_note(self, name: str, text: str) -> None:
        self._run(sql.PUT_NOTE, (name, text))

    # -- the rest ---------------------------------------------------------------------------------

    def demands(self, pool: str | None) -> list[Demand]:
        found = self._all(sql.DEMANDS) if pool is None else self._all(sql.DEMANDS_OF_POOL, (pool,))
        return [codec.parse_demand(row) for row in found]

    def put_demand(self, demand: Demand) -> None:
        self._run(sql.PUT_DEMAND, _demand_fields(demand))

    def drop_demand(self, demand: Demand) -> None:
        self._run(sql.DROP_DEMAND, _demand_fields(demand))

    def machine(self) -> MachineSettings:
        return ONE_MACHINE

    def put_machine(self, machine: MachineSettings) -> None:
        """There is nothing to keep: any but the default was refused."""

    def add_facts(self, facts: Sequence[Fact]) -> None:
        kept = {"asks_kept": ASK_FACTS_KEPT, "pools_kept": POOL_FACTS_KEPT}
        for fact in facts:
            values = _fields(FACT, map(storable, codec.fact_values(fact)))
            self._run(sql.ADD_FACT, {**values, "of_ask": fact.kind in ASK_FACTS, **kept})

    def facts(self, limit: int) -> list[Fact]:
        return [Fact(*row) for row in self._all(sql.FACTS, (limit,))]
