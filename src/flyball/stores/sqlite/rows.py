"""One connection seen as rows: statements in, values out."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

from flyball.core.admit import Candidate
from flyball.core.model import (
    Ask,
    Claim,
    Fact,
    Holder,
    PoolCounts,
    ProjectUse,
    Receipt,
)
from flyball.core.renewal import Pot, ShareLease
from flyball.core.settings import MachineSettings
from flyball.errors import StoreUnreadableError
from flyball.stores import codec, columns, share_columns
from flyball.stores.columns import CLAIM_WIDTH as WIDTH
from flyball.stores.port import Demand
from flyball.stores.rows import ID_BLOCK, Grant, Life, PoolRow
from flyball.stores.sqlite import statements as sql

_FACT_SWEEP = 256


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
        row = self._run(sql.POOL, (name,)).fetchone()
        return _pool_row(name, row) if row is not None else None

    def entry(self, pool: str, project: str) -> tuple[PoolRow, ProjectUse | None] | None:
        row = self._run(sql.ENTRY, (pool, project)).fetchone()
        if row is None:
            return None
        use = row[sql.POOL_COLUMNS - 1 :]
        return _pool_row(pool, row), ProjectUse(*use) if use[0] is not None else None

    def leaving(self, claim_id: int) -> tuple[Claim, PoolRow] | None:
        row = self._run(sql.LEAVING, (claim_id,)).fetchone()
        if row is None:
            return None
        claim = columns.claim_of(row[sql.POOL_COLUMNS - 1 :])
        return claim, _pool_row(claim.pool, row)

    def pools(self) -> list[str]:
        return [name for (name,) in self._run("SELECT name FROM pool ORDER BY name")]

    def add_pool(self, row: PoolRow, *, settings: str, memory: str) -> None:
        self._run(
            sql.ADD_POOL,
            (row.name, row.next_id, *columns.of_limits(row.limits), *columns.of_meters(row.meters)),
        )
        self._run("INSERT INTO mind (pool, settings, memory) VALUES (?, ?, ?)", (row.name, settings, memory))

    def drop_pool(self, pool: str) -> None:
        for statement in sql.DROP_POOL:
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
        self._run(sql.PUT_PLAN, (*columns.of_limits(row.limits), *columns.of_meters(row.meters), row.name))

    def put_meters(self, row: PoolRow) -> None:
        self._run(sql.PUT_METERS, (*columns.of_meters(row.meters), row.name))

    def put_watcher(self, pool: str, claim_id: int) -> None:
        self._run("UPDATE pool SET watcher_id = ? WHERE name = ?", (claim_id, pool))

    def newest_waiting(self, pool: str) -> Claim | None:
        return _one(self._run(sql.NEWEST_WAITING, (pool,)).fetchall())

    def counts(self, pool: str) -> PoolCounts:
        return PoolCounts(*self._run(sql.COUNTS_OF, (pool,)).fetchone())

    def put_counts(self, pool: str, counts: PoolCounts, projects: Sequence[ProjectUse]) -> None:
        self._run(sql.PUT_COUNTS, (counts.in_use, counts.low_in_use, counts.waiting, pool))
        self._many(sql.PUT_USE, [(use.in_use, use.waiting, pool, use.name) for use in projects])

    def slots_in_use(self) -> int:
        (total,) = self._run("SELECT coalesce(sum(in_use), 0) FROM pool").fetchone()
        return int(total)

    # -- projects ---------------------------------------------------------------------------------

    def project(self, pool: str, name: str) -> ProjectUse | None:
        row = self._run(sql.PROJECT, (pool, name)).fetchone()
        return ProjectUse(*row) if row is not None else None

    def projects(self, pool: str) -> list[ProjectUse]:
        return [ProjectUse(*row) for row in self._run(sql.PROJECTS, (pool,))]

    def put_project(self, pool: str, use: ProjectUse) -> None:
        self._run(sql.PUT_PROJECT, (pool, use.name, use.weight, use.maximum, use.share))

    def put_turn(self, pool: str, project: str, turn: float) -> None:
        self._run("UPDATE project SET turn = ? WHERE pool = ? AND name = ?", (turn, pool, project))

    def drop_idle_projects(self, pool: str, *, keep: int) -> None:
        self._run(sql.DROP_IDLE, (pool, keep))

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
        added = columns.of_ask(claim_id, ask, now=now, launcher_pid=launcher_pid, grant=grant, why=why)
        self._run(sql.ADD, added)

    def grant(self, claim_id: int, grant: Grant, *, now: float, expires_at: float | None) -> None:
        self._run(sql.GRANT, (now, expires_at, grant.level, columns.of_amounts(grant.marks), claim_id))

    def remove(self, claim_id: int) -> None:
        self._run("DELETE FROM claim WHERE id = ?", (claim_id,))

    def rebind(self, claim_id: int, holder: Holder, *, launcher_pid: int) -> bool:
        done = self._run(
            f"""
            UPDATE claim SET ({columns.WHO}, launcher_pid) = (?, ?, ?, ?, ?, ?)
            WHERE id = ? AND granted_at IS NOT NULL""",
            (*columns.of_holder(holder), launcher_pid, claim_id),
        )
        return done.rowcount == 1

    def put_mailbox(self, claim_id: int, mailbox: str) -> None:
        self._run("UPDATE claim SET mailbox = ? WHERE id = ?", (mailbox, claim_id))

    def confirm(self, claim_id: int) -> None:
        self._run("UPDATE claim SET expires_at = NULL WHERE id = ?", (claim_id,))

    def claim(self, claim_id: int) -> Claim | None:
        return _one(self._run(sql.BY_ID, (claim_id,)).fetchall())

    def grant_of(self, claim_id: int) -> tuple[str, float, int, int] | None:
        found: tuple[str, float, int, int] | None = self._run(sql.GRANT_OF, (claim_id,)).fetchone()
        return found

    def granted(self, mailbox: str) -> list[int]:
        return [claim_id for (claim_id,) in self._run(sql.GRANTED, (mailbox,))]

    def claims(self, pool: str | None) -> list[Claim]:
        found = self._run(sql.ALL) if pool is None else self._run(sql.ALL_OF_POOL, (pool,))
        return [columns.claim_of(row) for row in found]

    def watched(self, pool: str) -> list[Claim]:
        return [columns.claim_of(row) for row in self._run(sql.WATCHED, (pool,))]

    def holders(self, pool: str) -> list[Holder]:
        return [Holder(*row) for row in self._run(sql.HOLDERS, (pool,))]

    def expired(self, now: float) -> list[Claim]:
        return [columns.claim_of(row) for row in self._run(sql.EXPIRED, (now,))]

    def oldest_lease(self, pool: str | None, project: str | None) -> Claim | None:
        if pool is None:
            return _one(self._run(sql.OLDEST).fetchall())
        if project is None:
            return _one(self._run(sql.OLDEST_OF_POOL, (pool,)).fetchall())
        return _one(self._run(sql.OLDEST_OF_PROJECT, (pool, project)).fetchall())

    def leases_with_resources(self) -> list[Claim]:
        return [columns.claim_of(row) for row in self._run(sql.WITH_RESOURCES)]

    def line_heads(self, pool: str) -> list[tuple[Claim, ProjectUse]]:
        found = self._run(sql.LINE_HEADS, (pool,)).fetchall()
        return [(columns.claim_of(row[:WIDTH]), ProjectUse(row[2], *row[WIDTH:])) for row in found]

    def line_head(self, pool: str, project: str, priority: int, *, after: int = 0) -> Claim | None:
        return _one(self._run(sql.LINE_HEAD, (pool, project, priority, after)).fetchall())

    def waiting(self, pool: str, *, limit: int) -> list[Candidate]:
        return [columns.candidate_of(row) for row in self._run(sql.WAITING, (pool, limit))]

    def waiting_before(self, pool: str, claim_id: int) -> int:
        (before,) = self._run(sql.WAITING_BEFORE, (pool, claim_id)).fetchone()
        return int(before)

    # -- keys and notes ---------------------------------------------------------------------------

    def expire(self, claim_id: int, at: float) -> None:
        self._run("UPDATE claim SET expires_at = ? WHERE id = ?", (at, claim_id))

    def receipt(self, pool: str, key: str) -> Receipt | None:
        row = self._run(sql.RECEIPT, (pool, key)).fetchone()
        return Receipt(row[0], row[1], bool(row[2]), *row[3:]) if row is not None else None

    def put_receipt(self, pool: str, key: str, receipt: Receipt) -> None:
        self._run(sql.DROP_OLD_RECEIPTS, (self.now,))
        self._run(
            sql.PUT_RECEIPT,
            (
                pool,
                key,
                receipt.fingerprint,
                receipt.claim_id,
                receipt.granted,
                receipt.in_use,
                receipt.cap,
                receipt.until,
                receipt.asked_at,
            ),
        )

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
        row = self._run(sql.LIFE).fetchone()
        return Life(*row) if row is not None else None

    def put_life(self, life: Life) -> None:
        self._run(sql.PUT_LIFE, (life.epoch, life.since))

    def pot(self, pool: str) -> Pot | None:
        row = self._run(sql.POT, (pool,)).fetchone()
        return share_columns.pot_of(row) if row is not None else None

    def put_pot(self, pool: str, pot: Pot) -> None:
        self._run(sql.PUT_POT, (pool, *share_columns.of_pot(pot)))

    def share(self, pool: str, name: str) -> ShareLease | None:
        row = self._run(sql.SHARE, (pool, name)).fetchone()
        return share_columns.share_of(row) if row is not None else None

    def shares(self, pool: str) -> list[ShareLease]:
        return [share_columns.share_of(row) for row in self._run(sql.SHARES, (pool,))]

    def put_share(self, pool: str, lease: ShareLease) -> None:
        self._run(sql.PUT_SHARE, (pool, lease.name, *share_columns.of_share(lease)))

    def drop_share(self, pool: str, name: str) -> None:
        self._run(sql.DROP_SHARE, (pool, name))

    # -- the rest ---------------------------------------------------------------------------------

    def demands(self, pool: str | None) -> list[Demand]:
        if pool is None:
            found = self._run(f"{sql.DEMANDS} ORDER BY pool, project, pid")
        else:
            found = self._run(f"{sql.DEMANDS} WHERE pool = ? ORDER BY pool, project, pid", (pool,))
        return [Demand(row[0], row[1], Holder(*row[2:7]), row[7]) for row in found]

    def put_demand(self, demand: Demand) -> None:
        self._run(
            sql.PUT_DEMAND, (demand.pool, demand.project, *columns.of_holder(demand.holder), demand.until)
        )

    def drop_demand(self, demand: Demand) -> None:
        self._run(sql.DROP_DEMAND, (demand.pool, demand.project, *columns.of_holder(demand.holder)))

    def machine(self) -> MachineSettings:
        (text,) = self._run("SELECT settings FROM machine").fetchone()
        return codec.load_machine(text)

    def put_machine(self, machine: MachineSettings) -> None:
        self._run("UPDATE machine SET settings = ?", (codec.dump(machine),))

    def add_facts(self, facts: Sequence[Fact]) -> None:
        for f in facts:
            cursor = self._run(
                "INSERT INTO fact (at, pool, kind, words, project, name, pid) VALUES (?, ?, ?, ?, ?, ?, ?)",
                (f.at, f.pool, f.kind, f.words, f.project, f.name, f.pid),
            )
            if (cursor.lastrowid or 0) % _FACT_SWEEP == 0:
                self._run(sql.SWEEP_ASK_FACTS)
                self._run(sql.SWEEP_POOL_FACTS)

    def facts(self, limit: int) -> list[Fact]:
        found = self._run(
            "SELECT at, pool, kind, words, project, name, pid FROM fact ORDER BY id DESC LIMIT ?", (limit,)
        )
        return [Fact(*row) for row in found]


def _pool_row(name: str, row: Sequence[Any]) -> PoolRow:
    return columns.pool_row(name, row, codec.load_machine(row[30]))


def _one(found: list[tuple[object, ...]]) -> Claim | None:
    return columns.claim_of(found[0]) if found else None
