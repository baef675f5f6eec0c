"""The parts of one server, together. Routes get it as ``service``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from litestar.di import NamedDependency
from litestar.params import SkipValidation

from flyball.governor.governor import Governor
from flyball.host.off_loop import Threads
from flyball.observe.metrics import MetricRegistry
from flyball.service.auth import Access
from flyball.service.monitor import StoreMonitor
from flyball.service.store_reader import StoreReader

R = TypeVar("R")
CALLING_THREADS = 4
ENDING = "the server is shutting down; try again in a moment"


class Service:
    """What a server is made of. ``start`` and ``stop`` belong to the event loop that serves."""

    def __init__(self, governor: Governor, access: Access, *, registry: MetricRegistry | None = None) -> None:
        self.governor, self.access = governor, access
        self.registry = registry or MetricRegistry()
        self.watch = StoreMonitor(StoreReader(governor), self.registry)
        self.draining = False
        self._threads = Threads(CALLING_THREADS, "flyball-call")
        self._watching: asyncio.Task[None] | None = None

    async def call(self, run: Callable[[], R]) -> R:
        """Run a store call in a thread: a busy file or a far server must not stop the other requests."""
        return await self._threads.begin(run)

    async def start(self) -> None:
        self._watching = asyncio.create_task(self.watch.run())

    def drain(self) -> None:
        """Begin to end: not ready any more, and every event stream is told."""
        self.draining = True
        self.watch.end(ENDING)

    async def stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching})
        for part in (self.watch, self._threads, self.governor):
            await asyncio.to_thread(part.close)


Serving = NamedDependency[SkipValidation[Service]]
