"""The verbs of the port, written once over ``Rows``.

A concrete store brings ``_write`` (one atomic step, exclusive), ``_read`` (a consistent view) and its
clock. Everything that decides is in ``core``; everything that touches one pool is in ``handout``.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager

from flyball.core import plan as planning
from flyball.core.model import Ask, Claim, Fact, Holder, Outcome, ProjectUse
from flyball.core.settings import (
    MachineSettings,
    PoolChanges,
    PoolSettings,
    check_name,
    merge_changes,
    resolve_pool,
)
from flyball.core.signals import Signal
from flyball.core.verdict import Kind, Verdict
from flyball.errors import UsageError
from flyball.stores import codec, recounting
from flyball.stores.handout import PoolDesk, World, ask_fact, candidate
from flyball.stores.port import After, Census, Demand, Miscount, Release, Snapshot
from flyball.stores.rows import Rows
from flyball.stores.snapshot import projection, take


class Verbs(ABC):
    """Implements ``Store``. Thread-safe as far as ``_write`` and ``_read`` are."""

    location: str

    def __init__(self, world: World) -> None:
        self._world = world
        self._unwritten: list[Release] = []
        self._unwritten_lock = threading.Lock()

    @abstractmethod
    def _write(self) -> AbstractContextManager[Rows]:
        """Open an exclusive transaction; commits at the end, rolls back on an exception."""

    @abstractmethod
    def _read(self) -> AbstractContextManager[Rows]:
        """Open a read-only view; must never write."""

    @abstractmethod
    def close(self) -> None: ...

    def now(self) -> float:
        return self._world.clock()

    # -- asking -----------------------------------------------------------------------------------

    def admit(self, ask: Ask, *, park: bool) -> tuple[Verdict, After]:
        check_ask(ask)
        with self._write() as rows:
            carried = self._carry(rows)
            desk = self._desk(rows, ask.pool)
            verdict = self._admit(desk, ask, park=park)
            return verdict, _joined(carried, desk.after)

    def _admit(self, desk: PoolDesk, ask: Ask, *, park: bool) -> Verdict:
        rows, now = desk.rows, desk.now
        wanted = candidate(0, ask, now)
        if ask.resources:
            desk.check_resources(wanted)
        denial = desk.denial(wanted, desk.project(ask.project), desk.machine_for(wanted))
        if denial is None and not desk.row.counts.waiting:
            claim_id = rows.add(ask, now=now, granted=True, launcher_pid=ask.holder.pid)
            desk.took(ask)
            desk.note_grant(claim_id, ask)
            return desk.granted_verdict(claim_id)
        refusal = desk.too_large_verdict(wanted)
        if refusal is None and (park or denial is None):
            return self._stand_in_line(desk, ask, park=park)
        return self._refused(desk, ask, refusal)

    def _stand_in_line(self, desk: PoolDesk, ask: Ask, *, park: bool) -> Verdict:
        """Queue the ask and hand out in order, so that nobody overtakes by arriving late."""
        rows, now = desk.rows, desk.now
        claim_id = rows.add(ask, now=now, granted=False, launcher_pid=ask.holder.pid)
        desk.row.counts = rows.counts(ask.pool)
        granted = claim_id in desk.hand_out()
        desk.after.wakes = [wake for wake in desk.after.wakes if wake.claim_id != claim_id]
        if granted:
            return desk.granted_verdict(claim_id)
        if not park:
            rows.remove(claim_id)
            desk.row.counts = rows.counts(ask.pool)
            return self._refused(desk, ask, None)
        desk.watch(claim_id)
        position = desk.row.counts.waiting
        verdict = desk.waiting_verdict(candidate(claim_id, ask, now), Kind.PARKED, position=position)
        desk.tell([ask_fact(ask, now, "parked", verdict.words())])
        return verdict

    def _refused(self, desk: PoolDesk, ask: Ask, refusal: Verdict | None) -> Verdict:
        if refusal is None:
            position = desk.row.counts.waiting + 1
            refusal = desk.waiting_verdict(candidate(0, ask, desk.now), Kind.REFUSED, position=position)
        desk.tell([ask_fact(ask, desk.now, "refused", refusal.words())])
        return refusal

    def look(self, claim_id: int, *, advance: bool) -> tuple[Verdict | None, After]:
        if not advance:
            with self._read() as rows:
                claim = rows.claim(claim_id)
                if claim is None:
                    return None, After()
                if claim.expires_at is None:
                    return self._standing(self._desk(projection(rows), claim.pool), claim), After()
        with self._write() as rows:
            carried = self._carry(rows)
            claim = rows.claim(claim_id)
            if claim is None:
                return None, carried
            desk = self._desk(rows, claim.pool)
            if claim.held and claim.expires_at is not None:
                rows.confirm(claim_id)
            elif not claim.held:
                desk.hand_out()
                desk.after.wakes = [wake for wake in desk.after.wakes if wake.claim_id != claim_id]
            return self._standing(desk, rows.claim(claim_id) or claim), _joined(carried, desk.after)

    def _standing(self, desk: PoolDesk, claim: Claim) -> Verdict:
        if claim.held:
            return desk.granted_verdict(claim.id)
        return desk.waiting_verdict(candidate(claim.id, claim, claim.asked_at), Kind.PARKED)

    def withdraw(self, claim_id: int) -> After:
        return self._end(Release(claim_id, Outcome.ABANDONED))

    # -- ending -----------------------------------------------------------------------------------

    def release(self, release: Release) -> After:
        return self._end(release)

    def remember(self, release: Release) -> None:
        with self._unwritten_lock:
            self._unwritten.append(release)

    def _end(self, release: Release) -> After:
        with self._write() as rows:
            carried = self._carry(rows)
            return _joined(carried, self._end_in(rows, release))

    def _carry(self, rows: Rows) -> After:
        """Write the releases that could not be written before. They stay kept if this step fails."""
        if not self._unwritten:
            return After()
        with self._unwritten_lock:
            kept = list(self._unwritten)
        after = After()
        for release in kept:
            after = _joined(after, self._end_in(rows, release))
        rows.on_commit(lambda: self._forget(kept))
        return after

    def _forget(self, kept: list[Release]) -> None:
        with self._unwritten_lock:
            self._unwritten = [release for release in self._unwritten if release not in kept]

    def _end_in(self, rows: Rows, release: Release) -> After:
        claim = rows.claim(release.claim_id)
        if claim is None:
            return After()
        desk = self._desk(rows, claim.pool)
        if claim.held:
            desk.note_end(claim, release.outcome, release.oks)
        rows.remove(claim.id)
        if desk.row.counts.waiting:
            desk.row.counts = rows.counts(claim.pool)
        desk.project_left(claim.project)
        desk.hand_out()
        return _joined(desk.after, self._elsewhere(desk, claim))

    def _elsewhere(self, here: PoolDesk, ended: Claim) -> After:
        """A freed slot or resource may be what another pool's waiters were waiting for."""
        after = After()
        if ended.resources or here.row.machine.ceiling is not None:
            for name in here.rows.pools():
                if name != ended.pool:
                    desk = self._desk(here.rows, name)
                    desk.hand_out()
                    after = _joined(after, desk.after)
        return after

    # -- holders ----------------------------------------------------------------------------------

    def rebind(self, claim_id: int, holder: Holder, *, launcher_pid: int) -> bool:
        with self._write() as rows:
            return rows.rebind(claim_id, holder, launcher_pid=launcher_pid)

    def hold(self, ask: Ask) -> tuple[int, After]:
        check_ask(ask)
        with self._write() as rows:
            desk = self._desk(rows, ask.pool)
            desk.project(ask.project)
            claim_id = rows.add(ask, now=desk.now, granted=True, launcher_pid=ask.holder.pid)
            desk.tell([ask_fact(ask, desk.now, "held", "recorded as already running")])
            return claim_id, desk.after

    def granted(self, mailbox: str) -> list[int]:
        with self._read() as rows:
            return rows.granted(mailbox)

    def claim(self, claim_id: int) -> Claim | None:
        with self._read() as rows:
            return rows.claim(claim_id)

    def holders(self, pool: str) -> list[Holder]:
        with self._read() as rows:
            found = {holder for name in _in_the_way(rows, pool) for holder in rows.holders(name)}
            return [*found, *(demand.holder for demand in rows.demands(pool))]

    def watched(self, pool: str) -> Census:
        with self._read() as rows:
            claims = (claim for name in _in_the_way(rows, pool) for claim in rows.watched(name))
            return Census(tuple(claims), tuple(rows.demands(pool)))

    def census(self) -> Census:
        with self._read() as rows:
            return Census(tuple(rows.claims(None)), tuple(rows.demands(None)))

    def bury(self, claims: Sequence[tuple[int, Holder]], demands: Sequence[Demand] = ()) -> After:
        with self._write() as rows:
            after = self._carry(rows)
            for demand in demands:
                rows.drop_demand(demand)
            for claim_id, holder in (*claims, *((c.id, c.holder) for c in rows.expired(rows.now))):
                after = _joined(after, self._bury_one(rows, claim_id, holder))
            for pool in {demand.pool for demand in demands}:
                desk = self._desk(rows, pool)
                desk.refresh()
                desk.hand_out()
                after = _joined(after, desk.after)
            return after

    def _bury_one(self, rows: Rows, claim_id: int, holder: Holder) -> After:
        found, now = rows.claim(claim_id), rows.now
        if found is None or found.holder != holder:
            return After()
        desk = self._desk(rows, found.pool)
        rows.remove(found.id)
        desk.row.counts = rows.counts(found.pool)
        who = f"pid {found.holder.pid}"
        gone = "expired" if found.expires_at is not None and found.expires_at <= now else "is dead"
        words = f"slot taken back: {who} {gone}" if found.held else f"ask dropped: {who} {gone}"
        desk.tell([Fact(now, found.pool, "reclaimed", words, found.project, found.name, found.holder.pid)])
        desk.project_left(found.project)
        desk.hand_out()
        return _joined(desk.after, self._elsewhere(desk, found))

    # -- signals and demand -----------------------------------------------------------------------

    def report(self, pool: str, signal: Signal, *, project: str, name: str, claim_id: int | None) -> After:
        with self._write() as rows:
            carried = self._carry(rows)
            desk = self._desk(rows, check_name("pool", pool))
            desk.fold(signal, project=project, name=name, claim_id=claim_id)
            return _joined(carried, desk.after)

    def demand(self, pool: str, project: str, holder: Holder, *, ttl_s: float) -> After:
        check_name("project", project)
        with self._write() as rows:
            desk = self._desk(rows, check_name("pool", pool))
            demand = Demand(pool, project, holder, desk.now + ttl_s)
            if ttl_s > 0:
                desk.project(project)
                rows.put_demand(demand)
            else:
                rows.drop_demand(demand)
            desk.refresh()
            desk.hand_out()
            return desk.after

    # -- settings ---------------------------------------------------------------------------------

    def set_pool(self, pool: str, changes: PoolChanges) -> After:
        return self._set_pool(pool, changes, None)

    def _set_pool(self, pool: str, changes: PoolChanges, learned: planning.Memory | None) -> After:
        check_name("pool", pool)
        with self._write() as rows:
            desk = self._desk(rows, pool)
            merged = merge_changes(codec.load_changes(desk.row.settings), changes)
            desk.row.settings = codec.dump(merged)
            rows.put_settings(desk.row)
            settings = resolve_pool(merged)
            self._apply_to_projects(desk, settings)
            memory = codec.load_memory(desk.row.memory)
            if learned is not None:
                memory = learned
            elif "cap" in changes or "profile" in changes or changes.get("adaptive"):
                memory = planning.reseeded(memory, settings)
            if not settings.adaptive or settings.spacing_s == 0:
                desk.row.meters.next_grant_at = 0.0
            desk.refresh(memory)
            desk.hand_out()
            return desk.after

    def _apply_to_projects(self, desk: PoolDesk, settings: PoolSettings) -> None:
        pool = desk.row.name
        known = {use.name: use for use in desk.rows.projects(pool)}
        for name in (*known, *settings.weights, *settings.maxima):
            use = known.get(name) or ProjectUse(name)
            use.weight, use.maximum = settings.weights.get(name, 1.0), settings.maxima.get(name)
            desk.rows.put_project(pool, use)

    def reset_pool(self, pool: str) -> After:
        with self._write() as rows:
            if rows.pool(pool) is None:
                raise UsageError(f"there is no pool {pool!r}; `flyball status` lists the pools in use")
            desk = self._desk(rows, pool)
            meters = desk.row.meters
            meters.trial_id, meters.next_grant_at, meters.bound_oks, meters.hold_mean_s = None, 0.0, 0, 0.0
            desk.refresh(planning.first_memory(desk.settings))
            desk.hand_out()
            return desk.after

    def import_pool(self, pool: str, changes: PoolChanges, memory: planning.Memory) -> After:
        return self._set_pool(pool, changes, memory)

    def set_machine(self, machine: MachineSettings) -> After:
        with self._write() as rows:
            rows.put_machine(machine)
            after = After()
            for name in rows.pools():
                desk = self._desk(rows, name)
                desk.hand_out()
                after = _joined(after, desk.after)
            return after

    def machine(self) -> MachineSettings:
        with self._read() as rows:
            return rows.machine()

    # -- the doctor's ------------------------------------------------------------------------------

    def miscounts(self) -> list[Miscount]:
        with self._read() as rows:
            return [wrong for pool in rows.pools() for wrong in recounting.recounted(rows, pool).wrong]

    def recount(self) -> tuple[list[Miscount], After]:
        with self._write() as rows:
            found: list[Miscount] = []
            after = After()
            for pool in rows.pools():
                recounted = recounting.recounted(rows, pool)
                if recounted.wrong:
                    found += recounted.wrong
                    recounting.write(rows, recounted)
                    desk = self._desk(rows, pool)
                    desk.refresh()
                    desk.hand_out()
                    after = _joined(after, desk.after)
            return found, after

    # -- seeing -----------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        with self._read() as rows:
            return take(projection(rows), self._world)

    def facts(self, *, limit: int) -> list[Fact]:
        with self._read() as rows:
            return rows.facts(limit)

    def _desk(self, rows: Rows, pool: str) -> PoolDesk:
        return PoolDesk(rows, pool, self._world)


def check_ask(ask: Ask) -> None:
    """Refuse nonsense before it reaches the state."""
    check_name("pool", ask.pool)
    check_name("project", ask.project)
    check_name("name", ask.name)
    numbers: dict[str, object] = {"slots": ask.slots, "priority": ask.priority}
    for what, value in numbers.items():
        if not isinstance(value, int) or isinstance(value, bool):
            raise UsageError(f"{what} must be a whole number, not {value!r}")
    if ask.slots < 1:
        raise UsageError(f"slots must be at least 1, not {ask.slots}")
    if abs(ask.priority) > PRIORITY_LIMIT:
        raise UsageError(
            f"priority must be between -{PRIORITY_LIMIT} and {PRIORITY_LIMIT}, not {ask.priority}"
        )


PRIORITY_LIMIT = 1000


def _in_the_way(rows: Rows, pool: str) -> list[str]:
    """The pools whose holders may keep this pool's line waiting: all, under limits over all pools."""
    machine = rows.machine()
    return rows.pools() if machine.ceiling is not None or machine.resources else [pool]


def _joined(first: After, second: After) -> After:
    return After(first.wakes + second.wakes, first.facts + second.facts)
