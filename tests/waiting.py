"""Waiting for what must happen, however busy the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
LONGEST_S = 120.0
"""Far more than anything here takes beside a load. What has not happened by then never will."""


def until(holds: Callable[[], T], what: str = "it", *, within_s: float = LONGEST_S) -> T:
    """Ask again and again until the answer is true; what it was.

    ``within_s``: only where something else would bring it about later.
    """
    end = time.monotonic() + within_s
    while not (found := holds()):
        assert time.monotonic() < end, f"waited {within_s:g} s in vain for: {what}; last: {found!r}"
        time.sleep(0.01)
    return found
