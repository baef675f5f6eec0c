"""The SQL, put together from constant lists of columns; values are always bound.

A statement of more than a few values takes them by the names of their columns. One that adds, grants or
removes a claim moves the counts of its pool and project itself. Nothing else does but ``PUT_COUNTS`` and
``PUT_USE``, which are the doctor's.
"""

from __future__ import annotations

from flyball.stores.codec import (
    BUDGET,
    CANDIDATE,
    CLAIM,
    COUNTS,
    DEMAND,
    FACT,
    LIMITS,
    METERS,
    POOL,
    RECEIPT,
    SHARE,
    USE,
    WHO,
    in_table,
    names,
)


def _values(columns: str) -> str:
    return ", ".join(f"%({name})s" for name in names(columns))


def _insertion(table: str, columns: str) -> str:
    return f"INSERT INTO {table} ({columns}) VALUES ({_values(columns)})"


def _assignments(columns: str) -> str:
    return ", ".join(f"{name} = %({name})s" for name in names(columns))


def _excluded_values(columns: str) -> str:
    return ", ".join(f"{name} = excluded.{name}" for name in names(columns))


# -- steps ------------------------------------------------------------------------------------------------

CLOCK = "SELECT extract(epoch FROM clock_timestamp())::float8"
BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
BEGIN_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
LOCK_POOL = f"SELECT name, {POOL} FROM pool WHERE name = %s FOR NO KEY UPDATE"
LOCK_POOL_OF = f"""
    SELECT name, {POOL} FROM pool WHERE name = (SELECT pool FROM claim WHERE id = %s) FOR NO KEY UPDATE"""
# Rows are locked in the order in which they come: every step that wants them all takes them in this order.
LOCK_ALL = f"SELECT name, {POOL} FROM pool ORDER BY name FOR NO KEY UPDATE"
LOCK_NEW = "SELECT pg_advisory_xact_lock(lock_of('pool'))"
NOTIFY = "SELECT pg_notify(%s, %s)"

_FAST_ASK = f"pool, project, name, {WHO}, slots, priority, model, mailbox, cost, tag, at, deadline"
FAST_ADMIT = f"SELECT * FROM fast_admit({', '.join(f'a_{name} => %({name})s' for name in names(_FAST_ASK))})"
FAST_END = """
    SELECT fast_end(id, %(oks)s, %(now)s) FROM claim
    WHERE id = %(id)s AND asked_at = coalesce(%(asked_at)s, asked_at)"""

# -- pools ------------------------------------------------------------------------------------------------

POOL_BY_NAME = f"SELECT {POOL} FROM pool WHERE name = %s"
POOLS = "SELECT name FROM pool ORDER BY name"
ADD_POOL = _insertion("pool", f"name, next_id, {LIMITS}, {METERS}, plain, bounded, by_success")
ADD_MIND = "INSERT INTO mind (pool, settings, memory) VALUES (%s, %s, %s)"
# A plan needs all of it.
MIND = f"""
    SELECT settings, memory, {in_table("pot", BUDGET)}
    FROM mind LEFT JOIN pot ON pot.pool = mind.pool WHERE mind.pool = %s"""
PUT_SETTINGS = "UPDATE mind SET settings = %s WHERE pool = %s"
PUT_TRAITS = "UPDATE pool SET bounded = %s, by_success = %s WHERE name = %s"
PUT_MEMORY = "UPDATE mind SET memory = %s WHERE pool = %s"
TAKE_BLOCK = "UPDATE block SET next_block = next_block + 1 RETURNING next_block - 1"
PUT_PLAN = f"UPDATE pool SET {_assignments(f'{LIMITS}, {METERS}, plain')} WHERE name = %(name)s"
PUT_METERS = f"UPDATE pool SET {_assignments(f'{METERS}, plain')} WHERE name = %(name)s"
PUT_WATCHER = "UPDATE pool SET watcher_id = %s WHERE name = %s"
COUNTS_OF = f"SELECT {COUNTS} FROM pool WHERE name = %s"
PUT_COUNTS = f"UPDATE pool SET {_assignments(COUNTS)} WHERE name = %(name)s"
PUT_USE = "UPDATE project SET in_use = %s, waiting = %s WHERE pool = %s AND name = %s"
SLOTS_IN_USE = "SELECT coalesce(sum(in_use), 0)::bigint FROM pool"

