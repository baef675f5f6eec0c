"""What any store must do, one function per behaviour. ``STORE_CHECKS`` is all of them."""

from __future__ import annotations

from flyball.testing.store_checks import (
    adapting,
    admission,
    breaker,
    dying,
    ending,
    machine,
    measured,
    order,
    resting,
    seeing,
    setting,
    sharing,
    windows,
)
from flyball.testing.store_checks.scene import StoreCheck, registered

_ROOMS = (
    admission,
    order,
    sharing,
    adapting,
    measured,
    windows,
    breaker,
    machine,
    ending,
    dying,
    resting,
    setting,
    seeing,
)
STORE_CHECKS: tuple[StoreCheck, ...] = tuple(registered)
