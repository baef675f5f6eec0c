"""Settings and learned state as text. The only place that knows their stored shape.

msgspec is imported when something really has to be read or written: an admission under a fresh plan needs
none of it, and every start of an agent would pay for it.

Pools, claims and share leases as columns too, for stores that speak SQL.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from operator import attrgetter
from typing import Any, TypeVar

from flyball.core.pool.holder import Holder
from flyball.core.pool.model import (
    Ask,
    Candidate,
    Claim,
    Fact,
    IdempotencyRecord,
    Limits,
    Meters,
    Phase,
    PoolCounts,
    ProjectUse,
)
from flyball.core.pool.plan import LearnedState
from flyball.core.pool.rate_window import Window
from flyball.core.pool.settings import MachineSettings, PoolChanges, PoolSettings, ShareRule
from flyball.core.share_lease.renewal import CallCounts, ShareBudget, ShareLease
from flyball.errors import StoreUnreadableError
from flyball.stores.port import Demand
from flyball.stores.rows import Grant, PoolRow

T = TypeVar("T")
NOTHING_NAMED = "{}"


def dump(value: PoolChanges | LearnedState | MachineSettings) -> str:
    import msgspec

    return msgspec.json.encode(value).decode()


def load_changes(text: str) -> PoolChanges:
    return _decode(text, PoolChanges, "stored pool settings") if text != NOTHING_NAMED else PoolChanges()


@lru_cache(maxsize=64)
def load_settings(text: str) -> PoolSettings:
    """The resolved settings for stored changes; cached because every plan asks."""
    if text == NOTHING_NAMED:
        return PoolSettings()
    from flyball.core.pool.setting_table import resolve_pool

    return resolve_pool(load_changes(text))


def load_memory(text: str) -> LearnedState:
    return _decode(text, LearnedState, "the pool's learned state")


def dump_windows(windows: tuple[Window, ...]) -> str:
    if not windows:
        return ""
    import msgspec

    return msgspec.json.encode(windows).decode()


def load_windows(text: str) -> tuple[Window, ...]:
    return _decode(text, tuple[Window, ...], "the pool's windows") if text else ()


@lru_cache(maxsize=8)
def load_machine(text: str) -> MachineSettings:
    if text == NOTHING_NAMED:
        return MachineSettings()
    return _decode(text, MachineSettings, "stored machine settings")


def _decode(text: str, shape: type[T], what: str) -> T:
    import msgspec

    try:
        return msgspec.json.decode(text, type=shape)
    except msgspec.DecodeError as error:
        raise StoreUnreadableError(f"{what} cannot be read: {error}") from error


# -- columns: named, and in the order of, the fields of the record that they hold ---------------------------


def names(columns: str) -> list[str]:
    return columns.split(", ")


def in_table(table: str, columns: str) -> str:
    """The same columns, each with the name of its table."""
    return ", ".join(f"{table}.{name}" for name in names(columns))


def _columns(record: type[Any], *, without: str = "") -> str:
    return ", ".join(field.name for field in fields(record) if field.name != without)


LIMITS = _columns(Limits)
SCALAR_METERS = _columns(Meters, without="windows")
METERS = f"{SCALAR_METERS}, windows"
COUNTS = _columns(PoolCounts)
POOL = f"{LIMITS}, {METERS}, {COUNTS}, watcher_id, next_id"
USE = _columns(ProjectUse)
WHO = _columns(Holder)
CLAIM = _columns(Claim, without="confirmed_at").replace("holder", WHO)
CANDIDATE = "id, project, priority, slots, resources, asked_at, name"
DEMAND = f"pool, project, {WHO}, until"
RECEIPT = _columns(IdempotencyRecord)
FACT = _columns(Fact)
BUDGET = _columns(ShareBudget, without="terms")
SHARE = _columns(ShareLease).replace("tally", _columns(CallCounts))


def _values_in(columns: str, **paths: str) -> Callable[[Any], tuple[Any, ...]]:
    """Takes the values of these columns from a record; ``paths`` says where those of another name are."""
    return attrgetter(*(paths.get(name, name) for name in names(columns)))


limit_values = _values_in(LIMITS, phase="phase.value", share="share.value")
holder_values = _values_in(WHO)
receipt_values = _values_in(RECEIPT)
fact_values = _values_in(FACT)
budget_values = _values_in(BUDGET)
share_values = _values_in(SHARE, **{name: f"tally.{name}" for name in names(_columns(CallCounts))})
_scalar_meter_values = _values_in(SCALAR_METERS)


def meter_values(meters: Meters) -> tuple[Any, ...]:
    return (*_scalar_meter_values(meters), dump_windows(meters.windows))


def claim_fields(
    claim_id: int, ask: Ask, *, now: float, launcher_pid: int, grant: Grant | None, why: str
) -> dict[str, object]:
    """A new claim: a lease where a grant is given."""
    return {
        "id": claim_id,
        "pool": ask.pool,
        "project": ask.project,
        "name": ask.name,
        **dict(zip(names(WHO), holder_values(ask.holder), strict=True)),
        "slots": ask.slots,
        "priority": ask.priority,
        "resources": dump_amounts(ask.resources),
        "model": ask.model,
        "mailbox": ask.mailbox,
        "launcher_pid": launcher_pid,
        "asked_at": now,
        "granted_at": now if grant is not None else None,
        "expires_at": None,
        "why": why,
        "level": grant.level if grant is not None else 0,
        "cost": dump_amounts(ask.cost),
        "marks": dump_amounts(grant.marks) if grant is not None else None,
        "unread": ask.unread,
    }


# Worked out once: rows are read on every step.
_LIMITS_END = len(names(LIMITS))
_SCALAR_METERS_END = _LIMITS_END + len(names(SCALAR_METERS))
POOL_WIDTH, CLAIM_WIDTH = len(names(POOL)), len(names(CLAIM))


def parse_pool(name: str, row: Sequence[Any], machine: MachineSettings) -> PoolRow:
    """From the columns of ``POOL``."""
    try:
        limits = _parse_limits(*row[:_LIMITS_END])
    except ValueError as error:
        raise StoreUnreadableError(f"pool {name!r} is stored wrongly: {error}") from error
    windows, in_use, low_in_use, waiting, watcher_id, next_id = row[_SCALAR_METERS_END:POOL_WIDTH]
    meters = Meters(*(*row[_LIMITS_END:_SCALAR_METERS_END], load_windows(windows)))
    return PoolRow(
        name, limits, meters, PoolCounts(in_use, low_in_use, waiting), watcher_id, next_id, machine
    )


@lru_cache(maxsize=64)
def _parse_limits(*row: Any) -> Limits:
    """Every step reads them, inside the lock, and few find them changed."""
    limits = Limits(*row)
    return replace(limits, phase=Phase(limits.phase), share=ShareRule(limits.share))


def parse_claim(row: Sequence[Any]) -> Claim:
    """From the columns of ``CLAIM``, and where there is one more: when its host was last heard."""
    claim_id, pool, project, name, host, boot, pidns, pid, start, slots, priority, resources, *rest = row
    model, mailbox, launcher_pid, asked_at, granted_at, expires_at, why, level, cost, marks, unread, *more = (
        rest
    )
    return Claim(
        claim_id,
        pool,
        project,
        name,
        Holder(host, boot, pidns, pid, start),
        slots,
        priority,
        parse_amounts(resources),
        model,
        mailbox,
        launcher_pid,
        asked_at,
        granted_at,
        expires_at,
        why,
        level,
        parse_amounts(cost),
        parse_amounts(marks),
        bool(unread),
        *more,
    )


def parse_candidate(row: Sequence[Any]) -> Candidate:
    claim_id, project, priority, slots, resources, asked_at, name = row
    return Candidate(claim_id, project, priority, slots, parse_amounts(resources), asked_at, name=name)


def parse_demand(row: Sequence[Any]) -> Demand:
    pool, project, *holder, until = row
    return Demand(pool, project, Holder(*holder), until)


def parse_budget(row: Sequence[Any]) -> ShareBudget:
    found = dict(zip(names(BUDGET), row, strict=True))
    return ShareBudget(**{**found, "dirty": bool(found["dirty"])})


def parse_share(row: Sequence[Any]) -> ShareLease:
    found = dict(zip(names(SHARE), row, strict=True))
    tally = CallCounts(*(found.pop(name) for name in names(_columns(CallCounts))))
    return ShareLease(**{**found, "tally": tally, "draining": bool(found["draining"])})


_NOTHING: Mapping[str, Any] = {}


def parse_amounts(text: object) -> Mapping[str, Any]:
    return json.loads(text) if isinstance(text, str) else _NOTHING


def dump_amounts(amounts: Mapping[str, float]) -> str | None:
    return json.dumps(dict(amounts)) if amounts else None
