"""The verbs of the port, written once over ``Rows``.

A concrete store brings ``_write`` (one atomic step, exclusive), ``_read`` (a consistent view) and its
clock. Everything that decides is in ``core``; everything that touches one pool is in ``handout``.

Asks from afar: under a key, and with a time to live, in the same step that grants or parks them.

Whoever asks over a network may lose the answer and ask again. Under a key it is then told what it was told
the first time, and gets nothing twice. A refusal is not remembered: the next attempt may be granted. Where
its ask still stands in line, it waits from now on where the repeated ask came in: at another server, or at
the same one after a restart.

Nobody here can tell whether such an asker lives, so its ask and its lease end with their time, unless they
are extended. Whoever is kept waiting takes back first what has ended so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from flyball.core.pool.admission import Denial
from flyball.core.pool.model import Ask, Claim, Fact, Holder, IdempotencyRecord, Outcome
from flyball.core.pool.settings import KEY_LIMIT, KEY_TTL_S, check_amounts, check_name
from flyball.core.pool.verdict import Kind, Reason, Verdict, free, span_words
from flyball.core.signals import Signal
from flyball.errors import UsageError
from flyball.stores import verdicts
from flyball.stores.admin_operations import AdminOperations
from flyball.stores.handoff import (
    TELLING_S,
    grant_new,
    hand_out,
    may_pass,
    note_end,
    stand_in_line,
    take_back,
)
from flyball.stores.pool_session import PoolSession, ask_fact, candidate
from flyball.stores.port import AfterCommit, Demand, HolderCensus, Release, WakeUp
from flyball.stores.read_only_rows import projection
from flyball.stores.rows import Grant, Rows
from flyball.stores.transaction import joined, verb

if TYPE_CHECKING:
    from flyball.core.share_lease.renewal import Renewal, Reply
    from flyball.stores.port import Snapshot


NOT_EXTENDED = "it was not extended in time"


def find_replay(desk: PoolSession, ask: Ask) -> Verdict | None:
    """What was said to an ask under the same key; None if there was none."""
    receipt = desk.rows.receipt(ask.pool, ask.key)
    if receipt is None or receipt.until <= desk.now:
        return None
    if receipt.fingerprint != ask.fingerprint:
        return Verdict(kind=Kind.REFUSED, reason=Reason.KEY_USED, pool=ask.pool)
    if not receipt.granted and ask.mailbox:
        _wait_at(desk, ask, receipt.claim_id)
    return Verdict(
        kind=Kind.GRANTED if receipt.granted else Kind.PARKED,
        reason=Reason.FREE if receipt.granted else Reason.QUEUE,
        pool=ask.pool,
        claim_id=receipt.claim_id,
        asked_at=receipt.asked_at,
        in_use=receipt.in_use,
        cap=receipt.cap,
        replayed=True,
    )


def _wait_at(desk: PoolSession, ask: Ask, claim_id: int) -> None:
    """An ask in line is woken at the mailbox of the request that repeats it, and has its time anew."""
    claim = desk.rows.claim(claim_id)
    if claim is None or claim.held:
        return
    if claim.mailbox != ask.mailbox:
        # A request that still waits at the old one has to look by itself from now on.
        desk.after.wakes.append(WakeUp(claim.mailbox, claim.id, claim.holder))
        desk.rows.put_mailbox(claim.id, ask.mailbox)
    if ask.ttl_s is not None:
        desk.rows.expire(claim.id, desk.now + ask.ttl_s)


def write(desk: PoolSession, ask: Ask, verdict: Verdict) -> None:
    """Remember what an ask was told, and when it ends."""
    if ask.ttl_s is not None:
        desk.rows.expire(verdict.claim_id, desk.now + ask.ttl_s)
    if ask.key:
        until = desk.now + KEY_TTL_S
        receipt = IdempotencyRecord(
            ask.fingerprint,
            verdict.claim_id,
            verdict.granted,
            verdict.in_use,
            verdict.cap,
            until,
            verdict.asked_at,
        )
        desk.rows.put_receipt(ask.pool, ask.key, receipt)


def take_back_expired(desk: PoolSession) -> bool:
    """Take back the oldest claim of this pool that has outlived its time; whether there was one."""
    over = [claim for claim in desk.rows.expired(desk.now) if claim.pool == desk.row.name]
    if not over:
        return False
    claim = min(over, key=lambda claim: claim.id)
    what = "slot taken back" if claim.held else "ask dropped"
    desk.tell([ask_fact(claim, desk.now, "reclaimed", f"{what}: {NOT_EXTENDED}")])
    take_back(desk, claim)
    return True


class StoreOperations(AdminOperations):
    """Implements ``Store``. Thread-safe as far as ``_write`` and ``_read`` are."""

    # -- asking -----------------------------------------------------------------------------------

    @verb
    def admit(self, ask: Ask, *, park: bool) -> tuple[Verdict, AfterCommit]:
        check_ask(ask)
        return self._admit_in_step(ask, park=park)

    def _admit_in_step(self, ask: Ask, *, park: bool) -> tuple[Verdict, AfterCommit]:
        with self._write() as rows:
            carried = self._carry(rows)
            row, use = rows.entry(ask.pool, ask.project) or (None, None)
            desk = PoolSession(rows, ask.pool, self._world, row=row, use=use)
            known = find_replay(desk, ask) if ask.key else None
            if known is not None:
                return known, joined(carried, desk.done())
            verdict = self._admit(desk, ask, park=park)
            if verdict.claim_id and (ask.key or ask.ttl_s is not None):
                write(desk, ask, verdict)
            return verdict, joined(carried, desk.done())

    def _admit(self, desk: PoolSession, ask: Ask, *, park: bool) -> Verdict:
        wanted = candidate(0, ask, desk.now)
        if ask.resources:
            desk.check_resources(wanted)
        denial = desk.denial(wanted, desk.project(ask.project))
        if denial is None and desk.row.counts.waiting:
            # What time has freed belongs to those in line; nobody overtakes them by arriving late.
            hand_out(desk)
            denial = desk.denial(wanted, desk.project(ask.project))
            if denial is None and not may_pass(desk, wanted):
                denial = Denial(Reason.QUEUE)
        while denial is not None and take_back_expired(desk):
            # Whoever stands in the way may be long gone.
            denial = desk.denial(wanted, desk.project(ask.project))
            if denial is None and not may_pass(desk, wanted):
                denial = Denial(Reason.QUEUE)
        if denial is None:
            return verdicts.granted(desk, grant_new(desk, ask), desk.now)
        refusal = verdicts.never(desk, wanted)
        if refusal is None:
            return self._not_now(desk, ask, denial, park=park)
        desk.tell([ask_fact(ask, desk.now, "refused", f"{refusal.pool} {refusal.why()}")])
        return refusal

    def _not_now(self, desk: PoolSession, ask: Ask, denial: Denial, *, park: bool) -> Verdict:
        wanted, kind = candidate(0, ask, desk.now), Kind.PARKED if park else Kind.REFUSED
        verdict = verdicts.denied(desk, wanted, kind, denial, position=verdicts.place_of(desk, wanted))
        why = f"{verdict.pool} {verdict.why()}"
        if not park:
            desk.tell([ask_fact(ask, desk.now, "refused", why)])
            return verdict
        claim_id = stand_in_line(desk, ask, why=why)
        return replace(verdict, claim_id=claim_id, watch=True)

    @verb
    def look(
        self, claim_id: int, *, advance: bool, asked_at: float | None = None
    ) -> tuple[Verdict | None, AfterCommit]:
        if not advance:
            granted = self._granted_already(claim_id, asked_at)
            if granted is not None:
                return granted, AfterCommit()
            with self._read() as rows:
                claim = _named(rows, claim_id, asked_at)
                if claim is None:
                    return None, AfterCommit()
                if claim.expires_at is None or not claim.holder.pid:
                    return verdicts.standing(self._desk(projection(rows), claim.pool), claim), AfterCommit()
        with self._write() as rows:
            carried = self._carry(rows)
            claim = _named(rows, claim_id, asked_at)
            if claim is None:
                return None, carried
            desk = self._desk(rows, claim.pool)
            if claim.held and claim.expires_at is not None and claim.holder.pid:
                rows.confirm(claim_id)
            elif not claim.held:
                hand_out(desk)
                desk.after.wakes = [wake for wake in desk.after.wakes if wake.claim_id != claim_id]
            found = rows.claim(claim_id) or claim
            verdict = verdicts.standing(desk, found)
            if verdict.kind is Kind.REFUSED:
                # The limits were lowered below what it asks for: it must not keep its line waiting.
                take_back(desk, found)
            return verdict, joined(carried, desk.done())

    def _granted_already(self, claim_id: int, asked_at: float | None) -> Verdict | None:
        """The answer to most looks, in one small read: whoever was woken was usually granted."""
        with self._peek() as rows:
            found = rows.grant_of(claim_id)
        if found is None or asked_at not in (None, found[1]):
            return None
        pool, asked_at, in_use, cap = found
        return free(pool, claim_id, asked_at=asked_at, in_use=in_use, cap=cap)

    @verb
    def extend(self, claim_id: int, *, ttl_s: float, asked_at: float | None = None) -> bool:
        check_ttl(ttl_s)
        with self._write() as rows:
            claim = _named(rows, claim_id, asked_at)
            if claim is None or claim.expires_at is None or claim.expires_at <= rows.now:
                return False
            rows.expire(claim_id, rows.now + ttl_s)
            return True

    @verb
    def note(self, name: str, fresh: str) -> str:
        with self._write() as rows:
            known = rows.note(name)
            if known is None:
                rows.put_note(name, fresh)
            return fresh if known is None else known

    @verb
    def set_note(self, name: str, text: str) -> None:
        with self._write() as rows:
            rows.put_note(name, text)

    @verb
    def notes(self, prefix: str) -> dict[str, str]:
        with self._read() as rows:
            return rows.notes(prefix)

    @verb
    def withdraw(self, claim_id: int, *, asked_at: float | None = None) -> AfterCommit:
        return self._end(Release(claim_id, Outcome.ABANDONED, asked_at=asked_at))

    # -- ending -----------------------------------------------------------------------------------

    @verb
    def release(self, release: Release) -> AfterCommit:
        return self._end(release)

    def _end(self, release: Release) -> AfterCommit:
        with self._write() as rows:
            carried = self._carry(rows)
            return joined(carried, self._end_in(rows, release))

    def _end_in(self, rows: Rows, release: Release) -> AfterCommit:
        found = rows.leaving(release.claim_id)
        if found is None or release.asked_at not in (None, found[0].asked_at):
            return AfterCommit()
        claim, row = found
        desk = PoolSession(rows, claim.pool, self._world, row=row)
        if claim.rests:
            if release.outcome is Outcome.ABANDONED:
                # It said that it would be tried again: now it will not.
                rested = f"gave up after resting {span_words(desk.now - claim.asked_at)}"
                desk.tell([ask_fact(claim, desk.now, "gave up", rested)])
            rows.remove(claim.id)
            return desk.done()
        if claim.held:
            note_end(desk, claim, release)
        elif desk.now - claim.asked_at >= TELLING_S:
            waited = f"gave up after waiting {span_words(desk.now - claim.asked_at)} ({claim.why})"
            desk.tell([ask_fact(claim, desk.now, "gave up", waited)])
        take_back(desk, claim)
        return joined(desk.done(), self._elsewhere(desk, claim))

    def _elsewhere(self, here: PoolSession, ended: Claim) -> AfterCommit:
        """A freed slot or resource may be what another pool's waiters were waiting for."""
        after = AfterCommit()
        if ended.resources or here.row.machine.ceiling is not None:
            for name in here.rows.pools():
                if name != ended.pool:
                    desk = self._desk(here.rows, name)
                    hand_out(desk)
                    after = joined(after, desk.done())
        return after

    # -- holders ----------------------------------------------------------------------------------

    @verb
    def rebind(
        self, claim_id: int, holder: Holder, *, launcher_pid: int, asked_at: float | None = None
    ) -> tuple[bool, AfterCommit]:
        with self._write() as rows:
            carried = self._carry(rows)
            if _named(rows, claim_id, asked_at) is None:
                return False, carried
            return rows.rebind(claim_id, holder, launcher_pid=launcher_pid), carried

    @verb
    def hold(self, ask: Ask) -> tuple[int, AfterCommit]:
        check_ask(ask)
        with self._write() as rows:
            carried = self._carry(rows)
            desk = self._desk(rows, ask.pool)
            desk.project(ask.project)
            for known in rows.watched(ask.pool):
                same = (known.holder, known.project, known.name) == (ask.holder, ask.project, ask.name)
                if known.held and same and not known.rests:
                    return known.id, joined(carried, desk.done())
            claim_id = desk.take_id()
            grant = Grant(desk.row.counts.in_use + ask.slots, {})
            rows.add(claim_id, ask, now=desk.now, launcher_pid=ask.holder.pid, grant=grant)
            desk.tell([ask_fact(ask, desk.now, "held", "recorded as already running")])
            return claim_id, joined(carried, desk.done())

    @verb
    def rest(self, ask: Ask, *, for_s: float, why: str) -> tuple[int, AfterCommit]:
        check_ask(ask)
        with self._write() as rows:
            carried = self._carry(rows)
            desk = self._desk(rows, ask.pool)
            claim_id = desk.take_id()
            resting = replace(ask, slots=0, resources={}, cost={}, mailbox="")
            rows.add(claim_id, resting, now=desk.now, launcher_pid=ask.holder.pid, why=why)
            rows.grant(claim_id, Grant(0, {}), now=desk.now, expires_at=desk.now + for_s)
            desk.tell([ask_fact(ask, desk.now, "rests", why)])
            return claim_id, joined(carried, desk.done())

    @verb
    def granted(self, mailbox: str) -> list[int]:
        with self._read() as rows:
            return rows.granted(mailbox)

    @verb
    def claim(self, claim_id: int) -> Claim | None:
        with self._read() as rows:
            return rows.claim(claim_id)

    @verb
    def holders(self, pool: str) -> list[Holder]:
        with self._read() as rows:
            found = {holder for name in _in_the_way(rows, pool) for holder in rows.holders(name)}
            return [*found, *(demand.holder for demand in rows.demands(pool))]

    @verb
    def watched(self, pool: str) -> HolderCensus:
        with self._read() as rows:
            claims = (claim for name in _in_the_way(rows, pool) for claim in rows.watched(name))
            return HolderCensus(tuple(claims), tuple(rows.demands(pool)))

    @verb
    def census(self) -> HolderCensus:
        with self._read() as rows:
            return HolderCensus(tuple(rows.claims(None)), tuple(rows.demands(None)))

    @verb
    def bury(
        self, claims: Sequence[tuple[int, Holder]], demands: Sequence[Demand] = (), *, why: str = ""
    ) -> AfterCommit:
        with self._write() as rows:
            after = self._carry(rows)
            for demand in demands:
                rows.drop_demand(demand)
            for claim_id, holder in claims:
                after = joined(after, self._bury_one(rows, claim_id, holder, why))
            for claim in rows.expired(rows.now):
                after = joined(after, self._bury_one(rows, claim.id, claim.holder))
            for pool in {demand.pool for demand in demands}:
                desk = self._desk(rows, pool)
                desk.refresh()
                hand_out(desk)
                after = joined(after, desk.done())
            return after

    def _bury_one(self, rows: Rows, claim_id: int, holder: Holder, why: str = "") -> AfterCommit:
        found, now = rows.claim(claim_id), rows.now
        if found is None or found.holder != holder:
            return AfterCommit()
        desk = self._desk(rows, found.pool)
        if found.rests:
            rows.remove(found.id)
            return desk.done()
        overdue = found.expires_at is not None and found.expires_at <= now
        unanswered = overdue and bool(found.holder.pid) and not why
        gone = f"pid {found.holder.pid} {'did not answer' if unanswered else 'is gone'}"
        why = why or (gone if found.holder.pid else NOT_EXTENDED)
        words = f"{'slot taken back' if found.held else 'ask dropped'}: {why}"
        desk.tell([ask_fact(found, now, "unanswered" if unanswered else "reclaimed", words)])
        take_back(desk, found)
        return joined(desk.done(), self._elsewhere(desk, found))

    # -- signals and demand -----------------------------------------------------------------------

    @verb
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
            desk = self._desk(rows, check_name("pool", pool))
            claim = _named(rows, claim_id, asked_at) if first and claim_id is not None else None
            if claim is not None and (not claim.held or claim.pool != pool):
                # It measures nothing here: it was never sent, or to another pool's provider.
                claim = None
            desk.fold(signal, project=project, name=name, claim_id=claim_id, claim=claim)
            return joined(carried, desk.done())

    @verb
    def renew(self, pool: str, renewal: Renewal) -> tuple[Reply, AfterCommit]:
        from flyball.stores import shares

        shares.check_renewal(renewal)
        with self._write() as rows:
            carried = self._carry(rows)
            desk = self._desk(rows, check_name("pool", pool))
            reply = shares.renew(desk, renewal)
            return reply, joined(carried, desk.done())

    @verb
    def demand(self, pool: str, project: str, holder: Holder, *, ttl_s: float) -> AfterCommit:
        check_demand(project, ttl_s)
        with self._write() as rows:
            carried = self._carry(rows)
            desk = self._desk(rows, check_name("pool", pool))
            demand = Demand(pool, project, holder, desk.now + ttl_s)
            if ttl_s > 0:
                desk.project(project)
                rows.put_demand(demand)
            else:
                rows.drop_demand(demand)
            desk.refresh()
            hand_out(desk)
            return joined(carried, desk.done())

    # -- seeing -----------------------------------------------------------------------------------

    @verb
    def snapshot(self) -> Snapshot:
        with self._read() as rows:
            from flyball.stores.snapshot import take

            return take(projection(rows), self._world)

    @verb
    def facts(self, *, limit: int) -> list[Fact]:
        with self._read() as rows:
            return rows.facts(limit)


