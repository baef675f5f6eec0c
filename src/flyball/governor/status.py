"""What ``status`` shows: plain values that turn into JSON as they are.

Durations are relative to the moment it was taken, so the record means the same on any machine.

Of ``status``: who holds share leases of a pool, and which hosts hold leases and are heard.

All of it is the store's view. A holder that has fenced itself cannot tell the store; but when it was last
heard, and by when it must have closed its gate, the store knows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from flyball.core.pool.model import Claim, Phase
from flyball.core.pool.plan import spacing_s
from flyball.core.pool.rate_window import Window
from flyball.core.pool.settings import LEASE_BACKSTOP_S, RESERVED, Counting, is_agents_pool
from flyball.core.pool.subagent_name import parse_subagent_name
from flyball.core.share_lease.allotment import is_silent
from flyball.core.share_lease.renewal import ShareLease, is_expired
from flyball.core.share_lease.timing import ShareTiming
from flyball.governor.account_windows import AccountWindowStatus, pool_hold, pool_windows
from flyball.governor.acquisition import HEARD_S
from flyball.host.process import alive, here, stands_still
from flyball.stores.snapshot import PoolSnapshot, ProjectUsage, Snapshot, WaitingAsk

SILENT_S = HEARD_S
"""A host beats once a second. One that says nothing for so long is shown as silent, no more than that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareStatus:
    """One incarnation of a node and what it holds of the pool, as its last renewal said. What the node itself
    knows now is its ``ShareStats``."""

    node: str
    incarnation: str
    slots: int
    """Counted against the cap."""
    target: int
    """What the plan asks it to go to."""
    in_flight: int
    wants: int
    """In flight and waiting there, as it said last."""
    weight: float
    owed: int
    """The part of ``slots`` that was declared and never granted: running work that came to light."""
    draining: bool
    """Its holder leaves; it only shrinks."""
    silent: bool
    """Not renewed for more than two beats."""
    fenced: bool
    """Not renewed for so long that its holder admits nothing any more, unless ``on_outage`` is ``local``."""
    renewed_s_ago: float
    expires_in_s: float
    successes: int
    throttles: int
    overloads: int
    estimate: float | None
    """What this node believes by itself that the whole pool can take."""

    @property
    def over(self) -> bool:
        """It has left and holds nothing; only its name is kept for a moment."""
        return self.draining and not self.slots


@dataclass(frozen=True, slots=True)
class HostStatus:
    """A host that holds leases of a pool. Machines of one name are told apart by their boot."""

    host: str
    boot: str
    here: bool
    """It is this one."""
    leases: int
    slots: int
    heard_s_ago: float | None
    """How long ago it last said that it looks after its leases; None where it need not, or never did."""

    @property
    def silent(self) -> bool:
        return self.heard_s_ago is not None and self.heard_s_ago > SILENT_S


def shares_of(leases: Iterable[ShareLease], terms: ShareTiming, *, now: float) -> tuple[ShareStatus, ...]:
    """Those whose time is not up: what the others held is free for the next ask."""
    return tuple(_share(lease, terms, now) for lease in leases if not is_expired(lease, now=now))


def _share(lease: ShareLease, terms: ShareTiming, now: float) -> ShareStatus:
    # A pool whose times were changed is judged by the new ones, also where a lease was renewed under the old.
    renewed_s_ago = max(0.0, terms.lease_s - (lease.expires_at - now))
    return ShareStatus(
        node=lease.node,
        incarnation=lease.incarnation,
        slots=lease.slots,
        target=lease.target,
        in_flight=lease.in_flight,
        wants=lease.wants,
        weight=lease.weight,
        owed=lease.owed,
        draining=lease.draining,
        silent=is_silent(lease, terms, now=now),
        fenced=renewed_s_ago >= terms.fence_s,
        renewed_s_ago=renewed_s_ago,
        expires_in_s=lease.expires_at - now,
        successes=lease.tally.successes,
        throttles=lease.tally.throttles,
        overloads=lease.tally.overloads,
        estimate=lease.estimate,
    )


def hosts_of(claims: Iterable[Claim], *, now: float) -> tuple[HostStatus, ...]:
    """The hosts behind some leases, by name."""
    by_place: dict[tuple[str, str, int], list[Claim]] = {}
    for claim in claims:
        holder = claim.holder
        by_place.setdefault((holder.host, holder.boot, holder.pidns), []).append(claim)
    return tuple(_host(held, now) for _, held in sorted(by_place.items()))


