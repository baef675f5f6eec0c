"""What any store must do, one function per behaviour. ``STORE_CHECKS`` is all of them."""

from __future__ import annotations

from flyball.testing.store_checks import (
    adapting,
    admission,
    breaker,
    dividing,
    dying,
    ending,
    feeding,
    keyed,
    machine,
    measured,
    order,
    resting,
    seeing,
    setting,
    sharing,
    windows,
)
from flyball.testing.store_checks.scene import StoreCheck, about_one_machine, registered

_ROOMS = (
    admission,
    order,
    sharing,
    dividing,
    feeding,
    adapting,
    measured,
    windows,
    breaker,
    machine,
    ending,
    dying,
    resting,
    keyed,
    setting,
    seeing,
)
STORE_CHECKS: tuple[StoreCheck, ...] = tuple(registered)
FLEET_CHECKS: tuple[StoreCheck, ...] = tuple(c for c in STORE_CHECKS if c not in about_one_machine)
"""What a store must do that many machines share: all but the limits over all pools of one machine."""
