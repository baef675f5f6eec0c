"""Put any function through the same attempts: ``retry``, ``aretry`` and the decorator ``retried``.

    answer = flyball.retry(lambda: client.post(url, json=question), gate=limiter)

    @flyball.retried(gate="anthropic")
    async def ask(question): ...

The function neither takes a slot nor reports: that is done here, once per call, and the slot is free while it
waits. What an answer or an error means is read from its shape; bring a ``judge`` for other shapes. Without a
``gate`` nothing is taken or told, which is right where the client underneath is governed already.

Calls that share a policy share its budget. Use one policy per provider.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, ParamSpec, TypeVar, cast, overload

from flyball.clients.attempts import (
    REAL,
    Answer,
    Flow,
    Hands,
    World,
    loop_hands,
    pursue,
    run_async,
    run_sync,
    thread_hands,
)
from flyball.clients.hold import Open
from flyball.clients.port import Gate, gate_for
from flyball.clients.retry import RetryPolicy
from flyball.clients.telling import Judged, judge
from flyball.core.signals import Signal, SignalKind

T = TypeVar("T")
P = ParamSpec("P")
Judge = Callable[[object], Judged | None]
USUAL = RetryPolicy()
_FINE = Judged(Signal(SignalKind.OK))


def retry(
    call: Callable[[], T],
    *,
    gate: Gate | str | None = None,
    policy: RetryPolicy = USUAL,
    judge: Judge = judge,
    world: World = REAL,
) -> T:
    """Call, and call again while that makes sense. Returns or raises what the last attempt did."""
    return cast(T, run_sync(_tried(call, gate, policy, judge, thread_hands(world), world)))


async def aretry(
    call: Callable[[], Awaitable[T]],
    *,
    gate: Gate | str | None = None,
    policy: RetryPolicy = USUAL,
    judge: Judge = judge,
    world: World = REAL,
) -> T:
    """``retry`` for an event loop."""
    return cast(T, await run_async(_tried(call, gate, policy, judge, loop_hands(world), world)))


@overload
def retried(function: Callable[P, T], /) -> Callable[P, T]: ...


@overload
def retried(
    *,
    gate: Gate | str | None = None,
    policy: RetryPolicy | None = None,
    judge: Judge = judge,
    world: World = REAL,
) -> Callable[[Callable[P, T]], Callable[P, T]]: ...


def retried(
    function: Callable[P, T] | None = None,
    /,
    *,
    gate: Gate | str | None = None,
    policy: RetryPolicy | None = None,
    judge: Judge = judge,
    world: World = REAL,
) -> Callable[P, T] | Callable[[Callable[P, T]], Callable[P, T]]:
    """A decorator for functions of either kind, with or without parentheses.

    Each function gets a policy, and so a budget, of its own.
    """

    def wrap(function: Callable[P, T]) -> Callable[P, T]:
        own = policy or RetryPolicy()
        if iscoroutinefunction(function):

            @wraps(function)
            async def again(*args: P.args, **kwargs: P.kwargs) -> Any:
                return await aretry(
                    lambda: function(*args, **kwargs), gate=gate, policy=own, judge=judge, world=world
                )

            return cast(Callable[P, T], again)

        @wraps(function)
        def once_more(*args: P.args, **kwargs: P.kwargs) -> T:
            return retry(lambda: function(*args, **kwargs), gate=gate, policy=own, judge=judge, world=world)

        return once_more

    return wrap if function is None else wrap(function)


def _tried(
    call: Callable[[], Any],
    gate: Gate | str | None,
    policy: RetryPolicy,
    judge: Judge,
    hands: Hands,
    world: World,
) -> Flow[Any]:
    def attempt() -> Flow[Answer[Any]]:
        try:
            value = yield call()
        except Exception as error:
            judged = judge(error)
            if judged is None:
                raise
            return Answer(judged, error=error)
        return Answer(judge(value) or _FINE, value)

    at = Open() if gate is None else gate_for(gate)
    answer, hold = yield from pursue(at, attempt, policy=policy, hands=hands, world=world)
    yield hold.free(answer.error)
    return answer.unwrap()