DROP_POOL = [
    *(
        f"DELETE FROM {table} WHERE pool = %s"
        for table in ("share", "pot", "project", "demand", "receipt", "host", "fact", "mind")
    ),
    "DELETE FROM pool WHERE name = %s",
]

PROJECT = f"SELECT {USE} FROM project WHERE pool = %s AND name = %s"
PROJECTS = f"SELECT {USE} FROM project WHERE pool = %s ORDER BY name"
PUT_PROJECT = """
    INSERT INTO project (pool, name, weight, maximum, share) VALUES (%s, %s, %s, %s, %s)
    ON CONFLICT (pool, name) DO UPDATE
    SET weight = excluded.weight, maximum = excluded.maximum, share = excluded.share"""
PUT_TURN = "UPDATE project SET turn = %s WHERE pool = %s AND name = %s"
DROP_IDLE = """
    DELETE FROM project WHERE pool = %s AND in_use = 0 AND waiting = 0
    AND (SELECT count(*) FROM project WHERE pool = %s) > %s"""

# -- claims -----------------------------------------------------------------------------------------------

_COUNTED = """
    , counted AS (
        UPDATE pool SET in_use = pool.in_use + moved.slots, low_in_use = pool.low_in_use + moved.low,
            waiting = pool.waiting + moved.asks{more} FROM moved WHERE pool.name = moved.pool)
    UPDATE project SET in_use = project.in_use + moved.slots, waiting = project.waiting + moved.asks
    FROM moved WHERE project.pool = moved.pool AND project.name = moved.project"""


def _moving(change: str, *, sign: str, asks: str, more: str = "") -> str:
    """A change of one claim, with the counts that follow from it."""
    held = "CASE WHEN granted_at IS NULL THEN 0 ELSE slots END"
    low = "CASE WHEN granted_at IS NULL OR priority > 0 THEN 0 ELSE slots END"
    return f"""
    WITH moved AS (
        {change}
        RETURNING id, pool, project, {sign}{held} AS slots, {sign}{low} AS low, {asks} AS asks)
    {_COUNTED.format(more=more)}"""


_IS_ASK = "CASE WHEN granted_at IS NULL THEN 1 ELSE 0 END"
ADD = _moving(
    _insertion("claim", f"{CLAIM}, tag"),
    sign="",
    asks=_IS_ASK,
    more=", next_id = moved.id + 1",
)
GRANT = _moving(
    f"""UPDATE claim SET {_assignments("granted_at, expires_at, level, marks")}
        WHERE id = %(id)s AND granted_at IS NULL""",
    sign="",
    asks="-1",
)
REMOVE = _moving("DELETE FROM claim WHERE id = %s", sign="-", asks=f"-{_IS_ASK}")
REBIND = f"""
    UPDATE claim SET {_assignments(f"{WHO}, launcher_pid")}
    WHERE id = %(id)s AND granted_at IS NOT NULL RETURNING id"""
PUT_MAILBOX = "UPDATE claim SET mailbox = %s WHERE id = %s"
CONFIRM = "UPDATE claim SET expires_at = NULL WHERE id = %s"

OF_CLAIM = in_table("claim", CLAIM)
HEARD_AT = """
    (SELECT heard_at FROM host WHERE host.pool = claim.pool AND host.host = claim.host
        AND host.boot = claim.boot AND host.pidns = claim.pidns)"""
