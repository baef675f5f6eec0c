"""Pools, projects and claims as columns, for stores that speak SQL. Values in, values out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from flyball.core.admit import Candidate
from flyball.core.model import Ask, Claim, Holder, Limits, Meters, Phase, PoolCounts
from flyball.core.settings import MachineSettings, ShareRule
from flyball.errors import StoreUnreadableError
from flyball.stores import codec
from flyball.stores.rows import Grant, PoolRow

LIMITS = (
    "version, valid_until, cap, ceiling, reserve, phase, closed_until,"
    " spacing_s, spacing_jitter, share, ageing_s"
)
METERS = (
    "next_grant_at, bound_at, capped, bound_oks, "
    "trial_id, trial_at, trial_project, trial_name, hold_mean_s, high, turn, work, work_tokens, windows"
)
COUNTS = "in_use, low_in_use, waiting"
POOL = f"{LIMITS}, {METERS}, {COUNTS}, watcher_id, next_id"
USE = "name, in_use, waiting, weight, maximum, share, turn"
WHO = "host, boot, pidns, pid, start"
CLAIM = (
    f"id, pool, project, name, {WHO}, slots, priority, resources, model, mailbox, launcher_pid,"
    " asked_at, granted_at, expires_at, why, level, cost, marks, unread"
)
CLAIM_WIDTH = 23


def names(columns: str) -> list[str]:
    return [name.strip() for name in columns.split(",")]


def of(table: str, columns: str) -> str:
    """The same columns, said of a table."""
    return ", ".join(f"{table}.{name}" for name in names(columns))


def pool_row(name: str, row: Sequence[Any], machine: MachineSettings) -> PoolRow:
    try:
        limits = _limits(*row[:11])
    except ValueError as error:
        raise StoreUnreadableError(f"pool {name!r} is stored wrongly: {error}") from error
    return PoolRow(
        name,
        limits,
        Meters(*(*row[11:24], codec.load_windows(row[24]))),
        PoolCounts(*row[25:28]),
        row[28],
        row[29],
        machine,
    )


@lru_cache(maxsize=64)
def _limits(*row: Any) -> Limits:
    """Every step reads them, inside the lock, and few find them changed."""
    return Limits(*(*row[:5], Phase(row[5]), *row[6:9], ShareRule(row[9]), row[10]))


def of_limits(limits: Limits) -> tuple[object, ...]:
    return (
        limits.version,
        limits.valid_until,
        limits.cap,
        limits.ceiling,
        limits.reserve,
        limits.phase.value,
        limits.closed_until,
        limits.spacing_s,
        limits.spacing_jitter,
        limits.share.value,
        limits.ageing_s,
    )


def of_meters(meters: Meters) -> tuple[object, ...]:
    return (
        meters.next_grant_at,
        meters.bound_at,
        meters.capped,
        meters.bound_oks,
        meters.trial_id,
        meters.trial_at,
        meters.trial_project,
        meters.trial_name,
        meters.hold_mean_s,
        meters.high,
        meters.turn,
        meters.work,
        meters.work_tokens,
        codec.dump_windows(meters.windows),
    )


def of_holder(holder: Holder) -> tuple[str, str, int, int, int]:
    return (holder.host, holder.boot, holder.pidns, holder.pid, holder.start)


def claim_of(row: Sequence[Any]) -> Claim:
    """From the columns of ``CLAIM``, and where there is one more: when its host was last heard."""
    cost, marks = amounts_of(row[20]), amounts_of(row[21])
    resources, unread, confirmed_at = amounts_of(row[11]), bool(row[22]), row[23:24]
    return Claim(
        *(*row[:4], Holder(*row[4:9]), *row[9:11], resources, *row[12:20], cost, marks, unread, *confirmed_at)
    )


def of_ask(
    claim_id: int, ask: Ask, *, now: float, launcher_pid: int, grant: Grant | None, why: str
) -> tuple[object, ...]:
    """A new claim: a lease where a grant is given."""
    return (
        claim_id,
        ask.pool,
        ask.project,
        ask.name,
        *of_holder(ask.holder),
        ask.slots,
        ask.priority,
        of_amounts(ask.resources),
        ask.model,
        ask.mailbox,
        launcher_pid,
        now,
        now if grant is not None else None,
        None,
        why,
        grant.level if grant is not None else 0,
        of_amounts(ask.cost),
        of_amounts(grant.marks) if grant is not None else None,
        ask.unread,
    )


def candidate_of(row: Sequence[Any]) -> Candidate:
    return Candidate(row[0], row[1], row[2], row[3], amounts_of(row[4]), row[5])


_NOTHING: Mapping[str, Any] = {}


def amounts_of(text: object) -> Mapping[str, Any]:
    return json.loads(text) if isinstance(text, str) else _NOTHING


def of_amounts(amounts: Mapping[str, float]) -> str | None:
    return json.dumps(dict(amounts)) if amounts else None
