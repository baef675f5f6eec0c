"""Of ``status``: who holds share leases of a pool, and which hosts hold leases and are heard.

All of it is the store's view. A holder that has fenced itself cannot say so to anybody; but when it was last
heard, and by when it must have closed its gate, the store knows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from flyball.core.allotment import silent
from flyball.core.model import Claim
from flyball.core.renewal import ShareLease, expired
from flyball.core.terms import ShareTerms
from flyball.governor.flow import HEARD_S
from flyball.host.process import here

SILENT_S = HEARD_S
"""A host beats once a second. One that says nothing for so long is shown as silent, no more than that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareStatus:
    """One incarnation of a node, and what it holds of the pool."""

    node: str
    incarnation: str
    slots: int
    """Counted against the cap."""
    target: int
    """What the plan asks it to go to."""
    in_flight: int
    wants: int
    """In flight and waiting there, as it said last."""
    weight: float
    owed: int
    """The part of ``slots`` that was declared and never granted: running work that came to light."""
    draining: bool
    """Its holder leaves; it only shrinks."""
    silent: bool
    """Not renewed for more than two beats."""
    fenced: bool
    """Not renewed for so long that its holder admits nothing any more, unless ``on_outage`` is ``local``."""
    renewed_s_ago: float
    expires_in_s: float
    successes: int
    throttles: int
    overloads: int
    estimate: float | None
    """What this node believes by itself that the whole pool can take."""

    @property
    def over(self) -> bool:
        """It has left and holds nothing; only its name is kept for a moment."""
        return self.draining and not self.slots


@dataclass(frozen=True, slots=True)
class HostStatus:
    """A host that holds leases of a pool. Machines of one name are told apart by their boot."""

    host: str
    boot: str
    here: bool
    """It is this one."""
    leases: int
    slots: int
    heard_s_ago: float | None
    """How long ago it last said that it looks after its leases; None where nobody has to, or never did."""

    @property
    def silent(self) -> bool:
        return self.heard_s_ago is not None and self.heard_s_ago > SILENT_S


def shares_of(leases: Iterable[ShareLease], terms: ShareTerms, *, now: float) -> tuple[ShareStatus, ...]:
    """Those whose time is not up: what the others held is free, whoever comes next."""
    return tuple(_share(lease, terms, now) for lease in leases if not expired(lease, now=now))


def _share(lease: ShareLease, terms: ShareTerms, now: float) -> ShareStatus:
    # A pool whose times were changed is judged by the new ones, also where a lease was renewed under the old.
    renewed_s_ago = max(0.0, terms.lease_s - (lease.expires_at - now))
    return ShareStatus(
        node=lease.node,
        incarnation=lease.incarnation,
        slots=lease.slots,
        target=lease.target,
        in_flight=lease.in_flight,
        wants=lease.wants,
        weight=lease.weight,
        owed=lease.owed,
        draining=lease.draining,
        silent=silent(lease, terms, now=now),
        fenced=renewed_s_ago >= terms.fence_s,
        renewed_s_ago=renewed_s_ago,
        expires_in_s=lease.expires_at - now,
        successes=lease.tally.successes,
        throttles=lease.tally.throttles,
        overloads=lease.tally.overloads,
        estimate=lease.estimate,
    )


def hosts_of(claims: Iterable[Claim], *, now: float) -> tuple[HostStatus, ...]:
    """The hosts behind some leases, by name."""
    by_place: dict[tuple[str, str, int], list[Claim]] = {}
    for claim in claims:
        holder = claim.holder
        by_place.setdefault((holder.host, holder.boot, holder.pidns), []).append(claim)
    return tuple(_host(held, now) for _, held in sorted(by_place.items()))


def _host(held: list[Claim], now: float) -> HostStatus:
    heard = [claim.confirmed_at for claim in held if claim.confirmed_at is not None]
    holder = held[0].holder
    return HostStatus(
        holder.host,
        holder.boot,
        here(holder),
        len(held),
        sum(claim.slots for claim in held),
        max(0.0, now - max(heard)) if heard else None,
    )
