"""A grant or an end with nothing in its way, as one statement.

Most asks meet a pool with room, an empty queue, and nothing that has to be judged: no window, no spacing, no
breaker, no limit of the machine, no project's maximum. What the rule says is plain then, and is written where
it is read, in a statement that is a transaction of its own. It holds up all others half as long as a step
(docs/decisions/0038).

What has to hold is the table of stores/fast_path.py: what it does not let pass goes the whole way. A lease
that ends is left to the whole way where its end teaches the pool more than how long leases are held. Where
the statement passes nothing, as in a pool that is full, it is rarely tried.
"""

from __future__ import annotations

from flyball.core.pool.model import HOLD_SMOOTHING, Ask, Outcome
from flyball.stores.codec import CLAIM, dump_amounts
from flyball.stores.fast_path import For, In, conditions, sql
from flyball.stores.handoff import HOLD_SAMPLE, MEASURED_S
from flyball.stores.port import Release
from flyball.stores.rows import ID_BLOCK

Values = tuple[object, ...]


def _number_parameters(statement: str, *names: str) -> str:
    """Its values by number, in this order: looking each up by name takes time for which all others wait."""
    for name in sorted(names, key=len, reverse=True):
        statement = statement.replace(f":{name}", f"?{names.index(name) + 1}")
    return statement


def _nothing_in_the_way(step: For) -> str:
    return "\n    AND ".join(sql(condition, now=":now") for condition in conditions(In.SQLITE, step))


# Below the cap also with it: what fills a cap is evidence for growth, and so is what ends while it is full.
GRANT = _number_parameters(
    f"""
    INSERT INTO claim ({CLAIM})
    SELECT pool.next_id, pool.name, project.name, :name, :host, :boot, :pidns, :pid, :start,
        :slots, :priority, NULL, :model, :mailbox, :pid,
        :now, :now, NULL, '', pool.in_use + :slots, :cost, NULL, 0
    FROM machine, pool JOIN project ON project.pool = pool.name AND project.name = :project
    WHERE pool.name = :pool AND pool.in_use + :slots < pool.cap
    AND pool.next_id % {ID_BLOCK} != 0
    AND {_nothing_in_the_way(For.GRANT)}
    RETURNING id, asked_at, level, (SELECT cap FROM pool WHERE name = claim.pool)""",
    *("now", "pool", "project", "name", "host", "boot", "pidns", "pid", "start"),
    *("slots", "priority", "model", "mailbox", "cost"),
)
_UNMEASURED_END = f"""
    DELETE FROM claim
    WHERE id = :id AND asked_at = coalesce(:asked_at, asked_at) AND granted_at > :now - {MEASURED_S}
    AND id % {HOLD_SAMPLE} != 0 AND resources IS NULL AND NOT unread
    AND EXISTS (
        SELECT 1 FROM machine, pool
        WHERE pool.name = claim.pool AND pool.in_use < pool.cap
        AND {_nothing_in_the_way(For.END)})"""
_MEASURE = f"""
    UPDATE pool SET hold_mean_s = iif(
        hold_mean_s,
        hold_mean_s + (max(0.0, :now - held.granted_at) - hold_mean_s) * {HOLD_SMOOTHING},
        max(0.0, :now - held.granted_at))
    FROM claim AS held, machine
    WHERE held.id = :id AND held.asked_at = coalesce(:asked_at, held.asked_at)
    AND held.granted_at IS NOT NULL AND held.slots > 0 AND held.resources IS NULL AND NOT held.unread
    AND pool.name = held.pool AND pool.in_use < pool.cap
    AND {_nothing_in_the_way(For.END)}"""
_END = """
    DELETE FROM claim
    WHERE id = :id AND asked_at = coalesce(:asked_at, asked_at) AND :now IS NOT NULL"""
_END_VALUES = ("now", "id", "asked_at")
END = (_number_parameters(_UNMEASURED_END, *_END_VALUES),)
MEASURED_END = tuple(_number_parameters(each, *_END_VALUES) for each in (_MEASURE, _END))
"""How long it was held moves the pool's mean; each statement only where the one before changed something."""


def grant_values(ask: Ask) -> Values | None:
    """What ``GRANT`` needs beside the time; None for an ask that is more than an ask."""
    if ask.resources or ask.key or ask.ttl_s is not None or ask.unread:
        return None
    pool, project, name, holder = ask.pool, ask.project, ask.name, ask.holder
    cost = dump_amounts(ask.cost) if ask.cost else None
    who = (holder.host, holder.boot, holder.pidns, holder.pid, holder.start)
    return (pool, project, name, *who, ask.slots, ask.priority, ask.model, ask.mailbox, cost)


def end_of(release: Release, now: float) -> tuple[tuple[str, ...], Values] | None:
    """The statements of an end, and what they need beside the time; None for a release that has something to
    say. What it used says nothing where nothing is in the way: then there is no window, and no ask waits."""
    if release.words or release.rejected or release.buckets or release.outcome is not Outcome.FINISHED:
        return None
    is_short = release.asked_at is None or now - release.asked_at < MEASURED_S
    return END if is_short else MEASURED_END, (release.claim_id, release.asked_at)
