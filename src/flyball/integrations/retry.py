"""One call, tried until its answer may be handed over: ``retry``, ``retry_async``, the decorator ``retried``.

    answer = flyball.retry(lambda: client.post(url, json=question), gate=limiter)

    @flyball.retried(gate="anthropic")
    async def ask(question): ...

The order of things is one flow (``pursue``) for threads and event loops. It yields what its hands did: in a
thread the result itself, on an event loop something to await.

    take a slot -> try -> tell the pool, if it is news -> good or hopeless: hand the answer over, slot in hand
                                                       -> else free the slot, sleep, and from the start

Whether to try again, and after how long, is pure (``decide``): what was said and chance are arguments.

    never      credit gone, auth, a client's error, "x-should-retry: false"
    reset      a window that is used up, if it opens again within ``max_wait_s``
    back off   throttled, overloaded, timed out, a server's error

The wait is full jitter: chance times ``base_s`` doubled per attempt, up to ``cap_s``. A call that was told to
come back in 7 s waits 7 s and then its jitter, so that a thousand that were told the same do not come back
together. A Retry-After longer than ``max_wait_s`` is not waited out.

Retries have a budget (``governor/limiter/retry_budget.py``), because attempts alone multiply: five attempts
against a dead provider are five times the load. Behind a limiter it is the limiter's own, so that all calls
through the limiter spend the same one; elsewhere calls that share a policy share its budget: use one policy
per provider. A throttle behind a gate costs nothing of it: the gate has heard it, lets fewer in, and waits as
long as it was told, so that these retries are paced already.

An ``Episode`` is the run of bad answers to one call. Each kind of signal is told to the pool once in it,
however often the call is tried: a retry that is throttled again is the same news and must not cut the cap
twice. A gate of flyball's own is told that it was (``Signal.repeated``): silence would mean that the call is
being served, and a probe that it refutes would stand. Only the flow talks to the ticket, so reporting twice
is not possible from outside.

The function that is tried neither takes a slot nor reports: that is done here, and the slot is free while the
call waits. What an answer or an error means is read from its shape; bring a ``judge`` for other shapes.
Without a ``gate`` nothing is taken or told, which is right where the client underneath is governed already.
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, field
from enum import Enum
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, Generic, ParamSpec, TypeVar, cast, overload

from flyball.core.signals import CONGESTION, Signal, SignalKind
from flyball.errors import UsageError
from flyball.governor.flow_drivers import store_threads
from flyball.governor.limiter.retry_budget import RetryBudget
from flyball.host.flow import drive, drive_async
from flyball.integrations.gate import Budgeted, Gate, SlotOptions, gate_for
from flyball.integrations.held_slot import AsyncHold, Hold, NoGate
from flyball.integrations.outcome import JudgedResponse, judge

BACKED_OFF = CONGESTION | {SignalKind.SERVER_ERROR}
"""Kinds that may pass by themselves. The official SDKs retry the same ones."""
FINE = frozenset({SignalKind.OK, SignalKind.NEAR_LIMIT, SignalKind.SLOW})


class RetryReason(Enum):
    """Why a call is tried again, or not."""

    FINE = "the answer is good"
    HOPELESS = "trying again changes nothing"
    FORBIDDEN = "the provider said not to"
    ATTEMPTS = "no attempts left"
    TOO_LONG = "the provider asks for a longer wait than is allowed"
    BUDGET = "the retry budget is spent"
    AGAIN = "try again"


@dataclass(frozen=True, slots=True)
class RetryDecision:
    """Wait this long and try again; or, where ``wait_s`` is None, hand the answer over."""

    wait_s: float | None
    why: RetryReason


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
) -> RetryDecision:
    """What to do after attempt number ``attempt`` got this answer. The budget is the caller's to ask.

    >>> decide(RetryPolicy(), 2, Signal(SignalKind.THROTTLED), chance=0.5).wait_s
    0.5
    >>> decide(RetryPolicy(), 2, Signal(SignalKind.THROTTLED, retry_after_s=7.0), chance=0.5).wait_s
    7.5
    >>> decide(RetryPolicy(), 2, Signal(SignalKind.CREDIT_GONE), chance=0.5).why
    <RetryReason.HOPELESS: 'trying again changes nothing'>
    """
    if signal.kind in FINE:
        return RetryDecision(None, RetryReason.FINE)
    asked_s = signal.retry_after_s
    resets = signal.kind is SignalKind.WINDOW_USED_UP and asked_s is not None
    if not resets and signal.kind not in BACKED_OFF:
        return RetryDecision(None, RetryReason.HOPELESS)
    if forbidden:
        return RetryDecision(None, RetryReason.FORBIDDEN)
    if attempt >= policy.attempts:
        return RetryDecision(None, RetryReason.ATTEMPTS)
    if asked_s is not None and asked_s > policy.max_wait_s:
        return RetryDecision(None, RetryReason.TOO_LONG)
    return RetryDecision((asked_s or 0.0) + chance * backoff_s(policy, attempt), RetryReason.AGAIN)


def backoff_s(policy: RetryPolicy, attempt: int) -> float:
    """The longest wait after this attempt, before chance."""
    # Beyond 60 doublings any base has passed any cap, and a float would overflow.
    return min(policy.cap_s, policy.base_s * 2.0 ** min(attempt - 1, 60))


class Episode:
    """One call, however often it is tried. Says which signals are news."""

    __slots__ = ("_told",)

    def __init__(self, *, repeats: bool = False) -> None:
        """``repeats``: a caller above tries this call again, and its congestion was told before."""
        self._told: set[SignalKind] = set(CONGESTION) if repeats else set()

    def is_news(self, signal: Signal) -> bool:
        """True the first time this kind of trouble is met; good answers always are."""
        if signal.kind in FINE:
            self._told.clear()
            return True
        first = signal.kind not in self._told
        self._told.add(signal.kind)
        return first


T = TypeVar("T")
Flow = Generator[Any, Any, T]
_PLAIN: SlotOptions = {}


@dataclass(frozen=True, slots=True)
class AttemptResult(Generic[T]):
    """What one attempt brought: a value or an error, and what it means."""

    judged: JudgedResponse
    value: T | None = None
    error: Exception | None = None
    final: bool = False
    """It cannot be tried again, whatever it means."""
    patience_s: float | None = None
    """So long its caller will still be there; None: as long as it takes."""

    def unwrap(self) -> T:
        if self.error is not None:
            raise self.error
        return cast(T, self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryEnvironment:
    """Where time and chance come from; tests bring their own."""

    clock: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random.random
    sleep: Callable[[float], object] | None = None
    """None: the thread's or the event loop's own."""


REAL = RetryEnvironment()


@dataclass(frozen=True, slots=True)
class IoAdapter:
    """What differs between a thread and an event loop."""

    take: Callable[[Gate, SlotOptions], Any]
    sleep: Callable[[float], Any]
    call: Callable[[Callable[[], Any]], Any] = lambda run: run()
    """Runs what blocks for a moment."""


def thread_hands(environment: RetryEnvironment) -> IoAdapter:
    return IoAdapter(Hold.of, environment.sleep or time.sleep)


def loop_hands(environment: RetryEnvironment) -> IoAdapter:
    from asyncio import sleep

    return IoAdapter(AsyncHold.of, environment.sleep or sleep, store_threads().call)


def pursue(
    gate: Gate,
    attempt: Callable[[], Flow[AttemptResult[T]]],
    *,
    policy: RetryPolicy,
    hands: IoAdapter,
    environment: RetryEnvironment = REAL,
    ask: SlotOptions = _PLAIN,
    episode: Episode | None = None,
    drop: Callable[[AttemptResult[T]], Any] = lambda _: None,
) -> Flow[tuple[AttemptResult[T], Any]]:
    """The order of things; ends with an answer and its slot. ``drop`` closes one that is not handed over."""
    episode, number = episode or Episode(), 0
    (policy.budget or policy.own).call(environment.clock())
    while True:
        number += 1
        hold = yield hands.take(gate, ask)
        try:
            answer = yield from attempt()
            news = episode.is_news(answer.judged.signal)
            yield hold.tell(answer.judged.signal, news=news)
            wait_s = _wait_s(answer, number, policy, environment)
            if wait_s is None or not _affordable(answer, gate, policy, environment, told=news):
                return answer, hold
            yield drop(answer)
        except GeneratorExit:
            hold.lose()  # the event loop is gone: nothing can be awaited
            raise
        except BaseException as error:
            yield hold.free(error)
            raise
        yield hold.free()
        yield hands.sleep(wait_s)


def _wait_s(
    answer: AttemptResult[Any], number: int, policy: RetryPolicy, environment: RetryEnvironment
) -> float | None:
    signal, forbidden = answer.judged.signal, answer.judged.forbidden or answer.final
    wait_s = decide(policy, number, signal, chance=environment.chance(), forbidden=forbidden).wait_s
    if wait_s is not None and answer.patience_s is not None and wait_s >= answer.patience_s:
        return None
    return wait_s


def _affordable(
    answer: AttemptResult[Any], gate: Gate, policy: RetryPolicy, environment: RetryEnvironment, *, told: bool
) -> bool:
    """Pay for one more attempt. A throttle that a gate paces is free."""
    kind = answer.judged.signal.kind
    if kind is SignalKind.THROTTLED and not isinstance(gate, NoGate):
        return True
    if policy.budget is None and isinstance(gate, Budgeted):
        # A timeout that it was told of is charged when its slot ends.
        return gate.may_retry() if told and kind is SignalKind.TIMEOUT else gate.take_retry()
    return (policy.budget or policy.own).take(environment.clock())


def run_sync(flow: Flow[T]) -> T:
    """Drive a flow whose hands are a thread's."""
    return drive(flow, lambda done: done)


