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
from flyball.clients.port import Gate, SlotOptions
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
    policy.budget.call(world.clock())
    while True:
        number += 1
        hold = yield hands.take(gate, ask)
        try:
            answer = yield from attempt()
            hold.tell(answer.judged.signal, news=episode.is_news(answer.judged.signal))
            wait_s = _wait_s(answer, number, policy, world, paced=not isinstance(gate, Open))
            if wait_s is None:
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


def _wait_s(
    answer: Answer[Any], number: int, policy: RetryPolicy, world: World, *, paced: bool
) -> float | None:
    signal, forbidden = answer.judged.signal, answer.judged.forbidden or answer.final
    wait_s = decide(policy, number, signal, chance=world.chance(), forbidden=forbidden).wait_s
    if wait_s is None or (paced and signal.kind is SignalKind.THROTTLED):
        return wait_s
    return wait_s if policy.budget.take(world.clock()) else None


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
