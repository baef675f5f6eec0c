"""Blocking work beside the event loop."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
_threads = ThreadPoolExecutor(32, thread_name_prefix="flyball-git")


async def off_loop(work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run it in a thread. Being cancelled waits for its end: no git command is left half done behind our
    back."""
    call = functools.partial(work, *args, **kwargs)
    done = asyncio.get_running_loop().run_in_executor(_threads, call)
    cancelled: asyncio.CancelledError | None = None
    while not done.done():
        try:
            await asyncio.wait({done})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    return done.result()