def _host(held: list[Claim], now: float) -> HostStatus:
    heard = [claim.confirmed_at for claim in held if claim.confirmed_at is not None]
    holder = held[0].holder
    return HostStatus(
        holder.host,
        holder.boot,
        here(holder),
        len(held),
        sum(claim.slots for claim in held),
        max(0.0, now - max(heard)) if heard else None,
    )


@dataclass(frozen=True, slots=True)
class LeaseStatus:
    id: int
    project: str
    name: str
    pid: int
    launcher_pid: int
    host: str
    slots: int
    priority: int
    model: str
    resources: Mapping[str, int]
    held_s: float
    waited_s: float
    expires_in_s: float | None
    alive: bool | None
    """False: a dead process still holds it, until an ask needs the slot. None: cannot be told from here."""
    confirmed_s_ago: float | None = None
    """How long ago its host last said that it looks after its leases; None where it need not."""
    parent: str | None = None
    """Of a subagent's lease: the name of the session's."""
    calls: Mapping[str, int] | None = None
    """Of an agent whose calls are counted one by one: those in flight, by pool."""
    calls_waiting: int = 0

    @property
    def looked_after(self) -> bool:
        """Its host said so within a few beats."""
        return self.confirmed_s_ago is not None and self.confirmed_s_ago <= SILENT_S


@dataclass(frozen=True, slots=True)
class AskStatus:
    id: int
    project: str
    name: str
    pid: int
    slots: int
    priority: int
    position: int
    waiting_s: float
    reason: str
    words: str
    estimate_s: float | None
    alive: bool | None
    stopped: bool = False
    """Its process is stopped (Ctrl-Z, SIGSTOP): it is passed over until it goes on."""
    why: str = ""
    """What stands in its way: ``words`` without the pool, the place in line and the estimate."""
    parent: str | None = None
    """Of a subagent's ask: the name of its session's lease."""


@dataclass(frozen=True, slots=True)
class RestStatus:
    """A run that waits out a limit before it is tried again. It holds nothing and stands in no line."""

    id: int
    project: str
    name: str
    pid: int
    resting_s: float
    tries_again_in_s: float
    words: str
    alive: bool | None


@dataclass(frozen=True, slots=True)
class DemandStatus:
    project: str
    pid: int
    expires_in_s: float
    alive: bool | None


@dataclass(frozen=True, slots=True)
class ProjectStatus:
    name: str
    in_use: int
    waiting: int
    fair_share: int
    weight: float
    maximum: int | None
    demanding: bool


@dataclass(frozen=True, slots=True)
class WindowStatus:
    """A budget over time; ``source`` says how we know: declared, reported or estimated."""

    name: str
    source: str
    limit: float
    left: float
    per_min: float
    spent: float
    """By all calls so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStatus:
    name: str
    profile: str
    controller: str
    adaptive: bool
    operator_cap: int
    cap: int
    cap_floor: int
    cap_ceiling: int
    in_use: int
    free: int
    reserve: int
    waiting: int
    counts: str
    """What holds a slot: calls, agents, or auto, which is the call where it can be seen."""
    share: str
    throttle_count: int
    last_cut_s_ago: float | None
    last_throttle_s_ago: float | None
    settling: str
    """What the running settle followed: ``cut``, ``probe``, or empty when there is none."""
    settle_ends_in_s: float | None
    breaker: str
    breaker_why: str
    breaker_reopens: int
    closed_for_s: float | None
    """No ask is admitted for this long: the breaker's break, a Retry-After, or a pause after refusals."""
    closed_why: str
    trial: str
    trial_since_s: float | None
    spacing_s: float
    next_start_in_s: float | None
    hold_mean_s: float | None
    windows: tuple[WindowStatus, ...]
    usage_windows: tuple[AccountWindowStatus, ...]
    """How full the usage windows of the pool's account are."""
    usage_warn: float
    open_above: int | None
    """While it is closed for the sake of a usage window: asks of a priority above this start all the same."""
    leases: tuple[LeaseStatus, ...]
    asks: tuple[AskStatus, ...]
    """The first 200 in line; ``waiting`` counts all of them."""
    resting: tuple[RestStatus, ...]
    projects: tuple[ProjectStatus, ...]
    demand: tuple[DemandStatus, ...]
    hosts: tuple[HostStatus, ...]
    """The hosts behind ``leases``."""
    shares: tuple[ShareStatus, ...]
    """Who holds share leases; what they hold is in use, too."""
    heartbeat_s: float
    grace_s: float
    allotment: str
    learning_for_s: float | None
    """The store has just begun another life: share leases do not grow for this long."""