def check_ask(ask: Ask) -> None:
    """Refuse nonsense before it reaches the state."""
    check_name("pool", ask.pool)
    check_name("project", ask.project)
    check_name("name", ask.name)
    if ask.model != "":
        check_name("model", ask.model, empty=True)
    # type() and not isinstance: True is no number of slots.
    if type(ask.slots) is not int or type(ask.priority) is not int:
        raise UsageError(f"slots and priority must be whole numbers, not {ask.slots!r} and {ask.priority!r}")
    if ask.cost:
        check_amounts("the cost", ask.cost)
    if ask.ttl_s is not None:
        check_ttl(ask.ttl_s)
    if ask.key:
        check_name("key", ask.key, limit=KEY_LIMIT)
    if not 1 <= ask.slots <= SLOTS_LIMIT:
        raise UsageError(f"slots must be from 1 to {SLOTS_LIMIT}, not {ask.slots!r:.80}")
    if abs(ask.priority) > PRIORITY_LIMIT:
        raise UsageError(
            f"priority must be between -{PRIORITY_LIMIT} and {PRIORITY_LIMIT}, not {ask.priority}"
        )
    for kind, units in ask.resources.items():
        check_name("resource", kind)
        if type(units) is not int:
            raise UsageError(f"units of resource {kind!r} must be a whole number, not {units!r:.80}")


