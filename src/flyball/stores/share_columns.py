"""Share leases and pots as columns, for stores that speak SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flyball.core.renewal import Pot, ShareLease, Tally

POT = "cap, held, nodes, learning_until, epoch, busy, active, estimate, dirty, planned_at, until"
SHARE = (
    "node, incarnation, seq, slots, owed, target, in_flight, wants, weight, draining, since, expires_at,"
    " successes, throttles, overloads, peak, estimate, mailbox"
)


def pot_of(row: Sequence[Any]) -> Pot:
    cap, held, nodes, learning_until, epoch, busy, active, estimate, dirty, planned_at, until = row
    return Pot(
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


def of_pot(pot: Pot) -> tuple[object, ...]:
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
        tally=Tally(*row[12:15]),
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