BY_ID = f"SELECT {CLAIM} FROM claim WHERE id = %s"
TAGGED = "SELECT id, tag FROM claim WHERE pool = %s AND tag = ANY(%s)"
ALL = f"SELECT {OF_CLAIM}, {HEARD_AT} FROM claim ORDER BY id"
ALL_OF_POOL = f"SELECT {OF_CLAIM}, {HEARD_AT} FROM claim WHERE pool = %s ORDER BY id"
_WATCHED = """
    FROM claim WHERE pool = %s
    AND (granted_at IS NOT NULL OR id = (SELECT watcher_id FROM pool WHERE name = %s))"""
WATCHED = f"SELECT {OF_CLAIM}, {HEARD_AT} {_WATCHED} ORDER BY granted_at IS NULL, id"
HOLDERS = f"SELECT DISTINCT {WHO} {_WATCHED}"
NEWEST_WAITING = f"SELECT {CLAIM} FROM claim WHERE pool = %s AND granted_at IS NULL ORDER BY id DESC LIMIT 1"
LINE_HEAD = f"""
    SELECT {CLAIM} FROM claim
    WHERE pool = %s AND granted_at IS NULL AND project = %s AND priority = %s AND id > %s
    ORDER BY id LIMIT 1"""
GRANT_OF = """
    SELECT claim.pool, asked_at, pool.in_use, pool.cap FROM claim JOIN pool ON pool.name = claim.pool
    WHERE id = %s AND granted_at IS NOT NULL AND expires_at IS NULL"""
GRANTED = "SELECT id FROM claim WHERE granted_at IS NOT NULL AND mailbox = %s ORDER BY id"
EXPIRED = f"SELECT {CLAIM} FROM claim WHERE expires_at IS NOT NULL AND expires_at <= %s ORDER BY id"
_OLDEST = f"SELECT {CLAIM} FROM claim WHERE granted_at IS NOT NULL AND slots > 0"
OLDEST = f"{_OLDEST} ORDER BY id LIMIT 1"
OLDEST_OF_POOL = f"{_OLDEST} AND pool = %s ORDER BY id LIMIT 1"
OLDEST_OF_PROJECT = f"{_OLDEST} AND pool = %s AND project = %s ORDER BY id LIMIT 1"
# Jumps along the index from one (project, priority) line to the next instead of reading every ask.
LINE_HEADS = f"""
    WITH RECURSIVE head (id, project, priority) AS (
        (SELECT id, project, priority FROM claim WHERE pool = %(pool)s AND granted_at IS NULL
            ORDER BY project, priority, id LIMIT 1)
        UNION ALL
        SELECT next.id, next.project, next.priority FROM head JOIN LATERAL (
            SELECT id, project, priority FROM claim
            WHERE pool = %(pool)s AND granted_at IS NULL
                AND (project, priority) > (head.project, head.priority)
            ORDER BY project, priority, id LIMIT 1) AS next ON true)
    SELECT {OF_CLAIM}, {in_table("project", USE)}
    FROM head JOIN claim ON claim.id = head.id
    JOIN project ON project.pool = %(pool)s AND project.name = claim.project
    ORDER BY claim.project, claim.priority"""
WAITING = f"""
    SELECT {CANDIDATE} FROM claim
    WHERE pool = %s AND granted_at IS NULL ORDER BY id LIMIT %s"""
WAITING_BEFORE = "SELECT count(*) FROM claim WHERE pool = %s AND granted_at IS NULL AND id < %s"

# -- the rest ---------------------------------------------------------------------------------------------

DEMANDS = f"SELECT {DEMAND} FROM demand ORDER BY pool, project, pid"
DEMANDS_OF_POOL = f"SELECT {DEMAND} FROM demand WHERE pool = %s ORDER BY project, pid"
PUT_DEMAND = f"""
    {_insertion("demand", DEMAND)}
    ON CONFLICT (pool, project, {WHO}) DO UPDATE SET until = excluded.until"""
_DEMANDED = f"pool, project, {WHO}"
DROP_DEMAND = f"DELETE FROM demand WHERE ({_DEMANDED}) = ({_values(_DEMANDED)})"

ADD_FACT = f"SELECT tell({_values(f'of_ask, {FACT}, asks_kept, pools_kept')})"
FACTS = f"SELECT {FACT} FROM fact ORDER BY id DESC LIMIT %s"

