"""Reading without writing: what every pool would decide right now.

A stale plan is shown as it would be, and stays stale in the store (unwritten_rows.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flyball.core.pool import fairness
from flyball.core.pool.model import Candidate, Claim, Phase
from flyball.core.pool.plan import LearnedState
from flyball.core.pool.rate_window import Window
from flyball.core.pool.settings import MachineSettings, PoolChanges, PoolSettings, ShareRule
from flyball.core.pool.verdict import Verdict, VerdictKind
from flyball.core.share_lease.renewal import ShareLease
from flyball.stores import codec, verdicts
from flyball.stores.pool_session import Environment, PoolSession, candidate, resources_in_use
from flyball.stores.port import Demand
from flyball.stores.rows import RowReader
from flyball.stores.unwritten_rows import as_unwritten

ASKS_SHOWN = 200
"""A line may be thousands long; people and programs look at its front."""


@dataclass(frozen=True, slots=True)
class WaitingAsk:
    claim: Claim
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class ProjectUsage:
    name: str
    in_use: int
    waiting: int
    weight: float
    maximum: int | None
    fair_share: int
    demanding: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSnapshot:
    """One pool as it would be judged right now. Taking it changes nothing."""

    name: str
    named: PoolChanges
    """The settings a person named; ``settings`` is what they resolve to."""
    settings: PoolSettings
    memory: LearnedState
    cap: int
    ceiling: int
    in_use: int
    waiting: int
    phase: Phase
    closed_until: float | None
    trial: str
    trial_since: float | None
    next_grant_at: float
    hold_mean_s: float
    windows: tuple[Window, ...]
    leases: tuple[Claim, ...]
    resting: tuple[Claim, ...]
    asks: tuple[WaitingAsk, ...]
    projects: tuple[ProjectUsage, ...]
    demands: tuple[Demand, ...]
    shares: tuple[ShareLease, ...] = ()
    learning_until: float = float("-inf")
    """Until then share leases do not grow: the store may have forgotten some."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    now: float
    pools: tuple[PoolSnapshot, ...]
    machine: MachineSettings
    resources_in_use: Mapping[str, int]


def take_snapshot(rows: RowReader, world: Environment) -> Snapshot:
    """Every pool with any state."""
    planned = as_unwritten(rows)
    pools = tuple(_pool(PoolSession(planned, name, world)) for name in rows.pools())
    return Snapshot(rows.now, pools, rows.machine(), resources_in_use(rows))


def _pool(session: PoolSession) -> PoolSnapshot:
    row, rows = session.row, session.rows
    claims = rows.claims(row.name)
    asks = {c.id: c for c in claims if not c.held}
    line = verdicts.queue_order(
        session, [candidate(c.id, c, c.asked_at) for c in asks.values()], limit=ASKS_SHOWN
    )
    meters, budget = row.meters, rows.share_budget(row.name)
    trial = row.limits.phase is Phase.TRIAL and meters.trial_id is not None
    return PoolSnapshot(
        name=row.name,
        named=codec.load_changes(rows.settings(row.name)),
        settings=session.settings,
        memory=session.memory,
        cap=row.limits.cap,
        ceiling=row.limits.ceiling,
        in_use=row.counts.in_use,
        waiting=row.counts.waiting,
        phase=row.limits.phase,
        closed_until=row.limits.closed_until,
        trial=f"{meters.trial_project}/{meters.trial_name}" if trial else "",
        trial_since=meters.trial_at if trial else None,
        next_grant_at=meters.next_grant_at,
        hold_mean_s=meters.hold_mean_s,
        windows=meters.windows,
        leases=tuple(c for c in claims if c.held and not c.rests),
        resting=tuple(c for c in claims if c.rests and (c.expires_at or 0.0) > session.now),
        asks=tuple(_asks(session, asks, line)),
        projects=_project_usage(session),
        demands=tuple(d for d in rows.demands(row.name) if d.until > session.now),
        shares=tuple(rows.shares(row.name)),
        learning_until=budget.learning_until if budget is not None else float("-inf"),
    )


def _asks(session: PoolSession, asks: Mapping[int, Claim], line: list[Candidate]) -> list[WaitingAsk]:
    return [
        WaitingAsk(
            asks[ask.id],
            verdicts.refusal_if_impossible(session, ask)
            or verdicts.waiting_verdict(session, ask, VerdictKind.PARKED, position=position),
        )
        for position, ask in enumerate(line, start=1)
    ]


def _project_usage(session: PoolSession) -> tuple[ProjectUsage, ...]:
    row = session.row
    uses = session.rows.projects(row.name)
    announced = {d.project for d in session.rows.demands(row.name) if d.until > session.now}
    demanding = fairness.competing_weights(uses, sorted(announced))
    if row.limits.share is ShareRule.STRICT:
        shares = {use.name: use.share or 0 for use in uses}
    else:
        # A project that only announces demand could use anything; one that asks, what it asks for.
        wants = {
            use.name: (row.limits.cap if use.name in announced else use.in_use + use.waiting, use.weight)
            for use in uses
            if use.name in demanding
        }
        shares = fairness.fair_shares(row.limits.cap, wants)
    return tuple(
        ProjectUsage(
            use.name,
            use.in_use,
            use.waiting,
            use.weight,
            use.maximum,
            shares.get(use.name, 0),
            use.name in demanding,
        )
        for use in uses
        if use.name in demanding or use.weight != 1.0 or use.maximum is not None
    )
