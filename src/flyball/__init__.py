"""flyball: the governor for AI agents.

Run as many agents and model calls as your limits really allow, no more and no fewer.

    import flyball

    with flyball.slot("anthropic"):
        ...  # call the model; every process on this machine shares the pool

Names are imported when first used, so ``import flyball`` costs next to nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing would cost more than all the rest of this module
__version__ = "0.1.0"

_WHERE = {
    "Governor": "flyball.governor.governor",
    "slot": "flyball.governor.shared",
    "AskOptions": "flyball.governor.asking",
    "Lease": "flyball.governor.lease",
    "Limiter": "flyball.governor.limiter",
    "Share": "flyball.governor.share",
    "ShareStats": "flyball.governor.share",
    "Status": "flyball.governor.status",
    "Pool": "flyball.clients.port",
    "httpx_client": "flyball.clients.door",
    "async_httpx_client": "flyball.clients.door",
    "govern": "flyball.clients.door",
    "RetryPolicy": "flyball.clients.retry",
    "RetryBudget": "flyball.governor.budget",
    "retry": "flyball.clients.trying",
    "aretry": "flyball.clients.trying",
    "retried": "flyball.clients.trying",
    "Outcome": "flyball.core.model",
    "MachineSettings": "flyball.core.settings",
    "Signal": "flyball.core.signals",
    "SignalKind": "flyball.core.signals",
    "Verdict": "flyball.core.verdict",
    "Reason": "flyball.core.verdict",
    "FlyballError": "flyball.errors",
    "UsageError": "flyball.errors",
    "RefusedError": "flyball.errors",
    "AtCapacityError": "flyball.errors",
    "WaitTimeoutError": "flyball.errors",
    "PoolClosedError": "flyball.errors",
    "PoolInUseError": "flyball.errors",
    "TooLargeError": "flyball.errors",
    "StoreError": "flyball.errors",
    "Throttled": "flyball.errors",
}

__all__ = [
    "AskOptions",
    "AtCapacityError",
    "FlyballError",
    "Governor",
    "Lease",
    "Limiter",
    "MachineSettings",
    "Outcome",
    "Pool",
    "PoolClosedError",
    "PoolInUseError",
    "Reason",
    "RefusedError",
    "RetryBudget",
    "RetryPolicy",
    "Share",
    "ShareStats",
    "Signal",
    "SignalKind",
    "Status",
    "StoreError",
    "Throttled",
    "TooLargeError",
    "UsageError",
    "Verdict",
    "WaitTimeoutError",
    "aretry",
    "async_httpx_client",
    "govern",
    "httpx_client",
    "retried",
    "retry",
    "slot",
]

if TYPE_CHECKING:
    from flyball.clients.door import async_httpx_client, govern, httpx_client
    from flyball.clients.port import Pool
    from flyball.clients.retry import RetryPolicy
    from flyball.clients.trying import aretry, retried, retry
    from flyball.core.model import Outcome
    from flyball.core.settings import MachineSettings
    from flyball.core.signals import Signal, SignalKind
    from flyball.core.verdict import Reason, Verdict
    from flyball.errors import (
        AtCapacityError,
        FlyballError,
        PoolClosedError,
        PoolInUseError,
        RefusedError,
        StoreError,
        Throttled,
        TooLargeError,
        UsageError,
        WaitTimeoutError,
    )
    from flyball.governor.asking import AskOptions
    from flyball.governor.budget import RetryBudget
    from flyball.governor.governor import Governor
    from flyball.governor.lease import Lease
    from flyball.governor.limiter import Limiter
    from flyball.governor.share import Share, ShareStats
    from flyball.governor.shared import slot
    from flyball.governor.status import Status


if not TYPE_CHECKING:  # a type checker would believe that every name exists

    def __getattr__(name: str) -> object:
        if name not in _WHERE:
            raise AttributeError(f"module 'flyball' has no attribute {name!r}")
        from importlib import import_module

        value: object = getattr(import_module(_WHERE[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
