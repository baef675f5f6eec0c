"""Share leases as the store keeps them, and the one rule by which they change: ``renew``.

A share lease is slots of a pool that one process subdivides by itself. It belongs to one *incarnation* of a
node: a restarted node and two processes under one name are different leases, and what a dead one leaves
behind expires.

The rule. A lease changes only in its own holder's renewal, which says "from now on I hold at most so many".

* Smaller than before: the holder has closed its gate and its work has ended; only now the difference is free.
* Larger is granted up to the target, as far as the cap leaves room beside *everything* that is held, also by
  leases that drain and by those that expired and were not evicted yet.
* The store takes nothing back. It asks, with a target, and waits for a smaller renewal.
* A renewal not newer than the last one seen changes nothing and is answered with nothing to act on.
* What a holder declares beyond what it was granted is true and is counted, but *owed*: it may be finished,
  not refilled, while more is held than the cap. It is work that outlived a fence or began without the store.
* A store that lost its memory *learns* for the length of a lease: holders declare, and no lease grows. A
  holder that was not heard by then has fenced itself.

So what is held passes the cap only where the cap was lowered or running work came to light, never by a grant;
and no holder uses more than its lease has. What a holder does is in holder.py, who should get how much in
allotment.py, and why all this suffices in docs/explanation/why-the-bound-holds.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from flyball.core.share_lease.timing import ShareTiming


@dataclass(frozen=True, slots=True)
class CallCounts:
    """What one incarnation was answered since it started. It only grows: no report is lost or told twice."""

    successes: int = 0
    throttles: int = 0
    overloads: int = 0

    def since(self, earlier: CallCounts) -> CallCounts:
        return CallCounts(
            self.successes - earlier.successes,
            self.throttles - earlier.throttles,
            self.overloads - earlier.overloads,
        )


NO_TALLY = CallCounts()


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewal:
    """What a holder sends. It carries no time: clocks are never compared."""

    node: str
    incarnation: str
    seq: int
    """Counts the renewals of one incarnation."""
    holds: int
    """From now on at most this many are used, until a reply to this renewal or a later one allows more."""
    in_flight: int
    wants: int
    """What it could use now: in flight and waiting."""
    weight: float = 1.0
    beyond: int = 0
    """What of ``holds`` is running work above the gate, and no right to more: all of it, once time was up."""
    leaving: bool = False
    tally: CallCounts = NO_TALLY

    # What the plan wants to know; the rule reads none of it.
    peak: int = 0
    """The most that was in flight at once since the last renewal that was answered."""
    hold_s: float = 0.0
    """How long a piece of its work usually takes; 0 while that is not known."""
    refused_age_s: float | None = None
    """How long ago the last piece of work was begun that was refused since the last renewal."""
    estimate: float | None = None
    """What this process believes by itself that the whole pool can take."""
    mailbox: str = ""
    """The address that wakes it to renew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareLease:
    """One row of the store: what one incarnation of a node may use at most."""

    node: str
    incarnation: str
    seq: int
    slots: int
    """Counted against the cap."""
    owed: int = 0
    """The part of ``slots`` that was declared and not granted."""
    target: int = 0
    """What the plan asks it to go to."""
    in_flight: int = 0
    wants: int = 0
    weight: float = 1.0
    draining: bool = False
    """Its holder leaves: it only shrinks. The empty row stays until it expires: nothing late revives it."""
    since: float = 0.0
    """When it last went from no slots to some, or from some to none."""
    expires_at: float = 0.0
    tally: CallCounts = NO_TALLY
    peak: int = 0
    estimate: float | None = None
    mailbox: str = ""

    @property
    def name(self) -> str:
        return lease_name(self.node, self.incarnation)

    @property
    def hungry(self) -> bool:
        return self.wants > self.slots

    @property
    def active(self) -> bool:
        """It has work, and may get slots for it."""
        return self.wants > 0 and not self.draining

    @property
    def busy(self) -> int:
        """What of the cap it keeps from others: an idle holder all it has, a working one what it uses."""
        return self.peak if self.wants or self.draining else self.slots

    @property
    def short(self) -> bool:
        """It could use more, and more is promised to it."""
        return self.active and self.hungry and self.target > self.slots


def lease_name(node: str, incarnation: str) -> str:
    """The key of a lease in its pool. Sorts by node, then by incarnation."""
    return f"{node}\x1f{incarnation}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareBudget:
    """What the share leases of one pool divide; beside its own row all that a renewal reads."""

    cap: int
    """Slots of the pool that share leases may hold now."""
    held: int = 0
    """Slots of all share leases: draining and expired ones too, until they are evicted."""
    nodes: int = 0
    """Share leases that are not draining."""
    learning_until: float = float("-inf")
    epoch: str = ""
    """The life of the store this pot belongs to: the server's run id, start time and role."""
    terms: ShareTiming = field(default_factory=ShareTiming)

    # What the plan goes by; the rule reads none of it.
    busy: int = 0
    """Of all share leases together: what they keep from others (``ShareLease.busy``)."""
    active: int = 0
    """Share leases that have work."""
    estimate: float | None = None
    """What the holders believe the whole pool can take, folded into one."""
    dirty: bool = False
    """Something happened that may change who should get how much."""
    planned_at: float = float("-inf")
    until: float = float("inf")
    """When time alone may change who should get how much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the holder of a lease is told."""

    seq: int
    stale: bool = False
    """The renewal was not newer than one seen before; nothing else in here means anything."""
    slots: int = 0
    gate: int = 0
    """Admit below this: no more than the target, and nothing in place of what is owed."""
    target: int = 0
    ttl_s: float = 0.0
    learning: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewedShare:
    """What a renewal did."""

    lease: ShareLease
    reply: Reply
    change: int = 0
    """Slots more, or fewer, than before: to be added to ``ShareBudget.held`` in the same step."""
    joined: bool = False
    left: bool = False
    replan: bool = False
    """Who should get how much may have changed."""
    news: CallCounts = NO_TALLY
    """What its holder was answered since the last renewal."""


