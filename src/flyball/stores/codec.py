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
from flyball.errors import StoreUnreadableError, invariant
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


LIMITS = (
    "version, valid_until, cap, ceiling, reserve, phase, closed_until,"
    " spacing_s, spacing_jitter, share, ageing_s"
)
SCALAR_METERS = (
    "next_grant_at, bound_at, capped, bound_oks, "
    "trial_id, trial_at, trial_project, trial_name, hold_mean_s, high, turn, work, work_tokens"
)
METERS = f"{SCALAR_METERS}, windows"
COUNTS = "in_use, low_in_use, waiting"
POOL = f"{LIMITS}, {METERS}, {COUNTS}, watcher_id, next_id"
USE = "name, in_use, waiting, weight, maximum, share, turn"
WHO = "host, boot, pidns, pid, start"
CLAIM = (
    f"id, pool, project, name, {WHO}, slots, priority, resources, model, mailbox, launcher_pid,"
    " asked_at, granted_at, expires_at, why, level, cost, marks, unread"
)


def names(columns: str) -> list[str]:
    return [name.strip() for name in columns.split(",")]


def place(column: str, columns: str) -> int:
    """Where one column stands among these."""
    return names(columns).index(column)


def part(some: str, columns: str) -> slice:
    """Where some columns, which follow each other, stand among these."""
    found, whole = names(some), names(columns)
    first = whole.index(found[0])
    invariant(whole[first : first + len(found)] == found, f"{some} are not together in {columns}")
    return slice(first, first + len(found))


def between(after: str, before: str, columns: str) -> slice:
    """The columns after one and before another."""
    return slice(place(after, columns) + 1, place(before, columns))


def of(table: str, columns: str) -> str:
    """The same columns, said of a table."""
    return ", ".join(f"{table}.{name}" for name in names(columns))


# Worked out once: rows are read on every step.
_LIMITS = part(LIMITS, POOL)
_SCALAR_METERS = part(SCALAR_METERS, POOL)
_WINDOWS = place("windows", POOL)
_COUNTS = part(COUNTS, POOL)
_WATCHER_ID = place("watcher_id", POOL)
_NEXT_ID = place("next_id", POOL)


def pool_row(name: str, row: Sequence[Any], machine: MachineSettings) -> PoolRow:
    try:
        limits = _limits(*row[_LIMITS])
    except ValueError as error:
        raise StoreUnreadableError(f"pool {name!r} is stored wrongly: {error}") from error
    return PoolRow(
        name,
        limits,
        Meters(*(*row[_SCALAR_METERS], load_windows(row[_WINDOWS]))),
        PoolCounts(*row[_COUNTS]),
        row[_WATCHER_ID],
        row[_NEXT_ID],
        machine,
    )


@lru_cache(maxsize=64)
def _limits(*row: Any) -> Limits:
    """Every step reads them, inside the lock, and few find them changed."""
    fields: dict[str, Any] = dict(zip(names(LIMITS), row, strict=True))
    fields["phase"], fields["share"] = Phase(fields["phase"]), ShareRule(fields["share"])
    return Limits(**fields)


def limit_values(limits: Limits) -> tuple[object, ...]:
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


def meter_values(meters: Meters) -> tuple[object, ...]:
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


def holder_values(holder: Holder) -> tuple[str, str, int, int, int]:
    return (holder.host, holder.boot, holder.pidns, holder.pid, holder.start)


_BEFORE_WHO = slice(0, part(WHO, CLAIM).start)
_WHO = part(WHO, CLAIM)
_SIZE = part("slots, priority", CLAIM)
_RESOURCES = place("resources", CLAIM)
_COURSE = between("resources", "cost", CLAIM)
_COST = place("cost", CLAIM)
_MARKS = place("marks", CLAIM)
_UNREAD = place("unread", CLAIM)
CLAIM_PART = part(CLAIM, CLAIM)
AFTER_CLAIM = slice(CLAIM_PART.stop, None)
"""What a statement reads beside a claim."""
_CONFIRMED_AT = slice(CLAIM_PART.stop, CLAIM_PART.stop + 1)


def parse_claim(row: Sequence[Any]) -> Claim:
    """From the columns of ``CLAIM``, and where there is one more: when its host was last heard."""
    resources, cost, marks = (
        parse_amounts(row[_RESOURCES]),
        parse_amounts(row[_COST]),
        parse_amounts(row[_MARKS]),
    )
    before, course = (*row[_BEFORE_WHO], Holder(*row[_WHO]), *row[_SIZE]), row[_COURSE]
    return Claim(*(*before, resources, *course, cost, marks, bool(row[_UNREAD]), *row[_CONFIRMED_AT]))


def claim_values(
    claim_id: int, ask: Ask, *, now: float, launcher_pid: int, grant: Grant | None, why: str
) -> tuple[object, ...]:
    """A new claim: a lease where a grant is given."""
    return (
        claim_id,
        ask.pool,
        ask.project,
        ask.name,
        *holder_values(ask.holder),
        ask.slots,
        ask.priority,
        dump_amounts(ask.resources),
        ask.model,
        ask.mailbox,
        launcher_pid,
        now,
        now if grant is not None else None,
        None,
        why,
        grant.level if grant is not None else 0,
        dump_amounts(ask.cost),
        dump_amounts(grant.marks) if grant is not None else None,
        ask.unread,
    )


def parse_candidate(row: Sequence[Any]) -> Candidate:
    return Candidate(row[0], row[1], row[2], row[3], parse_amounts(row[4]), row[5])


_NOTHING: Mapping[str, Any] = {}


def parse_amounts(text: object) -> Mapping[str, Any]:
    return json.loads(text) if isinstance(text, str) else _NOTHING


def dump_amounts(amounts: Mapping[str, float]) -> str | None:
    return json.dumps(dict(amounts)) if amounts else None


POT = "cap, held, nodes, learning_until, epoch, busy, active, estimate, dirty, planned_at, until"
SHARE = (
    "node, incarnation, seq, slots, owed, target, in_flight, wants, weight, draining, since, expires_at,"
    " successes, throttles, overloads, peak, estimate, mailbox"
)


def parse_budget(row: Sequence[Any]) -> ShareBudget:
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


def budget_values(pot: ShareBudget) -> tuple[object, ...]:
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


def parse_share(row: Sequence[Any]) -> ShareLease:
    node, incarnation, seq, slots, owed, target, in_flight, wants, weight, draining, since, *rest = row
    expires_at, successes, throttles, overloads, peak, estimate, mailbox = rest
    return ShareLease(
        node=node,
        incarnation=incarnation,
        seq=seq,
        slots=slots,
        owed=owed,
        target=target,
        in_flight=in_flight,
        wants=wants,
        weight=weight,
        draining=bool(draining),
        since=since,
        expires_at=expires_at,
        tally=CallCounts(successes, throttles, overloads),
        peak=peak,
        estimate=estimate,
        mailbox=mailbox,
    )


def share_values(lease: ShareLease) -> tuple[object, ...]:
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
