"""What the doctor can find in a readable state. Values in, findings out.

A *problem* makes ``flyball doctor`` exit with 1; a *note* is worth knowing and needs no action. Most findings
about nodes and hosts mend themselves within seconds and are notes; a host that vanished with its leases, and
two machines under one name, need a person.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from flyball.cli.ui.pool_status import breaker_words, present_nodes, short_incarnation
from flyball.cli.ui.render import plain_words
from flyball.cli.ui.units import command, counted
from flyball.core.pool.breaker import FLAPPING_REOPENS
from flyball.core.pool.deadlock import Holding, Waiting, deadlocked
from flyball.core.pool.model import Claim
from flyball.core.pool.rate_window import Source
from flyball.core.pool.settings import LEASE_BACKSTOP_S
from flyball.core.pool.verdict import span_words
from flyball.governor.acquisition import lives
from flyball.governor.status import PoolStatus, ShareStatus, Status
from flyball.host.process import alive, ancestors, here
from flyball.stores.port import Demand, HolderCensus
from flyball.stores.recount import CountMismatch

PINNED_S = 1800.0
AHEAD_S = 5.0
"""Clocks read one after the other may differ a little; by this much they do not."""
_NAMES_SHOWN = 5
FIX = "flyball doctor --fix"


class Severity(Enum):
    PROBLEM = "problem"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorFinding:
    kind: str
    words: str
    """What is the matter."""
    meaning: str
    remedy: str
    pool: str = ""
    severity: Severity = Severity.PROBLEM
    fixable: bool = False
    """``--fix`` mends it."""
    fixed: bool = False

    @property
    def key(self) -> tuple[str, str]:
        return (self.kind, self.pool)


@dataclass(frozen=True, slots=True)
class Dead:
    """What ``--fix`` may take back."""

    claims: tuple[Claim, ...]
    demands: tuple[Demand, ...]


def find_dead(census: HolderCensus, now: float) -> Dead:
    """Claims and demand whose process is gone.

    An ask that cannot be checked from here counts as stale after a day: were its owner alive after all, it
    would stand in line again by itself.
    """
    claims = [
        claim
        for claim in census.claims
        if lives(claim, now) is False
        or (claim.expires_at is not None and claim.expires_at <= now)
        or (not claim.held and alive(claim.holder) is None and now - claim.asked_at > LEASE_BACKSTOP_S)
    ]
    demands = [d for d in census.demands if d.until <= now or alive(d.holder) is False]
    return Dead(tuple(claims), tuple(demands))


def blocking_pools(dead: Dead, census: HolderCensus, status: Status | None) -> frozenset[str]:
    """The pools whose dead leases keep an ask waiting, or fill the cap.

    Elsewhere the next ask that needs the slot takes it back; ``exec --replace`` always leaves such a lease.
    """
    pools = frozenset(c.pool for c in dead.claims if c.held and not c.rests)
    if status is None:
        return pools
    gone = {c.id for c in dead.claims}
    waiting = {c.pool for c in census.claims if not c.held and c.id not in gone}
    # What they hold beside their slots may be what another pool's line waits for.
    shared = waiting and (
        status.machine.ceiling is not None or any(c.resources for c in dead.claims if c.held)
    )
    full = {pool.name for pool in status.pools if pool.free == 0}
    return pools if shared else pools & (waiting | full)


def check_dead(dead: Dead, now: float, *, blocking: frozenset[str]) -> Iterator[DoctorFinding]:
    for pool in sorted({c.pool for c in dead.claims} | {d.pool for d in dead.demands}):
        leases = [c for c in dead.claims if c.pool == pool and c.held]
        asks = [c for c in dead.claims if c.pool == pool and not c.held]
        demands = [d for d in dead.demands if d.pool == pool]
        if leases:
            yield _dead_leases(pool, leases, hinder=pool in blocking)
        if asks:
            yield DoctorFinding(
                kind="dead-ask",
                pool=pool,
                words=f"{counted(len(asks), 'dead ask')}: {_claim_names(asks)}",
                meaning="the processes that waited for these places in line are gone",
                remedy=f"skipped when their turn comes; {FIX} drops them now",
                fixable=True,
            )
        if demands:
            yield _stale_demands(pool, demands, now)


def _dead_leases(pool: str, leases: Sequence[Claim], *, hinder: bool) -> DoctorFinding:
    slots = sum(c.slots for c in leases)
    return DoctorFinding(
        kind="dead-lease",
        pool=pool,
        severity=Severity.PROBLEM if hinder else Severity.NOTE,
        words=f"{counted(len(leases), 'dead lease')}: {_claim_names(leases)}",
        meaning=f"{counted(slots, 'slot')} still counted for processes that are gone"
        + ("" if hinder else "; no ask needs it now"),
        remedy=f"an ask that needs the slot takes it back by itself; {FIX} does it now",
        fixable=True,
    )


def check_unchecked(census: HolderCensus, now: float) -> Iterator[DoctorFinding]:
    """Leases whose holders cannot be checked from here, and that no host looks after."""
    for pool in sorted({claim.pool for claim in census.claims}):
        leases = [c for c in census.claims if c.pool == pool and c.held and not c.rests and c.holder.pid]
        unknown = [c for c in leases if lives(c, now) is None and c.confirmed_at is None]
        if unknown:
            ids = ", ".join(str(claim.id) for claim in unknown[:_NAMES_SHOWN])
            yield DoctorFinding(
                kind="unchecked-lease",
                pool=pool,
                severity=Severity.NOTE,
                words=f"{counted(len(unknown), 'lease')} cannot be checked from here: "
                + _claim_names(unknown),
                meaning="their processes are in another pid namespace (a container, say) or on another host; "
                f"each counts until it is released, at most for {span_words(LEASE_BACKSTOP_S)}",
                remedy=f"if their work is over: flyball lease drop ID, of {ids}",
            )


MACHINE_LIMIT = "the machine"


def check_deadlock(census: HolderCensus, status: Status | None) -> Iterator[DoctorFinding]:
    """Commands inside leases that wait for each other, over pools or at the machine's ceiling."""
    asks = [claim for claim in census.claims if not claim.held and here(claim.holder)]
    leases = [claim for claim in census.claims if claim.held and not claim.rests]
    if status is None or not asks:
        return
    caps = {pool.name: pool.cap for pool in status.pools}
    free = {pool.name: pool.cap - pool.in_use for pool in status.pools}
    ceiling = status.machine.ceiling
    if ceiling is not None:
        free[MACHINE_LIMIT] = ceiling - sum(pool.in_use for pool in status.pools)

    def limits(claim: Claim) -> dict[str, int]:
        slots = {claim.pool: min(claim.slots, caps.get(claim.pool, claim.slots))}
        return slots if ceiling is None else {**slots, MACHINE_LIMIT: claim.slots}

    waiting = []
    for ask in asks:
        pids = set(ancestors(ask.holder.pid))
        around = [lease for lease in leases if here(lease.holder) and lease.holder.pid in pids]
        # Inside a lease of its own pool it rides on that one as soon as another there has ended.
        if not any(lease.pool == ask.pool and lease.slots >= ask.slots for lease in around):
            waiting.append(Waiting(ask.id, limits(ask), frozenset(lease.id for lease in around)))
    stuck = deadlocked(free, (Holding(lease.id, limits(lease)) for lease in leases), waiting)
    found = [lease for lease in leases if lease.id in stuck]
    if found:
        pools = sorted({lease.pool for lease in found})
        yield DoctorFinding(
            kind="deadlock",
            pool=pools[0],
            words=f"{counted(len(found), 'lease')} of {', '.join(pools)} wait for each other: "
            + _claim_names(found),
            meaning="the command of each waits inside it for a slot that another one holds, so none goes on",
            remedy="end one of them, or give one pool (or the machine) room for one more: "
            f"{command('pool', 'set', pools[0], '--cap', str(caps[pools[0]] + 1))}",
        )


