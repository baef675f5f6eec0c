"""The SQL, put together from constant lists of columns; values are always bound.

What admission reads is columns. Counts are moved by the schema's triggers, and by nothing here but
``PUT_COUNTS``, which is the doctor's.
"""

from __future__ import annotations

from flyball.core.model import ASK_FACTS
from flyball.stores import share_columns as columns
from flyball.stores.columns import CLAIM, CLAIM_WIDTH, COUNTS, LIMITS, METERS, USE, WHO
from flyball.stores.rows import ASK_FACTS_KEPT, POOL_FACTS_KEPT

POOL = f"""
    SELECT {LIMITS}, {METERS}, {COUNTS}, watcher_id, next_id, settings
    FROM pool, machine WHERE name = ?"""
POOL_COLUMNS = 32
OF_POOL = ", ".join(f"pool.{name.strip()}" for name in f"{LIMITS}, {METERS}, {COUNTS}".split(","))
ADD_POOL = f"INSERT INTO pool (name, next_id, {LIMITS}, {METERS}) VALUES ({', '.join('?' * 27)})"


ENTRY = f"""
    SELECT {OF_POOL}, watcher_id, next_id, settings,
        project.name, project.in_use, project.waiting, weight, maximum, project.share, project.turn
    FROM machine, pool LEFT JOIN project ON project.pool = ?1 AND project.name = ?2 WHERE pool.name = ?1"""


def _assignments(columns: str) -> str:
    return ", ".join(f"{name.strip()} = ?" for name in columns.split(","))


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

ADD = f"INSERT INTO claim ({CLAIM}) VALUES ({', '.join('?' * CLAIM_WIDTH)})"
OF_CLAIM = ", ".join(f"claim.{name.strip()}" for name in CLAIM.split(","))
LEAVING = f"""
    SELECT {OF_POOL}, watcher_id, next_id, settings, {OF_CLAIM}
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
    SELECT {OF_CLAIM}, project.in_use, project.waiting, weight, maximum, share, turn
    FROM head JOIN claim ON claim.id = head.id
    JOIN project ON project.pool = ?1 AND project.name = claim.project"""
WAITING = """
    SELECT id, project, priority, slots, resources, asked_at FROM claim
    WHERE pool = ? AND granted_at IS NULL ORDER BY id LIMIT ?"""
WAITING_BEFORE = "SELECT count(*) FROM claim WHERE pool = ? AND granted_at IS NULL AND id < ?"

OF_ASKS = ", ".join(f"'{kind}'" for kind in sorted(ASK_FACTS))
SWEEP_ASK_FACTS = f"""
    DELETE FROM fact WHERE kind IN ({OF_ASKS}) AND id <= (
        SELECT id FROM fact WHERE kind IN ({OF_ASKS}) ORDER BY id DESC LIMIT 1 OFFSET {ASK_FACTS_KEPT})"""
SWEEP_POOL_FACTS = f"""
    DELETE FROM fact WHERE kind NOT IN ({OF_ASKS}) AND id <= (
        SELECT id FROM fact WHERE kind NOT IN ({OF_ASKS})
        ORDER BY id DESC LIMIT 1 OFFSET {POOL_FACTS_KEPT})"""

DEMANDS = f"SELECT pool, project, {WHO}, until FROM demand"
PUT_DEMAND = f"INSERT OR REPLACE INTO demand (pool, project, {WHO}, until) VALUES ({', '.join('?' * 8)})"
DROP_DEMAND = f"DELETE FROM demand WHERE (pool, project, {WHO}) = (?, ?, ?, ?, ?, ?, ?)"

LIFE = "SELECT epoch, since FROM life"
PUT_LIFE = "INSERT OR REPLACE INTO life (one, epoch, since) VALUES (1, ?, ?)"
POT = f"SELECT {columns.POT} FROM pot WHERE pool = ?"
PUT_POT = f"INSERT OR REPLACE INTO pot (pool, {columns.POT}) VALUES ({', '.join('?' * 12)})"
SHARES = f"SELECT {columns.SHARE} FROM share WHERE pool = ? ORDER BY name"
SHARE = f"SELECT {columns.SHARE} FROM share WHERE pool = ? AND name = ?"
# Not "replace": that would be a removal and an insertion, without a word to the trigger of the first.
PUT_SHARE = f"""
    INSERT INTO share (pool, name, {columns.SHARE}) VALUES ({", ".join("?" * 20)})
    ON CONFLICT (pool, name) DO UPDATE
    SET {", ".join(f"{name.strip()} = excluded.{name.strip()}" for name in columns.SHARE.split(","))}"""
DROP_SHARE = "DELETE FROM share WHERE pool = ? AND name = ?"

RECEIPT = """
    SELECT fingerprint, claim_id, granted, in_use, cap, until, asked_at FROM receipt
    WHERE pool = ? AND key = ?"""
PUT_RECEIPT = f"INSERT OR REPLACE INTO receipt VALUES ({', '.join('?' * 9)})"
# A few at a time: each that comes takes more away than it adds.
DROP_OLD_RECEIPTS = """
    DELETE FROM receipt WHERE (pool, key) IN (SELECT pool, key FROM receipt WHERE until <= ? LIMIT 8)"""
