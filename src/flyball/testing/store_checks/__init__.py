"""What any store must do, one function per behaviour. ``STORE_CHECKS`` is all of them."""

from __future__ import annotations

from flyball.testing.store_checks import (
    account_windows,
    adaptive_cap,
    admission,
    backoff,
    breaker,
    dead_holders,
    idempotency,
    machine_limits,
    order,
    project_shares,
    rate_windows,
    release,
    settings,
    share_leases,
    snapshots,
)
from flyball.testing.store_checks.scenario import StoreCheck, about_one_machine, registered

_MODULES = (
    admission,
    order,
    project_shares,
    share_leases,
    adaptive_cap,
    rate_windows,
    account_windows,
    breaker,
    machine_limits,
    release,
    dead_holders,
    backoff,
    idempotency,
    settings,
    snapshots,
)
STORE_CHECKS: tuple[StoreCheck, ...] = tuple(registered)
FLEET_CHECKS: tuple[StoreCheck, ...] = tuple(c for c in STORE_CHECKS if c not in about_one_machine)
"""What a store must do that many machines share: all but the limits over all pools of one machine."""