def check_demand(project: str, ttl_s: float) -> None:
    """Refuse what announces nothing; a time that is over takes an announcement back."""
    check_name("project", project)
    if type(ttl_s) not in (int, float) or not ttl_s <= TTL_LIMIT_S:
        raise UsageError(f"a demand lasts at most {TTL_LIMIT_S:g} s, not {ttl_s!r:.80}")


def check_ttl(ttl_s: float) -> None:
    if type(ttl_s) not in (int, float) or not 0 < ttl_s <= TTL_LIMIT_S:
        raise UsageError(f"a time to live must be from above 0 to {TTL_LIMIT_S:g} s, not {ttl_s!r}")


PRIORITY_LIMIT = 1000
SLOTS_LIMIT = 1_000_000_000
TTL_LIMIT_S = 7 * 86400.0


def _named(rows: Rows, claim_id: int, asked_at: float | None) -> Claim | None:
    """The claim of this id, unless it is another one than was asked for then."""
    claim = rows.claim(claim_id)
    return claim if claim is not None and asked_at in (None, claim.asked_at) else None


def _in_the_way(rows: Rows, pool: str) -> list[str]:
    """The pools whose holders may keep this pool's line waiting: all, under limits over all pools."""
    machine = rows.machine()
    return rows.pools() if machine.ceiling is not None or machine.resources else [pool]
