"""Whether to try again, and after how long. Pure: what was said, the clock and chance are arguments.

    never      credit gone, auth, a client's error, "x-should-retry: false"
    reset      a window that is used up, if it opens again within ``max_wait_s``
    back off   throttled, overloaded, timed out, a server's error

The wait is full jitter: chance times ``base_s`` doubled per attempt, up to ``cap_s``. Whoever was told to
come back in 7 s waits 7 s and then its jitter, so that a thousand who were told the same do not come back
together. A Retry-After longer than ``max_wait_s`` is not waited out.

Retries have a budget (``governor/budget.py``), because attempts alone multiply: five attempts against a dead
provider are five times the load. Behind a limiter it is the limiter's own, so that all who use the limiter
spend the same one. A throttle behind a gate costs nothing of it: the gate has heard it, lets fewer in, and
waits as long as it was told, so that these retries are paced already.

An ``Episode`` is the run of bad answers to one call. Each kind of signal is told to the pool once in it,
however often the call is tried: a retry that is throttled again is the same news and must not cut the cap
twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from flyball.core.signals import CONGESTION, Signal, SignalKind
from flyball.errors import UsageError
from flyball.governor.budget import RetryBudget

BACKED_OFF = CONGESTION | {SignalKind.SERVER_ERROR}
"""Kinds that may pass by themselves. The official SDKs retry the same ones."""
FINE = frozenset({SignalKind.OK, SignalKind.NEAR_LIMIT, SignalKind.SLOW})


class Why(Enum):
    """What decided."""

    FINE = "the answer is good"
    HOPELESS = "trying again changes nothing"
    FORBIDDEN = "the provider said not to"
    ATTEMPTS = "no attempts left"
    TOO_LONG = "the provider asks for a longer wait than is allowed"
    BUDGET = "the retry budget is spent"
    AGAIN = "try again"


@dataclass(frozen=True, slots=True)
class Decision:
    """Wait this long and try again; or, where ``wait_s`` is None, hand the answer over."""

    wait_s: float | None
    why: Why


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How to try again. ``attempts`` counts the first one; all who use a policy share its budget.

    ``budget=None``: behind a limiter the limiter's own, elsewhere one of this policy.
    """

    attempts: int = 5
    base_s: float = 0.5
    cap_s: float = 30.0
    max_wait_s: float = 120.0
    budget: RetryBudget | None = None
    own: RetryBudget = field(default_factory=RetryBudget, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise UsageError(f"attempts counts the first one: at least 1, not {self.attempts}")
        if not (0 <= self.base_s <= self.cap_s and self.max_wait_s >= 0):
            raise UsageError("a retry policy needs 0 <= base_s <= cap_s and max_wait_s >= 0")


def decide(
    policy: RetryPolicy, attempt: int, signal: Signal, *, chance: float, forbidden: bool = False
) -> Decision:
    """What to do after attempt number ``attempt`` got this answer. The budget is the caller's to ask.

    >>> decide(RetryPolicy(), 2, Signal(SignalKind.THROTTLED), chance=0.5).wait_s
    0.5
    >>> decide(RetryPolicy(), 2, Signal(SignalKind.THROTTLED, retry_after_s=7.0), chance=0.5).wait_s
    7.5
    >>> decide(RetryPolicy(), 2, Signal(SignalKind.CREDIT_GONE), chance=0.5).why
    <Why.HOPELESS: 'trying again changes nothing'>
    """
    if signal.kind in FINE:
        return Decision(None, Why.FINE)
    asked_s = signal.retry_after_s
    resets = signal.kind is SignalKind.WINDOW_USED_UP and asked_s is not None
    if not resets and signal.kind not in BACKED_OFF:
        return Decision(None, Why.HOPELESS)
    if forbidden:
        return Decision(None, Why.FORBIDDEN)
    if attempt >= policy.attempts:
        return Decision(None, Why.ATTEMPTS)
    if asked_s is not None and asked_s > policy.max_wait_s:
        return Decision(None, Why.TOO_LONG)
    return Decision((asked_s or 0.0) + chance * backoff_s(policy, attempt), Why.AGAIN)


def backoff_s(policy: RetryPolicy, attempt: int) -> float:
    """The longest wait after this attempt, before chance."""
    # Beyond 60 doublings any base has passed any cap, and a float would overflow.
    return min(policy.cap_s, policy.base_s * 2.0 ** min(attempt - 1, 60))


class Episode:
    """One call, however often it is tried. Says which signals are news."""

    __slots__ = ("_told",)

    def __init__(self, *, repeats: bool = False) -> None:
        """``repeats``: somebody above tries this call again, and its congestion was told before."""
        self._told: set[SignalKind] = set(CONGESTION) if repeats else set()

    def is_news(self, signal: Signal) -> bool:
        """True the first time this kind of trouble is met; good answers always are."""
        if signal.kind in FINE:
            self._told.clear()
            return True
        first = signal.kind not in self._told
        self._told.add(signal.kind)
        return first
