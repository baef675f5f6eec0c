"""The end of a window and the beginning of the next, without a rush at either.

Near the end. What is started now spends until it is done, and what it spends after the reset is the next
window's. So of its cost only the part that falls before the reset has to fit into what is left:

    it ends before the reset      all of its cost
    it goes on beyond it          the part of its time that lies before

After it. All who were held back could start at once, and would be throttled together. They start in their
order instead, twice as many in every step:

    after 0 steps 1, after 1 step 3, after 2 steps 7 ...
"""

from __future__ import annotations

import math
from dataclasses import dataclass

STEP_S = 20.0
"""About as long as an agent takes to meet a limit that is still there."""
_STEPS = 30


def share_before(duration_s: float, left_s: float) -> float:
    """The part of a stretch of work that lies before the reset.

    >>> share_before(600, 1200), share_before(600, 150), share_before(600, -1), share_before(0, 10)
    (1.0, 0.25, 0.0, 1.0)
    """
    if left_s <= 0:
        return 0.0
    return 1.0 if duration_s <= left_s else left_s / duration_s


@dataclass(frozen=True, slots=True)
class SlowStart:
    """After a reset that somebody waited for."""

    began: float
    started: int = 0
    step_s: float = STEP_S

    def allowed(self, now: float) -> int:
        """How many may have started by now.

        >>> [SlowStart(0.0, step_s=10.0).allowed(now) for now in (0.0, 9.0, 10.0, 25.0, 30.0)]
        [1, 1, 3, 7, 15]
        """
        return int(2 ** (min(_STEPS, self._steps(now)) + 1)) - 1

    def _steps(self, now: float) -> int:
        return max(0, math.floor((now - self.began) / self.step_s))

    def wait_s(self, now: float) -> float:
        """How long until one more may start; 0: now.

        >>> SlowStart(0.0, started=1, step_s=10.0).wait_s(4.0)
        6.0
        """
        if self.started < self.allowed(now):
            return 0.0
        step = self._steps(now)
        while int(2 ** (step + 1)) - 1 <= self.started:
            step += 1
        return self.began + step * self.step_s - now

    def over(self, now: float, width: int) -> bool:
        """Nobody is held back by it any more."""
        return self.allowed(now) - self.started >= width or self._steps(now) >= _STEPS
