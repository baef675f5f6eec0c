"""Giving slots out and taking them back, on one session: what moves when a lease begins or ends.

Whatever frees something ends in ``hand_off``: it grants to the waiting in order while something fits, in the
same transaction, and names exactly those to be woken.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from flyball.core.pool import plan as planning
from flyball.core.pool import rate_window as windowing
from flyball.core.pool.admission import choose, judge, next_grant_at, too_large
from flyball.core.pool.control.registry import controller_for
from flyball.core.pool.fairness import start_of_turn, turn_after_call
from flyball.core.pool.model import Ask, Candidate, Claim, FactKind, Outcome, Phase, ProjectUse
from flyball.core.pool.settings import CONFIRM_S, ShareRule
from flyball.core.pool.verdict import Reason, span_words
from flyball.core.signals import Signal, SignalKind
from flyball.errors import invariant
from flyball.stores.pool_session import PoolSession, ask_fact, candidate
from flyball.stores.port import Release, WakeUp
from flyball.stores.rows import Grant

HOLD_SAMPLE = 8
"""Holds under a second in an uncrowded pool come by the thousand: one in so many is enough to estimate."""
MEASURED_S = 1.0
"""Each hold of this length or more is measured."""
FACT_FROM_S = 1.0
"""What took less, a wait or a lease, is not worth a line in the history."""


def grant_new(session: PoolSession, ask: Ask) -> int:
    """A lease for an ask that never had to wait."""
    claim_id = session.take_id()
    grant = _grant(session, ask)
    session.rows.add(claim_id, ask, now=session.now, launcher_pid=ask.holder.pid, grant=grant)
    session.count(ask, slots=ask.slots)
    _after_grant(session, claim_id, ask)
    return claim_id


def _grant(session: PoolSession, ask: Ask | Claim) -> Grant:
    """Spend what the ask needs of the windows; how things stand with it."""
    row = session.row
    level = row.counts.in_use + ask.slots
    if row.meters.work:
        meters = session.move_meters()
        meters.work += 1
        meters.work_tokens += ask.cost.get("tokens", 0.0)
    if not row.meters.windows:
        return Grant(level, _NO_MARKS)
    meters = session.move_meters()
    meters.windows = windowing.take(meters.windows, ask.cost, session.now)
    return Grant(level, windowing.marks(meters.windows))


def hand_off(session: PoolSession) -> set[int]:
    """Grant to the waiting while something fits; the ids that were granted."""
    granted: set[int] = set()
    if not session.row.counts.waiting:
        return granted
    if _room(session) > 0:
        lines: dict[tuple[str, int], Claim] = {}
        uses: dict[str, ProjectUse] = {}
        for head, use in session.rows.line_heads(session.row.name):
            possible = _first_possible(session, head, use)
            if possible is not None:
                lines[head.project, head.priority], uses[use.name] = possible, use
        while (
            _room(session) > 0 and (winner := next_to_grant(session, _asks(lines.values()), uses)) is not None
        ):
            line = (winner.project, winner.priority)
            claim = lines.pop(line)
            if session.world.stands_still(claim.holder):
                # It keeps its place, and finds the word to look when it goes on.
                session.after.wakes.append(WakeUp(claim.mailbox, claim.id, claim.holder))
            else:
                _grant_waiting(session, claim)
                granted.add(winner.id)
                _take_turn(session, uses[winner.project], winner)
            follower = _behind(session, claim) if _room(session) > 0 else None
            if follower is not None:
                lines[line] = follower
        _note_capped(session, _room(session) <= 0 or _is_capped(session, _asks(lines.values()), uses))
    else:
        _note_capped(session, True)
    _keep_watch(session, granted)
    return granted


def _asks(claims: Iterable[Claim]) -> list[Candidate]:
    return [candidate(claim.id, claim, claim.asked_at) for claim in claims]


def _first_possible(session: PoolSession, head: Claim | None, use: ProjectUse) -> Claim | None:
    """The first of a line that could ever be granted. Lowered limits may have made others too large: they
    leave the line, and their owners, told to look, ask again and hear why."""
    while head is not None:
        ask = candidate(head.id, head, head.asked_at)
        words = too_large(ask, session.row.limits, use, session.machine_for(ask))
        if not words:
            break
        _remove(session, head)
        session.count(head, waiting=-1)
        session.record_facts([ask_fact(head, session.now, FactKind.REFUSED, words)])
        session.after.wakes.append(WakeUp(head.mailbox, head.id, head.holder))
        head = session.rows.line_head(session.row.name, head.project, head.priority)
    return head


def _behind(session: PoolSession, claim: Claim) -> Claim | None:
    """The next of its line."""
    return session.rows.line_head(session.row.name, claim.project, claim.priority, after=claim.id)


def _first_awake(session: PoolSession, head: Claim | None) -> Claim | None:
    """The first of a line that could start now: not one whose process is stopped."""
    while head is not None and session.world.stands_still(head.holder):
        head = _behind(session, head)
    return head


def may_pass(session: PoolSession, newcomer: Candidate) -> bool:
    """May an ask that fits start although others wait? Yes, if none of them could use what it takes."""
    heads_of_lines = session.rows.line_heads(session.row.name)
    found = [
        (awake, use) for head, use in heads_of_lines if (awake := _first_awake(session, head)) is not None
    ]
    uses = {use.name: use for _, use in found}
    uses.setdefault(newcomer.project, session.project(newcomer.project))
    heads = _asks(claim for claim, _ in found)
    # Within its own line it passes no ask; against the others it comes last.
    if any((ask.project, ask.priority) == (newcomer.project, newcomer.priority) for ask in heads):
        return False
    last = replace(newcomer, id=1 + max((ask.id for ask in heads), default=0))
    return next_to_grant(session, [*heads, last], uses) == last


def _is_capped(session: PoolSession, heads: Iterable[Candidate], uses: dict[str, ProjectUse]) -> bool:
    """Is there room, but too little for an ask that waits?"""
    row = session.row
    for ask in heads:
        machine = session.machine_for(ask)
        denial = judge(ask, row.limits, row.meters, row.counts, uses[ask.project], machine, session.now)
        if denial is not None and denial.reason in (Reason.CAP, Reason.RESERVE):
            return True
    return False


def _note_capped(session: PoolSession, capped: bool) -> None:
    """Remember whether the cap is what an ask waits for: only then may it grow."""
    if capped != session.row.meters.capped:
        session.move_meters().capped = capped


def _take_turn(session: PoolSession, use: ProjectUse, winner: Candidate) -> None:
    """Note that a project was served, so that the next of equals comes first next time."""
    meters = session.move_meters()
    meters.turn = start_of_turn(use, meters.turn)
    use.turn = meters.turn + winner.slots / use.weight
    use.in_use += winner.slots
    session.put_turn(use)


def _room(session: PoolSession) -> int:
    limits = session.row.limits
    return (limits.ceiling if limits.phase is Phase.TRIAL else limits.cap) - session.row.counts.in_use


def next_to_grant(
    session: PoolSession, heads: list[Candidate], uses: dict[str, ProjectUse]
) -> Candidate | None:
    """Who of these would be granted now."""
    row = session.row
    # A stand-in that asks for every kind, so that the machine's use of each is read once.
    kinds = {kind: 1 for ask in heads for kind in ask.resources}
    machine = session.machine_for(Candidate(0, "", resources=kinds))
    return choose(heads, row.limits, row.meters, row.counts, uses, machine, session.now)


def _grant_waiting(session: PoolSession, claim: Claim) -> None:
    invariant(not claim.held, "the first in line waits")
    # A waiter we cannot check may have died in line: it must show that it lives.
    expires_at = None if session.world.checkable(claim.holder) else session.now + CONFIRM_S
    session.rows.grant(claim.id, _grant(session, claim), now=session.now, expires_at=expires_at)
    session.count(claim, slots=claim.slots, waiting=-1)
    _after_grant(session, claim.id, claim)
    session.refresh_if_stale()
    session.after.wakes.append(WakeUp(claim.mailbox, claim.id, claim.holder, granted=True))
    waited_s = session.now - claim.asked_at
    if waited_s >= FACT_FROM_S:
        words = f"granted after waiting {span_words(waited_s)} ({claim.why})"
        session.record_facts([ask_fact(claim, session.now, FactKind.GRANTED, words)])


def _after_grant(session: PoolSession, claim_id: int, ask: Ask | Claim) -> None:
    """Move the meters after a grant. Counts moved with the claim."""
    row, limits, now = session.row, session.row.limits, session.now
    if limits.spacing_s > 0:
        chance = session.world.chance()
        session.move_meters().next_grant_at = next_grant_at(
            now, limits.spacing_s, limits.spacing_jitter, chance
        )
    if row.counts.fill(limits.cap, reserve=limits.reserve):
        if not ask.unread:
            session.move_meters().bound_at = now
        plan_soon(session)
    if limits.phase is Phase.TRIAL:
        meters = row.meters
        meters.trial_id, meters.trial_at = claim_id, now
        meters.trial_project, meters.trial_name = ask.project, ask.name
        # The plan now has a trial to judge, at a time it did not know before.
        session.put_plan(replace(limits, valid_until=now))
        session.record_facts([ask_fact(ask, now, FactKind.TRIAL, "admitted as the trial")])


def enqueue(session: PoolSession, ask: Ask, why: str) -> int:
    """Queue an ask. The newest in line watches: it arrived awake, and it is there longest."""
    claim_id = session.take_id()
    session.rows.add(claim_id, ask, now=session.now, launcher_pid=ask.holder.pid, why=why)
    session.count(ask, waiting=1)
    _watch(session, claim_id)
    return claim_id


def _keep_watch(session: PoolSession, gone: set[int]) -> None:
    """One waiter of the line must be awake: if the watcher left it, the newest of the others takes over."""
    if not session.row.counts.waiting or session.row.watcher_id not in gone | session.gone:
        return
    newest = session.rows.newest_waiting(session.row.name)
    if newest is not None:
        _watch(session, newest.id)
        session.after.wakes.append(WakeUp(newest.mailbox, newest.id, newest.holder))


def _watch(session: PoolSession, claim_id: int) -> None:
    session.row.watcher_id = claim_id
    session.rows.put_watcher(session.row.name, claim_id)


def take_back(session: PoolSession, claim: Claim) -> None:
    """Remove a claim, whatever the reason, and hand on what it held."""
    _remove(session, claim)
    session.count(claim, slots=-claim.slots if claim.held else 0, waiting=0 if claim.held else -1)
    if session.row.limits.share is ShareRule.STRICT:
        use = session.rows.project(session.row.name, claim.project)
        if use is not None and not use.in_use and not use.waiting:
            # A project that stopped competing raises every share.
            session.refresh()
    hand_off(session)


def _remove(session: PoolSession, claim: Claim) -> None:
    session.rows.remove(claim.id)
    session.gone.add(claim.id)
    if not claim.held and not claim.holder.pid:
        # It was never served: its client may ask again under the same key.
        session.rows.drop_receipt(claim.id)


def note_end(session: PoolSession, claim: Claim, release: Release) -> None:
    """Fold a released lease into the meters, before the slot is handed on."""
    row, now, outcome, oks = session.row, session.now, release.outcome, release.oks
    _settle_windows(session, claim, release)
    _charge_tokens(session, claim, release)
    limits = row.limits
    was_full = row.counts.fill(limits.cap, reserve=limits.reserve)
    granted_at = claim.granted_at if claim.granted_at is not None else now
    held_s = max(0.0, now - granted_at)
    _record_end(session, claim, release, held_s)
    if not release.rejected and (was_full or held_s >= MEASURED_S or claim.id % HOLD_SAMPLE == 0):
        meters = session.move_meters()
        meters.note_hold(held_s)
    if oks is None:
        oks = int(outcome is Outcome.FINISHED and not release.rejected)
    full = limits.cap if claim.priority > 0 else max(1, limits.cap - limits.reserve)
    if claim.unread and oks and claim.level >= full:
        # Only now is it known that it was served when it filled the cap.
        meters = session.move_meters()
        meters.bound_at = max(meters.bound_at, granted_at)
        plan_soon(session)
    if was_full:
        meters = session.move_meters()
        meters.bound_oks += oks
        # Only a call that was sent after a refusal shows that as much is served again.
        higher = oks and meters.work and claim.level > meters.high
        if higher and granted_at > session.memory.quota.refused_at:
            meters.high = claim.level
        plan_soon(session)
    was_trial = row.meters.trial_id == claim.id
    if outcome is Outcome.THROTTLED:
        throttled = Signal(SignalKind.THROTTLED, detail="released as throttled")
        session.fold(throttled, project=claim.project, name=claim.name, claim_id=claim.id, claim=claim)
    if was_trial:
        end_trial(session, outcome)


def _record_end(session: PoolSession, claim: Claim, release: Release, held_s: float) -> None:
    """What ended well and was not said in words comes by the thousand, and is not worth a fact."""
    unwell = release.outcome is not Outcome.FINISHED and held_s >= FACT_FROM_S
    if release.words or unwell:
        words = f"{release.words or release.outcome.value} (after {span_words(held_s)})"
        session.record_facts([ask_fact(claim, session.now, FactKind.ENDED, words)])


def _settle_windows(session: PoolSession, claim: Claim, release: Release) -> None:
    if release.buckets:
        session.learn(claim, release.buckets)
    if release.rejected and session.row.meters.work:
        meters = session.move_meters()
        # Some of those refused were sent before counting began; it must not end with them.
        meters.work = max(1.0, meters.work - 1)
        meters.work_tokens = max(0.0, meters.work_tokens - claim.cost.get("tokens", 0.0))
    if session.row.meters.windows and (release.rejected or release.used):
        meters, now = session.move_meters(), session.now
        sent_at = claim.granted_at if claim.granted_at is not None else now
        if release.rejected:
            meters.windows = windowing.refund(
                meters.windows, claim.cost, sent_at=sent_at, mark=claim.marks, now=now
            )
        else:
            meters.windows = windowing.reconcile(
                meters.windows, claim.cost, release.used, sent_at=sent_at, mark=claim.marks, now=now
            )


def _charge_tokens(session: PoolSession, claim: Claim, release: Release) -> None:
    """What a call used counts in its project's turn, where others wait for theirs."""
    tokens = release.used.get("tokens", 0.0)
    if tokens and session.row.counts.waiting:
        use = session.project(claim.project)
        use.turn = turn_after_call(use, session.row.meters.turn, tokens)
        session.put_turn(use)


def plan_soon(session: PoolSession) -> None:
    """A cap that grows by success must not wait for the plan to get old."""
    soon = session.now + planning.FOLD_EVERY_S
    limits = session.row.limits
    if limits.valid_until <= soon or limits.cap >= limits.ceiling:
        return
    if controller_for(session.settings).by_success:
        session.put_plan(replace(limits, valid_until=soon))


def end_trial(session: PoolSession, outcome: Outcome) -> None:
    row = session.row
    memory, facts = planning.apply_trial_end(
        session.memory, row.meters, session.settings, outcome, pool=row.name, now=session.now
    )
    session.record_facts(facts)
    row.meters.trial_id = None
    session.refresh(memory)


_NO_MARKS: dict[str, float] = {}
