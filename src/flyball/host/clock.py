"""A clock that counts a laptop's sleep and cannot be set back.

Boot time on Linux; on macOS the monotonic clock, which counts sleep there. Both start at zero with
each boot, so a store that outlives a reboot keeps an offset beside it (``clock_offset``).
"""

from __future__ import annotations

import time
from functools import partial

CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
OFF_LIMIT_S = 30 * 86400.0
"""A machine is believed to have been off for at most this long; a wall clock that says more is wrong."""


boot_seconds = partial(time.clock_gettime, CLOCK)
"""Seconds since boot, sleep included."""


def clock_offset(*, seen_at: float, seen_wall: float, wall: float, boot_s: float) -> float:
    """The offset that lets a store's clock go on after a reboot.

    The wall clock only says how long the machine was off, and only within reason: set back, it counts
    as no time at all; set far ahead, as the limit.

    >>> clock_offset(seen_at=500.0, seen_wall=1000.0, wall=1060.0, boot_s=20.0) + 20.0
    560.0
    >>> clock_offset(seen_at=500.0, seen_wall=1000.0, wall=400.0, boot_s=20.0) + 20.0
    500.0
    """
    off_s = min(max(0.0, wall - seen_wall), OFF_LIMIT_S)
    return seen_at + off_s - boot_s
