"""Blocking work beside the event loop."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
_threads = ThreadPoolExecutor(32, thread_name_prefix="flyball-git")


async def off_loop(work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run it in a thread. Being cancelled waits for its end: no git command is left half done behind our
    back."""
    call = functools.partial(work, *args, **kwargs)
    return await _ended(asyncio.get_running_loop().run_in_executor(_threads, call))


async def to_the_end(work: Coroutine[Any, Any, R]) -> R:
    """Await something that must not be left half done: being cancelled waits for its end."""
    return await _ended(asyncio.ensure_future(work))


async def _ended(done: asyncio.Future[R]) -> R:
    cancelled: asyncio.CancelledError | None = None
    while not done.done():
        try:
            await asyncio.wait({done})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    return done.result()
