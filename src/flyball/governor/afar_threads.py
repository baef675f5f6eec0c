"""Blocking calls for an event loop, at a third of the price of an executor.

A few threads take calls from one queue. What is done is put aside, and the loop is woken once for all that
has been done meanwhile: under load one wake serves many calls.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

R = TypeVar("R")
Job = tuple[asyncio.Future[Any], Callable[[], Any]]


class Threads:
    """For one event loop. The threads start when first needed, and end with ``close``."""

    def __init__(self, many: int, name: str) -> None:
        self._many, self._name = many, name
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._done: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._told = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads: list[threading.Thread] = []

    async def call(self, run: Callable[[], R]) -> R:
        """Run it in a thread, to its end: a call that was begun is finished before a cancellation is."""
        loop = self._loop
        if loop is None:
            loop = self._start()
        future: asyncio.Future[R] = loop.create_future()
        self._jobs.put((future, run))
        cancelled: asyncio.CancelledError | None = None
        while not future.done():
            try:
                await asyncio.shield(future)
            except asyncio.CancelledError as error:
                cancelled = error
            except BaseException:
                break
        if cancelled is not None:
            future.exception()
            raise cancelled
        return future.result()

    def _start(self) -> asyncio.AbstractEventLoop:
        self._loop = loop = asyncio.get_running_loop()
        for number in range(self._many):
            thread = threading.Thread(target=self._work, name=f"{self._name}-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()
        return loop

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, run = job
            try:
                result, error = run(), None
            except BaseException as failure:
                result, error = None, failure
            self._done.append((future, result, error))
            del job, future, run, result, error
            if not self._told:
                self._told = True
                self._wake()

    def _wake(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._hand_over)

    def _hand_over(self) -> None:
        # First this, then the queue: what is added in between wakes us again.
        self._told = False
        while self._done:
            future, result, error = self._done.popleft()
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)

    def close(self) -> None:
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        self._threads, self._loop = [], None