async def run_async(flow: Flow[T]) -> T:
    """Drive a flow whose hands are an event loop's. Cancelling it leaves no slot behind."""
    return await drive_async(flow, _result)


async def _result(waiting: Awaitable[Any] | None) -> Any:
    return None if waiting is None else await waiting


P = ParamSpec("P")
Judge = Callable[[object], JudgedResponse | None]
USUAL = RetryPolicy()
_FINE = JudgedResponse(Signal(SignalKind.OK))


def retry(
    call: Callable[[], T],
    *,
    gate: Gate | str | None = None,
    policy: RetryPolicy = USUAL,
    judge: Judge = judge,
    environment: RetryEnvironment = REAL,
) -> T:
    """Call, and call again while that makes sense. Returns or raises what the last attempt did."""
    return cast(T, run_sync(_attempts(call, gate, policy, judge, thread_hands(environment), environment)))


async def retry_async(
    call: Callable[[], Awaitable[T]],
    *,
    gate: Gate | str | None = None,
    policy: RetryPolicy = USUAL,
    judge: Judge = judge,
    environment: RetryEnvironment = REAL,
) -> T:
    """``retry`` for an event loop."""
    return cast(
        T, await run_async(_attempts(call, gate, policy, judge, loop_hands(environment), environment))
    )


