"""How many retries are affordable: a share of what succeeds, so that retrying can never become the load.

A call that timed out or lost its connection spends one; ten successes earn one back. Throttles spend nothing:
their pace is the limiter's business.
"""

from __future__ import annotations

EARNED_PER_SUCCESS = 0.1
MOST = 10.0


class RetryBudget:
    """Counts lazily: successes are told as a running total, only when somebody spends or asks.

    >>> budget = RetryBudget()
    >>> for _ in range(12):
    ...     budget.spend(successes=0)
    >>> budget.left(successes=0), budget.left(successes=25)
    (0, 2)
    """

    __slots__ = ("_level", "_successes")

    def __init__(self) -> None:
        self._level, self._successes = MOST, 0

    def left(self, *, successes: int) -> int:
        return int(self._at(successes) + 1e-9)

    def spend(self, *, successes: int) -> None:
        self._level = max(0.0, self._at(successes) - 1.0)
        self._successes = successes

    def _at(self, successes: int) -> float:
        earned = max(0, successes - self._successes) * EARNED_PER_SUCCESS
        return min(MOST, self._level + earned)
