"""One call, tried until its answer may be handed over. Written once for threads and event loops.

    take a slot -> try -> tell the pool, if it is news -> good or hopeless: hand the answer over, slot in hand
                                                       -> else free the slot, sleep, and from the start

The slot is free while the call waits, so that somebody else can use it. Nobody but this flow talks to the
ticket, and it tells each kind of trouble once per call: reporting twice is not possible from outside.

A flow is a generator that yields what its hands did: in a thread the result itself, on an event loop
something to await. Either way it gets the result, or the error, at the ``yield``.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from flyball.clients.hold import AsyncHold, Hold, Open
from flyball.clients.port import Budgeted, Gate, SlotOptions
from flyball.clients.retry import Episode, RetryPolicy, decide
from flyball.clients.telling import Judged
from flyball.core.signals import SignalKind

T = TypeVar("T")
Flow = Generator[Any, Any, T]
_PLAIN: SlotOptions = {}


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """What one attempt brought: a value or an error, and what it means."""

    judged: Judged
    value: T | None = None
    error: Exception | None = None
    final: bool = False
    """It cannot be tried again, whatever it means."""

    def unwrap(self) -> T:
        if self.error is not None:
            raise self.error
        return cast(T, self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Where time and chance come from; tests bring their own."""

    clock: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random.random
    sleep: Callable[[float], object] | None = None
    """None: the thread's or the event loop's own."""


REAL = World()


@dataclass(frozen=True, slots=True)
class Hands:
    """What differs between a thread and an event loop."""

    take: Callable[[Gate, SlotOptions], Any]
    sleep: Callable[[float], Any]


def thread_hands(world: World) -> Hands:
    return Hands(Hold.of, world.sleep or time.sleep)


def loop_hands(world: World) -> Hands:
    from asyncio import sleep

    return Hands(AsyncHold.of, world.sleep or sleep)


def pursue(
    gate: Gate,
    attempt: Callable[[], Flow[Answer[T]]],
    *,
    policy: RetryPolicy,
    hands: Hands,
    world: World = REAL,
    ask: SlotOptions = _PLAIN,
    episode: Episode | None = None,
    drop: Callable[[Answer[T]], Any] = lambda _: None,
) -> Flow[tuple[Answer[T], Any]]:
    """The order of things; ends with an answer and its slot. ``drop`` closes one that is not handed over."""
    episode, number = episode or Episode(), 0
    (policy.budget or policy.own).call(world.clock())
    while True:
        number += 1
        hold = yield hands.take(gate, ask)
        try:
            answer = yield from attempt()
            news = episode.is_news(answer.judged.signal)
            yield hold.tell(answer.judged.signal, news=news)
            wait_s = _wait_s(answer, number, policy, world)
            if wait_s is None or not _affordable(answer, gate, policy, world, told=news):
                return answer, hold
            yield drop(answer)
        except GeneratorExit:
            hold.lose()  # the event loop is gone: there is nobody left to wait for
            raise
        except BaseException as error:
            yield hold.free(error)
            raise
        yield hold.free()
        yield hands.sleep(wait_s)


def _wait_s(answer: Answer[Any], number: int, policy: RetryPolicy, world: World) -> float | None:
    signal, forbidden = answer.judged.signal, answer.judged.forbidden or answer.final
    return decide(policy, number, signal, chance=world.chance(), forbidden=forbidden).wait_s


def _affordable(answer: Answer[Any], gate: Gate, policy: RetryPolicy, world: World, *, told: bool) -> bool:
    """Pay for one more attempt. A throttle that a gate paces is free."""
    kind = answer.judged.signal.kind
    if kind is SignalKind.THROTTLED and not isinstance(gate, Open):
        return True
    if policy.budget is None and isinstance(gate, Budgeted):
        # A timeout that it was told of is charged when its slot ends.
        return gate.may_retry() if told and kind is SignalKind.TIMEOUT else gate.take_retry()
    return (policy.budget or policy.own).take(world.clock())


def run_sync(flow: Flow[T]) -> T:
    """Drive a flow whose hands are a thread's."""
    try:
        done = next(flow)
        while True:
            done = flow.send(done)
    except StopIteration as stop:
        return cast(T, stop.value)


async def run_async(flow: Flow[T]) -> T:
    """Drive a flow whose hands are an event loop's. Cancelling it leaves no slot behind."""
    try:
        waiting = next(flow)
        while True:
            try:
                done = await waiting if waiting is not None else None
            except BaseException as error:
                waiting = flow.throw(error)
            else:
                waiting = flow.send(done)
    except StopIteration as stop:
        return cast(T, stop.value)
