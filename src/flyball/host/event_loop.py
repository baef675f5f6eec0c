"""The event loop of flyball's coroutines: asyncio's. Under another, such as trio's, they are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flyball.errors import UsageError

if TYPE_CHECKING:
    import asyncio


def asyncio_loop() -> asyncio.AbstractEventLoop:
    """The running loop. Raises UsageError where none of asyncio's runs."""
    from asyncio import get_running_loop

    try:
        return get_running_loop()
    except RuntimeError:
        raise UsageError(
            "flyball's coroutines run on asyncio's event loop, and none is running here. Under trio, use "
            "what blocks, in a thread: await trio.to_thread.run_sync(work), where work has a plain `with "
            "flyball.slot(...)`; a program of anyio can run on its asyncio backend"
        ) from None
