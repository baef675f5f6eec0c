"""A share lease as its holder keeps it: what it may use, and until when.

    send      "I hold at most so many": the gate, or what still runs if that is more. Said once it is true.
    receive   the reply to the *latest* renewal, once; every other reply is dropped. Sets gate and fence.
    fence     time is up: nothing is admitted until a renewal sent from now on has been answered

Why the latest reply only: a renewal says what its holder uses from then on, so an older reply may speak of
slots that have been given back since. Why the fence counts from the send: the store handled the renewal later
than that, so it keeps the slots longer than the holder uses them, however long the reply took. And why a
renewal from before the fence cannot lift it: the store may have given the slots away before it arrived, and
have forgotten that too.

Between replies the gate only goes down. All times are of the holder's own monotonic clock, which must go on
while the machine sleeps. The driver counts the work: one lock must cover the gate, the count
and ``send``, so that a renewal never declares less than is running.

``next_renewal`` says when a holder should renew, and why then:

    first     nothing was ever sent: at once
    beat      one heartbeat after the last renewal
    retry     a quarter beat after one that failed; one that hangs is waited for, longer each time
    confirm   we were asked for less and use no more than that: say so, others wait for it
    push      we were asked for less and some of the work beyond it has ended
    pull      we are starved while more is promised, or our hunger is news to the store
    noticed   the store woke us

The last four do not wait for the beat: they are *eager*. They are at least ``eager_s`` apart, a pull in vain
doubles the wait for the next until the beat is sooner, and where every holder has its target none of them
happens. Nothing here matters for the bound: a renewal is safe at any time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from flyball.core.share_lease.renewal import NO_TALLY, CallCounts, Renewal, Reply
from flyball.core.share_lease.timing import ShareTiming
from flyball.errors import invariant


class OnOutage(Enum):
    """What a holder does that has not been answered in time."""

    REFUSE = "refuse"
    LOCAL = "local"


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderState:
    """One incarnation's view of its lease. Made once per process and pool, with a fresh incarnation."""

    node: str
    incarnation: str
    weight: float = 1.0
    seq: int = 0
    """Of the latest renewal sent; 0 before the first."""
    pending: bool = False
    """The latest renewal was sent and not answered yet."""
    sent_at: float = 0.0
    slots: int = 0
    """What the store counts for us, or less."""
    gate: int = 0
    """Admit while less than this is in flight."""
    target: int = 0
    fence_at: float = float("-inf")
    leaving: bool = False
    told: bool = False
    """The latest renewal said that we leave."""

    # When to renew; no bound depends on these.
    reported: int = 0
    """What the latest renewal said we want."""
    misses: int = 0
    """Renewals in a row that were not answered."""
    missed_at: float = 0.0
    trip_s: float = 0.0
    """How long the last reply took."""
    eager_at: float = float("-inf")
    """When the last renewal went out that did not wait for the beat."""
    pulls: int = 0
    """Renewals in vain for slots that are promised."""
    noticed: bool = False


def is_fenced(holding: HolderState, *, now: float) -> bool:
    """Whether the time of the last answered renewal is up; also before there was one."""
    return now >= holding.fence_at


def limit(holding: HolderState, *, now: float, on_outage: OnOutage = OnOutage.REFUSE, local: int = 0) -> int:
    """How much may be in flight for one more to start. ``local`` is what this process believes by itself."""
    if holding.leaving:
        return 0
    if is_fenced(holding, now=now):
        return local if on_outage is OnOutage.LOCAL else 0
    return holding.gate


def send(
    holding: HolderState, *, now: float, in_flight: int, wants: int, tally: CallCounts = NO_TALLY
) -> tuple[HolderState, Renewal]:
    """The next renewal, and the holding that has sent it.

    Whatever was unused above the gate is given back by this, and is gone even if the renewal gets lost.
    """
    over = is_fenced(holding, now=now)
    gate = 0 if over or holding.leaving else holding.gate
    holds = max(gate, in_flight)
    after = replace(
        holding,
        seq=holding.seq + 1,
        pending=True,
        sent_at=now,
        slots=holds,
        gate=gate,
        told=holding.leaving,
        reported=wants,
        misses=holding.misses + holding.pending,
        noticed=False,
    )
    renewal = Renewal(
        node=holding.node,
        incarnation=holding.incarnation,
        seq=after.seq,
        holds=holds,
        in_flight=in_flight,
        wants=wants,
        weight=holding.weight,
        beyond=holds - gate,
        leaving=holding.leaving,
        tally=tally,
    )
    return after, renewal


