"""What every source of usage is: somebody who is asked now and then, in a thread, and may fail."""

from __future__ import annotations

from typing import Protocol

from flyball.core.standing import Spend
from flyball.errors import FlyballError


class UsageUnknown(FlyballError):  # noqa: N818 - the normal no of a source, not a fault
    """This source cannot say; the next one may."""


class UsageSource(Protocol):
    name: str

    def look(self, now: float) -> Spend:
        """All that was spent in the last eight days and a bit; UsageUnknown where it cannot say."""
        ...


KEPT_S = 8 * 86400.0
"""The longest window that comes with us, and a day for the edges."""