LIFE = "SELECT epoch, since FROM life"
PUT_LIFE = """
    INSERT INTO life (one, epoch, since) VALUES (true, %s, %s)
    ON CONFLICT (one) DO UPDATE SET epoch = excluded.epoch, since = excluded.since"""
PUT_BUDGET = f"""
    {_insertion("pot", f"pool, {BUDGET}")}
    ON CONFLICT (pool) DO UPDATE SET {_excluded_values(BUDGET)}"""
SHARES = f"SELECT {SHARE} FROM share WHERE pool = %s ORDER BY name"
SHARE_BY_NAME = f"SELECT {SHARE} FROM share WHERE pool = %s AND name = %s"
PUT_SHARE = f"""
    WITH before AS (SELECT slots FROM share WHERE pool = %(pool)s AND name = %(name)s), moved AS (
        {_insertion("share", f"pool, name, {SHARE}")}
        ON CONFLICT (pool, name) DO UPDATE SET {_excluded_values(SHARE)}
        RETURNING pool, slots - coalesce((SELECT slots FROM before), 0) AS slots)
    UPDATE pool SET in_use = pool.in_use + moved.slots, low_in_use = pool.low_in_use + moved.slots
    FROM moved WHERE pool.name = moved.pool AND moved.slots <> 0"""
DROP_SHARE = """
    WITH gone AS (DELETE FROM share WHERE pool = %s AND name = %s RETURNING pool, slots)
    UPDATE pool SET in_use = pool.in_use - gone.slots, low_in_use = pool.low_in_use - gone.slots
    FROM gone WHERE pool.name = gone.pool"""

EXPIRE = "UPDATE claim SET expires_at = %s WHERE id = %s"
RECEIPT_BY_KEY = f"SELECT {RECEIPT} FROM receipt WHERE pool = %s AND key = %s"
PUT_RECEIPT = f"""
    {_insertion("receipt", f"pool, key, {RECEIPT}")}
    ON CONFLICT (pool, key) DO UPDATE SET {_excluded_values(RECEIPT)}"""
# A few at a time: each that comes takes more away than it adds. Of its own pool, which is locked.
DROP_OLD_RECEIPTS = """
    DELETE FROM receipt WHERE pool = %s AND key IN (
        SELECT key FROM receipt WHERE pool = %s AND until <= %s LIMIT 8)"""
DROP_RECEIPT = "DELETE FROM receipt WHERE claim_id = %s"
NOTE = "SELECT text FROM note WHERE name = %s"
NOTES = "SELECT name, text FROM note WHERE starts_with(name, %s)"
PUT_NOTE = (
    "INSERT INTO note (name, text) VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET text = excluded.text"
)
NOTE_ONCE = """
    INSERT INTO note (name, text) VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET text = note.text
    RETURNING text"""

BEAT = """
    INSERT INTO host AS known (pool, host, boot, pidns, heard_at, looked_at, due)
    SELECT %(pool)s, %(host)s, %(boot)s, %(pidns)s, now, now, true
    FROM coalesce(%(now)s::float8, extract(epoch FROM clock_timestamp())::float8) AS now
    ON CONFLICT (pool, host, boot, pidns) DO UPDATE SET
        heard_at = excluded.heard_at,
        due = excluded.heard_at - known.looked_at >= %(look_s)s OR known.looked_at > excluded.heard_at,
        looked_at = CASE WHEN excluded.heard_at - known.looked_at >= %(look_s)s
            OR known.looked_at > excluded.heard_at THEN excluded.heard_at ELSE known.looked_at END
    RETURNING due, heard_at"""
SWEEP_HOSTS = """
    DELETE FROM host WHERE pool = %s AND heard_at < %s
    AND (SELECT count(*) FROM host WHERE pool = %s) > %s"""

BACKENDS = "SELECT pid, backend_start::text FROM pg_stat_activity WHERE pid = ANY(%s)"
END_BACKEND = "SELECT pg_terminate_backend(%s::integer)"
