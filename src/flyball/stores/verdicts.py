"""Saying how an ask stands: the whole verdict, from one session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from flyball.core.pool.admission import Denial, estimate_s, is_overdue, place_in_way, too_large
from flyball.core.pool.fairness import rank_asks, start_of_turn
from flyball.core.pool.model import Candidate, Claim
from flyball.core.pool.verdict import Blocker, Reason, Verdict, VerdictKind, granted_verdict
from flyball.stores.pool_session import PoolSession, candidate

EXACT_PLACES = 50
_BLOCKED_BY_OLDEST = frozenset(
    {Reason.CAP, Reason.RESERVE, Reason.QUEUE, Reason.SHARE, Reason.MAXIMUM, Reason.MACHINE}
)


def grant_verdict(session: PoolSession, claim_id: int, asked_at: float) -> Verdict:
    row = session.row
    return granted_verdict(
        row.name, claim_id, asked_at=asked_at, in_use=row.counts.in_use, cap=row.limits.cap
    )


def waiting_verdict(session: PoolSession, ask: Candidate, kind: VerdictKind, *, position: int) -> Verdict:
    """How a waiting (or refused) ask stands, with everything a person would ask about."""
    denial = session.denial(ask, session.project(ask.project)) or Denial(Reason.QUEUE)
    return denial_verdict(session, ask, kind, denial, position=position)


def verdict_for_claim(session: PoolSession, claim: Claim) -> Verdict:
    """How a claim stands now."""
    if claim.held:
        return grant_verdict(session, claim.id, claim.asked_at)
    ask = candidate(claim.id, claim, claim.asked_at)
    return refusal_if_impossible(session, ask) or waiting_verdict(
        session, ask, VerdictKind.PARKED, position=queue_position(session, ask)
    )


def queue_position(session: PoolSession, ask: Candidate) -> int:
    """The place in the order of service; in a long line, where that is dear, the order of arrival."""
    rows, row = session.rows, session.row
    if row.counts.waiting > EXACT_PLACES:
        return (rows.waiting_before(row.name, ask.id) if ask.id else row.counts.waiting) + 1
    line = rows.waiting(row.name, limit=EXACT_PLACES)
    if not ask.id:
        ask = replace(ask, id=1 + max((other.id for other in line), default=0))
        line = [*line, ask]
    return [other.id for other in queue_order(session, line, limit=len(line))].index(ask.id) + 1


def refusal_if_impossible(session: PoolSession, ask: Candidate) -> Verdict | None:
    """The refusal of an ask that no amount of waiting could satisfy; None if waiting makes sense."""
    words = too_large(ask, session.row.limits, session.project(ask.project), session.machine_for(ask))
    if not words:
        return None
    return denial_verdict(
        session, ask, VerdictKind.REFUSED, Denial(Reason.TOO_LARGE, detail=words), position=0
    )


def denial_verdict(
    session: PoolSession, ask: Candidate, kind: VerdictKind, denial: Denial, *, position: int
) -> Verdict:
    row, now, use = session.row, session.now, session.project(ask.project)
    position = place_in_way(denial, use, position=position, in_line=ask.id != 0)
    blocker = _blocker(session, ask, denial.reason)
    oldest_s = blocker.age_s if blocker is not None else None
    until = denial.until if denial.until is not None else row.limits.valid_until
    return Verdict(
        kind=kind,
        reason=denial.reason,
        pool=row.name,
        claim_id=ask.id,
        asked_at=ask.asked_at,
        in_use=row.counts.in_use,
        cap=row.limits.cap,
        reserved=min(row.limits.reserve, row.limits.cap - 1) if ask.priority <= 0 else 0,
        position=position,
        look_again_s=max(0.0, until - now),
        estimate_s=estimate_s(
            denial, row.meters, row.counts, use, position=position, oldest_s=oldest_s, now=now
        ),
        usual_s=row.meters.hold_mean_s if is_overdue(denial, row.meters, row.counts, oldest_s) else None,
        blocker=blocker,
        project_in_use=use.in_use,
        project_maximum=use.maximum,
        detail=denial.detail,
        watch=ask.id != 0 and row.watcher_id == ask.id,
    )


def _blocker(session: PoolSession, ask: Candidate, reason: Reason) -> Blocker | None:
    holder: Claim | None = None
    if reason is Reason.RESOURCE:
        users = (c for c in session.rows.leases_with_resources() if set(c.resources) & set(ask.resources))
        holder = next(users, None)
    elif reason is Reason.TRIAL and session.row.meters.trial_id is not None:
        holder = session.rows.claim(session.row.meters.trial_id)
    elif reason in _BLOCKED_BY_OLDEST:
        pool = None if reason is Reason.MACHINE else session.row.name
        project = ask.project if reason in (Reason.SHARE, Reason.MAXIMUM) else None
        holder = session.rows.oldest_lease(pool, project)
    if holder is None or holder.granted_at is None:
        return None
    age_s = max(0.0, session.now - holder.granted_at)
    return Blocker(holder.project, holder.name, holder.holder.pid, holder.holder.host, age_s)


def queue_order(session: PoolSession, asks: Sequence[Candidate], *, limit: int) -> list[Candidate]:
    """The first ``limit`` asks in the order they would be served if nothing changed."""
    uses = {name: replace(session.project(name)) for name in {ask.project for ask in asks}}
    lines: dict[tuple[str, int], list[Candidate]] = {}
    for ask in sorted(asks, key=lambda ask: ask.id, reverse=True):
        lines.setdefault((ask.project, ask.priority), []).append(ask)
    ordered: list[Candidate] = []
    turn, ageing_s = session.row.meters.turn, session.row.limits.ageing_s
    while lines and len(ordered) < limit:
        heads = [group[-1] for group in lines.values()]
        first = rank_asks(heads, uses, turn=turn, ageing_s=ageing_s, now=session.now)[0]
        group = lines[first.project, first.priority]
        ordered.append(group.pop())
        use = uses[first.project]
        turn = start_of_turn(use, turn)
        use.in_use, use.turn = use.in_use + first.slots, turn + first.slots / use.weight
        if not group:
            del lines[first.project, first.priority]
    return ordered
