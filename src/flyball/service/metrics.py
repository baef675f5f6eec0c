"""Metrics of pools, from what two looks at the store show between them.

**Over-admission**, which must stay 0: slots that began to be used since the last look although the cap was
full. Counted are the slots of leases that were not there before and what share leases grew by, as far as
the pool now uses more than the higher of the two caps. So a cap that was lowered under running work counts
nothing: nothing new began. Left out is what may exceed a cap by design: work recorded as already running
(``hold``), what a share lease declared after the store forgot it (owed), and the breaker's trial. A pool
whose own facts say that its cap moved between the looks is not judged that time: it may have been higher in
between.
"""

from __future__ import annotations

from collections.abc import Sequence

from flyball.core.pool.model import ASK_FACTS, Fact, FactKind, Phase
from flyball.governor.status import LeaseStatus, PoolStatus, Status
from flyball.observe import metrics
from flyball.observe.metrics import MetricRegistry

_EXPIRIES = frozenset({FactKind.RECLAIMED, FactKind.UNANSWERED, FactKind.SHARE})
"""Kinds of facts that tell of slots or places taken back."""
_COUNTED = (
    metrics.POOL_THROTTLES,
    metrics.POOL_EXPIRIES,
    metrics.POOL_WAKES_MISSED,
    metrics.POOL_OVER_ADMITTED,
)


def record_state(registry: MetricRegistry, status: Status) -> None:
    """What is true at this moment."""
    pools = status.pools
    registry.set(metrics.POOL_CAP, [({"pool": pool.name}, pool.cap) for pool in pools])
    registry.set(metrics.POOL_IN_USE, [({"pool": pool.name}, pool.in_use) for pool in pools])
    registry.set(metrics.POOL_WAITING, [({"pool": pool.name}, pool.waiting) for pool in pools])
    registry.set(
        metrics.POOL_PHASE,
        [
            ({"pool": pool.name, "phase": phase.value}, float(pool.breaker == phase.value))
            for pool in pools
            for phase in Phase
        ],
    )
    for pool in pools:
        for metric in _COUNTED:
            registry.add(metric, 0, pool=pool.name)


def record_changes(registry: MetricRegistry, before: Status, after: Status, facts: Sequence[Fact]) -> None:
    """What happened from one look to the next; ``facts`` are those since the look before the first.

    (A fact may be read a moment before the lease that it is about.)
    """
    known = {pool.name: pool for pool in before.pools}
    for pool in after.pools:
        earlier = known.get(pool.name)
        if earlier is None:
            continue
        throttles = pool.throttle_count - earlier.throttle_count
        registry.add(metrics.POOL_THROTTLES, max(0, throttles), pool=pool.name)
        about = [fact for fact in facts if fact.pool == pool.name]
        registry.add(metrics.POOL_OVER_ADMITTED, over_admitted(earlier, pool, about), pool=pool.name)
        for lease in _new_leases(earlier, pool):
            registry.observe(metrics.POOL_WAIT, lease.waited_s, pool=pool.name, tenant=lease.project)


def record_facts(registry: MetricRegistry, facts: Sequence[Fact]) -> None:
    """Counts from the facts since the last look."""
    for fact in facts:
        if fact.kind in _EXPIRIES:
            registry.add(metrics.POOL_EXPIRIES, pool=fact.pool)
        if fact.kind == FactKind.UNANSWERED:
            registry.add(metrics.POOL_WAKES_MISSED, pool=fact.pool)


def over_admitted(before: PoolStatus, after: PoolStatus, facts: Sequence[Fact]) -> int:
    """Slots that began to be used beyond the cap. ``facts`` are those of this pool."""
    beyond = after.in_use - max(before.cap, after.cap)
    if beyond <= 0 or Phase.TRIAL.value in (before.breaker, after.breaker):
        return 0
    if any(fact.kind not in ASK_FACTS for fact in facts):
        return 0
    held = {(fact.project, fact.name) for fact in facts if fact.kind == FactKind.HELD}
    leases = _new_leases(before, after)
    begun = sum(lease.slots for lease in leases if (lease.project, lease.name) not in held)
    return min(beyond, begun + _share_growth(before, after))


def _new_leases(before: PoolStatus, after: PoolStatus) -> list[LeaseStatus]:
    known = {lease.id for lease in before.leases}
    return [lease for lease in after.leases if lease.id not in known]


def _share_growth(before: PoolStatus, after: PoolStatus) -> int:
    """What share leases hold more of than they did, and were granted."""
    held = {(share.node, share.incarnation): share.slots for share in before.shares}
    return sum(
        max(0, share.slots - share.owed - held.get((share.node, share.incarnation), 0))
        for share in after.shares
    )
