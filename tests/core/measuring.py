"""Short words for the tests of the measured controller: a calm level, a refusal, a look."""

from __future__ import annotations

import math
from dataclasses import replace

from flyball.core.pool.control.default_measured import REJECT_TIMES, MeasuredController
from flyball.core.pool.control.port import SignalContext, UsageSample, cap_for
from flyball.core.pool.learned import CapEvent, CapState, MeasuredState
from flyball.core.pool.setting_table import resolve_pool
from flyball.core.pool.settings import PoolSettings
from flyball.core.signals import Signal, SignalKind
from tests.core.kit import T0

CONTROL = MeasuredController()
S = resolve_pool({"cap": 20, "cap_ceiling": 64})
REJECT_S, HOLD_S = 0.2, 6.0
CONFIRM_S = REJECT_TIMES * REJECT_S
MANY = 100_000


def calm(level: float, **learned: object) -> CapState:
    """Firm ground since T0, with everything about rejections known and nothing to climb for."""
    own = MeasuredState(firm=level, changed_at=T0, reject_s=REJECT_S, climbing=False)
    return CapState(level=level, settle_until=T0, measured=replace(own, **learned))  # type: ignore[arg-type]


def probing(level: float, *, firm: float, **learned: object) -> CapState:
    """A level above firm ground, reached at T0."""
    return replace(calm(firm, climbed_from=firm, **learned), level=level)


def own(state: CapState) -> MeasuredState:
    assert state.measured is not None
    return state.measured


def refused(
    state: CapState,
    *,
    at: float = T0 + 10,
    sent: float | None = None,
    in_flight: int | None = None,
    in_use: int = 40,
    hold_s: float = 0.0,
    kind: SignalKind = SignalKind.THROTTLED,
    s: PoolSettings = S,
) -> tuple[CapState, CapEvent]:
    """A call is refused that was sent a usual rejection before, unless said otherwise."""
    sent = at - REJECT_S if sent is None else sent
    heard = SignalContext(
        signal=Signal(kind), now=at, in_use=in_use, sent_at=sent, in_flight=in_flight, hold_mean_s=hold_s
    )
    return CONTROL.on_signal(state, s, heard)


def mentioned(
    state: CapState, *, at: float = T0 + 10, in_use: int = 0, kind: SignalKind = SignalKind.THROTTLED
) -> tuple[CapState, CapEvent]:
    """A throttle is reported without the call it answers."""
    return CONTROL.on_signal(state, S, SignalContext(signal=Signal(kind), now=at, in_use=in_use))


def looked(
    state: CapState,
    *,
    at: float,
    oks: int = 0,
    full: bool = True,
    in_use: int | None = None,
    bound_at: float = -math.inf,
    hold_s: float = HOLD_S,
    s: PoolSettings = S,
) -> CapState:
    """Time passed; ``full``: the cap is what limits work at this moment."""
    seen = UsageSample(
        now=at,
        in_use=cap_for(state, s) if in_use is None else in_use,
        bound_now=full,
        bound_at=bound_at,
        bound_oks=oks,
        hold_mean_s=hold_s,
    )
    return CONTROL.on_usage(state, s, seen)


def confirmed(state: CapState, *, at: float = T0 + 1, oks: int = 0, s: PoolSettings = S) -> CapState:
    """An admission filled the level, and the silence that followed was long enough."""
    filled = looked(state, at=at, bound_at=at, s=s)
    return looked(filled, at=at + s.confirm_s, oks=oks, s=s)
