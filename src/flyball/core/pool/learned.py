"""What a pool's controller learned: records only. Settings are elsewhere; people never write these.

``CapState`` is what every controller keeps and what status shows; what one of them alone needs is a record of
its own inside it, so a pool can change its controller and keep its level.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

NEVER = -1e18
"""Before everything. Finite, because it is stored."""
INTERVAL_LEAST = 130.0
FIRST_LOOK = 24.0
"""Successes from the end of a fall or a rise to the first probe, until that has found nothing."""


class CooldownState(Enum):
    """What the freeze that now runs (or last ran) followed."""

    NONE = "none"
    CUT = "cut"
    PROBE = "probe"


class CapEvent(Enum):
    """What a throttle did to the cap."""

    COUNTED = "counted"
    CUT = "cut"
    DEEPENED = "deepened"
    UNDONE = "undone"
    AT_FLOOR = "at floor"
    OVERLOADED = "overloaded"
    """Overloads come so thick that the breaker must open; the cap stays."""


@dataclass(frozen=True, slots=True)
class MeasuredState:
    """What the measuring controller learned beside the level."""

    firm: float
    """The highest level known to be served; a level above it is a probe."""
    changed_at: float
    epoch_at: float = NEVER
    """Calls sent before this have been answered by the last cut."""
    cohort_at: float = NEVER
    """Calls sent since this, and before the last cut, met the same limit as the one that caused it."""
    filled_at: float | None = None
    """When the present level was first filled by an admission."""
    reject_s: float = 0.0
    """How long a rejection usually takes to come back; 0 until one has."""
    interval: float = 30.0
    oks: int = 0
    early: bool = False
    """The next probe is one of those that come soon after a fall."""
    look: float = FIRST_LOOK
    """Successes until that probe, at a level that is not small."""
    lost: float = 0.0
    """The level before a deep fall, until it is served again or given up; 0 outside of that."""
    rounds: int = 0
    """Probes that found nothing since that fall."""
    climbing: bool = True
    stride: float = 1.0
    climbed_from: float = 0.0
    """The level where the present climb began; 0 outside one."""
    falls: int = 0
    """Falls in a row without firm ground between them."""
    blips: int = 0
    """How often lately a fall was only a blip (above 0) or real (below)."""
    depth: float = 0.0
    """How deep falls have been lately, as a part of the level before."""
    best: float = 0.0
    """The highest level a probe came to; fades with every failed one."""
    testing: float = 0.0
    """The level before a single fall, while it is tried again."""
    overloads: tuple[float, ...] = ()
    hold_s: float = 0.0
    """How long leases were held lately; 0 until one has ended. It bounds every pause."""
    tried_at: float = NEVER
    """When a call is tried after a refusal whose Retry-After is long."""
    still: bool = False
    """An answer said that the limit is near, or came slowly; growth waits for one that says neither."""


@dataclass(frozen=True, slots=True)
class GradientState:
    """What the latency gradient keeps: the long-run answer time."""

    long_s: float = 0.0


@dataclass(frozen=True, slots=True)
class CapState:
    """What the controller learned. ``level`` is the cap before rounding."""

    level: float
    settle_until: float = 0.0
    settling: CooldownState = CooldownState.NONE
    grew_by: float = 0.0
    failed_level: float | None = None
    episode_level: float | None = None
    """The level before the first of the recent cuts: where to return to after an outage."""
    last_cut_at: float | None = None
    cut_from: float = 0.0
    cuts: tuple[float, ...] = ()
    throttles: tuple[tuple[float, str, str], ...] = ()
    throttle_count: int = 0
    last_throttle_at: float | None = None
    hold_until: float = 0.0
    """Nothing starts before this: the controller waits out a run of refusals."""
    spaced_s: float = 0.0
    """The time between two starts while they are tried one by one after a fall; 0 outside of that."""
    measured: MeasuredState | None = None
    gradient: GradientState | None = None
