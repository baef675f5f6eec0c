"""Short words for the pure tests: settings by name, and one throttle at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flyball.core.pool.control.aimd import on_throttle
from flyball.core.pool.learned import CapEvent, CapState, CooldownState
from flyball.core.pool.model import Limits, Phase
from flyball.core.pool.setting_table import resolve_pool
from flyball.core.pool.settings import PoolChanges, PoolSettings, ShareRule

if TYPE_CHECKING:
    from typing import Unpack

T0 = 1_000.0
SETTLE_S = 120.0
PROBE_S = 300.0
LIMITS = Limits(
    version=1,
    valid_until=T0 + 60,
    cap=4,
    ceiling=8,
    reserve=0,
    phase=Phase.CLOSED,
    closed_until=None,
    spacing_s=0.0,
    spacing_jitter=0.5,
    share=ShareRule.LEND,
    ageing_s=60.0,
)


def pool(**changes: Unpack[PoolChanges]) -> PoolSettings:
    """The seeds' controllers, unless another is named: their rules are what most tests here tell."""
    usual = "article" if changes.get("profile") == "calls" else "koryph"
    return resolve_pool({"controller": usual, **changes})


def at(level: float, **fields: object) -> CapState:
    """A cap that has been calm since T0."""
    return CapState(level=level, **{"settle_until": T0, **fields})  # type: ignore[arg-type]


def cut(level: float, *, failed: float, since: float = T0) -> CapState:
    """A cap that was cut to ``level`` at ``since`` because ``failed`` did."""
    return CapState(
        level=level,
        settle_until=since + SETTLE_S,
        settling=CooldownState.CUT,
        failed_level=failed,
        episode_level=failed,
        last_cut_at=since,
        cut_from=failed,
        cuts=(since,),
        throttles=((since, "a", "t-0"),),
    )


def probed(level: float, *, by: float = 1.0, since: float = T0) -> CapState:
    """A cap that was raised to ``level`` at ``since``."""
    return CapState(level=level, settle_until=since + SETTLE_S, settling=CooldownState.PROBE, grew_by=by)


def throttle(
    state: CapState, s: PoolSettings, now: float, *, project: str = "a", name: str = "t-0"
) -> tuple[CapState, CapEvent]:
    return on_throttle(state, s, project=project, name=name, now=now)
