"""What one sees when one looks at a store: plain records, apart from the port since few need them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flyball.core.model import Claim, Phase
from flyball.core.plan import Memory
from flyball.core.renewal import ShareLease
from flyball.core.settings import MachineSettings, PoolChanges, PoolSettings
from flyball.core.verdict import Verdict
from flyball.core.window import Window
from flyball.stores.port import Demand


@dataclass(frozen=True, slots=True)
class Miscount:
    """A kept count that differs from the claims themselves. ``project`` is empty for the pool's own."""

    pool: str
    project: str
    what: str
    kept: int
    found: int


@dataclass(frozen=True, slots=True)
class WaitingAsk:
    claim: Claim
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class ProjectStanding:
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
    memory: Memory
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
    projects: tuple[ProjectStanding, ...]
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
