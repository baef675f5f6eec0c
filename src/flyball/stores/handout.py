"""One pool inside one transaction: plan it if stale, grant what fits, say how an ask stands.

``PoolDesk`` is where the two tempos meet the rows. It reads a pool once, keeps it fresh, and writes back
only what changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import cast

from flyball.core import plan as planning
from flyball.core.admit import Candidate, Denial, choose, estimate_s, in_order, judge, too_large
from flyball.core.model import (
    Ask,
    Claim,
    Fact,
    Holder,
    MachineUse,
    Meters,
    Outcome,
    Phase,
    PoolCounts,
    ProjectUse,
)
from flyball.core.settings import CONFIRM_S, PoolSettings, ShareRule
from flyball.core.signals import Signal, SignalKind
from flyball.core.spacing import next_grant_at
from flyball.core.verdict import Blocker, Kind, Reason, Verdict
from flyball.errors import UsageError, invariant
from flyball.stores import codec
from flyball.stores.port import After, Wake
from flyball.stores.rows import PoolRow, Rows

HOLD_SMOOTHING = 0.2
HOLD_SAMPLE = 8
"""Holds under a second in an uncrowded pool come by the thousand: one in so many is enough to estimate."""
PROJECTS_KEPT = 1000
"""Idle projects are forgotten once a pool knows more than this many."""


class World:
    """What the verbs may know beyond the rows: the clock, chance, free memory, who we are."""

    def __init__(
        self,
        clock: Callable[[], float],
        chance: Callable[[], float],
        memory_free: Callable[[], int | None],
        here: Callable[[], Holder],
    ) -> None:
        self.clock, self.chance, self.memory_free, self.here = clock, chance, memory_free, here

    def checkable(self, holder: Holder) -> bool:
        """Can the life of this holder be checked from this process?"""
        me = self.here()
        return (holder.host, holder.boot, holder.pidns) == (me.host, me.boot, me.pidns)


class PoolDesk:
    def __init__(self, rows: Rows, pool: str, world: World) -> None:
        self.rows, self.world, self.now = rows, world, rows.now
        self.after = After()
        self.row = rows.pool(pool) or self._found(pool)
        self._refresh_if_stale()

    # -- planning ---------------------------------------------------------------------------------

    def _found(self, pool: str) -> PoolRow:
        """A pool nobody has used before starts with the defaults."""
        s = codec.load_settings("{}")
        memory = planning.first_memory(s)
        first = planning.replan(
            memory,
            Meters(),
            s,
            pool=pool,
            version=0,
            counts=PoolCounts(),
            projects=(),
            announced=(),
            next_demand_expiry=None,
            trial_live=False,
            now=self.now,
        )
        row = PoolRow(
            pool, "{}", codec.dump(memory), first.limits, first.meters, PoolCounts(), 0, self.rows.machine()
        )
        self.rows.add_pool(row)
        return row

    @property
    def settings(self) -> PoolSettings:
        return codec.load_settings(self.row.settings)

    def _refresh_if_stale(self) -> None:
        if self.now >= self.row.limits.valid_until or self._clock_went_back():
            self.refresh()

    def _clock_went_back(self) -> bool:
        return self.row.limits.valid_until - self.now > 2 * planning.FOREVER_S

    def refresh(self, memory: planning.Memory | None = None, *, arriving: str | None = None) -> None:
        """Recompute the limits now, from ``memory`` or the stored one."""
        plan = self.project_plan(memory, arriving)
        self.row.memory = codec.dump(plan.memory)
        self.row.limits, self.row.meters = plan.limits, plan.meters
        self.rows.put_plan(self.row)
        if self.settings.share is ShareRule.STRICT:
            for use in self.rows.projects(self.row.name):
                share = plan.shares.get(use.name, 0)
                if use.share != share:
                    use.share = share
                    self.rows.put_project(self.row.name, use)
        self.tell(plan.facts)

    def project_plan(self, memory: planning.Memory | None, arriving: str | None) -> planning.Plan:
        """What the limits would be now; writes nothing."""
        row, rows = self.row, self.rows
        strict = self.settings.share is ShareRule.STRICT
        demands = [d for d in rows.demands(row.name) if d.until > self.now] if strict else []
        trial = row.meters.trial_id
        return planning.replan(
            memory if memory is not None else codec.load_memory(row.memory),
            row.meters,
            self.settings,
            pool=row.name,
            version=row.limits.version,
            counts=row.counts,
            projects=rows.projects(row.name) if strict else (),
            announced=[*(d.project for d in demands), *([arriving] if arriving else [])],
            next_demand_expiry=min((d.until for d in demands), default=None),
            trial_live=trial is not None and rows.claim(trial) is not None,
            now=self.now,
        )

    def fold(self, signal: Signal, *, project: str, name: str, claim_id: int | None) -> None:
        """Take a signal in and replan at once."""
        memory, facts = planning.fold(
            codec.load_memory(self.row.memory),
            self.row.meters,
            self.settings,
            signal,
            pool=self.row.name,
            project=project,
            name=name,
            claim_id=claim_id,
            now=self.now,
        )
        self.tell(facts)
        self.refresh(memory)

    # -- projects and the machine -----------------------------------------------------------------

    def project(self, name: str) -> ProjectUse:
        use = self.rows.project(self.row.name, name)
        if use is None:
            s = self.settings
            use = ProjectUse(name, weight=s.weights.get(name, 1.0), maximum=s.maxima.get(name))
            self.rows.drop_idle_projects(self.row.name, keep=PROJECTS_KEPT)
            self.rows.put_project(self.row.name, use)
        return use

    def machine_for(self, ask: Candidate) -> MachineUse:
        settings = self.row.machine
        if not (settings.ceiling or settings.memory_floor_bytes or ask.resources):
            return _NO_MACHINE_LIMITS
        free = dict(settings.resources)
        if ask.resources:
            for kind, units in resources_in_use(self.rows).items():
                free[kind] = free.get(kind, 0) - units
        return MachineUse(
            ceiling=settings.ceiling,
            in_use=self.rows.slots_in_use() if settings.ceiling else 0,
            memory_floor_bytes=settings.memory_floor_bytes,
            memory_free_bytes=self.world.memory_free() if settings.memory_floor_bytes else None,
            resource_free=free,
        )

    def check_resources(self, ask: Candidate) -> None:
        declared = self.row.machine.resources
        for kind, units in ask.resources.items():
            if kind not in declared:
                raise UsageError(
                    f"resource {kind!r} is not declared; "
                    f"declare it with `flyball machine set --resource {kind}=N`"
                )
            if not 1 <= units <= declared[kind]:
                raise UsageError(f"resource {kind!r} has {declared[kind]} units, {units} asked for")

    # -- granting ---------------------------------------------------------------------------------

    def denial(self, ask: Candidate, use: ProjectUse, machine: MachineUse) -> Denial | None:
        row = self.row
        if row.limits.share is ShareRule.STRICT and not use.share and not use.in_use and not use.waiting:
            # The plan has not counted this project: its arrival changes everybody's share.
            self.refresh(arriving=use.name)
            use.share = (self.rows.project(row.name, use.name) or use).share
        return judge(ask, row.limits, row.meters, row.counts, use, machine, self.now)

    def confirm_by(self, holder: Holder) -> float | None:
        """A slot handed to a waiter we cannot check must be confirmed; it may have died in line."""
        return None if self.world.checkable(holder) else self.now + CONFIRM_S

    def took(self, ask: Ask) -> None:
        """Keep our copy of the counts in step with the row that was just added."""
        self.row.counts.in_use += ask.slots
        self.row.counts.low_in_use += ask.slots if ask.priority <= 0 else 0

    def note_grant(self, claim_id: int, ask: Ask | Claim) -> None:
        """Move the meters after a grant. Counts moved with the claim."""
        row, limits, meters = self.row, self.row.limits, self.row.meters
        changed = False
        if limits.spacing_s > 0:
            meters.next_grant_at = next_grant_at(
                self.now, limits.spacing_s, limits.spacing_jitter, self.world.chance()
            )
            changed = True
        if row.counts.in_use >= limits.cap:
            meters.bound_at = self.now
            changed = True
        if limits.phase is Phase.TRIAL:
            meters.trial_id, meters.trial_at = claim_id, self.now
            meters.trial_project, meters.trial_name = ask.project, ask.name
            # The plan now has a trial to judge, at a time it did not know before.
            row.limits = replace(limits, valid_until=self.now)
            self.rows.put_plan(row)
            self.tell([ask_fact(ask, self.now, "trial", "admitted as the trial")])
        elif changed:
            self.rows.put_meters(row)

    def hand_out(self) -> set[int]:
        """Grant to the waiting while something fits; the ids that were granted."""
        row, rows, granted = self.row, self.rows, set[int]()
        if not row.counts.waiting:
            return granted
        heads = {(ask.project, ask.priority): ask for ask in rows.line_heads(row.name)}
        uses = self._uses_of(heads.values())
        while (winner := self._choose(list(heads.values()), uses)) is not None:
            claim = rows.claim(winner.id)
            invariant(claim is not None, "whoever is first in line waits")
            self._grant_waiting(cast(Claim, claim))
            granted.add(winner.id)
            line = (winner.project, winner.priority)
            follower = rows.line_head(row.name, *line)
            heads = {**heads, line: follower} if follower else {k: v for k, v in heads.items() if k != line}
            uses[winner.project].in_use += winner.slots
        self._keep_watch()
        return granted

    def _uses_of(self, heads: Iterable[Candidate]) -> dict[str, ProjectUse]:
        uses = {ask.project: self.project(ask.project) for ask in heads}
        if self.row.limits.share is ShareRule.STRICT and any(use.share is None for use in uses.values()):
            self.refresh()
            uses = {name: self.project(name) for name in uses}
        return uses

    def _choose(self, heads: list[Candidate], uses: dict[str, ProjectUse]) -> Candidate | None:
        row = self.row
        machine = self.machine_for(_all_resources(heads))
        winner = choose(heads, row.limits, row.meters, row.counts, uses, machine, self.now)
        if (
            winner is None
            and heads
            and row.counts.in_use >= row.limits.cap
            and row.meters.bound_at < self.now
        ):
            row.meters.bound_at = self.now
            self.rows.put_meters(row)
        return winner

    def _grant_waiting(self, claim: Claim) -> None:
        self.rows.grant(claim.id, now=self.now, expires_at=self.confirm_by(claim.holder))
        self.row.counts = self.rows.counts(self.row.name)
        self.note_grant(claim.id, claim)
        self._refresh_if_stale()
        self.after.wakes.append(Wake(claim.mailbox, claim.id, claim.holder))
        waited = f"granted after waiting {self.now - claim.asked_at:.1f} s"
        self.tell([ask_fact(claim, self.now, "granted", waited)])

    def _keep_watch(self) -> None:
        """Somebody in line must be awake. The newest watches: it arrived awake, and is there longest."""
        row = self.row
        if not row.counts.waiting or self.rows.waits(row.watcher_id):
            return
        newest = self.rows.newest_waiting(row.name)
        if newest is not None:
            self.watch(newest.id)
            self.after.wakes.append(Wake(newest.mailbox, newest.id, newest.holder))

    def watch(self, claim_id: int) -> None:
        """Make a waiting ask the one that watches."""
        self.row.watcher_id = claim_id
        self.rows.put_watcher(self.row.name, claim_id)

    # -- ending -----------------------------------------------------------------------------------

    def note_end(self, claim: Claim, outcome: Outcome, oks: int) -> None:
        """Fold a released lease into the meters, before the slot is handed on."""
        row, meters, changed = self.row, self.row.meters, False
        was_full = row.counts.in_use >= row.limits.cap or row.counts.waiting > 0
        held_s = max(0.0, self.now - (claim.granted_at or self.now))
        if was_full or held_s >= 1.0 or claim.id % HOLD_SAMPLE == 0:
            weight = HOLD_SMOOTHING if meters.hold_mean_s else 1.0
            meters.hold_mean_s += (held_s - meters.hold_mean_s) * weight
            changed = True
        if was_full:
            meters.bound_oks += max(oks, 1 if outcome is Outcome.FINISHED else 0)
        if outcome is Outcome.THROTTLED:
            throttled = Signal(SignalKind.THROTTLED, detail="released as throttled")
            self.fold(throttled, project=claim.project, name=claim.name, claim_id=claim.id)
        if meters.trial_id == claim.id:
            self._end_trial(outcome)
        if changed:
            self.rows.put_meters(row)

    def _end_trial(self, outcome: Outcome) -> None:
        row = self.row
        memory, facts = planning.fold_trial_end(
            codec.load_memory(row.memory), row.meters, self.settings, outcome, pool=row.name, now=self.now
        )
        self.tell(facts)
        row.meters.trial_id = None
        self.refresh(memory)

    def project_left(self, name: str) -> None:
        """Strict sharing: a project that stopped competing raises everybody's share."""
        if self.row.limits.share is ShareRule.STRICT:
            use = self.rows.project(self.row.name, name)
            if use is not None and not use.in_use and not use.waiting:
                self.refresh()

    # -- answering --------------------------------------------------------------------------------

    def granted_verdict(self, claim_id: int) -> Verdict:
        counts, limits = self.row.counts, self.row.limits
        return Verdict(
            kind=Kind.GRANTED,
            reason=Reason.FREE,
            pool=self.row.name,
            claim_id=claim_id,
            in_use=counts.in_use,
            cap=limits.cap,
        )

    def waiting_verdict(self, ask: Candidate, kind: Kind, *, position: int | None = None) -> Verdict:
        """How a waiting (or refused) ask stands, with everything a person would ask about."""
        row = self.row
        denial = self.denial(ask, self.project(ask.project), self.machine_for(ask)) or Denial(Reason.QUEUE)
        if position is None:
            position = self.rows.waiting_before(row.name, ask.id) + 1
        return self._verdict(ask, kind, denial, position)

    def too_large_verdict(self, ask: Candidate) -> Verdict | None:
        """The refusal of an ask that no amount of waiting could satisfy."""
        words = too_large(ask, self.row.limits, self.project(ask.project), self.machine_for(ask))
        if not words:
            return None
        return self._verdict(ask, Kind.REFUSED, Denial(Reason.TOO_LARGE, detail=words), 0)

    def _verdict(self, ask: Candidate, kind: Kind, denial: Denial, position: int) -> Verdict:
        row = self.row
        until = denial.until if denial.until is not None else row.limits.valid_until
        return Verdict(
            kind=kind,
            reason=denial.reason,
            pool=row.name,
            claim_id=ask.id,
            in_use=row.counts.in_use,
            cap=row.limits.cap,
            reserved=min(row.limits.reserve, row.limits.cap - 1) if ask.priority <= 0 else 0,
            position=position,
            look_again_s=max(0.0, until - self.now),
            estimate_s=estimate_s(denial, row.meters, row.counts, position=position, now=self.now),
            blocker=self._blocker(ask, denial.reason),
            detail=denial.detail,
            watch=row.watcher_id == ask.id != 0,
        )

    def _blocker(self, ask: Candidate, reason: Reason) -> Blocker | None:
        pool: str | None = self.row.name
        if reason is Reason.RESOURCE:
            users = [c for c in self.rows.leases_with_resources() if set(c.resources) & set(ask.resources)]
            holder = users[0] if users else None
        elif reason is Reason.TRIAL and self.row.meters.trial_id is not None:
            holder = self.rows.claim(self.row.meters.trial_id)
        elif reason in _BLOCKED_BY_OLDEST:
            own = reason in (Reason.SHARE, Reason.MAXIMUM)
            pool = None if reason is Reason.MACHINE else pool
            holder = self.rows.oldest_lease(pool, ask.project if own else None)
        else:
            return None
        if holder is None or holder.granted_at is None:
            return None
        age = max(0.0, self.now - holder.granted_at)
        return Blocker(holder.project, holder.name, holder.holder.pid, holder.holder.host, age)

    def tell(self, facts: tuple[Fact, ...] | list[Fact]) -> None:
        if facts:
            self.rows.add_facts(facts)
            self.after.facts.extend(facts)