def renew(lease: ShareLease | None, renewal: Renewal, pot: ShareBudget, *, now: float) -> RenewedShare:
    """The lease after ``renewal`` and the reply to it. ``lease`` is its row, if there is one."""
    if lease is not None and renewal.seq <= lease.seq:
        return RenewedShare(lease=lease, reply=Reply(seq=renewal.seq, stale=True))
    row = lease if lease is not None else _first_row(renewal, pot, now)
    draining = row.draining or renewal.leaving
    target = _present_target(row, renewal, pot, draining=draining, now=now)
    held_by_others = pot.held - row.slots
    learning, slots = now < pot.learning_until, renewal.holds
    if not learning:
        room = pot.cap - held_by_others - slots
        slots += max(0, min(target - slots, room))
    owed = _owed_slots(row, renewal, slots, excess=held_by_others + slots - pot.cap, learning=learning)
    after = replace(
        row,
        seq=renewal.seq,
        slots=slots,
        owed=owed,
        in_flight=renewal.in_flight,
        wants=renewal.wants,
        weight=renewal.weight,
        draining=draining,
        since=now if (slots > 0) != (row.slots > 0) else row.since,
        # A TTL that was shortened meanwhile must not overtake the one a holder still counts on.
        expires_at=max(row.expires_at, now + pot.terms.lease_s),
        tally=renewal.tally,
        peak=max(renewal.peak, renewal.in_flight),
        estimate=renewal.estimate,
        mailbox=renewal.mailbox,
    )
    reply = Reply(
        seq=renewal.seq,
        slots=slots,
        gate=min(target, slots - owed),
        target=target,
        ttl_s=pot.terms.ttl_s,
        learning=learning,
    )
    return _renewed_share(lease, after, reply, change=slots - row.slots)


def _owed_slots(row: ShareLease, renewal: Renewal, slots: int, *, excess: int, learning: bool) -> int:
    """How many of the slots were declared and not granted, while more is held than the cap."""
    if learning:
        # It is not known yet how much is held. Up to its gate a holder declares what the store granted before
        # it forgot; what runs beyond that may have been given to others in between.
        return min(max(row.owed, renewal.beyond), slots)
    return min(row.owed + max(0, renewal.holds - row.slots), max(0, excess), slots)


def _present_target(
    row: ShareLease, renewal: Renewal, pot: ShareBudget, *, draining: bool, now: float
) -> int:
    if draining:
        return 0
    held = pot.held - row.slots + renewal.holds
    if now < pot.learning_until and held <= pot.cap:
        # While others may still be unheard no holder is asked for slots that could not be given on.
        return max(row.target, renewal.holds)
    return row.target


def _first_row(renewal: Renewal, pot: ShareBudget, now: float) -> ShareLease:
    """A lease that the store does not know: a joiner, one that was evicted, or one that was forgotten."""
    fair = pot.cap // (pot.nodes + 1)
    return ShareLease(
        node=renewal.node,
        incarnation=renewal.incarnation,
        seq=renewal.seq,
        slots=0,
        # Until the plan has seen it. A founder is alone and gets everything.
        target=max(fair, min(1, pot.cap)),
        since=now,
        # What it was answered before this row began may have been counted already.
        tally=renewal.tally,
    )


def _renewed_share(
    before: ShareLease | None, after: ShareLease, reply: Reply, *, change: int
) -> RenewedShare:
    joined = before is None and not after.draining
    # An unknown lease has an expiry of its own that the plan must look at, even one that is only leaving.
    unknown = before is None
    left = before is not None and after.draining and not before.draining
    hunger_changed = before is not None and before.hungry != after.hungry
    turned = before is not None and before.since != after.since
    drained = after.draining and change < 0
    return RenewedShare(
        lease=after,
        reply=reply,
        change=change,
        joined=joined,
        left=left,
        replan=unknown or left or hunger_changed or turned or drained,
        news=after.tally.since(before.tally) if before is not None else NO_TALLY,
    )


def is_expired(lease: ShareLease, *, now: float) -> bool:
    """Whether it may be evicted: its holder, if it lives, has fenced itself before."""
    return lease.expires_at <= now


def evict(leases: Iterable[ShareLease], *, now: float) -> tuple[list[ShareLease], list[ShareLease]]:
    """The leases that stay, and those that are over and whose slots are free now."""
    stay: list[ShareLease] = []
    gone: list[ShareLease] = []
    for lease in leases:
        (gone if is_expired(lease, now=now) else stay).append(lease)
    return stay, gone


def enter_epoch(pot: ShareBudget, epoch: str, *, now: float) -> ShareBudget:
    """The pot as it is once the store has looked at its own life: another one begins by learning."""
    if pot.epoch == epoch:
        return pot
    return replace(pot, epoch=epoch, learning_until=now + pot.terms.lease_s)