def _stale_demands(pool: str, demands: Sequence[Demand], now: float) -> DoctorFinding:
    counting = any(demand.until > now for demand in demands)
    return DoctorFinding(
        kind="stale-demand",
        pool=pool,
        severity=Severity.PROBLEM if counting else Severity.NOTE,
        words=f"stale demand of {', '.join(sorted({d.project for d in demands}))}",
        meaning="a share is kept for ready work whose process is gone"
        if counting
        else "it once announced ready work; that ran out and counts for nothing",
        remedy=f"it runs out by itself; {FIX} drops it now",
        fixable=True,
    )


def _claim_names(claims: Sequence[Claim]) -> str:
    return first_names(f"{c.project}/{c.name} (pid {c.holder.pid})" for c in claims)


def check_pools(pools: Iterable[PoolStatus]) -> Iterator[DoctorFinding]:
    for pool in pools:
        yield from _check_breaker(pool)
        yield from _check_cap(pool)
        yield from _check_names(pool)
        yield from _check_windows(pool)


def _check_breaker(pool: PoolStatus) -> Iterator[DoctorFinding]:
    if pool.breaker == "closed":
        return
    flapping = pool.breaker_reopens >= FLAPPING_REOPENS
    if flapping:
        meaning = "flapping: every trial was throttled again, so the account itself is limited"
        remedy = (
            "look at the provider's limits or lower the load; --break sets the pause, "
            f"{command('pool', 'reset', pool.name)} starts over"
        )
    else:
        meaning = "nothing new starts here until a single trial goes well; running work goes on"
        remedy = f"wait, or {command('pool', 'reset', pool.name)} if you know that the limit is gone"
    yield DoctorFinding(
        kind="breaker-flapping" if flapping else f"breaker-{pool.breaker}",
        pool=pool.name,
        words=f"breaker {plain_words(breaker_words(pool))}",
        meaning=meaning,
        remedy=remedy,
    )


