"""No control at all: the cap a person set, and no breaker. A Retry-After still closes the pool."""

from __future__ import annotations

from flyball.core.pool.control.port import BreakerTimes, CapChange, SignalContext, UsageSample, count_throttle
from flyball.core.pool.learned import CapEvent, CapState
from flyball.core.pool.settings import PoolSettings


class FixedController:
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

    def binds_one_call(self, state: CapState, s: PoolSettings, context: SignalContext) -> bool:  # noqa: ARG002
        return False

    def blames_quota(self, state: CapState, s: PoolSettings, context: SignalContext) -> bool:  # noqa: ARG002
        return False

    def confirmed_level(self, state: CapState) -> float:  # noqa: ARG002
        return 0.0

    def undo_refusals(self, state: CapState, s: PoolSettings, now: float) -> CapState:  # noqa: ARG002
        return state

    def breaker_times(self, state: CapState, s: PoolSettings, hold_mean_s: float) -> BreakerTimes:  # noqa: ARG002
        return BreakerTimes(s.break_s, s.break_max_s, s.trial_clean_s)
