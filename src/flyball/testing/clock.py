"""Time that moves only when a test says so."""

from __future__ import annotations

from flyball.errors import UsageError


class ManualClock:
    """Call it for the time; ``advance`` moves it.

    >>> clock = ManualClock(10.0)
    >>> clock.advance(2.5)
    12.5
    >>> clock()
    12.5
    """

    def __init__(self, now: float = 1_000.0) -> None:
        self._now = now

    def __call__(self) -> float:
        return self._now

    def advance(self, seconds: float) -> float:
        """Let time pass; the new time."""
        if not seconds >= 0:
            raise UsageError(f"time passes forwards only, not by {seconds!r} s")
        self._now += seconds
        return self._now