@dataclass(frozen=True, slots=True)
class MachineStatus:
    ceiling: int | None
    memory_floor_bytes: int | None
    resources: Mapping[str, int]
    resources_in_use: Mapping[str, int]
    in_use: int
    cpu_pressure: int | None = None
    """Nothing starts while work waits for a CPU for more than this part of the time, per cent."""


@dataclass(frozen=True, slots=True)
class Status:
    location: str
    pools: tuple[PoolStatus, ...]
    machine: MachineStatus


def status_from(snapshot: Snapshot, location: str, *, reserved: bool = False) -> Status:
    """The one record of how everything stands; screens and answers select from it.

    ``reserved``: with the pools that are flyball's own.
    """
    shown = (pool for pool in snapshot.pools if reserved or not pool.name.startswith(RESERVED))
    pools = _with_calls(tuple(_pool(pool, snapshot.now) for pool in shown))
    machine = MachineStatus(
        snapshot.machine.ceiling,
        snapshot.machine.memory_floor_bytes,
        snapshot.machine.resources,
        snapshot.resources_in_use,
        sum(pool.in_use for pool in pools) - _calls_of_agents(pools),
        snapshot.machine.cpu_pressure,
    )
    return Status(location, pools, machine)


def _with_calls(pools: tuple[PoolStatus, ...]) -> tuple[PoolStatus, ...]:
    """The calls that agents have under way, with the agents: they have the same project and name."""
    if not any(is_agents_pool(pool.name) for pool in pools):
        return pools
    flying: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    waiting: Counter[tuple[str, str]] = Counter()
    for pool in pools:
        if not is_agents_pool(pool.name):
            for lease in pool.leases:
                flying[lease.project, lease.name][pool.name] += 1
            waiting.update((ask.project, ask.name) for ask in pool.asks)

    def agent(lease: LeaseStatus) -> LeaseStatus:
        own = (lease.project, lease.name)
        return replace(lease, calls=dict(flying.get(own, {})), calls_waiting=waiting[own])

    return tuple(
        replace(pool, leases=tuple(map(agent, pool.leases))) if is_agents_pool(pool.name) else pool
        for pool in pools
    )


def _calls_of_agents(pools: Iterable[PoolStatus]) -> int:
    """The machine counts the agents, and not each of their calls besides."""
    agents = {
        (lease.project, lease.name) for pool in pools if is_agents_pool(pool.name) for lease in pool.leases
    }
    return sum(
        lease.slots
        for pool in pools
        if not is_agents_pool(pool.name)
        for lease in pool.leases
        if (lease.project, lease.name) in agents
    )


def _pool(pool: PoolSnapshot, now: float) -> PoolStatus:
    s, cap_state, breaker = pool.settings, pool.memory.cap, pool.memory.breaker
    held = pool_hold(pool, now)
    if held is not None and held.until != pool.closed_until:
        held = None
    settling = s.adaptive and now < cap_state.settle_until
    spacing = spacing_s(cap_state, s)
    return PoolStatus(
        name=pool.name,
        profile=s.profile,
        controller=s.controller,
        adaptive=s.adaptive,
        operator_cap=s.cap,
        cap=pool.cap,
        cap_floor=s.cap_floor,
        cap_ceiling=pool.ceiling,
        in_use=pool.in_use,
        free=max(0, pool.cap - pool.in_use),
        reserve=s.reserve,
        waiting=pool.waiting,
        counts=Counting.AGENTS.value if is_agents_pool(pool.name) else s.counts.value,
        share=s.share.value,
        throttle_count=cap_state.throttle_count,
        last_cut_s_ago=_ago(cap_state.last_cut_at, now),
        last_throttle_s_ago=_ago(cap_state.last_throttle_at, now),
        settling=cap_state.settling.value if settling else "",
        settle_ends_in_s=cap_state.settle_until - now if settling else None,
        breaker=pool.phase.value,
        breaker_why=breaker.why if pool.phase is not Phase.CLOSED else "",
        breaker_reopens=breaker.reopens,
        closed_for_s=pool.closed_until - now if pool.closed_until is not None else None,
        closed_why=held.window.words if held is not None else _closed_why(pool),
        trial=pool.trial,
        trial_since_s=_ago(pool.trial_since, now),
        spacing_s=spacing,
        next_start_in_s=pool.next_grant_at - now if spacing and pool.next_grant_at > now else None,
        hold_mean_s=pool.hold_mean_s or None,
        windows=tuple(_window(window, now) for window in pool.windows),
        usage_windows=pool_windows(pool, now),
        usage_warn=s.usage_warn,
        open_above=held.open_above if held is not None else None,
        leases=tuple(_lease(claim, now) for claim in pool.leases),
        asks=tuple(_asking(ask, now) for ask in pool.asks),
        resting=tuple(_rest(claim, now) for claim in pool.resting),
        projects=tuple(_project(standing) for standing in pool.projects),
        demand=tuple(
            DemandStatus(each.project, each.holder.pid, each.until - now, alive(each.holder))
            for each in pool.demands
        ),
        hosts=hosts_of(pool.leases, now=now),
        shares=shares_of(pool.shares, s.share_terms, now=now),
        heartbeat_s=s.heartbeat_s,
        grace_s=s.grace_s,
        allotment=s.allotment.value,
        learning_for_s=pool.learning_until - now if pool.learning_until > now else None,
    )


