"""Giving slots out and taking them back, on one desk: what moves when a lease begins or ends.

Whatever frees something ends in ``hand_out``: it grants to the waiting in order while something fits, in the
same transaction, and names exactly those to be woken.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from flyball.core.pool import plan as planning
from flyball.core.pool import rate_window as windowing
from flyball.core.pool.admission import Candidate, choose, judge, next_grant_at, start_of_turn, too_large
from flyball.core.pool.control.registry import controller_of
from flyball.core.pool.model import Ask, Claim, Outcome, Phase, ProjectUse
from flyball.core.pool.settings import CONFIRM_S, ShareRule
from flyball.core.pool.verdict import Reason, span_words
from flyball.core.signals import Signal, SignalKind
from flyball.errors import invariant
from flyball.stores.pool_session import PoolSession, ask_fact, candidate
from flyball.stores.port import Release, WakeUp
from flyball.stores.rows import Grant

HOLD_SAMPLE = 8
"""Holds under a second in an uncrowded pool come by the thousand: one in so many is enough to estimate."""
TELLING_S = 1.0
"""What took less, a wait or a lease, is not worth a line in the history."""


def grant_new(desk: PoolSession, ask: Ask) -> int:
    """A lease for an ask that never had to wait."""
    claim_id = desk.take_id()
    grant = _grant(desk, ask)
    desk.rows.add(claim_id, ask, now=desk.now, launcher_pid=ask.holder.pid, grant=grant)
    desk.count(ask, slots=ask.slots)
    _after_grant(desk, claim_id, ask)
    return claim_id


def _grant(desk: PoolSession, ask: Ask | Claim) -> Grant:
    """Spend what the ask needs of the windows; how things stand with it."""
    row = desk.row
    level = row.counts.in_use + ask.slots
    if row.meters.work:
        meters = desk.move_meters()
        meters.work += 1
        meters.work_tokens += ask.cost.get("tokens", 0.0)
    if not row.meters.windows:
        return Grant(level, _NO_MARKS)
    meters = desk.move_meters()
    meters.windows = windowing.take(meters.windows, ask.cost, desk.now)
    return Grant(level, windowing.marks(meters.windows))


def hand_out(desk: PoolSession) -> set[int]:
    """Grant to the waiting while something fits; the ids that were granted."""
    granted: set[int] = set()
    if not desk.row.counts.waiting:
        return granted
    if _room(desk) > 0:
        lines: dict[tuple[str, int], Claim] = {}
        uses: dict[str, ProjectUse] = {}
        for head, use in desk.rows.line_heads(desk.row.name):
            possible = _first_possible(desk, head, use)
            if possible is not None:
                lines[head.project, head.priority], uses[use.name] = possible, use
        while _room(desk) > 0 and (winner := next_of(desk, _asks(lines.values()), uses)) is not None:
            line = (winner.project, winner.priority)
            claim = lines.pop(line)
            if desk.world.stands_still(claim.holder):
                # It keeps its place, and finds the word to look when it goes on.
                desk.after.wakes.append(WakeUp(claim.mailbox, claim.id, claim.holder))
            else:
                _grant_waiting(desk, claim)
                granted.add(winner.id)
                _take_turn(desk, uses[winner.project], winner)
            follower = _behind(desk, claim) if _room(desk) > 0 else None
            if follower is not None:
                lines[line] = follower
        _note_capped(desk, _room(desk) <= 0 or _capped(desk, _asks(lines.values()), uses))
    else:
        _note_capped(desk, True)
    _keep_watch(desk, granted)
    return granted


def _asks(claims: Iterable[Claim]) -> list[Candidate]:
    return [candidate(claim.id, claim, claim.asked_at) for claim in claims]


def _first_possible(desk: PoolSession, head: Claim | None, use: ProjectUse) -> Claim | None:
    """The first of a line that could ever be granted. Lowered limits may have made others too large: they
    leave the line, and their owners, told to look, ask again and hear why."""
    while head is not None:
        ask = candidate(head.id, head, head.asked_at)
        words = too_large(ask, desk.row.limits, use, desk.machine_for(ask))
        if not words:
            break
        _remove(desk, head)
        desk.count(head, waiting=-1)
        desk.tell([ask_fact(head, desk.now, "refused", words)])
        desk.after.wakes.append(WakeUp(head.mailbox, head.id, head.holder))
        head = desk.rows.line_head(desk.row.name, head.project, head.priority)
    return head


def _behind(desk: PoolSession, claim: Claim) -> Claim | None:
    """The next of its line."""
    return desk.rows.line_head(desk.row.name, claim.project, claim.priority, after=claim.id)


def _first_awake(desk: PoolSession, head: Claim | None) -> Claim | None:
    """The first of a line that could start now: not one whose process is stopped."""
    while head is not None and desk.world.stands_still(head.holder):
        head = _behind(desk, head)
    return head


def may_pass(desk: PoolSession, newcomer: Candidate) -> bool:
    """May an ask that fits start although others wait? Yes, if none of them could use what it takes."""
    heads_of_lines = desk.rows.line_heads(desk.row.name)
    found = [(awake, use) for head, use in heads_of_lines if (awake := _first_awake(desk, head)) is not None]
    uses = {use.name: use for _, use in found}
    uses.setdefault(newcomer.project, desk.project(newcomer.project))
    heads = _asks(claim for claim, _ in found)
    # Within its own line nobody is passed; against the others it comes last.
    if any((ask.project, ask.priority) == (newcomer.project, newcomer.priority) for ask in heads):
        return False
    last = replace(newcomer, id=1 + max((ask.id for ask in heads), default=0))
    return next_of(desk, [*heads, last], uses) == last


def _capped(desk: PoolSession, heads: Iterable[Candidate], uses: dict[str, ProjectUse]) -> bool:
    """Is there room, but too little for somebody who waits?"""
    row = desk.row
    for ask in heads:
        machine = desk.machine_for(ask)
        denial = judge(ask, row.limits, row.meters, row.counts, uses[ask.project], machine, desk.now)
        if denial is not None and denial.reason in (Reason.CAP, Reason.RESERVE):
            return True
    return False


def _note_capped(desk: PoolSession, capped: bool) -> None:
    """Remember whether the cap is what somebody waits for: only then may it grow."""
    if capped != desk.row.meters.capped:
        desk.move_meters().capped = capped


def _take_turn(desk: PoolSession, use: ProjectUse, winner: Candidate) -> None:
    """Note that a project was served, so that the next of equals comes first next time."""
    meters = desk.move_meters()
    meters.turn = start_of_turn(use, meters.turn)
    use.turn = meters.turn + winner.slots / use.weight
    use.in_use += winner.slots
    desk.put_turn(use)


def _room(desk: PoolSession) -> int:
    limits = desk.row.limits
    return (limits.ceiling if limits.phase is Phase.TRIAL else limits.cap) - desk.row.counts.in_use


def next_of(desk: PoolSession, heads: list[Candidate], uses: dict[str, ProjectUse]) -> Candidate | None:
    """Who of these would be granted now."""
    row = desk.row
    # A stand-in that asks for every kind, so that the machine's use of each is read once.
    kinds = {kind: 1 for ask in heads for kind in ask.resources}
    machine = desk.machine_for(Candidate(0, "", resources=kinds))
    return choose(heads, row.limits, row.meters, row.counts, uses, machine, desk.now)


def _grant_waiting(desk: PoolSession, claim: Claim) -> None:
    invariant(not claim.held, "whoever is first in line waits")
    # A waiter we cannot check may have died in line: it must show that it lives.
    expires_at = None if desk.world.checkable(claim.holder) else desk.now + CONFIRM_S
    desk.rows.grant(claim.id, _grant(desk, claim), now=desk.now, expires_at=expires_at)
    desk.count(claim, slots=claim.slots, waiting=-1)
    _after_grant(desk, claim.id, claim)
    desk.refresh_if_stale()
    desk.after.wakes.append(WakeUp(claim.mailbox, claim.id, claim.holder, granted=True))
    waited_s = desk.now - claim.asked_at
    if waited_s >= TELLING_S:
        words = f"granted after waiting {span_words(waited_s)} ({claim.why})"
        desk.tell([ask_fact(claim, desk.now, "granted", words)])


def _after_grant(desk: PoolSession, claim_id: int, ask: Ask | Claim) -> None:
    """Move the meters after a grant. Counts moved with the claim."""
    row, limits, now = desk.row, desk.row.limits, desk.now
    if limits.spacing_s > 0:
        chance = desk.world.chance()
        desk.move_meters().next_grant_at = next_grant_at(now, limits.spacing_s, limits.spacing_jitter, chance)
    if row.counts.in_use >= limits.cap:
        if not ask.unread:
            desk.move_meters().bound_at = now
        fold_soon(desk)
    if limits.phase is Phase.TRIAL:
        meters = row.meters
        meters.trial_id, meters.trial_at = claim_id, now
        meters.trial_project, meters.trial_name = ask.project, ask.name
        # The plan now has a trial to judge, at a time it did not know before.
        desk.put_plan(replace(limits, valid_until=now))
        desk.tell([ask_fact(ask, now, "trial", "admitted as the trial")])


def stand_in_line(desk: PoolSession, ask: Ask, why: str) -> int:
    """Queue an ask. The newest in line watches: it arrived awake, and it is there longest."""
    claim_id = desk.take_id()
    desk.rows.add(claim_id, ask, now=desk.now, launcher_pid=ask.holder.pid, why=why)
    desk.count(ask, waiting=1)
    _watch(desk, claim_id)
    return claim_id


def _keep_watch(desk: PoolSession, gone: set[int]) -> None:
    """Somebody in line must be awake: if the watcher left it, the newest of the others takes over."""
    if not desk.row.counts.waiting or desk.row.watcher_id not in gone | desk.gone:
        return
    newest = desk.rows.newest_waiting(desk.row.name)
    if newest is not None:
        _watch(desk, newest.id)
        desk.after.wakes.append(WakeUp(newest.mailbox, newest.id, newest.holder))


def _watch(desk: PoolSession, claim_id: int) -> None:
    desk.row.watcher_id = claim_id
    desk.rows.put_watcher(desk.row.name, claim_id)


def take_back(desk: PoolSession, claim: Claim) -> None:
    """Remove a claim, whatever the reason, and hand on what it held."""
    _remove(desk, claim)
    desk.count(claim, slots=-claim.slots if claim.held else 0, waiting=0 if claim.held else -1)
    if desk.row.limits.share is ShareRule.STRICT:
        use = desk.rows.project(desk.row.name, claim.project)
        if use is not None and not use.in_use and not use.waiting:
            # A project that stopped competing raises everybody's share.
            desk.refresh()
    hand_out(desk)


def _remove(desk: PoolSession, claim: Claim) -> None:
    desk.rows.remove(claim.id)
    desk.gone.add(claim.id)
    if not claim.held and not claim.holder.pid:
        # It was never served: its client may ask again under the same key.
        desk.rows.drop_receipt(claim.id)


def note_end(desk: PoolSession, claim: Claim, release: Release) -> None:
    """Fold a released lease into the meters, before the slot is handed on."""
    row, now, outcome, oks = desk.row, desk.now, release.outcome, release.oks
    _settle_windows(desk, claim, release)
    was_full = row.counts.in_use >= row.limits.cap
    held_s = max(0.0, now - (claim.granted_at if claim.granted_at is not None else now))
    _tell_end(desk, claim, release, held_s)
    if not release.rejected and (was_full or held_s >= 1.0 or claim.id % HOLD_SAMPLE == 0):
        meters = desk.move_meters()
        meters.note_hold(held_s)
    if oks is None:
        oks = int(outcome is Outcome.FINISHED and not release.rejected)
    if claim.unread and oks and claim.level >= row.limits.cap and claim.granted_at is not None:
        # Only now is it known that it was served when it filled the cap.
        meters = desk.move_meters()
        meters.bound_at = max(meters.bound_at, claim.granted_at)
        fold_soon(desk)
    if was_full:
        meters = desk.move_meters()
        meters.bound_oks += oks
        if oks and meters.work and claim.level > meters.high and _sent_since_refusal(desk, claim):
            meters.high = claim.level
        fold_soon(desk)
    was_trial = row.meters.trial_id == claim.id
    if outcome is Outcome.THROTTLED:
        throttled = Signal(SignalKind.THROTTLED, detail="released as throttled")
        desk.fold(throttled, project=claim.project, name=claim.name, claim_id=claim.id, claim=claim)
    if was_trial:
        end_trial(desk, outcome)


def _tell_end(desk: PoolSession, claim: Claim, release: Release, held_s: float) -> None:
    """What ended well and was not said in words comes by the thousand, and nobody asks about it."""
    unwell = release.outcome is not Outcome.FINISHED and held_s >= TELLING_S
    if release.words or unwell:
        words = f"{release.words or release.outcome.value} (after {span_words(held_s)})"
        desk.tell([ask_fact(claim, desk.now, "ended", words)])


def _sent_since_refusal(desk: PoolSession, claim: Claim) -> bool:
    """Only a call that was sent after a refusal shows that as much is served again."""
    return claim.granted_at is not None and claim.granted_at > desk.memory.quota.refused_at


def _settle_windows(desk: PoolSession, claim: Claim, release: Release) -> None:
    if release.buckets:
        desk.learn(claim, release.buckets)
    if release.rejected and desk.row.meters.work:
        meters = desk.move_meters()
        # Some of those refused were sent before counting began; it must not end with them.
        meters.work = max(1.0, meters.work - 1)
        meters.work_tokens = max(0.0, meters.work_tokens - claim.cost.get("tokens", 0.0))
    if desk.row.meters.windows and (release.rejected or release.used):
        meters, now = desk.move_meters(), desk.now
        sent_at = claim.granted_at if claim.granted_at is not None else now
        if release.rejected:
            meters.windows = windowing.refund(
                meters.windows, claim.cost, sent_at=sent_at, mark=claim.marks, now=now
            )
        else:
            meters.windows = windowing.settle(
                meters.windows, claim.cost, release.used, sent_at=sent_at, mark=claim.marks, now=now
            )


def fold_soon(desk: PoolSession) -> None:
    """A cap that grows by success must not wait for the plan to get old."""
    soon = desk.now + planning.FOLD_EVERY_S
    limits = desk.row.limits
    if limits.valid_until <= soon or limits.cap >= limits.ceiling:
        return
    if controller_of(desk.settings).by_success:
        desk.put_plan(replace(limits, valid_until=soon))


def end_trial(desk: PoolSession, outcome: Outcome) -> None:
    row = desk.row
    memory, facts = planning.fold_trial_end(
        desk.memory, row.meters, desk.settings, outcome, pool=row.name, now=desk.now
    )
    desk.tell(facts)
    row.meters.trial_id = None
    desk.refresh(memory)


_NO_MARKS: dict[str, float] = {}
