"""How many slots a learned level stands for, and the count of throttles every controller keeps."""

from __future__ import annotations

from dataclasses import replace

from flyball.core.learned import CapState
from flyball.core.settings import PoolSettings

HISTORY_LIMIT = 64


def cap_of(state: CapState, s: PoolSettings) -> int:
    """The whole number of slots the level stands for."""
    if not s.adapts:
        return s.cap
    # Bounded before it is rounded: whatever a controller says, even no number, stands for some cap.
    return int(max(float(s.cap_floor), min(state.level, float(s.cap_ceiling))))


def within(state: CapState, s: PoolSettings) -> CapState:
    """The bounds may have moved since the level was learned; what counts is the cap it stands for."""
    level = max(float(s.cap_floor), min(state.level, float(s.cap_ceiling)))
    return state if level == state.level else replace(state, level=level)


def count_throttle(state: CapState, s: PoolSettings, *, project: str, name: str, now: float) -> CapState:
    """Remember a throttle without acting on it."""
    recent = [t for t in state.throttles if now - t[0] <= s.burst_window_s]
    recent.append((now, project, name))
    return replace(
        state,
        throttles=tuple(recent[-HISTORY_LIMIT:]),
        throttle_count=state.throttle_count + 1,
        last_throttle_at=now,
    )
