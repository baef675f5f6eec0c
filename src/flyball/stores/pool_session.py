"""One pool inside one transaction: read once, kept fresh, written back once.

``PoolSession`` is where the slow tempo meets the rows: it replans a stale pool, folds signals, and knows the
machine around it. handoff.py gives slots out and verdicts.py says how an ask stands; both work on a session.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from flyball.core.pool import plan as planning
from flyball.core.pool import rate_window as windowing
from flyball.core.pool.admission import Denial, judge
from flyball.core.pool.control.port import SignalContext
from flyball.core.pool.holder import Holder
from flyball.core.pool.model import (
    Ask,
    Candidate,
    Claim,
    Fact,
    FactKind,
    Limits,
    MachineUse,
    Meters,
    PoolCounts,
    ProjectUse,
)
from flyball.core.pool.settings import PoolChanges, PoolSettings, ShareRule, is_agents_pool
from flyball.core.signals import Bucket, Signal, SignalKind
from flyball.errors import UsageError
from flyball.stores import codec
from flyball.stores.port import AfterCommit
from flyball.stores.rows import ID_BLOCK, PoolRow, RowReader, Rows

PROJECTS_KEPT = 1000
"""Idle projects are forgotten once a pool knows more than this many."""
TRIAL_ID = -1
"""In place of a claim's: the breaker's trial is a slot of a share lease."""


@dataclass(frozen=True, slots=True)
class SentCall:
    """When a call was admitted that was refused, and how much was in flight then, where that is known."""

    at: float | None
    in_flight: int | None


class Environment:
    """What the verbs may know beyond the rows: the clock, chance, memory and CPU, who we are."""

    def __init__(
        self,
        clock: Callable[[], float],
        chance: Callable[[], float],
        memory_free: Callable[[], int | None],
        here: Callable[[], Holder],
        epoch: Callable[[], str] = lambda: "",
        stands_still: Callable[[Holder], bool] = lambda _holder: False,
        cpu_pressure: Callable[[], float | None] = lambda: None,
    ) -> None:
        """``epoch``: changes where a store may have lost what it knew, beyond what it finds out itself.

        ``stands_still``: is this process stopped, so that it could not use a slot?
        """
        self.clock, self.chance, self.memory_free, self.here = clock, chance, memory_free, here
        self.epoch, self.stands_still, self.cpu_pressure = epoch, stands_still, cpu_pressure

    def checkable(self, holder: Holder) -> bool:
        """Can the life of this holder be checked from this process?"""
        me = self.here()
        return (holder.host, holder.boot, holder.pidns) == (me.host, me.boot, me.pidns)


class PoolSession:
    """``finish()`` ends the work on it; two sessions for one pool are never open at once."""

    def __init__(
        self,
        rows: Rows,
        pool: str,
        world: Environment,
        *,
        row: PoolRow | None = None,
        use: ProjectUse | None = None,
    ) -> None:
        """``row`` and ``use``: the pool and one project of it, where they have just been read."""
        self.rows, self.world, self.now = rows, world, rows.now
        self.after = AfterCommit()
        self.gone: set[int] = set()
        """Claims that this step removed."""
        self._meters_moved = False
        self._settings: PoolSettings | None = None
        self._uses = {use.name: use} if use is not None else {}
        """Projects as they were read, until something changes them."""
        self.row = row or rows.pool(pool) or self._found(pool)
        self.refresh_if_stale()

    def finish(self) -> AfterCommit:
        """Write what is still only here; what is left to do after the commit."""
        if self._meters_moved:
            self.rows.put_meters(self.row)
            self._meters_moved = False
        return self.after

    def move_meters(self) -> Meters:
        """The meters, to be changed: they are written once, at the end."""
        self._meters_moved = True
        return self.row.meters

    def take_id(self) -> int:
        """An id for a new claim."""
        if self.row.next_id % ID_BLOCK == 0:
            self.row.next_id = self.rows.take_block()
        self.row.next_id += 1
        return self.row.next_id - 1

    def record_facts(self, facts: Sequence[Fact]) -> None:
        if facts:
            self.rows.add_facts(facts)
            self.after.facts.extend(facts)

    # -- planning ---------------------------------------------------------------------------------

    def _found(self, pool: str) -> PoolRow:
        """A pool that is new starts with the defaults."""
        s = codec.load_settings("{}")
        memory = planning.first_memory(s, self.now)
        first = planning.replan(memory, Meters(), s, pool=pool, version=0, counts=PoolCounts(), now=self.now)
        next_id, machine = self.rows.take_block(), self.rows.machine()
        row = PoolRow(pool, first.limits, first.meters, PoolCounts(), 0, next_id, machine)
        self.rows.add_pool(row, settings="{}", memory=codec.dump(memory))
        return row

    @property
    def settings(self) -> PoolSettings:
        if self._settings is None:
            self._settings = codec.load_settings(self.rows.settings(self.row.name))
        return self._settings

    def put_settings(self, changes: PoolChanges) -> PoolSettings:
        """Store what a person named; the settings that follow from it."""
        self.rows.put_settings(self.row.name, codec.dump(changes))
        self._settings = None
        return self.settings

    @property
    def memory(self) -> planning.LearnedState:
        return codec.load_memory(self.rows.memory(self.row.name))

    def refresh_if_stale(self) -> None:
        valid_for_s = self.row.limits.valid_until - self.now
        # A plan that claims to hold for very long was made on a clock that has since gone back.
        if valid_for_s <= 0 or valid_for_s > 2 * planning.FOREVER_S:
            self.refresh()

    def refresh(self, memory: planning.LearnedState | None = None, *, arriving: str | None = None) -> None:
        """Recompute the limits now, from ``memory`` or the stored one."""
        before = self.row.limits
        self._uses.clear()
        plan = self._plan(memory, arriving)
        self.row.limits, self.row.meters = plan.limits, plan.meters
        self.rows.put_memory(self.row.name, codec.dump(plan.memory))
        self.put_plan()
        if self.settings.share is ShareRule.STRICT:
            for use in self.rows.projects(self.row.name):
                share = plan.shares.get(use.name, 0)
                if use.share != share:
                    use.share = share
                    self.rows.put_project(self.row.name, use)
        self.record_facts(plan.facts)
        self._share_out(before)

    def _share_out(self, before: Limits) -> None:
        """Share leases divide what the limits leave them."""
        if self.rows.share_budget(self.row.name) is not None:
            from flyball.stores import shares

            after = self.row.limits
            moved = (before.cap, before.phase, before.closed_until, before.reserve) != (
                (after.cap, after.phase, after.closed_until, after.reserve)
            )
            shares.apply_plan(self, moved=moved)

    def put_plan(self, limits: Limits | None = None) -> None:
        """Write the limits, these or the present ones, and with them the meters: they need no other write."""
        if limits is not None:
            self.row.limits = limits
        self.rows.put_plan(self.row)
        self._meters_moved = False

    def look_by(self, at: float) -> None:
        """The plan is to be made anew at this time, if not sooner."""
        if self.row.limits.valid_until > at:
            self.put_plan(replace(self.row.limits, valid_until=at))

    def _plan(self, memory: planning.LearnedState | None, arriving: str | None) -> planning.Plan:
        row, rows = self.row, self.rows
        strict = self.settings.share is ShareRule.STRICT
        demands = [d for d in rows.demands(row.name) if d.until > self.now] if strict else []
        trial = row.meters.trial_id
        return planning.replan(
            memory if memory is not None else self.memory,
            row.meters,
            self.settings,
            pool=row.name,
            version=row.limits.version,
            counts=self._counts_seen(),
            projects=rows.projects(row.name) if strict else (),
            announced=[*(d.project for d in demands), *([arriving] if arriving else [])],
            next_demand_expiry=min((d.until for d in demands), default=None),
            trial_live=trial is not None and self._lives(trial),
            now=self.now,
        )

    def _counts_seen(self) -> PoolCounts:
        """What is in use, as a controller should see it."""
        budget = self.rows.share_budget(self.row.name)
        if budget is None:
            return self.row.counts
        from flyball.stores import shares

        return shares.counts_by_use(self.row.counts, budget)

    def _lives(self, trial_id: int) -> bool:
        """Is the trial's lease still there? Of share leases those are trials that hold something."""
        if trial_id > 0:
            return self.rows.claim(trial_id) is not None
        node = self.row.meters.trial_name
        return any(share.slots for share in self.rows.shares(self.row.name) if share.node == node)

    def fold(
        self,
        signal: Signal,
        *,
        project: str,
        name: str,
        claim_id: int | None,
        claim: Claim | None = None,
        sent: SentCall | None = None,
    ) -> None:
        """Take a signal in and replan at once.

        ``claim``: the lease whose one call this answers; ``sent``: as much as is known of it without one.
        """
        if claim is not None:
            sent = SentCall(claim.granted_at, claim.level - claim.slots + 1)
        if claim is not None and signal.buckets:
            self.learn(claim, signal.buckets)
        meters = self.row.meters
        if signal.kind is SignalKind.THROTTLED and not meters.work:
            # From now on it is counted what is accepted: a quota may be behind the refusals. The plan ends it
            # where that is not needed.
            meters.work = 1.0
        context = SignalContext(
            signal=signal,
            now=self.now,
            in_use=self._counts_seen().in_use,
            pool=self.row.name,
            project=project,
            name=name,
            claim_id=claim.id if claim is not None else claim_id,
            sent_at=sent.at if sent is not None else None,
            in_flight=sent.in_flight if sent is not None else None,
            hold_mean_s=meters.hold_mean_s,
            work={"requests": meters.work, "tokens": meters.work_tokens} if meters.work else None,
            explained=claim is not None and windowing.explains(meters.windows, signal, claim.cost),
        )
        memory, facts = planning.apply_signal(self.memory, meters, self.settings, context)
        self.record_facts(facts)
        self.refresh(memory)

    def learn(self, claim: Claim, buckets: Sequence[Bucket]) -> None:
        """Mirror what the headers of an answer said about quotas."""
        meters = self.move_meters()
        meters.windows = windowing.learn(
            meters.windows, buckets, sent_at=claim.granted_at or self.now, mark=claim.marks, now=self.now
        )

    # -- who and what is around ---------------------------------------------------------------------

    def project(self, name: str) -> ProjectUse:
        """A project as it stands in this step. To be read only: the next call returns the same."""
        known = self._uses.get(name)
        if known is not None:
            return known
        use = self.rows.project(self.row.name, name)
        if use is None:
            s = self.settings
            use = ProjectUse(name, weight=s.weights.get(name, 1.0), maximum=s.maxima.get(name))
            self.rows.drop_idle_projects(self.row.name, keep=PROJECTS_KEPT)
            self.rows.put_project(self.row.name, use)
        self._uses[name] = use
        return use

    def put_turn(self, use: ProjectUse) -> None:
        """Write when the project's turn comes next."""
        self._uses.pop(use.name, None)
        self.rows.put_turn(self.row.name, use.name, use.turn)

    def machine_for(self, ask: Candidate) -> MachineUse:
        settings = self.row.machine
        looks = settings.ceiling or settings.memory_floor_bytes or settings.cpu_pressure
        if not (looks or ask.resources):
            return _NO_MACHINE_LIMITS
        free = dict(settings.resources)
        if ask.resources:
            for kind, units in resources_in_use(self.rows).items():
                free[kind] = free.get(kind, 0) - units
        agents, calls = frozenset[tuple[str, str]](), 0
        if looks:
            agents, calls = agents_and_their_calls(self.rows)
        return MachineUse(
            ceiling=settings.ceiling,
            in_use=self.rows.slots_in_use() - calls if settings.ceiling else 0,
            agents=frozenset() if is_agents_pool(self.row.name) else agents,
            memory_floor_bytes=settings.memory_floor_bytes,
            memory_free_bytes=self.world.memory_free() if settings.memory_floor_bytes else None,
            cpu_pressure_limit=settings.cpu_pressure,
            cpu_pressure=self.world.cpu_pressure() if settings.cpu_pressure else None,
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

    def denial(self, ask: Candidate, use: ProjectUse) -> Denial | None:
        """Why an ask may not start now; None if it may."""
        row = self.row
        if row.limits.share is ShareRule.STRICT and not use.share and not use.in_use and not use.waiting:
            # The plan has not counted this project: its arrival changes every share.
            self.refresh(arriving=use.name)
            use.share = (self.rows.project(row.name, use.name) or use).share
        return judge(ask, row.limits, row.meters, row.counts, use, self.machine_for(ask), self.now)

    # -- our copy of the counts -----------------------------------------------------------------------

    def count(self, claim: Ask | Claim, *, slots: int = 0, waiting: int = 0) -> None:
        """Keep our copy of the counts in step with the row that was just added, granted or removed."""
        counts = self.row.counts
        counts.in_use += slots
        counts.low_in_use += slots if claim.priority <= 0 else 0
        counts.waiting += waiting
        self._uses.pop(claim.project, None)

    def count_share(self, slots: int) -> None:
        """The same for a share lease that grew or shrank."""
        self.row.counts.in_use += slots
        self.row.counts.low_in_use += slots


_NO_MACHINE_LIMITS = MachineUse()


def candidate(claim_id: int, ask: Ask | Claim, asked_at: float) -> Candidate:
    return Candidate(
        claim_id, ask.project, ask.priority, ask.slots, ask.resources, asked_at, ask.cost, ask.name
    )


def agents_and_their_calls(rows: Rows) -> tuple[frozenset[tuple[str, str]], int]:
    """Whose calls are counted one by one, by project and name, and the slots that those calls hold."""
    pools = rows.pools()
    agents = frozenset(
        (claim.project, claim.name)
        for pool in pools
        if is_agents_pool(pool)
        for claim in rows.claims(pool)
        if claim.held
    )
    if not agents:
        return agents, 0
    held = (claim for pool in pools if not is_agents_pool(pool) for claim in rows.claims(pool) if claim.held)
    return agents, sum(claim.slots for claim in held if (claim.project, claim.name) in agents)


def resources_in_use(rows: RowReader) -> dict[str, int]:
    used: dict[str, int] = {}
    for claim in rows.leases_with_resources():
        for kind, units in claim.resources.items():
            used[kind] = used.get(kind, 0) + units
    return used


def ask_fact(ask: Ask | Claim, now: float, kind: FactKind, words: str) -> Fact:
    return Fact(now, ask.pool, kind, words, ask.project, ask.name, ask.holder.pid)
