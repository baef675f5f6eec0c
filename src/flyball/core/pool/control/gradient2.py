"""Latency as the signal: Netflix's Gradient2, for self-hosted backends that queue instead of refusing.

The level moves with the ratio of the long-run answer time to the present one: answers that get slower
mean that a queue grows somewhere, and the level shrinks before anything is refused.

    gradient  = max(0.5, min(1.0, tolerance * long / short))
    new level = level * gradient + queue            queue = sqrt(level): room to find out
    level     = level * (1 - smoothing) + new level * smoothing

It misreads providers that refuse: a fast refusal looks like low latency and a long answer like
congestion. So a refusal here cuts by a tenth, and the default is another controller.
"""

from __future__ import annotations

import math
from dataclasses import replace

from flyball.core.pool.control.aimd import freeze
from flyball.core.pool.control.fixed import FixedController
from flyball.core.pool.control.port import CapChange, SignalContext, UsageSample
from flyball.core.pool.learned import CapEvent, CapState, GradientState
from flyball.core.pool.settings import PoolSettings

TOLERANCE = 1.5
SMOOTHING = 0.2
LONG_SMOOTHING = 2 / (600 + 1)
"""The long-run answer time follows over about 600 samples."""


class Gradient2Controller(FixedController):
    name = "gradient2"
    by_success = True
    tuned_by = frozenset({"settle_s"})

    def on_signal(self, state: CapState, s: PoolSettings, context: SignalContext) -> CapChange:
        state, _ = super().on_signal(state, s, context)
        level = max(float(s.cap_floor), state.level * 0.9)
        return replace(state, level=level, last_cut_at=context.now), CapEvent.CUT

    def on_usage(self, state: CapState, s: PoolSettings, usage: UsageSample) -> CapState:
        if usage.level_is_too_small and usage.now >= state.settle_until:
            # No answer time will ever tell.
            level = min(state.level + 1, float(s.cap_ceiling))
            return replace(state, level=level, settle_until=usage.now + s.settle_s)
        short_s = usage.hold_mean_s
        if short_s <= 0 or not usage.bound_oks or usage.now < state.settle_until:
            return state
        own = state.gradient or GradientState(long_s=short_s)
        weight = 1 - (1 - LONG_SMOOTHING) ** usage.bound_oks
        long_s = own.long_s + (short_s - own.long_s) * weight
        if long_s > 2 * short_s:
            # The backend got much faster: forget the slow past sooner.
            long_s *= 0.95
        gradient = max(0.5, min(1.0, TOLERANCE * long_s / short_s))
        target = state.level * gradient + math.sqrt(state.level)
        level = state.level * (1 - SMOOTHING) + target * SMOOTHING
        level = max(float(s.cap_floor), min(level, float(s.cap_ceiling)))
        return replace(state, level=level, gradient=GradientState(long_s=long_s))

    def freeze(self, state: CapState, s: PoolSettings, now: float) -> CapState:
        return freeze(state, s, now)