def receive(holding: HolderState, reply: Reply, *, now: float, terms: ShareTiming) -> HolderState:
    """What a reply changes; nothing unless it answers the latest renewal for the first time."""
    if reply.stale or reply.seq != holding.seq or not holding.pending:
        return holding
    if holding.sent_at < holding.fence_at <= now:
        return on_missed(holding, seq=reply.seq, now=now)
    invariant(reply.slots >= holding.slots, "a reply to a renewal takes nothing of what it declared")
    moved = (reply.gate, reply.target) != (holding.gate, holding.target)
    return replace(
        holding,
        pending=False,
        slots=reply.slots,
        gate=reply.gate,
        target=reply.target,
        fence_at=holding.sent_at + terms.fence_for(reply.ttl_s),
        misses=0,
        trip_s=now - holding.sent_at,
        pulls=0 if moved else holding.pulls,
    )


def on_missed(holding: HolderState, *, seq: int, now: float) -> HolderState:
    """The renewal ``seq`` failed, or its reply is no longer waited for. It may still reach the store."""
    if seq != holding.seq or not holding.pending:
        return holding
    return replace(holding, pending=False, misses=holding.misses + 1, missed_at=now)


def notice(holding: HolderState, *, target: int) -> HolderState:
    """The target moved, as told outside a reply: it closes the gate and makes us ask; it opens nothing."""
    return replace(
        holding, gate=min(holding.gate, target), target=min(holding.target, target), pulls=0, noticed=True
    )


def leave(holding: HolderState) -> HolderState:
    """No more is admitted; what runs is finished, renewed for, and given back bit by bit."""
    return replace(holding, leaving=True)


def has_left(holding: HolderState, *, in_flight: int) -> bool:
    """Whether a holder that leaves has nothing left to say: the store knows that it holds nothing."""
    answered = not holding.pending and not holding.misses
    return holding.told and answered and not holding.slots and not in_flight


class RenewalReason(Enum):
    FIRST = "first"
    BEAT = "beat"
    RETRY = "retry"
    CONFIRM = "confirm"
    PUSH = "push"
    PULL = "pull"
    NOTICED = "noticed"

    @property
    def eager(self) -> bool:
        return self in _EAGER


_EAGER = frozenset({RenewalReason.CONFIRM, RenewalReason.PUSH, RenewalReason.PULL, RenewalReason.NOTICED})
MAX_DOUBLINGS = 6


@dataclass(frozen=True, slots=True)
class Due:
    at: float
    """On the holder's clock; in the past means now."""
    why: RenewalReason


def next_renewal(holding: HolderState, *, in_flight: int, wants: int, terms: ShareTiming, now: float) -> Due:
    """The next renewal as things stand; ask again after a reply, a notice, an end of work or a new ask."""
    if holding.seq == 0:
        return Due(now, RenewalReason.FIRST)
    if holding.pending:
        return Due(holding.sent_at + _patience_s(holding, terms), RenewalReason.RETRY)
    if holding.misses:
        return Due(holding.missed_at + terms.retry_s, RenewalReason.RETRY)
    if is_fenced(holding, now=now):
        # Answered too late. The next answer may be quicker.
        return Due(holding.sent_at + terms.retry_s, RenewalReason.RETRY)
    beat = Due(holding.sent_at + terms.heartbeat_s, RenewalReason.BEAT)
    eager = _eager(holding, in_flight=in_flight, wants=wants, terms=terms)
    return eager if eager is not None and eager.at < beat.at else beat


def note_reason(holding: HolderState, due: Due, *, now: float) -> HolderState:
    """Note why a renewal goes out, right before ``send``."""
    if not due.why.eager:
        return holding
    pulls = holding.pulls + 1 if due.why is RenewalReason.PULL else holding.pulls
    return replace(holding, eager_at=now, pulls=min(pulls, MAX_DOUBLINGS))


def _eager(holding: HolderState, *, in_flight: int, wants: int, terms: ShareTiming) -> Due | None:
    soon = holding.eager_at + terms.eager_s
    if holding.noticed:
        return Due(soon, RenewalReason.NOTICED)
    gate = 0 if holding.leaving else holding.gate
    if holding.leaving and not holding.told:
        return Due(soon, RenewalReason.CONFIRM)
    if max(gate, in_flight) < holding.slots:
        return Due(soon, RenewalReason.CONFIRM if in_flight <= gate else RenewalReason.PUSH)
    if wants > gate and not holding.leaving:
        return _pull(holding, gate, terms)
    return None


def _pull(holding: HolderState, gate: int, terms: ShareTiming) -> Due | None:
    if gate < holding.target:
        return Due(holding.sent_at + terms.eager_s * 2**holding.pulls, RenewalReason.PULL)
    if holding.reported <= gate:
        # The plan may give us what others do not need. A load that flutters must not renew at every flutter.
        return Due(holding.eager_at + terms.retry_s, RenewalReason.PULL)
    return None


def _patience_s(holding: HolderState, terms: ShareTiming) -> float:
    """A reply that is slow is still the latest one's, if no newer renewal is sent too soon."""
    usual = max(terms.heartbeat_s, 2 * holding.trip_s)
    return float(usual * 2 ** min(holding.misses, MAX_DOUBLINGS))