def _check_cap(pool: PoolStatus) -> Iterator[DoctorFinding]:
    at_floor = pool.adaptive and pool.cap == pool.cap_floor < pool.operator_cap
    if at_floor and pool.last_cut_s_ago is not None and pool.last_cut_s_ago > PINNED_S:
        yield DoctorFinding(
            kind="cap-at-floor",
            pool=pool.name,
            words=f"cap still at its floor, {pool.cap}, {span_words(pool.last_cut_s_ago)} after the last cut",
            meaning="it is throttled again whenever it grows, or nothing has filled it since",
            remedy="lower --cap or --ceiling to what the account allows, or start over with "
            + command("pool", "reset", pool.name),
        )


def _check_names(pool: PoolStatus) -> Iterator[DoctorFinding]:
    """Two processes under one name are two leases; fine, unless a person thinks they are one."""
    holders: dict[tuple[str, str], set[tuple[str, int]]] = {}
    for lease in pool.leases:
        if lease.alive is not False:
            holders.setdefault((lease.project, lease.name), set()).add((lease.host, lease.pid))
    twice = [(f"{project}/{name}", who) for (project, name), who in holders.items() if len(who) > 1]
    for name, who in twice[:_NAMES_SHOWN]:
        pids = ", ".join(str(pid) for _, pid in sorted(who))
        yield DoctorFinding(
            kind=f"same-name {name}",
            pool=pool.name,
            severity=Severity.NOTE,
            words=f"{name} runs {len(who)} times, as pids {pids}",
            meaning="each of them holds slots of its own",
            remedy="give them different names if they are different tasks",
        )


def _check_windows(pool: PoolStatus) -> Iterator[DoctorFinding]:
    """A window that no call is counted in limits nothing."""
    if pool.hold_mean_s is None:
        return
    for window in pool.windows:
        if window.source == Source.DECLARED.value and not window.spent:
            yield DoctorFinding(
                kind=f"window-unspent {window.name}",
                pool=pool.name,
                severity=Severity.NOTE,
                words=f"no call has used anything of the window {window.name!r}",
                meaning="a call counts in it only if its cost names it, and none has",
                remedy=f'say it with each call: flyball.slot("{pool.name}", cost={{"{window.name}": 1}}); '
                + f"or {command('pool', 'set', pool.name, '--window', f'{window.name}=0')}",
            )


def check_times(census: HolderCensus, now: float) -> Iterator[DoctorFinding]:
    ahead = {c.pool for c in census.claims if max(c.asked_at, c.granted_at or 0.0) > now + AHEAD_S}
    for pool in sorted(ahead):
        yield DoctorFinding(
            kind="clock",
            pool=pool,
            words="leases or asks that begin in the future",
            meaning="a process with another boot clock shares this state; ages and estimates are wrong",
            remedy="give each machine or container its own FLYBALL_HOME",
        )


def check_counts(wrong: Sequence[CountMismatch]) -> Iterator[DoctorFinding]:
    for pool in sorted({w.pool for w in wrong}):
        mine = [w for w in wrong if w.pool == pool]
        told = [
            f"{w.what} {w.kept} instead of {w.found}{f' for {w.project}' if w.project else ''}" for w in mine
        ]
        yield DoctorFinding(
            kind="miscount",
            pool=pool,
            words=f"counts do not match the leases: {', '.join(told[:_NAMES_SHOWN])}",
            meaning="the pool grants too much or too little; the file was edited, or it is a bug in flyball",
            remedy=f"{FIX} counts again; please report it",
            fixable=True,
        )


