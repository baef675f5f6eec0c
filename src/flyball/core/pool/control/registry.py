"""Controllers by name, as settings name them. Each is imported when a pool first uses it."""

from __future__ import annotations

from functools import cache

from flyball.core.pool.control.port import Controller
from flyball.core.pool.learned import CapState
from flyball.core.pool.settings import PoolSettings
from flyball.errors import InvariantError


def controller_for(s: PoolSettings) -> Controller:
    return load_controller(s.controller)


@cache
def load_controller(name: str) -> Controller:
    """One of ``settings.CONTROLLERS``."""
    if name == "measured":
        from flyball.core.pool.control.default_measured import MeasuredController

        return MeasuredController()
    if name in ("article", "koryph"):
        from flyball.core.pool.control.aimd import AimdController

        return AimdController(name, by_success=name == "article")
    if name == "gradient2":
        from flyball.core.pool.control.gradient2 import Gradient2Controller

        return Gradient2Controller()
    if name == "fixed":
        from flyball.core.pool.control.fixed import FixedController

        return FixedController()
    raise InvariantError(f"no controller is called {name!r}")


def migrate_state(state: CapState, now: float) -> CapState:
    """For another controller: the level stays, what only the last one understood does not."""
    return CapState(
        level=state.level,
        settle_until=now,
        last_cut_at=state.last_cut_at,
        throttles=state.throttles,
        throttle_count=state.throttle_count,
        last_throttle_at=state.last_throttle_at,
    )