_NO_MACHINE_LIMITS = MachineUse()
_BLOCKED_BY_OLDEST = frozenset(
    {Reason.CAP, Reason.RESERVE, Reason.QUEUE, Reason.SHARE, Reason.MAXIMUM, Reason.MACHINE}
)


def candidate(claim_id: int, ask: Ask | Claim, asked_at: float) -> Candidate:
    return Candidate(claim_id, ask.project, ask.priority, ask.slots, ask.resources, asked_at)


def resources_in_use(rows: Rows) -> dict[str, int]:
    used: dict[str, int] = {}
    for claim in rows.leases_with_resources():
        for kind, units in claim.resources.items():
            used[kind] = used.get(kind, 0) + units
    return used


def line(rows: Rows, row: PoolRow, waiting: list[Claim], now: float, *, limit: int) -> list[Claim]:
    """The first ``limit`` waiting asks in the order they would be served if nothing changed."""
    uses = {use.name: replace(use) for use in rows.projects(row.name)}
    lines: dict[tuple[str, int], list[Claim]] = {}
    for claim in sorted(waiting, key=lambda c: c.id, reverse=True):
        lines.setdefault((claim.project, claim.priority), []).append(claim)
    ordered: list[Claim] = []
    while lines and len(ordered) < limit:
        heads = [candidate(group[-1].id, group[-1], group[-1].asked_at) for group in lines.values()]
        first = in_order(heads, uses, row.limits.ageing_s, now)[0]
        group = lines[first.project, first.priority]
        claim = group.pop()
        ordered.append(claim)
        uses[claim.project].in_use += claim.slots
        if not group:
            del lines[first.project, first.priority]
    return ordered


def _all_resources(heads: list[Candidate]) -> Candidate:
    """A stand-in that makes the machine's use of every kind asked for be read once."""
    kinds = {kind: 1 for ask in heads for kind in ask.resources}
    return Candidate(0, "", resources=kinds)


def ask_fact(ask: Ask | Claim, now: float, kind: str, words: str) -> Fact:
    return Fact(now, ask.pool, kind, words, ask.project, ask.name, ask.holder.pid)
