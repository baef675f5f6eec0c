"""Share leases on one desk: a renewal, and the plan of who should get how much.

What they hold counts as in use like any lease's, so whoever asks for single slots is judged as ever. The rule
is ``core/share_lease/renewal``, the division ``core/share_lease/allotment``; here both meet the rows, and two
more things happen:

* A renewal feeds the pool's one controller with what its holder was answered, before it is answered itself:
  a refusal lowers everybody at once. The cap is taken to be full when what the holders use, idle ones with
  all they have, fills it: never by one node's own view.
* Targets are worked out at a bounded rate, by whoever comes first after they may have changed. Nobody's slots
  move by that; those who are asked for less, or promised more that lies free, are told to renew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from flyball.core.pool.model import Fact, Outcome, Phase, PoolCounts
from flyball.core.pool.settings import check_name
from flyball.core.share_lease.allotment import allot
from flyball.core.share_lease.renewal import (
    Renewal,
    RenewedShare,
    Reply,
    ShareBudget,
    ShareLease,
    evict,
    in_epoch,
    lease_name,
)
from flyball.core.share_lease.renewal import renew as renewed_by
from flyball.core.share_lease.timing import FoldRule
from flyball.core.signals import Signal, SignalKind
from flyball.errors import UsageError
from flyball.stores.handoff import end_trial, fold_soon, hand_out
from flyball.stores.pool_session import TRIAL_ID, PoolSession, SentCall
from flyball.stores.rows import Life

HEARD_AFTER = 2
"""So many eager renewals after a cut all have heard of it. What was begun sooner counts as older than it."""
OVERLOADS_TOLD = 5
"""Of overloads that come together the controller hears so many, enough to open the breaker."""
_INCARNATION_LIMIT = 64


def check_renewal(renewal: Renewal) -> None:
    """Refuse nonsense before it reaches the state."""
    check_name("node", renewal.node)
    if not 0 < len(renewal.incarnation) <= _INCARNATION_LIMIT or not renewal.incarnation.isalnum():
        raise UsageError(f"an incarnation is up to {_INCARNATION_LIMIT} letters and digits")
    for what in ("seq", "holds", "beyond", "in_flight", "wants", "peak"):
        value = getattr(renewal, what)
        if type(value) is not int or not 0 <= value <= 1_000_000_000:
            raise UsageError(f"{what} of a renewal must be a whole number of 0 or more, not {value!r}")
    if not 0 < renewal.weight < float("inf"):
        raise UsageError(f"the weight of {renewal.node!r} must be a positive number, not {renewal.weight!r}")
    for what in ("hold_s", "refused_age_s", "estimate"):
        value = getattr(renewal, what)
        if value is not None and not 0 <= value < float("inf"):
            raise UsageError(f"{what} of a renewal must be a number of 0 or more, not {value!r}")


def renew(desk: PoolSession, renewal: Renewal) -> Reply:
    """Take one renewal in. The desk's plan is fresh, and the holder's lease is as it left it."""
    pot, done = _taken_in(desk, _pot_now(desk), renewal)
    if done.reply.stale:
        return done.reply
    pot = replace(pot, dirty=pot.dirty or done.replan)
    desk.rows.put_pot(desk.row.name, pot)
    # Before it is answered: who tells of a refusal must not go on as if nothing had happened.
    moved = _feed(desk, renewal, done)
    if moved:
        pot = _pot_now(desk)
        desk.rows.put_pot(desk.row.name, pot)
    if _due(desk, pot):
        pot = plan(desk, pot)
    elif pot.dirty and (moved or done.replan):
        # Too soon after the last plan: whoever has something new comes again, and finds it made or makes it.
        desk.after.notices.append(renewal.mailbox)
        # Who has joined and never comes again is unknown to the last plan, so that did not say when to look.
        pot = replace(pot, until=min(pot.until, done.lease.expires_at))
        desk.rows.put_pot(desk.row.name, pot)
        desk.look_by(pot.until)
    if pot.planned_at == desk.now:
        # A plan that has heard it has just given it a target: it need not come again for that.
        lease = desk.rows.share(desk.row.name, done.lease.name) or done.lease
        again = replace(renewal, holds=lease.slots)
        pot, done = _taken_in(desk, pot, again, known=replace(lease, seq=lease.seq - 1))
        desk.rows.put_pot(desk.row.name, pot)
    if desk.row.limits.phase is Phase.TRIAL and desk.row.meters.trial_id is None:
        _begin_trial(desk, renewal, done.reply)
    hand_out(desk)
    return done.reply


def _due(desk: PoolSession, pot: ShareBudget) -> bool:
    """Not too often; but a plan that was made in this very step, for its time was up, has not heard us.

    One that was made later than now was made on a clock that has since gone back.
    """
    may_plan = desk.now <= pot.planned_at or desk.now >= pot.planned_at + pot.terms.plan_every_s(pot.nodes)
    return pot.dirty and may_plan


def divide(desk: PoolSession) -> None:
    """Plan who should get how much, whenever the last time was: for a store that knows when it is due."""
    plan(desk, _pot_now(desk))


def _pot_now(desk: PoolSession) -> ShareBudget:
    """The pot as it stands now, made where there was none. A store that began another life learns first."""
    life, kept = _life(desk), desk.rows.pot(desk.row.name)
    terms = desk.settings.share_terms
    if kept is None:
        pot = ShareBudget(cap=0, terms=terms, epoch=life.epoch, learning_until=life.since + terms.lease_s)
    else:
        pot = in_epoch(replace(kept, terms=terms), life.epoch, now=desk.now)
    cap = cap_for(desk, pot)
    return replace(pot, cap=cap, dirty=pot.dirty or cap != pot.cap)


def _life(desk: PoolSession) -> Life:
    """Since when this store can be relied on to know all share leases there are."""
    life = desk.rows.life()
    if life is None or life.epoch != desk.rows.epoch:
        life = Life(desk.rows.epoch, desk.now)
        desk.rows.put_life(life)
    return life


def cap_for(desk: PoolSession, pot: ShareBudget) -> int:
    """How much of the pool share leases may hold now: what single leases leave, and those in line for one.

    Who waits in line is assured of half the cap, together with who has a lease. A pause shorter than a beat
    is over before anybody could heed it; one that they heed lasts to its end.
    """
    limits, counts, now = desk.row.limits, desk.row.counts, desk.now
    paused_s = limits.closed_until - now if limits.closed_until is not None else 0.0
    if limits.phase is Phase.OPEN or paused_s > (pot.terms.heartbeat_s if pot.cap else 0.0):
        return 0
    if limits.phase is Phase.TRIAL:
        return 1 if desk.row.meters.trial_id in (None, TRIAL_ID) else 0
    cap = limits.cap if pot.estimate is None else min(limits.cap, max(1, int(pot.estimate)))
    single, low = counts.in_use - pot.held, counts.low_in_use - pot.held
    in_line = max(0, min(counts.waiting, cap // 2 - single))
    # As in core/admit: a reserve never takes the last slot.
    reserve = min(limits.reserve, max(0, cap - 1))
    return max(0, min(cap - single - in_line, cap - reserve - low))


def _taken_in(
    desk: PoolSession, pot: ShareBudget, renewal: Renewal, *, known: ShareLease | None = None
) -> tuple[ShareBudget, RenewedShare]:
    rows, pool = desk.rows, desk.row.name
    lease = known or rows.share(pool, lease_name(renewal.node, renewal.incarnation))
    done = renewed_by(lease, renewal, pot, now=desk.now)
    if done.reply.stale:
        return pot, done
    before = lease or replace(done.lease, slots=0, wants=0, peak=0, draining=True)
    rows.put_share(pool, done.lease)
    desk.count_share(done.change)
    pot = replace(
        pot,
        held=pot.held + done.change,
        nodes=pot.nodes + done.joined - done.left,
        busy=pot.busy + done.lease.busy - before.busy,
        active=pot.active + done.lease.active - before.active,
    )
    pot = replace(pot, cap=cap_for(desk, pot))
    if done.change < 0:
        # No more than could be served: with more nodes than slots all of them would come for every slot.
        short = [it.mailbox for it in rows.shares(pool) if it.short and it.name != done.lease.name]
        desk.after.notices += short[: max(0, pot.cap - pot.held)]
    return pot, done


# -- who should get how much --------------------------------------------------------------------------------


def plan(desk: PoolSession, pot: ShareBudget) -> ShareBudget:
    """Evict what expired, and set every lease's target. The pot as it is then, written.

    While the store learns nothing is evicted: what it remembers of somebody's time may be old.
    """
    rows, pool, now = desk.rows, desk.row.name, desk.now
    learning = now < pot.learning_until
    stay, gone = (rows.shares(pool), []) if learning else evict(rows.shares(pool), now=now)
    for lease in gone:
        pot = _evicted(desk, pot, lease)
    pot = replace(pot, estimate=_folded(stay, desk.settings.estimates))
    pot = replace(pot, cap=cap_for(desk, pot))
    found = allot(stay, cap=pot.cap, rule=desk.settings.allotment, terms=pot.terms, now=now)
    room = pot.cap - pot.held
    for lease in stay:
        target = found.targets[lease.name]
        if target != lease.target:
            rows.put_share(pool, replace(lease, target=target))
        if target < lease.slots or (target > lease.slots and lease.hungry and room > 0):
            desk.after.notices.append(lease.mailbox)
    until = min(found.until, pot.learning_until) if learning else found.until
    # Holders that fall silent one after the other are no reason to plan more often than for anything else.
    until = max(until, now + pot.terms.plan_every_s(pot.nodes))
    pot = replace(pot, dirty=False, planned_at=now, until=until)
    rows.put_pot(pool, pot)
    desk.look_by(pot.until)
    return pot


def _evicted(desk: PoolSession, pot: ShareBudget, lease: ShareLease) -> ShareBudget:
    desk.rows.drop_share(desk.row.name, lease.name)
    desk.count_share(-lease.slots)
    if lease.slots:
        words = f"share of {lease.node} taken back: {lease.slots} slots, not renewed in time"
        desk.tell([Fact(desk.now, desk.row.name, "share", words, "", lease.node, 0)])
    return replace(
        pot,
        held=pot.held - lease.slots,
        nodes=pot.nodes - (not lease.draining),
        busy=pot.busy - lease.busy,
        active=pot.active - lease.active,
    )


def _folded(leases: Sequence[ShareLease], rule: FoldRule) -> float | None:
    told = [lease.estimate for lease in leases if lease.estimate is not None and lease.active]
    if not told:
        return None
    return median(told) if rule is FoldRule.MEDIAN else min(told)


def follow(desk: PoolSession, *, moved: bool) -> None:
    """After the pool was planned anew: ``moved`` limits are divided anew, what is over is taken back."""
    pot = desk.rows.pot(desk.row.name)
    if pot is None:
        return
    if desk.now >= pot.until:
        plan(desk, _pot_now(desk))
        return
    if moved and not pot.dirty:
        desk.rows.put_pot(desk.row.name, replace(pot, dirty=True))
    desk.look_by(pot.until)


# -- what the controller hears ------------------------------------------------------------------------------


def use_seen(counts: PoolCounts, pot: ShareBudget | None) -> PoolCounts:
    """The counts as the controller should see them: by what holders of shares use, not by what they have."""
    if pot is None:
        return counts
    return replace(counts, in_use=counts.in_use - pot.held + (pot.busy if pot.active else 0))


def _feed(desk: PoolSession, renewal: Renewal, done: RenewedShare) -> bool:
    """Tell the controller what there is to tell; whether that made the limits anew."""
    news, meters, version = done.news, desk.row.meters, desk.row.limits.version
    trial = desk.row.limits.phase is Phase.TRIAL and meters.trial_name == renewal.node
    pot = desk.rows.pot(desk.row.name)
    if use_seen(desk.row.counts, pot).in_use >= desk.row.limits.cap:
        meters = desk.move_meters()
        meters.bound_at = desk.now
        meters.bound_oks += max(0, news.successes)
        fold_soon(desk)
    if renewal.hold_s > 0 and news.successes > 0:
        desk.move_meters().note_hold(renewal.hold_s)
    for kind, times in ((SignalKind.THROTTLED, news.throttles), (SignalKind.OVERLOADED, news.overloads)):
        if times > 0:
            refused(desk, kind, times, node=renewal.node, age_s=renewal.refused_age_s)
    if trial and news.successes > 0 and not news.throttles:
        end_trial(desk, Outcome.FINISHED)
    return desk.row.limits.version != version


def refused(desk: PoolSession, kind: SignalKind, times: int, *, node: str, age_s: float | None) -> None:
    """So many pieces of a node's work were refused; the last of them was begun so long ago."""
    words = f"{times} on {node}" if times > 1 else f"on {node}"
    sent = _sent(desk, times, age_s) if age_s is not None else None
    meters = desk.row.meters
    # What was begun before the trial, or elsewhere, says nothing about it.
    of_trial = node == meters.trial_name and (age_s is None or desk.now - age_s >= meters.trial_at)
    claim_id = TRIAL_ID if meters.trial_id == TRIAL_ID and of_trial else 0
    # Overloads tell by how many there are, throttles by how much was in flight.
    for _ in range(min(times, OVERLOADS_TOLD) if kind is SignalKind.OVERLOADED else 1):
        desk.fold(Signal(kind, detail=words), project="", name=node, claim_id=claim_id, sent=sent)


def _sent(desk: PoolSession, times: int, age_s: float) -> SentCall:
    """When refused work was begun, and beside how much: all that was served, and one of those refused."""
    at = desk.now - age_s - HEARD_AFTER * desk.settings.share_terms.eager_s
    cut_at = desk.memory.cap.last_cut_at
    if cut_at is not None and at < cut_at:
        # How much there was before the cut nobody knows any more.
        return SentCall(at, None)
    in_use = use_seen(desk.row.counts, desk.rows.pot(desk.row.name)).in_use
    # A slot may have been refused more than once: never take more than half for refused.
    return SentCall(at, max(1, in_use // 2, in_use - times + 1))


def _begin_trial(desk: PoolSession, renewal: Renewal, reply: Reply) -> None:
    """Where there is work for it, and nothing else runs beside it: what runs from now on is the trial."""
    if not (reply.gate and renewal.wants and renewal.in_flight <= reply.gate):
        return
    meters = desk.move_meters()
    meters.trial_id, meters.trial_at = TRIAL_ID, desk.now
    meters.trial_project, meters.trial_name = "", renewal.node
    desk.look_by(desk.now)
    desk.tell([Fact(desk.now, desk.row.name, "trial", "admitted as the trial", "", renewal.node, 0)])
