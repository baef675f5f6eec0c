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
    "httpx_async_client": "flyball.integrations.transport",
    "govern": "flyball.integrations.govern",
    "RetryPolicy": "flyball.integrations.retry",
    "RetryBudget": "flyball.governor.limiter.retry_budget",
    "retry": "flyball.integrations.retry",
    "retry_async": "flyball.integrations.retry",
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
    # types that stand in the signatures of the names above
    "Answer": "flyball.governor.limiter.call_slot",
    "Blocker": "flyball.core.pool.verdict",
    "Body": "flyball.core.provider.error_body",
    "Bucket": "flyball.core.signals",
    "CallSlot": "flyball.governor.limiter.call_slot",
    "Certainty": "flyball.core.signals",
    "Cost": "flyball.core.pool.rate_window",
    "Fact": "flyball.core.pool.model",
    "Gate": "flyball.integrations.gate",
    "HeaderLines": "flyball.core.provider.rate_limit_headers",
    "Judge": "flyball.integrations.retry",
    "Library": "flyball.integrations.transport",
    "LimiterStats": "flyball.governor.limiter.limiter",
    "MachineChanges": "flyball.core.pool.settings",
    "MachineStatus": "flyball.governor.status",
    "Observer": "flyball.governor.acquisition",
    "OnWait": "flyball.governor.acquisition",
    "PoolChanges": "flyball.core.pool.settings",
    "PoolStatus": "flyball.governor.status",
    "RetryEnvironment": "flyball.integrations.retry",
    "RuleOptions": "flyball.integrations.exchange",
    "ShareOptions": "flyball.governor.share.share",
    "Slot": "flyball.governor.lease",
    "SlotRequest": "flyball.integrations.gate",
    "VerdictKind": "flyball.core.pool.verdict",
}

__all__ = [
    "Answer",
    "AskOptions",
    "AtCapacityError",
    "Blocker",
    "Body",
    "Bucket",
    "CallSlot",
    "Certainty",
    "Cost",
    "Fact",
    "FlyballError",
    "Gate",
    "Governor",
    "HeaderLines",
    "Judge",
    "Lease",
    "Library",
    "Limiter",
    "LimiterStats",
    "MachineChanges",
    "MachineSettings",
    "MachineStatus",
    "Observer",
    "OnWait",
    "Outcome",
    "Pool",
    "PoolChanges",
    "PoolClosedError",
    "PoolInUseError",
    "PoolStatus",
    "Reason",
    "RefusedError",
    "RetryBudget",
    "RetryEnvironment",
    "RetryPolicy",
    "RuleOptions",
    "Share",
    "ShareOptions",
    "ShareStats",
    "Signal",
    "SignalKind",
    "Slot",
    "SlotRequest",
    "Status",
    "StoreError",
    "Throttled",
    "TooLargeError",
    "UsageError",
    "Verdict",
    "VerdictKind",
    "WaitTimeoutError",
    "govern",
    "httpx_async_client",
    "httpx_client",
    "retried",
    "retry",
    "retry_async",
    "slot",
]

if TYPE_CHECKING:
    from flyball.core.pool.model import Fact, Outcome
    from flyball.core.pool.rate_window import Cost
    from flyball.core.pool.settings import MachineChanges, MachineSettings, PoolChanges
    from flyball.core.pool.verdict import Blocker, Reason, Verdict, VerdictKind
    from flyball.core.provider.error_body import Body
    from flyball.core.provider.rate_limit_headers import HeaderLines
    from flyball.core.signals import Bucket, Certainty, Signal, SignalKind
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
    from flyball.governor.acquisition import Observer, OnWait
    from flyball.governor.ask import AskOptions
    from flyball.governor.default_governor import slot
    from flyball.governor.governor import Governor
    from flyball.governor.lease import Lease, Slot
    from flyball.governor.limiter.call_slot import Answer, CallSlot
    from flyball.governor.limiter.limiter import Limiter, LimiterStats
    from flyball.governor.limiter.retry_budget import RetryBudget
    from flyball.governor.share.share import Share, ShareOptions, ShareStats
    from flyball.governor.status import MachineStatus, PoolStatus, Status
    from flyball.integrations.exchange import RuleOptions
    from flyball.integrations.gate import Gate, Pool, SlotRequest
    from flyball.integrations.govern import govern
    from flyball.integrations.retry import Judge, RetryEnvironment, RetryPolicy, retried, retry, retry_async
    from flyball.integrations.transport import Library, httpx_async_client, httpx_client


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