def _closed_why(pool: PoolSnapshot) -> str:
    """Whichever keeps it closed longest."""
    if pool.closed_until is None:
        return ""
    if pool.phase is Phase.OPEN and pool.memory.breaker.open_until >= pool.closed_until:
        return pool.memory.breaker.why or "the breaker is open"
    if pool.memory.retry_until is not None and pool.memory.retry_until >= pool.closed_until:
        return pool.memory.retry_why or "the provider said to retry later"
    return "waiting out a refusal"


def _window(window: Window, now: float) -> WindowStatus:
    left = max(0.0, window.level_at(now))
    refill = window.refill_per_s * 60
    return WindowStatus(window.name, window.source.value, window.limit, left, refill, window.spent)


def _ago(at: float | None, now: float) -> float | None:
    return max(0.0, now - at) if at is not None else None


def _lease(claim: Claim, now: float) -> LeaseStatus:
    granted_at = claim.granted_at if claim.granted_at is not None else now
    known = alive(claim.holder)
    return LeaseStatus(
        claim.id,
        claim.project,
        claim.name,
        claim.holder.pid,
        claim.launcher_pid,
        claim.holder.host,
        claim.slots,
        claim.priority,
        claim.model,
        claim.resources,
        max(0.0, now - granted_at),
        max(0.0, granted_at - claim.asked_at),
        _expiry(claim, known, now),
        known,
        _ago(claim.confirmed_at, now),
        _parent(claim.name),
    )


def _parent(name: str) -> str | None:
    found = parse_subagent_name(name)
    return found[0] if found is not None else None


def _expiry(claim: Claim, known: bool | None, now: float) -> float | None:
    """A holder that cannot be checked from here counts for a day, or until it fails to confirm."""
    if claim.expires_at is not None:
        return claim.expires_at - now
    if known is not None or claim.granted_at is None:
        return None
    return max(claim.granted_at, claim.confirmed_at or 0.0) + LEASE_BACKSTOP_S - now


def _asking(ask: WaitingAsk, now: float) -> AskStatus:
    claim, verdict = ask.claim, ask.verdict
    return AskStatus(
        claim.id,
        claim.project,
        claim.name,
        claim.holder.pid,
        claim.slots,
        claim.priority,
        verdict.position,
        max(0.0, now - claim.asked_at),
        verdict.reason.value,
        verdict.words(),
        verdict.estimate_s,
        alive(claim.holder),
        stands_still(claim.holder),
        verdict.why(place=False, estimate=False),
        _parent(claim.name),
    )


def _rest(claim: Claim, now: float) -> RestStatus:
    return RestStatus(
        claim.id,
        claim.project,
        claim.name,
        claim.holder.pid,
        max(0.0, now - claim.asked_at),
        max(0.0, (claim.expires_at or now) - now),
        claim.why,
        alive(claim.holder),
    )


def _project(standing: ProjectUsage) -> ProjectStatus:
    return ProjectStatus(
        standing.name,
        standing.in_use,
        standing.waiting,
        standing.fair_share,
        standing.weight,
        standing.maximum,
        standing.demanding,
    )
