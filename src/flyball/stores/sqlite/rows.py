"""One connection seen as rows: statements in, values out.

The SQL is put together from constant lists of columns; values are always bound. What admission reads is
columns. Counts are moved by the schema's triggers, and by nothing here but ``PUT_COUNTS``, which is the
doctor's.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

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
from flyball.stores.codec import (
    BUDGET,
    CANDIDATE,
    CLAIM,
    CLAIM_WIDTH,
    COUNTS,
    DEMAND,
    FACT,
    LIMITS,
    METERS,
    POOL_WIDTH,
    RECEIPT,
    SHARE,
    USE,
    WHO,
    in_table,
    names,
)
from flyball.stores.port import Demand
from flyball.stores.rows import ASK_FACTS_KEPT, ID_BLOCK, POOL_FACTS_KEPT, Grant, Life, PoolRow


def _insertion(table: str, columns: str, verb: str = "INSERT INTO") -> str:
    return f"{verb} {table} ({columns}) VALUES ({', '.join('?' for _ in names(columns))})"


def _assignments(columns: str) -> str:
    return ", ".join(f"{name} = ?" for name in names(columns))


OF_POOL = in_table("pool", codec.POOL)
POOL = f"SELECT {OF_POOL}, settings FROM pool, machine WHERE name = ?"
ENTRY = f"""
    SELECT {OF_POOL}, settings, {in_table("project", USE)}
    FROM machine, pool LEFT JOIN project ON project.pool = ?1 AND project.name = ?2 WHERE pool.name = ?1"""
ADD_POOL = _insertion("pool", f"name, next_id, {LIMITS}, {METERS}")
PUT_PLAN = f"UPDATE pool SET {_assignments(LIMITS)}, {_assignments(METERS)} WHERE name = ?"
PUT_METERS = f"UPDATE pool SET {_assignments(METERS)} WHERE name = ?"
PUT_COUNTS = f"UPDATE pool SET {_assignments(COUNTS)} WHERE name = ?"
PUT_USE = "UPDATE project SET in_use = ?, waiting = ? WHERE pool = ? AND name = ?"
COUNTS_OF = f"SELECT {COUNTS} FROM pool WHERE name = ?"

PROJECT = f"SELECT {USE} FROM project WHERE pool = ? AND name = ?"
PROJECTS = f"SELECT {USE} FROM project WHERE pool = ? ORDER BY name"
PUT_PROJECT = """
    INSERT INTO project (pool, name, weight, maximum, share) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (pool, name) DO UPDATE
    SET weight = excluded.weight, maximum = excluded.maximum, share = excluded.share"""
DROP_IDLE = """
    DELETE FROM project WHERE pool = ?1 AND in_use = 0 AND waiting = 0
    AND (SELECT count(*) FROM project WHERE pool = ?1) > ?2"""
DROP_POOL = [
    *(
        f"DELETE FROM {table} WHERE pool = ?"
        for table in ("share", "pot", "project", "demand", "receipt", "fact", "mind")
    ),
    "DELETE FROM pool WHERE name = ?",
]

ADD = f"INSERT INTO claim ({CLAIM}) VALUES ({', '.join(f':{name}' for name in names(CLAIM))})"
OF_CLAIM = in_table("claim", CLAIM)
LEAVING = f"""
    SELECT {OF_POOL}, settings, {OF_CLAIM}
    FROM claim JOIN pool ON pool.name = claim.pool, machine WHERE claim.id = ?"""
BY_ID = f"SELECT {CLAIM} FROM claim WHERE id = ?"
ALL = f"SELECT {CLAIM} FROM claim ORDER BY id"
ALL_OF_POOL = f"SELECT {CLAIM} FROM claim WHERE pool = ? ORDER BY id"
WATCHED = f"""
    SELECT {CLAIM} FROM claim WHERE pool = ?1 AND granted_at IS NOT NULL
    UNION ALL
    SELECT {CLAIM} FROM claim
    WHERE id = (SELECT watcher_id FROM pool WHERE name = ?1) AND granted_at IS NULL AND pool = ?1"""
HOLDERS = f"""
    SELECT {WHO} FROM claim WHERE pool = ?1 AND granted_at IS NOT NULL
    UNION
    SELECT {WHO} FROM claim
    WHERE id = (SELECT watcher_id FROM pool WHERE name = ?1) AND granted_at IS NULL AND pool = ?1"""
NEWEST_WAITING = f"SELECT {CLAIM} FROM claim WHERE pool = ? AND granted_at IS NULL ORDER BY id DESC LIMIT 1"
LINE_HEAD = f"""
    SELECT {CLAIM} FROM claim
    WHERE pool = ? AND granted_at IS NULL AND project = ? AND priority = ? AND id > ? ORDER BY id LIMIT 1"""
GRANT = "UPDATE claim SET granted_at = ?, expires_at = ?, level = ?, marks = ? WHERE id = ?"
GRANT_OF = """
    SELECT claim.pool, asked_at, pool.in_use, pool.cap FROM claim JOIN pool ON pool.name = claim.pool
    WHERE id = ? AND granted_at IS NOT NULL AND expires_at IS NULL"""
GRANTED = "SELECT id FROM claim WHERE granted_at IS NOT NULL AND mailbox = ? ORDER BY id"
EXPIRED = f"SELECT {CLAIM} FROM claim WHERE expires_at IS NOT NULL AND expires_at <= ? ORDER BY id"
OLDEST = f"SELECT {CLAIM} FROM claim WHERE granted_at IS NOT NULL AND slots > 0 ORDER BY id LIMIT 1"
OLDEST_OF_POOL = f"""
    SELECT {CLAIM} FROM claim WHERE pool = ? AND granted_at IS NOT NULL AND slots > 0 ORDER BY id LIMIT 1"""
OLDEST_OF_PROJECT = f"""
    SELECT {CLAIM} FROM claim WHERE pool = ? AND granted_at IS NOT NULL AND slots > 0 AND project = ?
    ORDER BY id LIMIT 1"""
WITH_RESOURCES = (
    f"SELECT {CLAIM} FROM claim WHERE resources IS NOT NULL AND granted_at IS NOT NULL ORDER BY id"
)
# Jumps along the index from one (project, priority) line to the next instead of reading every ask.
LINE_HEADS = f"""
    WITH RECURSIVE head (id, project, priority) AS (
        SELECT * FROM (
            SELECT id, project, priority FROM claim WHERE pool = ?1 AND granted_at IS NULL
            ORDER BY project, priority, id LIMIT 1)
        UNION ALL
        SELECT next.id, next.project, next.priority FROM head JOIN claim AS next ON next.id = coalesce(
            (SELECT id FROM claim WHERE pool = ?1 AND granted_at IS NULL
             AND project = head.project AND priority > head.priority ORDER BY priority, id LIMIT 1),
            (SELECT id FROM claim WHERE pool = ?1 AND granted_at IS NULL
             AND project > head.project ORDER BY project, priority, id LIMIT 1)))
    SELECT {OF_CLAIM}, {in_table("project", USE)}
    FROM head JOIN claim ON claim.id = head.id
    JOIN project ON project.pool = ?1 AND project.name = claim.project"""
WAITING = f"""
    SELECT {CANDIDATE} FROM claim
    WHERE pool = ? AND granted_at IS NULL ORDER BY id LIMIT ?"""
WAITING_BEFORE = "SELECT count(*) FROM claim WHERE pool = ? AND granted_at IS NULL AND id < ?"

ADD_FACT = _insertion("fact", FACT)
FACTS = f"SELECT {FACT} FROM fact ORDER BY id DESC LIMIT ?"
OF_ASKS = ", ".join(f"'{kind}'" for kind in sorted(ASK_FACTS))
SWEEP_ASK_FACTS = f"""
    DELETE FROM fact WHERE kind IN ({OF_ASKS}) AND id <= (
        SELECT id FROM fact WHERE kind IN ({OF_ASKS}) ORDER BY id DESC LIMIT 1 OFFSET {ASK_FACTS_KEPT})"""
SWEEP_POOL_FACTS = f"""
    DELETE FROM fact WHERE kind NOT IN ({OF_ASKS}) AND id <= (
        SELECT id FROM fact WHERE kind NOT IN ({OF_ASKS})
        ORDER BY id DESC LIMIT 1 OFFSET {POOL_FACTS_KEPT})"""

DEMANDS = f"SELECT {DEMAND} FROM demand"
PUT_DEMAND = _insertion("demand", DEMAND, "INSERT OR REPLACE INTO")
DROP_DEMAND = f"DELETE FROM demand WHERE (pool, project, {WHO}) = (?, ?, ?, ?, ?, ?, ?)"

LIFE = "SELECT epoch, since FROM life"
PUT_LIFE = "INSERT OR REPLACE INTO life (one, epoch, since) VALUES (1, ?, ?)"
BUDGET_OF_POOL = f"SELECT {BUDGET} FROM pot WHERE pool = ?"
PUT_BUDGET = _insertion("pot", f"pool, {BUDGET}", "INSERT OR REPLACE INTO")
SHARES = f"SELECT {SHARE} FROM share WHERE pool = ? ORDER BY name"
SHARE_BY_NAME = f"SELECT {SHARE} FROM share WHERE pool = ? AND name = ?"
# Not "replace": that would be a removal and an insertion, without a word to the trigger of the first.
PUT_SHARE = f"""
    {_insertion("share", f"pool, name, {SHARE}")}
    ON CONFLICT (pool, name) DO UPDATE
    SET {", ".join(f"{name} = excluded.{name}" for name in names(SHARE))}"""
DROP_SHARE = "DELETE FROM share WHERE pool = ? AND name = ?"

RECEIPT_BY_KEY = f"SELECT {RECEIPT} FROM receipt WHERE pool = ? AND key = ?"
PUT_RECEIPT = _insertion("receipt", f"pool, key, {RECEIPT}", "INSERT OR REPLACE INTO")
# A few at a time: each that comes takes more away than it adds.
DROP_OLD_RECEIPTS = """
    DELETE FROM receipt WHERE (pool, key) IN (SELECT pool, key FROM receipt WHERE until <= ? LIMIT 8)"""

_FACT_SWEEP = 256
"""After so many facts those that are too many are removed."""


class SqliteRows:
    """One connection seen as ``Rows``. The store opens and ends the transactions."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.now, self.epoch = 0.0, ""
        self.connection = connection
        self._run = connection.execute
        self._many = connection.executemany
        self.actions: list[Callable[[], None]] = []

    def on_commit(self, action: Callable[[], None]) -> None:
        self.actions.append(action)

    # -- pools ------------------------------------------------------------------------------------

    def pool(self, name: str) -> PoolRow | None:
        row = self._run(POOL, (name,)).fetchone()
        return _parse_pool(name, row) if row is not None else None

    def entry(self, pool: str, project: str) -> tuple[PoolRow, ProjectUse | None] | None:
        row = self._run(ENTRY, (pool, project)).fetchone()
        if row is None:
            return None
        found, (name, *use) = _parse_pool(pool, row), row[POOL_WIDTH + 1 :]
        return found, ProjectUse(name, *use) if name is not None else None

    def leaving(self, claim_id: int) -> tuple[Claim, PoolRow] | None:
        row = self._run(LEAVING, (claim_id,)).fetchone()
        if row is None:
            return None
        claim = codec.parse_claim(row[POOL_WIDTH + 1 :])
        return claim, _parse_pool(claim.pool, row)

    def pools(self) -> list[str]:
        return [name for (name,) in self._run("SELECT name FROM pool ORDER BY name")]

    def add_pool(self, row: PoolRow, *, settings: str, memory: str) -> None:
        self._run(
            ADD_POOL,
            (row.name, row.next_id, *codec.limit_values(row.limits), *codec.meter_values(row.meters)),
        )
        self._run("INSERT INTO mind (pool, settings, memory) VALUES (?, ?, ?)", (row.name, settings, memory))

    def drop_pool(self, pool: str) -> None:
        for statement in DROP_POOL:
            self._run(statement, (pool,))

    def settings(self, pool: str) -> str:
        return self._text("SELECT settings FROM mind WHERE pool = ?", pool)

    def memory(self, pool: str) -> str:
        return self._text("SELECT memory FROM mind WHERE pool = ?", pool)

    def _text(self, query: str, pool: str) -> str:
        row = self._run(query, (pool,)).fetchone()
        if row is None:
            raise StoreUnreadableError(f"pool {pool!r} has lost its settings")
        return str(row[0])

    def put_settings(self, pool: str, settings: str) -> None:
        self._run("UPDATE mind SET settings = ? WHERE pool = ?", (settings, pool))

    def put_memory(self, pool: str, memory: str) -> None:
        self._run("UPDATE mind SET memory = ? WHERE pool = ?", (memory, pool))

    def take_block(self) -> int:
        taken = self._run("UPDATE sequence SET next_block = next_block + 1 RETURNING next_block").fetchall()
        return (int(taken[0][0]) - 1) * ID_BLOCK + 1

    def put_plan(self, row: PoolRow) -> None:
        self._run(PUT_PLAN, (*codec.limit_values(row.limits), *codec.meter_values(row.meters), row.name))

    def put_meters(self, row: PoolRow) -> None:
        self._run(PUT_METERS, (*codec.meter_values(row.meters), row.name))

    def put_watcher(self, pool: str, claim_id: int) -> None:
        self._run("UPDATE pool SET watcher_id = ? WHERE name = ?", (claim_id, pool))

    def newest_waiting(self, pool: str) -> Claim | None:
        return _one(self._run(NEWEST_WAITING, (pool,)).fetchall())

    def counts(self, pool: str) -> PoolCounts:
        return PoolCounts(*self._run(COUNTS_OF, (pool,)).fetchone())

    def put_counts(self, pool: str, counts: PoolCounts, projects: Sequence[ProjectUse]) -> None:
        self._run(PUT_COUNTS, (counts.in_use, counts.low_in_use, counts.waiting, pool))
        self._many(PUT_USE, [(use.in_use, use.waiting, pool, use.name) for use in projects])

    def slots_in_use(self) -> int:
        (total,) = self._run("SELECT coalesce(sum(in_use), 0) FROM pool").fetchone()
        return int(total)

    # -- projects ---------------------------------------------------------------------------------

    def project(self, pool: str, name: str) -> ProjectUse | None:
        row = self._run(PROJECT, (pool, name)).fetchone()
        return ProjectUse(*row) if row is not None else None

    def projects(self, pool: str) -> list[ProjectUse]:
        return [ProjectUse(*row) for row in self._run(PROJECTS, (pool,))]

    def put_project(self, pool: str, use: ProjectUse) -> None:
        self._run(PUT_PROJECT, (pool, use.name, use.weight, use.maximum, use.share))

    def put_turn(self, pool: str, project: str, turn: float) -> None:
        self._run("UPDATE project SET turn = ? WHERE pool = ? AND name = ?", (turn, pool, project))

    def drop_idle_projects(self, pool: str, *, keep: int) -> None:
        self._run(DROP_IDLE, (pool, keep))

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
        self._run(ADD, claim)

    def grant(self, claim_id: int, grant: Grant, *, now: float, expires_at: float | None) -> None:
        self._run(GRANT, (now, expires_at, grant.level, codec.dump_amounts(grant.marks), claim_id))

    def remove(self, claim_id: int) -> None:
        self._run("DELETE FROM claim WHERE id = ?", (claim_id,))

    def rebind(self, claim_id: int, holder: Holder, *, launcher_pid: int) -> bool:
        done = self._run(
            f"""
            UPDATE claim SET {_assignments(f"{WHO}, launcher_pid")}
            WHERE id = ? AND granted_at IS NOT NULL""",
            (*codec.holder_values(holder), launcher_pid, claim_id),
        )
        return done.rowcount == 1

    def put_mailbox(self, claim_id: int, mailbox: str) -> None:
        self._run("UPDATE claim SET mailbox = ? WHERE id = ?", (mailbox, claim_id))

    def confirm(self, claim_id: int) -> None:
        self._run("UPDATE claim SET expires_at = NULL WHERE id = ?", (claim_id,))

    def claim(self, claim_id: int) -> Claim | None:
        return _one(self._run(BY_ID, (claim_id,)).fetchall())

    def find_grant(self, claim_id: int) -> tuple[str, float, int, int] | None:
        found: tuple[str, float, int, int] | None = self._run(GRANT_OF, (claim_id,)).fetchone()
        return found

    def granted_ids(self, mailbox: str) -> list[int]:
        return [claim_id for (claim_id,) in self._run(GRANTED, (mailbox,))]

    def claims(self, pool: str | None) -> list[Claim]:
        found = self._run(ALL) if pool is None else self._run(ALL_OF_POOL, (pool,))
        return [codec.parse_claim(row) for row in found]

    def watched_claims(self, pool: str) -> list[Claim]:
        return [codec.parse_claim(row) for row in self._run(WATCHED, (pool,))]

    def holders(self, pool: str) -> list[Holder]:
        return [Holder(*row) for row in self._run(HOLDERS, (pool,))]

    def expired_claims(self, now: float) -> list[Claim]:
        return [codec.parse_claim(row) for row in self._run(EXPIRED, (now,))]

    def oldest_lease(self, pool: str | None, project: str | None) -> Claim | None:
        if pool is None:
            return _one(self._run(OLDEST).fetchall())
        if project is None:
            return _one(self._run(OLDEST_OF_POOL, (pool,)).fetchall())
        return _one(self._run(OLDEST_OF_PROJECT, (pool, project)).fetchall())

    def leases_with_resources(self) -> list[Claim]:
        return [codec.parse_claim(row) for row in self._run(WITH_RESOURCES)]

    def line_heads(self, pool: str) -> list[tuple[Claim, ProjectUse]]:
        found = self._run(LINE_HEADS, (pool,)).fetchall()
        return [(codec.parse_claim(row[:CLAIM_WIDTH]), ProjectUse(*row[CLAIM_WIDTH:])) for row in found]

    def line_head(self, pool: str, project: str, priority: int, *, after: int = 0) -> Claim | None:
        return _one(self._run(LINE_HEAD, (pool, project, priority, after)).fetchall())

    def waiting(self, pool: str, *, limit: int) -> list[Candidate]:
        return [codec.parse_candidate(row) for row in self._run(WAITING, (pool, limit))]

    def waiting_before(self, pool: str, claim_id: int) -> int:
        (before,) = self._run(WAITING_BEFORE, (pool, claim_id)).fetchone()
        return int(before)

    # -- keys and notes ---------------------------------------------------------------------------

    def expire(self, claim_id: int, at: float) -> None:
        self._run("UPDATE claim SET expires_at = ? WHERE id = ?", (at, claim_id))

    def receipt(self, pool: str, key: str) -> IdempotencyRecord | None:
        row = self._run(RECEIPT_BY_KEY, (pool, key)).fetchone()
        if row is None:
            return None
        receipt = IdempotencyRecord(*row)
        return replace(receipt, granted=bool(receipt.granted))

    def put_receipt(self, pool: str, key: str, receipt: IdempotencyRecord) -> None:
        self._run(DROP_OLD_RECEIPTS, (self.now,))
        self._run(PUT_RECEIPT, (pool, key, *codec.receipt_values(receipt)))

    def drop_receipt(self, claim_id: int) -> None:
        self._run("DELETE FROM receipt WHERE claim_id = ?", (claim_id,))

    def note(self, name: str) -> str | None:
        row = self._run("SELECT text FROM note WHERE name = ?", (name,)).fetchone()
        return str(row[0]) if row is not None else None

    def notes(self, prefix: str) -> dict[str, str]:
        return dict(
            self._run("SELECT name, text FROM note WHERE substr(name, 1, ?) = ?", (len(prefix), prefix))
        )

    def put_note(self, name: str, text: str) -> None:
        self._run("INSERT OR REPLACE INTO note (name, text) VALUES (?, ?)", (name, text))

    # -- share leases -----------------------------------------------------------------------------

    def life(self) -> Life | None:
        row = self._run(LIFE).fetchone()
        return Life(*row) if row is not None else None

    def put_life(self, life: Life) -> None:
        self._run(PUT_LIFE, (life.epoch, life.since))

    def share_budget(self, pool: str) -> ShareBudget | None:
        row = self._run(BUDGET_OF_POOL, (pool,)).fetchone()
        return codec.parse_budget(row) if row is not None else None

    def put_share_budget(self, pool: str, budget: ShareBudget) -> None:
        self._run(PUT_BUDGET, (pool, *codec.budget_values(budget)))

    def share(self, pool: str, name: str) -> ShareLease | None:
        row = self._run(SHARE_BY_NAME, (pool, name)).fetchone()
        return codec.parse_share(row) if row is not None else None

    def shares(self, pool: str) -> list[ShareLease]:
        return [codec.parse_share(row) for row in self._run(SHARES, (pool,))]

    def put_share(self, pool: str, lease: ShareLease) -> None:
        self._run(PUT_SHARE, (pool, lease.name, *codec.share_values(lease)))

    def drop_share(self, pool: str, name: str) -> None:
        self._run(DROP_SHARE, (pool, name))

    # -- the rest ---------------------------------------------------------------------------------

    def demands(self, pool: str | None) -> list[Demand]:
        if pool is None:
            found = self._run(f"{DEMANDS} ORDER BY pool, project, pid")
        else:
            found = self._run(f"{DEMANDS} WHERE pool = ? ORDER BY pool, project, pid", (pool,))
        return [codec.parse_demand(row) for row in found]

    def put_demand(self, demand: Demand) -> None:
        self._run(
            PUT_DEMAND, (demand.pool, demand.project, *codec.holder_values(demand.holder), demand.until)
        )

    def drop_demand(self, demand: Demand) -> None:
        self._run(DROP_DEMAND, (demand.pool, demand.project, *codec.holder_values(demand.holder)))

    def machine(self) -> MachineSettings:
        (text,) = self._run("SELECT settings FROM machine").fetchone()
        return codec.load_machine(text)

    def put_machine(self, machine: MachineSettings) -> None:
        self._run("UPDATE machine SET settings = ?", (codec.dump(machine),))

    def add_facts(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            cursor = self._run(ADD_FACT, codec.fact_values(fact))
            if (cursor.lastrowid or 0) % _FACT_SWEEP == 0:
                self._run(SWEEP_ASK_FACTS)
                self._run(SWEEP_POOL_FACTS)

    def facts(self, limit: int) -> list[Fact]:
        return [Fact(*row) for row in self._run(FACTS, (limit,))]


def _parse_pool(name: str, row: Sequence[Any]) -> PoolRow:
    """From a row that begins with the columns of a pool and the machine's settings."""
    return codec.parse_pool(name, row, codec.load_machine(row[POOL_WIDTH]))


def _one(found: list[tuple[object, ...]]) -> Claim | None:
    return codec.parse_claim(found[0]) if found else None
