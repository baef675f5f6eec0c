"""What providers and agents told us, as one vocabulary.

A ``Signal`` is built once, at the edge, from whatever the provider or an agent's stream said; everything
behind it speaks only of kinds. Strict in meaning: what cannot be told is ``UNKNOWN``, never a throttle.

    slow down          throttled, overloaded, timeout      the cap or the breaker answers
    hold still         near limit, slow                    no growth for a while
    wait for the reset window used up                      retry_after_s says when, scope says which
    a person's turn    credit gone, auth                   trying again changes nothing
    not about load     client error, server error, unknown

``provider/http_response.py`` builds them from an HTTP answer, ``runtimes/`` from the stream of an agent. How
the agent's run ended is an ``End``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class SignalKind(Enum):
    """What an answer, or its absence, says about the provider."""

    OK = "ok"
    """The call was served."""
    THROTTLED = "throttled"
    """The caller sends too much: a 429, or an error of that type."""
    OVERLOADED = "overloaded"
    """The provider is overloaded as a whole: a 529, or an error of that type."""
    NEAR_LIMIT = "near limit"
    """The call was served, and its headers say that little is left."""
    SLOW = "slow"
    """The call was served much more slowly than usual."""
    TIMEOUT = "timeout"
    """No answer came in time, or the connection was lost."""
    WINDOW_USED_UP = "window used up"
    """A budget over time is spent; it opens again at its reset."""
    CREDIT_GONE = "credit gone"
    """The account has no money left. Waiting does not help."""
    AUTH = "auth"
    """The key or the login was refused."""
    CLIENT_ERROR = "client error"
    """The call itself was wrong. It says nothing about limits."""
    SERVER_ERROR = "server error"
    """The provider failed for a reason of its own."""
    UNKNOWN = "unknown"
    """Something was said that is not understood."""


CONGESTION = frozenset({SignalKind.THROTTLED, SignalKind.OVERLOADED, SignalKind.TIMEOUT})
"""Kinds that ask for fewer calls. Everything else leaves the cap alone."""

SUCCESSES = frozenset({SignalKind.OK, SignalKind.NEAR_LIMIT, SignalKind.SLOW})
"""Kinds of answers that brought what was asked for."""

REJECTIONS = frozenset({SignalKind.THROTTLED, SignalKind.OVERLOADED, SignalKind.WINDOW_USED_UP})
"""Kinds of answers to calls that were not done, and so used nothing."""

LIMITING = frozenset(
    {SignalKind.THROTTLED, SignalKind.OVERLOADED, SignalKind.WINDOW_USED_UP, SignalKind.CREDIT_GONE}
)
"""Kinds that end a run as *limited*: nothing was wrong with the work itself."""


class End(Enum):
    """How an agent's run ended, judged from its stream and its exit status."""

    FINISHED = "finished"
    LIMITED = "limited"
    """The provider would not serve it now; nothing was wrong with the work."""
    FAILED = "failed"
    KILLED = "killed"
    UNKNOWN = "unknown"


class Certainty(Enum):
    """How we know. Compare by meaning, not by order."""

    STATED = "stated"
    """A field made for it said so: a status, a header, an error type."""
    WORDED = "worded"
    """Only the words of a message that is flagged as an error said so."""
    GUESSED = "guessed"
    """Only an exit status, or the absence of anything better, suggests it."""


class UsageCertainty(Enum):
    """How a figure about an account's use is known."""

    REPORTED = "reported"
    """By the provider itself."""
    MEASURED = "measured"
    """From what the runtime wrote down about every call."""
    ESTIMATED = "estimated"


@dataclass(frozen=True, slots=True)
class WindowReading:
    """How full one usage window of an account is, as an answer said it."""

    name: str
    """``5h``, ``7d``; with a model where only its calls draw on it: ``7d opus``."""
    fraction: float
    resets_in_s: float | None = None
    account: str = ""
    """Empty: the one that the pool stands for."""
    certainty: UsageCertainty = UsageCertainty.REPORTED
    age_s: float = 0.0
    """How long ago it was said."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """One quota as the provider reported it with an answer.

    ``reset_s`` is how long until it is full again, counted from the answer.
    """

    name: str
    """``requests``, ``tokens``, ``input-tokens``, ``output-tokens``; ``quota`` where it has no name."""
    limit: float | None
    remaining: float
    reset_s: float | None = None
    window_s: float | None = None
    """The time that the limit is for, where the provider says so."""


@dataclass(frozen=True, slots=True)
class Signal:
    """One thing the world said. ``retry_after_s`` is a duration, already cleaned of nonsense."""

    kind: SignalKind
    retry_after_s: float | None = None
    detail: str = ""
    scope: str = ""
    """Which window or quota it is about (``5h``, ``7d``, ``tokens``, ``concurrency``); empty: all of it."""
    certainty: Certainty = Certainty.STATED
    buckets: tuple[Bucket, ...] = ()
    """What the answer's headers said about quotas, whatever its kind."""
    windows: tuple[WindowReading, ...] = ()
    """What it said about the usage windows of a subscription."""
    repeated: bool = False
    """It meets a retry of a call that met the same before: no second reason to slow down."""

    def __post_init__(self) -> None:
        # A throttle counts, whatever nonsense came with it: no wait is made of what is none.
        if self.retry_after_s is not None and self.retry_after_s != 0:
            # Few signals name a wait, and a program that hears none need not load what reads them.
            from flyball.core.durations import clamped_s

            object.__setattr__(self, "retry_after_s", clamped_s(self.retry_after_s))