@overload
def retried(function: Callable[P, T], /) -> Callable[P, T]: ...


@overload
def retried(
    *,
    gate: Gate | str | None = None,
    policy: RetryPolicy | None = None,
    judge: Judge = judge,
    environment: RetryEnvironment = REAL,
) -> Callable[[Callable[P, T]], Callable[P, T]]: ...


def retried(
    function: Callable[P, T] | None = None,
    /,
    *,
    gate: Gate | str | None = None,
    policy: RetryPolicy | None = None,
    judge: Judge = judge,
    environment: RetryEnvironment = REAL,
) -> Callable[P, T] | Callable[[Callable[P, T]], Callable[P, T]]:
    """A decorator for functions of either kind, with or without parentheses.

    Each function gets a policy, and so a budget, of its own.
    """

    def wrap(function: Callable[P, T]) -> Callable[P, T]:
        own = policy or RetryPolicy()
        if iscoroutinefunction(function):

            @wraps(function)
            async def again(*args: P.args, **kwargs: P.kwargs) -> Any:
                return await retry_async(
                    lambda: function(*args, **kwargs),
                    gate=gate,
                    policy=own,
                    judge=judge,
                    environment=environment,
                )

            return cast(Callable[P, T], again)

        @wraps(function)
        def once_more(*args: P.args, **kwargs: P.kwargs) -> T:
            return retry(
                lambda: function(*args, **kwargs), gate=gate, policy=own, judge=judge, environment=environment
            )

        return once_more

    return wrap if function is None else wrap(function)


def _attempts(
    call: Callable[[], Any],
    gate: Gate | str | None,
    policy: RetryPolicy,
    judge: Judge,
    hands: IoAdapter,
    environment: RetryEnvironment,
) -> Flow[Any]:
    def attempt() -> Flow[AttemptResult[Any]]:
        try:
            value = yield call()
        except Exception as error:
            judged = judge(error)
            if judged is None:
                raise
            return AttemptResult(judged, error=error)
        return AttemptResult(judge(value) or _FINE, value)

    at = NoGate() if gate is None else gate_for(gate)
    answer, hold = yield from pursue(at, attempt, policy=policy, hands=hands, environment=environment)
    yield hold.free(answer.error)
    return answer.unwrap()
