"""No control at all: the cap a person set, and no breaker. A Retry-After still closes the pool."""

from __future__ import annotations

from flyball.core.pool.control.port import CapChange, Controller, SignalContext, UsageSample, count_throttle
from flyball.core.pool.learned import CapEvent, CapState
from flyball.core.pool.settings import PoolSettings


class FixedController(Controller):
    name = "fixed"
    by_success = False
    tuned_by: frozenset[str] = frozenset()

    def on_signal(self, state: CapState, s: PoolSettings, context: SignalContext) -> CapChange:
        counted = count_throttle(state, s, project=context.project, name=context.name, now=context.now)
        return counted, CapEvent.COUNTED

    def on_usage(self, state: CapState, s: PoolSettings, usage: UsageSample) -> CapState:  # noqa: ARG002
        return state

    def freeze(self, state: CapState, s: PoolSettings, now: float) -> CapState:  # noqa: ARG002
        return state

    def resume(self, state: CapState, s: PoolSettings, now: float) -> CapState:  # noqa: ARG002
        return state

    def next_move_at(self, state: CapState, s: PoolSettings, now: float) -> float | None:  # noqa: ARG002
        return None

    def trip_reason(self, state: CapState, s: PoolSettings, event: CapEvent) -> str:  # noqa: ARG002
        return ""
