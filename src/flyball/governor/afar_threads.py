"""Blocking calls for an event loop, at a third of the price of an executor.

A few threads take calls from one queue. What is done is put aside, and the loop is woken once for all that
has been done meanwhile: under load one wake serves many calls.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

R = TypeVar("R")
Job = tuple[asyncio.Future[Any], Callable[[], Any]]


class Sure(asyncio.Future[R]):
    """A future that is always told: who waits for it can be cancelled only once it is done."""

    def cancel(self, msg: Any | None = None) -> bool:  # noqa: ARG002 (the loop's signature)
        return False


class Threads:
    """For one event loop. The threads start when first needed, and end with ``close``."""

    def __init__(self, many: int, name: str) -> None:
        self._many, self._name = many, name
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._done: deque[Callable[[], None]] = deque()
        self._told = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads: list[threading.Thread] = []
        self.busy = 0
        """Calls that were not answered yet."""
        self.idle: Callable[[], None] = lambda: None
        """Called on the loop when all have been."""

    async def call(self, run: Callable[[], R]) -> R:
        """Run it in a thread, to its end: a call that was begun is finished before a cancellation is."""
        future: Sure[R] = Sure()
        self.put(future, run)
        return await future

    def put(self, future: Sure[R], run: Callable[[], R]) -> None:
        """Run it in a thread; the future is told how it went."""
        if self._loop is None:
            self._start()
        self.busy += 1
        self._jobs.put((future, run))

    def say(self, run: Callable[[], None]) -> None:
        """From a thread: to be run on the loop, before whatever is answered after it."""
        self._done.append(run)
        if not self._told:
            self._told = True
            self._wake()

    def _start(self) -> None:
        self._loop = asyncio.get_running_loop()
        for number in range(self._many):
            thread = threading.Thread(target=self._work, name=f"{self._name}-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            self.say(self._answer(*job))
            del job

    def _answer(self, future: asyncio.Future[Any], run: Callable[[], Any]) -> Callable[[], None]:
        """Run it; what is left to do on the loop."""
        try:
            return partial(self._answered, future, run(), None)
        except BaseException as failure:
            return partial(self._answered, future, None, failure)

    def _answered(self, future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
        self.busy -= 1
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)
        if not self.busy:
            self.idle()

    def _wake(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._hand_over)

    def _hand_over(self) -> None:
        # First this, then the queue: what is added in between wakes us again.
        self._told = False
        while self._done:
            self._done.popleft()()

    def close(self) -> None:
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        self._threads, self._loop = [], None
