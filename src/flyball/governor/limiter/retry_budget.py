"""How many retries are affordable: a share of the calls, so that retrying can never become the load.

Over a sliding window, retries may be a tenth of the calls plus a few; then the answer is handed over as it
is. One kind of budget serves all who try again: a ``RetryPolicy``, and a ``Limiter``, which also charges for
every timeout and lost connection it hears of, since its caller tries those again.

Throttles spend nothing behind a limiter or a pool, which sets their pace.
"""

from __future__ import annotations

import threading
from collections import deque

from flyball.errors import UsageError

SLICES = 60


class RetryBudget:
    """At most ``ratio`` retries per call over a sliding window, plus ``least``. Threads may share it.

    >>> budget = RetryBudget(least=2)
    >>> [budget.take(0.0) for _ in range(3)]
    [True, True, False]
    >>> budget.call(1.0, count=25)
    >>> budget.left(1.0)
    2
    """

    def __init__(self, *, ratio: float = 0.1, least: int = 10, window_s: float = 60.0) -> None:
        if not (ratio >= 0 and least >= 0 and window_s > 0):
            raise UsageError("a retry budget needs ratio >= 0, least >= 0 and window_s > 0")
        self.ratio, self.least, self.window_s = ratio, least, window_s
        self._slice_s = window_s / SLICES
        self._slices: deque[tuple[int, float, int]] = deque()
        self._calls, self._retries = 0.0, 0
        self._lock = threading.Lock()

    def call(self, now: float, *, count: int = 1, since: float | None = None) -> None:
        """Calls began; each earns its share of a retry.

        ``since``: they came evenly since then, and those that are older than the window earn nothing.
        """
        recent = 1.0 if since is None else min(1.0, self.window_s / max(now - since, self.window_s))
        with self._lock:
            self._add(now, calls=count * recent, retries=0)

    def left(self, now: float) -> int:
        """How many retries could be taken now."""
        with self._lock:
            self._forget(now)
            return max(0, int(self._earnings() - self._retries + 1e-9))

    def take(self, now: float) -> bool:
        """Spend one retry, if there is one."""
        with self._lock:
            self._forget(now)
            if self._retries + 1 > self._earnings() + 1e-9:
                return False
            self._add(now, calls=0, retries=1)
            return True

    def _earnings(self) -> float:
        return self.least + self.ratio * self._calls

    def _add(self, now: float, *, calls: float, retries: int) -> None:
        self._forget(now)
        at = int(now // self._slice_s)
        calls_here, retries_here = calls, retries
        if self._slices and self._slices[-1][0] >= at:
            at, before_calls, before_retries = self._slices.pop()
            calls_here, retries_here = before_calls + calls, before_retries + retries
        self._slices.append((at, calls_here, retries_here))
        self._calls += calls
        self._retries += retries

    def _forget(self, now: float) -> None:
        oldest = (now - self.window_s) // self._slice_s
        while self._slices and self._slices[0][0] <= oldest:
            _, calls, retries = self._slices.popleft()
            self._calls -= calls
            self._retries -= retries
        if not self._slices:
            self._calls = 0.0  # what rounding left behind
