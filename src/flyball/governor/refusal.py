"""Why a call cannot start now, in the words of every other refusal."""

from __future__ import annotations

from collections.abc import Mapping

from flyball.core import window as windowing
from flyball.core.gate import INFINITY, Gate
from flyball.core.model import Phase
from flyball.core.verdict import CLOSED_REASONS, Kind, Reason, Verdict
from flyball.errors import AtCapacityError, PoolClosedError, RefusedError


def verdict_of(
    gate: Gate, cost: Mapping[str, float], *, now: float, at: float, maximum: int | None, waiting: int
) -> Verdict:
    """``at`` is when to look again: infinity where only the end of another call helps."""
    reason, detail = _reason(gate, cost, now, maximum, waiting)
    timed = at != INFINITY and reason not in (Reason.CAP, Reason.QUEUE)
    return Verdict(
        kind=Kind.REFUSED,
        reason=reason,
        pool=gate.name,
        in_use=gate.in_use,
        cap=gate.cap if maximum is None else min(gate.cap, maximum),
        position=waiting + 1 if waiting else 0,
        look_again_s=max(0.0, at - now) if at != INFINITY else None,
        estimate_s=max(0.0, at - now) if timed else None,
        detail=detail,
    )


def refusal(verdict: Verdict) -> RefusedError:
    return PoolClosedError(verdict) if verdict.reason in CLOSED_REASONS else AtCapacityError(verdict)


def _reason(
    gate: Gate, cost: Mapping[str, float], now: float, maximum: int | None, waiting: int
) -> tuple[Reason, str]:
    limits = gate.limits
    if limits.closed_until is not None and now < limits.closed_until:
        return (Reason.BREAKER if limits.phase is Phase.OPEN else Reason.RETRY_AFTER), ""
    if limits.phase is Phase.TRIAL and gate.meters.trial_id is not None:
        return Reason.TRIAL, ""
    if limits.spacing_s and limits.phase is not Phase.TRIAL and now < gate.meters.next_grant_at:
        return Reason.SPACING, ""
    if maximum is not None and gate.in_use >= maximum:
        return Reason.CAP, "at the hard maximum"
    if gate.in_use >= gate.cap:
        return Reason.CAP, ""
    _, window = windowing.room_at(gate.windows, cost, now)
    if window:
        return Reason.WINDOW, f"no room in the window {window!r}"
    return (Reason.QUEUE if waiting else Reason.CAP), ""
