"""The operations of the port, written once over ``Rows``.

A concrete store brings ``_write`` (one atomic step, exclusive), ``_read`` (a consistent view) and its
clock. What decides is in ``core``; what touches one pool is in ``pool_session`` and ``handoff``.

Remote asks have a key or a time to live, which are written in the same step that grants or parks them.

A client that asks over a network may lose the answer and ask again. Under a key it is then told what it was
told the first time, and gets nothing twice. A refusal is not remembered: the next attempt may be granted.
An ask that still stands in line waits from now on where the repeated one came in: at another server, or at
the same one after a restart.

The store cannot tell whether such a client lives, so its ask and its lease end with their time, unless they
are extended. An ask that would have to wait takes back first what has ended so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from flyball.core.pool.admission import Denial
from flyball.core.pool.holder import Holder
from flyball.core.pool.model import Ask, Claim, Fact, FactKind, IdempotencyRecord, Outcome
from flyball.core.pool.settings import KEY_TTL_S, check_ask, check_demand, check_name, check_ttl
from flyball.core.pool.verdict import Reason, Verdict, VerdictKind, granted_verdict, span_words
from flyball.core.signals import Signal
from flyball.stores import verdicts
from flyball.stores.admin_operations import AdminOperations
from flyball.stores.handoff import (
    FACT_FROM_S,
    enqueue,
    grant_new,
    hand_off,
    may_pass,
    note_end,
    take_back,
)
from flyball.stores.pool_session import PoolSession, ask_fact, candidate
from flyball.stores.port import AfterCommit, Demand, HolderCensus, Release, WakeUp
from flyball.stores.rows import Grant, RowReader, Rows
from flyball.stores.transaction import merge_effects, operation
from flyball.stores.unwritten_rows import as_unwritten

if TYPE_CHECKING:
    from flyball.core.share_lease.renewal import Renewal, Reply
    from flyball.stores.snapshot import Snapshot


NOT_EXTENDED = "it was not extended in time"


def find_replay(session: PoolSession, ask: Ask) -> Verdict | None:
    """What was said to an ask under the same key; None if there was none."""
    receipt = session.rows.receipt(ask.pool, ask.key)
    if receipt is None or receipt.until <= session.now:
        return None
    if receipt.fingerprint != ask.fingerprint:
        return Verdict(kind=VerdictKind.REFUSED, reason=Reason.KEY_USED, pool=ask.pool)
    if not receipt.granted and ask.mailbox:
        _wait_at(session, ask, receipt.claim_id)
    return Verdict(
        kind=VerdictKind.GRANTED if receipt.granted else VerdictKind.PARKED,
        reason=Reason.FREE if receipt.granted else Reason.QUEUE,
        pool=ask.pool,
        claim_id=receipt.claim_id,
        asked_at=receipt.asked_at,
        in_use=receipt.in_use,
        cap=receipt.cap,
        replayed=True,
    )


def _wait_at(session: PoolSession, ask: Ask, claim_id: int) -> None:
    """An ask in line is woken at the mailbox of the request that repeats it, and has its time anew."""
    claim = session.rows.claim(claim_id)
    if claim is None or claim.held:
        return
    if claim.mailbox != ask.mailbox:
        # A request that still waits at the old one has to look by itself from now on.
        session.after.wakes.append(WakeUp(claim.mailbox, claim.id, claim.holder))
        session.rows.put_mailbox(claim.id, ask.mailbox)
    if ask.ttl_s is not None:
        session.rows.expire(claim.id, session.now + ask.ttl_s)


def remember_reply(session: PoolSession, ask: Ask, verdict: Verdict) -> None:
    """Remember what an ask was told, and when it ends."""
    if ask.ttl_s is not None:
        session.rows.expire(verdict.claim_id, session.now + ask.ttl_s)
    if ask.key:
        until = session.now + KEY_TTL_S
        receipt = IdempotencyRecord(
            ask.fingerprint,
            verdict.claim_id,
            verdict.granted,
            verdict.in_use,
            verdict.cap,
            until,
            verdict.asked_at,
        )
        session.rows.put_receipt(ask.pool, ask.key, receipt)


def take_back_expired(session: PoolSession) -> bool:
    """Take back the oldest claim of this pool that has outlived its time; whether there was one."""
    over = [claim for claim in session.rows.expired_claims(session.now) if claim.pool == session.row.name]
    if not over:
        return False
    claim = min(over, key=lambda claim: claim.id)
    what = "slot taken back" if claim.held else "ask dropped"
    session.record_facts([ask_fact(claim, session.now, FactKind.RECLAIMED, f"{what}: {NOT_EXTENDED}")])
    take_back(session, claim)
    return True


class StoreOperations(AdminOperations):
    """Implements ``Store``. Thread-safe as far as ``_write`` and ``_read`` are."""

    # -- asking -----------------------------------------------------------------------------------

    @operation
    def admit(self, ask: Ask, *, park: bool) -> tuple[Verdict, AfterCommit]:
        check_ask(ask)
        return self._admit_in_step(ask, park=park)

    def _admit_in_step(self, ask: Ask, *, park: bool) -> tuple[Verdict, AfterCommit]:
        with self._write() as rows:
            carried = self._carry(rows)
            row, use = rows.entry(ask.pool, ask.project) or (None, None)
            session = PoolSession(rows, ask.pool, self._world, row=row, use=use)
            known = find_replay(session, ask) if ask.key else None
            if known is not None:
                return known, merge_effects(carried, session.finish())
            verdict = self._admit(session, ask, park=park)
            if verdict.claim_id and (ask.key or ask.ttl_s is not None):
                remember_reply(session, ask, verdict)
            return verdict, merge_effects(carried, session.finish())

    def _admit(self, session: PoolSession, ask: Ask, *, park: bool) -> Verdict:
        wanted = candidate(0, ask, session.now)
        if ask.resources:
            session.check_resources(wanted)
        denial = session.denial(wanted, session.project(ask.project))
        if denial is None and session.row.counts.waiting:
            # What time has freed belongs to those in line; a late arrival does not overtake them.
            hand_off(session)
            denial = session.denial(wanted, session.project(ask.project))
            if denial is None and not may_pass(session, wanted):
                denial = Denial(Reason.QUEUE)
        while denial is not None and take_back_expired(session):
            # What stands in the way may be long over.
            denial = session.denial(wanted, session.project(ask.project))
            if denial is None and not may_pass(session, wanted):
                denial = Denial(Reason.QUEUE)
        if denial is None:
            return verdicts.grant_verdict(session, grant_new(session, ask), session.now)
        refusal = verdicts.refusal_if_impossible(session, wanted)
        if refusal is None:
            return self._park_or_refuse(session, ask, denial, park=park)
        session.record_facts(
            [ask_fact(ask, session.now, FactKind.REFUSED, f"{refusal.pool} {refusal.why()}")]
        )
        return refusal

    def _park_or_refuse(self, session: PoolSession, ask: Ask, denial: Denial, *, park: bool) -> Verdict:
        wanted, kind = candidate(0, ask, session.now), VerdictKind.PARKED if park else VerdictKind.REFUSED
        verdict = verdicts.denial_verdict(
            session, wanted, kind, denial, position=verdicts.queue_position(session, wanted)
        )
        why = f"{verdict.pool} {verdict.why()}"
        if not park:
            session.record_facts([ask_fact(ask, session.now, FactKind.REFUSED, why)])
            return verdict
        claim_id = enqueue(session, ask, why=why)
        return replace(verdict, claim_id=claim_id, watch=True)

    @operation
    def poll(
        self, claim_id: int, *, advance: bool, asked_at: float | None = None
    ) -> tuple[Verdict | None, AfterCommit]:
        if not advance:
            granted = self._find_granted(claim_id, asked_at)
            if granted is not None:
                return granted, AfterCommit()
            with self._read() as rows:
                claim = _find_claim(rows, claim_id, asked_at)
                if claim is None:
                    return None, AfterCommit()
                if claim.expires_at is None or not claim.holder.pid:
                    return verdicts.verdict_for_claim(
                        self._session(as_unwritten(rows), claim.pool), claim
                    ), AfterCommit()
        with self._write() as rows:
            carried = self._carry(rows)
            claim = _find_claim(rows, claim_id, asked_at)
            if claim is None:
                return None, carried
            session = self._session(rows, claim.pool)
            if claim.held and claim.expires_at is not None and claim.holder.pid:
                rows.confirm(claim_id)
            elif not claim.held:
                hand_off(session)
                session.after.wakes = [wake for wake in session.after.wakes if wake.claim_id != claim_id]
            found = rows.claim(claim_id) or claim
            verdict = verdicts.verdict_for_claim(session, found)
            if verdict.kind is VerdictKind.REFUSED:
                # The limits were lowered below what it asks for: it must not keep its line waiting.
                take_back(session, found)
            return verdict, merge_effects(carried, session.finish())

    def _find_granted(self, claim_id: int, asked_at: float | None) -> Verdict | None:
        """The answer to most polls, in one small read: a waiter that was woken was usually granted."""
        with self._peek() as rows:
            found = rows.find_grant(claim_id)
        if found is None or asked_at not in (None, found[1]):
            return None
        pool, asked_at, in_use, cap = found
        return granted_verdict(pool, claim_id, asked_at=asked_at, in_use=in_use, cap=cap)

    @operation
    def extend(self, claim_id: int, *, ttl_s: float, asked_at: float | None = None) -> bool:
        check_ttl(ttl_s)
        with self._write() as rows:
            claim = _find_claim(rows, claim_id, asked_at)
            if claim is None or claim.expires_at is None or claim.expires_at <= rows.now:
                return False
            rows.expire(claim_id, rows.now + ttl_s)
            return True

    @operation
    def note(self, name: str, fresh: str) -> str:
        with self._write() as rows:
            known = rows.note(name)
            if known is None:
                rows.put_note(name, fresh)
            return fresh if known is None else known

    @operation
    def set_note(self, name: str, text: str) -> None:
        with self._write() as rows:
            rows.put_note(name, text)

    @operation
    def notes(self, prefix: str) -> dict[str, str]:
        with self._read() as rows:
            return rows.notes(prefix)

    @operation
    def withdraw(self, claim_id: int, *, asked_at: float | None = None) -> AfterCommit:
        return self._end(Release(claim_id, Outcome.ABANDONED, asked_at=asked_at))

    # -- ending -----------------------------------------------------------------------------------

    @operation
    def release(self, release: Release) -> AfterCommit:
        return self._end(release)

    def _end(self, release: Release) -> AfterCommit:
        with self._write() as rows:
            carried = self._carry(rows)
            return merge_effects(carried, self._end_in(rows, release))

    def _end_in(self, rows: Rows, release: Release) -> AfterCommit:
        found = rows.leaving(release.claim_id)
        if found is None or release.asked_at not in (None, found[0].asked_at):
            return AfterCommit()
        claim, row = found
        session = PoolSession(rows, claim.pool, self._world, row=row)
        if claim.rests:
            if release.outcome is Outcome.ABANDONED:
                # It said that it would be tried again: now it will not.
                rested = f"gave up after resting {span_words(session.now - claim.asked_at)}"
                session.record_facts([ask_fact(claim, session.now, FactKind.GAVE_UP, rested)])
            rows.remove(claim.id)
            return session.finish()
        if claim.held:
            note_end(session, claim, release)
        elif session.now - claim.asked_at >= FACT_FROM_S:
            waited = f"gave up after waiting {span_words(session.now - claim.asked_at)} ({claim.why})"
            session.record_facts([ask_fact(claim, session.now, FactKind.GAVE_UP, waited)])
        take_back(session, claim)
        return merge_effects(session.finish(), self._hand_off_elsewhere(session, claim))

    def _hand_off_elsewhere(self, here: PoolSession, ended: Claim) -> AfterCommit:
        """A freed slot or resource may be what another pool's waiters were waiting for."""
        after = AfterCommit()
        if ended.resources or here.row.machine.ceiling is not None:
            for name in here.rows.pools():
                if name != ended.pool:
                    session = self._session(here.rows, name)
                    hand_off(session)
                    after = merge_effects(after, session.finish())
        return after

    # -- holders ----------------------------------------------------------------------------------

    @operation
    def rebind(
        self, claim_id: int, holder: Holder, *, launcher_pid: int, asked_at: float | None = None
    ) -> tuple[bool, AfterCommit]:
        with self._write() as rows:
            carried = self._carry(rows)
            if _find_claim(rows, claim_id, asked_at) is None:
                return False, carried
            return rows.rebind(claim_id, holder, launcher_pid=launcher_pid), carried

    @operation
    def record_running(self, ask: Ask) -> tuple[int, AfterCommit]:
        check_ask(ask)
        with self._write() as rows:
            carried = self._carry(rows)
            session = self._session(rows, ask.pool)
            session.project(ask.project)
            for known in rows.watched_claims(ask.pool):
                same = (known.holder, known.project, known.name) == (ask.holder, ask.project, ask.name)
                if known.held and same and not known.rests:
                    return known.id, merge_effects(carried, session.finish())
            claim_id = session.take_id()
            grant = Grant(session.row.counts.in_use + ask.slots, {})
            rows.add(claim_id, ask, now=session.now, launcher_pid=ask.holder.pid, grant=grant)
            session.record_facts([ask_fact(ask, session.now, FactKind.HELD, "recorded as already running")])
            return claim_id, merge_effects(carried, session.finish())

    @operation
    def pause(self, ask: Ask, *, for_s: float, why: str) -> tuple[int, AfterCommit]:
        check_ask(ask)
        with self._write() as rows:
            carried = self._carry(rows)
            session = self._session(rows, ask.pool)
            claim_id = session.take_id()
            resting = replace(ask, slots=0, resources={}, cost={}, mailbox="")
            rows.add(claim_id, resting, now=session.now, launcher_pid=ask.holder.pid, why=why)
            rows.grant(claim_id, Grant(0, {}), now=session.now, expires_at=session.now + for_s)
            session.record_facts([ask_fact(ask, session.now, FactKind.RESTS, why)])
            return claim_id, merge_effects(carried, session.finish())

    @operation
    def granted_ids(self, mailbox: str) -> list[int]:
        with self._read() as rows:
            return rows.granted_ids(mailbox)

    @operation
    def claim(self, claim_id: int) -> Claim | None:
        with self._read() as rows:
            return rows.claim(claim_id)

    @operation
    def holders(self, pool: str) -> list[Holder]:
        with self._read() as rows:
            found = {holder for name in _pools_to_watch(rows, pool) for holder in rows.holders(name)}
            return [*found, *(demand.holder for demand in rows.demands(pool))]

    @operation
    def pool_census(self, pool: str) -> HolderCensus:
        with self._read() as rows:
            claims = (claim for name in _pools_to_watch(rows, pool) for claim in rows.watched_claims(name))
            return HolderCensus(tuple(claims), tuple(rows.demands(pool)))

    @operation
    def census(self) -> HolderCensus:
        with self._read() as rows:
            return HolderCensus(tuple(rows.claims(None)), tuple(rows.demands(None)))

    @operation
    def reclaim(
        self, claims: Sequence[tuple[int, Holder]], demands: Sequence[Demand] = (), *, why: str = ""
    ) -> AfterCommit:
        with self._write() as rows:
            after = self._carry(rows)
            for demand in demands:
                rows.drop_demand(demand)
            for claim_id, holder in claims:
                after = merge_effects(after, self._reclaim_one(rows, claim_id, holder, why))
            for claim in rows.expired_claims(rows.now):
                after = merge_effects(after, self._reclaim_one(rows, claim.id, claim.holder))
            for pool in {demand.pool for demand in demands}:
                session = self._session(rows, pool)
                session.refresh()
                hand_off(session)
                after = merge_effects(after, session.finish())
            return after

    def _reclaim_one(self, rows: Rows, claim_id: int, holder: Holder, why: str = "") -> AfterCommit:
        found, now = rows.claim(claim_id), rows.now
        if found is None or found.holder != holder:
            return AfterCommit()
        session = self._session(rows, found.pool)
        if found.rests:
            rows.remove(found.id)
            return session.finish()
        overdue = found.expires_at is not None and found.expires_at <= now
        unanswered = overdue and bool(found.holder.pid) and not why
        gone = f"pid {found.holder.pid} {'did not answer' if unanswered else 'is gone'}"
        why = why or (gone if found.holder.pid else NOT_EXTENDED)
        words = f"{'slot taken back' if found.held else 'ask dropped'}: {why}"
        kind = FactKind.UNANSWERED if unanswered else FactKind.RECLAIMED
        session.record_facts([ask_fact(found, now, kind, words)])
        take_back(session, found)
        return merge_effects(session.finish(), self._hand_off_elsewhere(session, found))

    # -- signals and demand -----------------------------------------------------------------------

    @operation
    def report(
        self,
        pool: str,
        signal: Signal,
        *,
        project: str,
        name: str,
        claim_id: int | None,
        first: bool = False,
        asked_at: float | None = None,
    ) -> AfterCommit:
        with self._write() as rows:
            carried = self._carry(rows)
            session = self._session(rows, check_name("pool", pool))
            claim = _find_claim(rows, claim_id, asked_at) if first and claim_id is not None else None
            if claim is not None and (not claim.held or claim.pool != pool):
                # It measures nothing here: it was never sent, or to another pool's provider.
                claim = None
            session.fold(signal, project=project, name=name, claim_id=claim_id, claim=claim)
            return merge_effects(carried, session.finish())

    @operation
    def renew(self, pool: str, renewal: Renewal) -> tuple[Reply, AfterCommit]:
        from flyball.stores import shares

        shares.check_renewal(renewal)
        with self._write() as rows:
            carried = self._carry(rows)
            session = self._session(rows, check_name("pool", pool))
            reply = shares.renew(session, renewal)
            return reply, merge_effects(carried, session.finish())

    @operation
    def demand(self, pool: str, project: str, holder: Holder, *, ttl_s: float) -> AfterCommit:
        check_demand(project, ttl_s)
        with self._write() as rows:
            carried = self._carry(rows)
            session = self._session(rows, check_name("pool", pool))
            demand = Demand(pool, project, holder, session.now + ttl_s)
            if ttl_s > 0:
                session.project(project)
                rows.put_demand(demand)
            else:
                rows.drop_demand(demand)
            session.refresh()
            hand_off(session)
            return merge_effects(carried, session.finish())

    # -- seeing -----------------------------------------------------------------------------------

    @operation
    def snapshot(self) -> Snapshot:
        with self._read() as rows:
            from flyball.stores.snapshot import take_snapshot

            return take_snapshot(rows, self._world)

    @operation
    def facts(self, *, limit: int) -> list[Fact]:
        with self._read() as rows:
            return rows.facts(limit)


def _find_claim(rows: RowReader, claim_id: int, asked_at: float | None) -> Claim | None:
    """The claim of this id, unless it is another one than was asked for then."""
    claim = rows.claim(claim_id)
    return claim if claim is not None and asked_at in (None, claim.asked_at) else None


def _pools_to_watch(rows: RowReader, pool: str) -> list[str]:
    """The pools whose holders may keep this pool's line waiting: all, under limits over all pools."""
    machine = rows.machine()
    return rows.pools() if machine.ceiling is not None or machine.resources else [pool]
