"""Settings and learned state as text. The only place that knows their stored shape.

msgspec is imported when something really has to be read or written: an admission under a fresh plan needs
none of it, and every start of an agent would pay for it.

Pools, projects and claims as columns, for stores that speak SQL. Values in, values out.

Share leases and pots as columns, for stores that speak SQL.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from flyball.core.pool.admission import Candidate
from flyball.core.pool.model import Ask, Claim, Holder, Limits, Meters, Phase, PoolCounts
from flyball.core.pool.plan import LearnedState
from flyball.core.pool.rate_window import Window
from flyball.core.pool.settings import MachineSettings, PoolChanges, PoolSettings, ShareRule, resolve_pool
from flyball.core.share_lease.renewal import CallCounts, ShareBudget, ShareLease
from flyball.errors import StoreUnreadableError
from flyball.stores.rows import Grant, PoolRow

T = TypeVar("T")
NOTHING_NAMED = "{}"


def dump(value: PoolChanges | LearnedState | MachineSettings) -> str:
    import msgspec

    return msgspec.json.encode(value).decode()


def load_changes(text: str) -> PoolChanges:
    return _decoded(text, PoolChanges, "stored pool settings") if text != NOTHING_NAMED else PoolChanges()


@lru_cache(maxsize=64)
def load_settings(text: str) -> PoolSettings:
    """The resolved settings for stored changes; cached because every plan asks."""
    return resolve_pool(load_changes(text))


def load_memory(text: str) -> LearnedState:
    return _decoded(text, LearnedState, "the pool's learned state")


def dump_windows(windows: tuple[Window, ...]) -> str:
    if not windows:
        return ""
    import msgspec

    return msgspec.json.encode(windows).decode()


def load_windows(text: str) -> tuple[Window, ...]:
    return _decoded(text, tuple[Window, ...], "the pool's windows") if text else ()


@lru_cache(maxsize=8)
def load_machine(text: str) -> MachineSettings:
    if text == NOTHING_NAMED:
        return MachineSettings()
    return _decoded(text, MachineSettings, "stored machine settings")


def _decoded(text: str, shape: type[T], what: str) -> T:
    import msgspec

    try:
        return msgspec.json.decode(text, type=shape)
    except msgspec.DecodeError as error:
        raise StoreUnreadableError(f"{what} cannot be read: {error}") from error


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
        Meters(*(*row[11:24], load_windows(row[24]))),
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
        dump_windows(meters.windows),
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


POT = "cap, held, nodes, learning_until, epoch, busy, active, estimate, dirty, planned_at, until"
SHARE = (
    "node, incarnation, seq, slots, owed, target, in_flight, wants, weight, draining, since, expires_at,"
    " successes, throttles, overloads, peak, estimate, mailbox"
)


def pot_of(row: Sequence[Any]) -> ShareBudget:
    cap, held, nodes, learning_until, epoch, busy, active, estimate, dirty, planned_at, until = row
    return ShareBudget(
        cap=cap,
        held=held,
        nodes=nodes,
        learning_until=learning_until,
        epoch=epoch,
        busy=busy,
        active=active,
        estimate=estimate,
        dirty=bool(dirty),
        planned_at=planned_at,
        until=until,
    )


def of_pot(pot: ShareBudget) -> tuple[object, ...]:
    return (
        pot.cap,
        pot.held,
        pot.nodes,
        pot.learning_until,
        pot.epoch,
        pot.busy,
        pot.active,
        pot.estimate,
        pot.dirty,
        pot.planned_at,
        pot.until,
    )


def share_of(row: Sequence[Any]) -> ShareLease:
    return ShareLease(
        node=row[0],
        incarnation=row[1],
        seq=row[2],
        slots=row[3],
        owed=row[4],
        target=row[5],
        in_flight=row[6],
        wants=row[7],
        weight=row[8],
        draining=bool(row[9]),
        since=row[10],
        expires_at=row[11],
        tally=CallCounts(*row[12:15]),
        peak=row[15],
        estimate=row[16],
        mailbox=row[17],
    )


def of_share(lease: ShareLease) -> tuple[object, ...]:
    tally = lease.tally
    return (
        lease.node,
        lease.incarnation,
        lease.seq,
        lease.slots,
        lease.owed,
        lease.target,
        lease.in_flight,
        lease.wants,
        lease.weight,
        lease.draining,
        lease.since,
        lease.expires_at,
        tally.successes,
        tally.throttles,
        tally.overloads,
        lease.peak,
        lease.estimate,
        lease.mailbox,
    )
