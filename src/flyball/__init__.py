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
    "slot": "flyball.governor.default_governor",
    "AskOptions": "flyball.governor.ask",
    "Lease": "flyball.governor.lease",
    "Limiter": "flyball.governor.limiter.limiter",
    "Share": "flyball.governor.share.share",
    "ShareStats": "flyball.governor.share.share",
    "Status": "flyball.governor.status",
    "Pool": "flyball.integrations.gate",
    "httpx_client": "flyball.integrations.transport",
    "async_httpx_client": "flyball.integrations.transport",
    "govern": "flyball.integrations.transport",
    "RetryPolicy": "flyball.integrations.retry",
    "RetryBudget": "flyball.governor.limiter.retry_budget",
    "retry": "flyball.integrations.retry",
    "aretry": "flyball.integrations.retry",
    "retried": "flyball.integrations.retry",
    "Outcome": "flyball.core.pool.model",
    "MachineSettings": "flyball.core.pool.settings",
    "Signal": "flyball.core.signals",
    "SignalKind": "flyball.core.signals",
    "Verdict": "flyball.core.pool.verdict",
    "Reason": "flyball.core.pool.verdict",
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
    from flyball.core.pool.model import Outcome
    from flyball.core.pool.settings import MachineSettings
    from flyball.core.pool.verdict import Reason, Verdict
    from flyball.core.signals import Signal, SignalKind
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
    from flyball.governor.ask import AskOptions
    from flyball.governor.default_governor import slot
    from flyball.governor.governor import Governor
    from flyball.governor.lease import Lease
    from flyball.governor.limiter.limiter import Limiter
    from flyball.governor.limiter.retry_budget import RetryBudget
    from flyball.governor.share.share import Share, ShareStats
    from flyball.governor.status import Status
    from flyball.integrations.gate import Pool
    from flyball.integrations.retry import RetryPolicy, aretry, retried, retry
    from flyball.integrations.transport import async_httpx_client, govern, httpx_client


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
