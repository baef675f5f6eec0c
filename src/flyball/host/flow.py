"""Drivers of a flow: the order of things written once, for threads and event loops.

A flow is a generator. It yields effects (what is to be done next) and is sent their results, or thrown their
errors, at the ``yield``; its return value is the result. The driver performs the effects, so that a flow
decides and never blocks or awaits by itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

E = TypeVar("E")
R = TypeVar("R")


def drive(flow: Generator[E, Any, R], perform: Callable[[E], Any]) -> R:
    """Drive a flow to its end in this thread."""
    try:
        effect = next(flow)
        while True:
            try:
                result = perform(effect)
            except BaseException as error:
                effect = flow.throw(error)
            else:
                effect = flow.send(result)
    except StopIteration as stop:
        value: R = stop.value
        return value


async def drive_async(
    flow: Generator[E, Any, R],
    perform: Callable[[E], Awaitable[Any]],
    *,
    abandon: Callable[[], None] | None = None,
) -> R:
    """Drive a flow to its end on the running loop. A cancellation is thrown into the flow like any error.

    A loop may be closed with tasks in it, which cannot await any more: ``abandon`` then ends the flow some
    other way. Without it the flow is told by ``GeneratorExit``, and must not yield again.
    """
    try:
        effect = next(flow)
        while True:
            try:
                result = await perform(effect)
            except GeneratorExit as gone:
                if abandon is not None:
                    abandon()
                    raise
                effect = flow.throw(gone)
            except BaseException as error:
                effect = flow.throw(error)
            else:
                effect = flow.send(result)
    except StopIteration as stop:
        value: R = stop.value
        return value
