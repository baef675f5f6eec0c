"""Share leases in one session: a renewal, and the plan of which lease should get how much.

What they hold counts as in use like any lease's, so an ask for single slots is judged as ever. The rule
is ``core/share_lease/renewal``, the division ``core/share_lease/allotment``; here both meet the rows, and two
more things happen:

* A renewal feeds the pool's one controller with what its holder was answered, before it is answered itself:
  a refusal lowers all of them at once. The cap is taken to be full when what the holders use, idle ones with
  all they have, fills it: never by one node's own view.
* Targets are worked out at a bounded rate, by the first renewal after they may have changed. No slots
  move by that; those who are asked for less, or promised more that lies free, are told to renew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from flyball.core.pool.model import Fact, FactKind, Outcome, Phase, PoolCounts
from flyball.core.pool.settings import check_name
from flyball.core.share_lease.allotment import allot
from flyball.core.share_lease.renewal import (
    Renewal,
    RenewedShare,
    Reply,
    ShareBudget,
    ShareLease,
    enter_epoch,
    evict,
    lease_name,
)
from flyball.core.share_lease.renewal import renew as renew_lease
from flyball.core.share_lease.timing import FoldRule
from flyball.core.signals import Signal, SignalKind
from flyball.errors import UsageError
from flyball.stores.handoff import end_trial, hand_off, plan_soon
from flyball.stores.pool_session import TRIAL_ID, PoolSession, SentCall
from flyball.stores.rows import Life

HEARD_AFTER = 2
"""So many eager renewals after a cut it has reached all holders. What was begun sooner counts as older."""
OVERLOADS_FOLDED = 5
"""Of overloads that come together the controller is given so many, enough to open the breaker."""
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


def renew(session: PoolSession, renewal: Renewal) -> Reply:
    """Take one renewal in. The session's plan is fresh, and the holder's lease is as it left it."""
    budget, done = _apply_renewal(session, _current_budget(session), renewal)
    if done.reply.stale:
        return done.reply
    budget = replace(budget, dirty=budget.dirty or done.replan)
    session.rows.put_share_budget(session.row.name, budget)
    # Before it is answered: who tells of a refusal must not go on as if nothing had happened.
    moved = _fold_news(session, renewal, done)
    if moved:
        budget = _current_budget(session)
        session.rows.put_share_budget(session.row.name, budget)
    if _is_plan_due(session, budget):
        budget = plan_targets(session, budget)
    elif budget.dirty and (moved or done.replan):
        # Too soon after the last plan: a holder with news comes again, and finds it made or makes it.
        session.after.notices.append(renewal.mailbox)
        # Who has joined and never comes again is unknown to the last plan, so that did not say when to look.
        budget = replace(budget, until=min(budget.until, done.lease.expires_at))
        session.rows.put_share_budget(session.row.name, budget)
        session.look_by(budget.until)
    if budget.planned_at == session.now:
        # A plan that has heard it has just given it a target: it need not come again for that.
        lease = session.rows.share(session.row.name, done.lease.name) or done.lease
        again = replace(renewal, holds=lease.slots)
        budget, done = _apply_renewal(session, budget, again, known=replace(lease, seq=lease.seq - 1))
        session.rows.put_share_budget(session.row.name, budget)
    if session.row.limits.phase is Phase.TRIAL and session.row.meters.trial_id is None:
        _begin_trial(session, renewal, done.reply)
    hand_off(session)
    return done.reply


def _is_plan_due(session: PoolSession, budget: ShareBudget) -> bool:
    """Not too often; but a plan that was made in this very step, for its time was up, has not heard us.

    One that was made later than now was made on a clock that has since gone back.
    """
    may_plan = (
        session.now <= budget.planned_at
        or session.now >= budget.planned_at + budget.terms.plan_every_s(budget.nodes)
    )
    return budget.dirty and may_plan


def divide(session: PoolSession) -> None:
    """Plan who should get how much, whenever the last time was: for a store that knows when it is due."""
    plan_targets(session, _current_budget(session))


def _current_budget(session: PoolSession) -> ShareBudget:
    """The present budget, made where there was none. A store that began another life learns first."""
    life, kept = _current_life(session), session.rows.share_budget(session.row.name)
    terms = session.settings.share_terms
    if kept is None:
        budget = ShareBudget(cap=0, terms=terms, epoch=life.epoch, learning_until=life.since + terms.lease_s)
    else:
        budget = enter_epoch(replace(kept, terms=terms), life.epoch, now=session.now)
    cap = cap_for(session, budget)
    return replace(budget, cap=cap, dirty=budget.dirty or cap != budget.cap)


def _current_life(session: PoolSession) -> Life:
    """Since when this store can be relied on to know all share leases there are."""
    life = session.rows.life()
    if life is None or life.epoch != session.rows.epoch:
        life = Life(session.rows.epoch, session.now)
        session.rows.put_life(life)
    return life


def cap_for(session: PoolSession, budget: ShareBudget) -> int:
    """How much of the pool share leases may hold now: what single leases leave, and those in line for one.

    Who waits in line is assured of half the cap, together with who has a lease. A pause shorter than a beat
    is over before a holder could heed it; one that they heed lasts to its end.
    """
    limits, counts, now = session.row.limits, session.row.counts, session.now
    paused_s = limits.closed_until - now if limits.closed_until is not None else 0.0
    if limits.phase is Phase.OPEN or paused_s > (budget.terms.heartbeat_s if budget.cap else 0.0):
        return 0
    if limits.phase is Phase.TRIAL:
        return 1 if session.row.meters.trial_id in (None, TRIAL_ID) else 0
    cap = limits.cap if budget.estimate is None else min(limits.cap, max(1, int(budget.estimate)))
    single, low = counts.in_use - budget.held, counts.low_in_use - budget.held
    in_line = max(0, min(counts.waiting, cap // 2 - single))
    # As in core/pool/admission: a reserve never takes the last slot.
    reserve = min(limits.reserve, max(0, cap - 1))
    return max(0, min(cap - single - in_line, cap - reserve - low))


def _apply_renewal(
    session: PoolSession, budget: ShareBudget, renewal: Renewal, *, known: ShareLease | None = None
) -> tuple[ShareBudget, RenewedShare]:
    rows, pool = session.rows, session.row.name
    lease = known or rows.share(pool, lease_name(renewal.node, renewal.incarnation))
    done = renew_lease(lease, renewal, budget, now=session.now)
    if done.reply.stale:
        return budget, done
    before = lease or replace(done.lease, slots=0, wants=0, peak=0, draining=True)
    rows.put_share(pool, done.lease)
    session.count_share(done.change)
    budget = replace(
        budget,
        held=budget.held + done.change,
        nodes=budget.nodes + done.joined - done.left,
        busy=budget.busy + done.lease.busy - before.busy,
        active=budget.active + done.lease.active - before.active,
    )
    budget = replace(budget, cap=cap_for(session, budget))
    if done.change < 0:
        # No more than could be served: with more nodes than slots all of them would come for every slot.
        short = [it.mailbox for it in rows.shares(pool) if it.short and it.name != done.lease.name]
        session.after.notices += short[: max(0, budget.cap - budget.held)]
    return budget, done


# -- who should get how much --------------------------------------------------------------------------------


def plan_targets(session: PoolSession, budget: ShareBudget) -> ShareBudget:
    """Evict what expired, and set every lease's target. The budget as it is then, written.

    While the store learns nothing is evicted: what it remembers of a lease's time may be old.
    """
    rows, pool, now = session.rows, session.row.name, session.now
    learning = now < budget.learning_until
    stay, gone = (rows.shares(pool), []) if learning else evict(rows.shares(pool), now=now)
    for lease in gone:
        budget = _evict_lease(session, budget, lease)
    budget = replace(budget, estimate=_combined_estimate(stay, session.settings.estimates))
    budget = replace(budget, cap=cap_for(session, budget))
    found = allot(stay, cap=budget.cap, rule=session.settings.allotment, terms=budget.terms, now=now)
    room = budget.cap - budget.held
    for lease in stay:
        target = found.targets[lease.name]
        if target != lease.target:
            rows.put_share(pool, replace(lease, target=target))
        if target < lease.slots or (target > lease.slots and lease.hungry and room > 0):
            session.after.notices.append(lease.mailbox)
    until = min(found.until, budget.learning_until) if learning else found.until
    # Holders that fall silent one after the other are not a reason to plan more often than for anything else.
    until = max(until, now + budget.terms.plan_every_s(budget.nodes))
    budget = replace(budget, dirty=False, planned_at=now, until=until)
    rows.put_share_budget(pool, budget)
    session.look_by(budget.until)
    return budget


def _evict_lease(session: PoolSession, budget: ShareBudget, lease: ShareLease) -> ShareBudget:
    session.rows.drop_share(session.row.name, lease.name)
    session.count_share(-lease.slots)
    if lease.slots:
        words = f"share of {lease.node} taken back: {lease.slots} slots, not renewed in time"
        session.record_facts([Fact(session.now, session.row.name, FactKind.SHARE, words, "", lease.node, 0)])
    return replace(
        budget,
        held=budget.held - lease.slots,
        nodes=budget.nodes - (not lease.draining),
        busy=budget.busy - lease.busy,
        active=budget.active - lease.active,
    )


def _combined_estimate(leases: Sequence[ShareLease], rule: FoldRule) -> float | None:
    estimates = [lease.estimate for lease in leases if lease.estimate is not None and lease.active]
    if not estimates:
        return None
    return median(estimates) if rule is FoldRule.MEDIAN else min(estimates)


def apply_plan(session: PoolSession, *, moved: bool) -> None:
    """After the pool was planned anew: ``moved`` limits are divided anew, what is over is taken back."""
    budget = session.rows.share_budget(session.row.name)
    if budget is None:
        return
    if session.now >= budget.until:
        plan_targets(session, _current_budget(session))
        return
    if moved and not budget.dirty:
        session.rows.put_share_budget(session.row.name, replace(budget, dirty=True))
    session.look_by(budget.until)


# -- what the controller hears ------------------------------------------------------------------------------


def counts_by_use(counts: PoolCounts, budget: ShareBudget | None) -> PoolCounts:
    """The counts as the controller should see them: by what holders of shares use, not by what they have."""
    if budget is None:
        return counts
    return replace(counts, in_use=counts.in_use - budget.held + (budget.busy if budget.active else 0))


def _fold_news(session: PoolSession, renewal: Renewal, done: RenewedShare) -> bool:
    """Tell the controller what there is to tell; whether that made the limits anew."""
    news, meters, version = done.news, session.row.meters, session.row.limits.version
    trial = session.row.limits.phase is Phase.TRIAL and meters.trial_name == renewal.node
    budget = session.rows.share_budget(session.row.name)
    if counts_by_use(session.row.counts, budget).in_use >= session.row.limits.cap:
        meters = session.move_meters()
        meters.bound_at = session.now
        meters.bound_oks += max(0, news.successes)
        plan_soon(session)
    if renewal.hold_s > 0 and news.successes > 0:
        session.move_meters().note_hold(renewal.hold_s)
    for kind, times in ((SignalKind.THROTTLED, news.throttles), (SignalKind.OVERLOADED, news.overloads)):
        if times > 0:
            fold_refusals(session, kind, times, node=renewal.node, age_s=renewal.refused_age_s)
    if trial and news.successes > 0 and not news.throttles:
        end_trial(session, Outcome.FINISHED)
    return session.row.limits.version != version


def fold_refusals(
    session: PoolSession, kind: SignalKind, times: int, *, node: str, age_s: float | None
) -> None:
    """So many pieces of a node's work were refused; the last of them was begun so long ago."""
    words = f"{times} on {node}" if times > 1 else f"on {node}"
    sent = _sent_call(session, times, age_s) if age_s is not None else None
    meters = session.row.meters
    # What was begun before the trial, or elsewhere, says nothing about it.
    of_trial = node == meters.trial_name and (age_s is None or session.now - age_s >= meters.trial_at)
    claim_id = TRIAL_ID if meters.trial_id == TRIAL_ID and of_trial else 0
    # Overloads tell by how many there are, throttles by how much was in flight.
    for _ in range(min(times, OVERLOADS_FOLDED) if kind is SignalKind.OVERLOADED else 1):
        session.fold(Signal(kind, detail=words), project="", name=node, claim_id=claim_id, sent=sent)


def _sent_call(session: PoolSession, times: int, age_s: float) -> SentCall:
    """When refused work was begun, and beside how much: all that was served, and one of those refused."""
    at = session.now - age_s - HEARD_AFTER * session.settings.share_terms.eager_s
    cut_at = session.memory.cap.last_cut_at
    if cut_at is not None and at < cut_at:
        # How much there was before the cut is not known any more.
        return SentCall(at, None)
    in_use = counts_by_use(session.row.counts, session.rows.share_budget(session.row.name)).in_use
    # A slot may have been refused more than once: never take more than half for refused.
    return SentCall(at, max(1, in_use // 2, in_use - times + 1))


def _begin_trial(session: PoolSession, renewal: Renewal, reply: Reply) -> None:
    """Where there is work for it, and nothing else runs beside it: what runs from now on is the trial."""
    if not (reply.gate and renewal.wants and renewal.in_flight <= reply.gate):
        return
    meters = session.move_meters()
    meters.trial_id, meters.trial_at = TRIAL_ID, session.now
    meters.trial_project, meters.trial_name = "", renewal.node
    session.look_by(session.now)
    session.record_facts(
        [Fact(session.now, session.row.name, FactKind.TRIAL, "admitted as the trial", "", renewal.node, 0)]
    )
