"""What a limiter may be told, and what it tells: its stats."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from flyball.core.settings import PoolChanges, PoolSettings
from flyball.errors import UsageError

if TYPE_CHECKING:
    from flyball.governor.turnstile import Turnstile

_OF_POOLS = frozenset(
    {"share", "rotation_s", "weights", "maxima", "reserve"}
    | {"heartbeat_s", "grace_s", "allotment", "estimates"}
)


def check_maximum(maximum: int | None) -> int | None:
    whole: object = maximum
    if whole is not None and (not isinstance(whole, int) or isinstance(whole, bool) or whole < 1):
        raise UsageError(f"maximum must be a whole number above 0, or None; not {maximum!r}")
    return maximum


def check_settings(changes: PoolChanges, settings: PoolSettings) -> None:
    """Refuse what a limiter with these settings would silently ignore."""
    useless = sorted(_OF_POOLS & changes.keys())
    if useless:
        raise UsageError(f"{useless[0]} is for pools that projects share; a limiter has none")
    if changes.get("spacing_s") and not settings.adapts:
        raise UsageError("spacing_s is for a cap that adapts; this one is fixed")


@dataclass(frozen=True, slots=True)
class WindowStats:
    name: str
    limit: float
    left: float
    source: str
    """Declared by a person, reported by the provider's headers, or estimated from refusals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimiterStats:
    """A limiter at one moment. ``record`` is the same for JSON."""

    name: str
    profile: str
    controller: str
    in_use: int
    cap: int
    """What may run at once now: the controller's cap, within the maximum."""
    cap_ceiling: int
    maximum: int | None
    waiting: int
    phase: str
    """Of the breaker: closed (all is well), open, or trial."""
    closed_for_s: float | None
    """How long nobody is let in yet; None while it is open."""
    hold_mean_s: float
    successes: int
    throttles: int
    last_throttle_age_s: float | None
    retries_left: int
    windows: tuple[WindowStats, ...]

    @classmethod
    def of(cls, desk: Turnstile) -> LimiterStats:
        with desk.lock:
            gate, now = desk.gate, desk.clock()
            limits, learned, s = gate.limits, gate.memory.cap, gate.settings
            closed_s = 0.0 if limits.closed_until is None else limits.closed_until - now
            throttled_at = learned.last_throttle_at
            return cls(
                name=gate.name,
                profile=s.profile,
                controller=s.controller,
                in_use=desk.in_hands,
                cap=limits.cap if desk.maximum is None else min(limits.cap, desk.maximum),
                cap_ceiling=limits.ceiling,
                maximum=desk.maximum,
                waiting=desk.line.length,
                phase=limits.phase.value,
                closed_for_s=closed_s if closed_s > 0 else None,
                hold_mean_s=gate.meters.hold_mean_s,
                successes=desk.successes,
                throttles=learned.throttle_count,
                last_throttle_age_s=None if throttled_at is None else now - throttled_at,
                retries_left=desk.retries_left(now),
                windows=tuple(
                    WindowStats(window.name, window.limit, window.level_at(now), window.source.value)
                    for window in gate.windows
                ),
            )

    def record(self) -> dict[str, Any]:
        return asdict(self)