VANISHED_S = 60.0
"""A host that is silent for less, because it sleeps or restarts, is not reported."""


def check_fleet(pools: Iterable[PoolStatus]) -> Iterator[DoctorFinding]:
    for pool in pools:
        yield from _check_same_nodes(pool)
        yield from _check_silent_nodes(pool)
        yield from _check_owed(pool)
        yield from _check_silent_hosts(pool)
        yield from _check_same_hosts(pool)


def _check_same_nodes(pool: PoolStatus) -> Iterator[DoctorFinding]:
    """A node that was restarted leaves a silent lease behind; two that renew are two processes."""
    by_name: dict[str, list[ShareStatus]] = {}
    for node in present_nodes(pool):
        if not node.silent and not node.draining:
            by_name.setdefault(node.node, []).append(node)
    for name, nodes in by_name.items():
        if len(nodes) > 1:
            incarnations = first_names(short_incarnation(node) for node in nodes)
            yield DoctorFinding(
                kind=f"same-node {name}",
                pool=pool.name,
                severity=Severity.NOTE,
                words=f"node {name} renews {len(nodes)} share leases: {incarnations}",
                meaning="each process has a part of its own, so the node has more parts than others",
                remedy="give each process another name (share(node=...)), or one share to all of them",
            )


def _check_silent_nodes(pool: PoolStatus) -> Iterator[DoctorFinding]:
    silent = [node for node in present_nodes(pool) if node.silent and node.slots]
    if silent:
        slots, last_s = sum(node.slots for node in silent), max(node.expires_in_s for node in silent)
        yield DoctorFinding(
            kind="silent-node",
            pool=pool.name,
            severity=Severity.NOTE,
            words=f"{counted(len(silent), 'node')} not renewing: {first_names(node.node for node in silent)}",
            meaning=f"{counted(slots, 'slot')} still counted; free for others in {span_words(last_s)}",
            remedy="if they should run, look at their processes and at their connection to the store",
        )


def _check_owed(pool: PoolStatus) -> Iterator[DoctorFinding]:
    owing = [node for node in present_nodes(pool) if node.owed]
    if owing:
        yield DoctorFinding(
            kind="owed",
            pool=pool.name,
            severity=Severity.NOTE,
            words=f"{counted(sum(node.owed for node in owing), 'slot')} in use that were never granted, on "
            + first_names(node.node for node in owing),
            meaning="work that outlived its lease, or began without the store; nothing starts in its place",
            remedy="on_fenced of a share can end such work, --grace of the pool leaves it time",
        )


def _check_silent_hosts(pool: PoolStatus) -> Iterator[DoctorFinding]:
    for host in pool.hosts:
        if host.heard_s_ago is not None and host.heard_s_ago > VANISHED_S:
            yield DoctorFinding(
                kind=f"silent-host {host.host}",
                pool=pool.name,
                words=f"host {host.host} holds {counted(host.slots, 'slot')} and was not heard of for "
                f"{span_words(host.heard_s_ago)}",
                meaning="they stay counted, for its work may still run, until "
                f"{span_words(LEASE_BACKSTOP_S)} after its last word",
                remedy=f"run {FIX} there; if the machine is gone for good, "
                f"FLYBALL_HOST_ID={shlex.quote(host.host)} {FIX} here",
            )


def _check_same_hosts(pool: PoolStatus) -> Iterator[DoctorFinding]:
    boots: dict[str, set[str]] = {}
    for host in pool.hosts:
        if host.heard_s_ago is not None and not host.silent:
            boots.setdefault(host.host, set()).add(host.boot)
    for name in (name for name, found in boots.items() if len(found) > 1):
        yield DoctorFinding(
            kind=f"same-host {name}",
            pool=pool.name,
            words=f"{len(boots[name])} machines call themselves {name}",
            meaning="each takes the leases of the other for those of its own last boot, and gives them away",
            remedy="name one of them otherwise, or set FLYBALL_HOST_ID there, for all its processes alike",
        )


def first_names(names: Iterable[str]) -> str:
    """A few names, and how many more there are."""
    found = list(names)
    more = len(found) - _NAMES_SHOWN
    return ", ".join(found[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
