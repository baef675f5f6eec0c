"""Looking without touching: what every pool would decide right now.

``projection`` wraps rows so that planning can run on them and nothing is written; a stale plan is
shown as it would be, and stays stale in the store.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from flyball.core import share as fairness
from flyball.core.admit import Candidate
from flyball.core.model import Claim, Phase, ProjectUse
from flyball.core.settings import ShareRule
from flyball.core.verdict import Kind
from flyball.stores import answers, codec
from flyball.stores.desk import PoolDesk, World, candidate, resources_in_use
from flyball.stores.port import PoolSnapshot, ProjectStanding, Snapshot, WaitingAsk
from flyball.stores.rows import Rows

ASKS_SHOWN = 200
"""A line may be thousands long; people and programs look at its front."""

_WRITES = frozenset(
    [
        "add_pool",
        "put_settings",
        "put_plan",
        "put_meters",
        "put_watcher",
        "put_counts",
        "drop_idle_projects",
        "put_turn",
        "add",
        "grant",
        "remove",
        "rebind",
        "confirm",
        "put_demand",
        "drop_demand",
        "put_machine",
        "add_facts",
    ]
)


class _Projection:
    """Reads pass through; writes are forgotten, but for what planning reads back."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._memory: dict[str, str] = {}
        self._shares: dict[tuple[str, str], int | None] = {}

    def __getattr__(self, name: str) -> Any:
        return _forget if name in _WRITES else getattr(self._rows, name)

    def put_project(self, pool: str, use: ProjectUse) -> None:
        self._shares[pool, use.name] = use.share

    def put_memory(self, pool: str, memory: str) -> None:
        self._memory[pool] = memory

    def memory(self, pool: str) -> str:
        return self._memory.get(pool) or self._rows.memory(pool)

    def take_block(self) -> int:
        return 0

    def project(self, pool: str, name: str) -> ProjectUse | None:
        use = self._rows.project(pool, name)
        return self._with_share(pool, use) if use is not None else None

    def projects(self, pool: str) -> list[ProjectUse]:
        return [self._with_share(pool, use) for use in self._rows.projects(pool)]

    def _with_share(self, pool: str, use: ProjectUse) -> ProjectUse:
        use.share = self._shares.get((pool, use.name), use.share)
        return use


def _forget(*_args: object, **_kwargs: object) -> None:
    return None


def projection(rows: Rows) -> Rows:
    return cast(Rows, _Projection(rows))


def take(rows: Rows, world: World) -> Snapshot:
    """Every pool with any state, from a projection."""
    pools = tuple(_pool(PoolDesk(rows, name, world)) for name in rows.pools())
    return Snapshot(rows.now, pools, rows.machine(), resources_in_use(rows))


def _pool(desk: PoolDesk) -> PoolSnapshot:
    row, rows = desk.row, desk.rows
    claims = rows.claims(row.name)
    asks = {c.id: c for c in claims if not c.held}
    line = answers.in_line(desk, [candidate(c.id, c, c.asked_at) for c in asks.values()], limit=ASKS_SHOWN)
    meters = row.meters
    trial = row.limits.phase is Phase.TRIAL and meters.trial_id is not None
    return PoolSnapshot(
        name=row.name,
        named=codec.load_changes(rows.settings(row.name)),
        settings=desk.settings,
        memory=desk.memory,
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
        leases=tuple(c for c in claims if c.held),
        asks=tuple(_asks(desk, asks, line)),
        projects=_standings(desk),
        demands=tuple(d for d in rows.demands(row.name) if d.until > desk.now),
    )


def _asks(desk: PoolDesk, asks: Mapping[int, Claim], line: list[Candidate]) -> list[WaitingAsk]:
    return [
        WaitingAsk(
            asks[ask.id],
            answers.never(desk, ask) or answers.waiting(desk, ask, Kind.PARKED, position=position),
        )
        for position, ask in enumerate(line, start=1)
    ]


def _standings(desk: PoolDesk) -> tuple[ProjectStanding, ...]:
    row = desk.row
    uses = desk.rows.projects(row.name)
    announced = {d.project for d in desk.rows.demands(row.name) if d.until > desk.now}
    demanding = fairness.demanding(uses, sorted(announced))
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
        ProjectStanding(
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
