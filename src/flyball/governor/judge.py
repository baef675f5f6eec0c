"""What an exception that leaves a call says about load. Most say nothing."""

from __future__ import annotations

from flyball.core.signals import Signal, SignalKind
from flyball.core.spans import clamped_s
from flyball.errors import FlyballError, Throttled


def signal_of(error: BaseException) -> Signal | None:
    """None where it says nothing: a bug in the call, a cancellation, another limiter's refusal.

    >>> signal_of(Throttled(retry_after_s=7)).retry_after_s
    7
    >>> signal_of(ConnectionResetError()).kind
    <SignalKind.TIMEOUT: 'timeout'>
    >>> signal_of(KeyError("x")) is None
    True
    """
    if isinstance(error, Throttled):
        return Signal(SignalKind.THROTTLED, clamped_s(error.retry_after_s), detail=str(error))
    if isinstance(error, FlyballError) or not isinstance(error, TimeoutError | ConnectionError):
        return None
    return Signal(SignalKind.TIMEOUT, detail=type(error).__name__)
