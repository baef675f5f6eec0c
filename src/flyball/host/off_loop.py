"""Calls that block, made from an event loop: they run in a thread, and the loop goes on.

A store step or a git command that was begun has effects, so the caller must learn how it ended: ``call`` and
``finish`` let it end although the caller is cancelled, and then pass the cancellation on. ``begin`` is for
calls that change nothing: a caller that is cancelled lets go of them.

One policy for threads: each kind of work has a bounded number of its own, named, started when first needed
and joined when the process ends; a forked child starts its own. The loop's default executor belongs to the
user's program and takes only what happens once, such as opening and closing (``asyncio.to_thread``).
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from flyball.host.background_thread import start_thread

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

P = ParamSpec("P")
R = TypeVar("R")
Job = tuple[asyncio.Future[Any], Callable[[], Any]]


class UncancellableFuture(asyncio.Future[R]):
    """A future that is always told: a task that awaits it is cancelled only once it is done."""

    def cancel(self, msg: Any | None = None) -> bool:  # noqa: ARG002 (the loop's signature)
        return False


async def outlast(done: asyncio.Future[Any]) -> asyncio.CancelledError | None:
    """Wait until it is done, whatever happens; the cancellation that arrived meanwhile, if one did."""
    ended: UncancellableFuture[None] = UncancellableFuture()
    done.add_done_callback(lambda _: ended.set_result(None))
    try:
        await ended
    except asyncio.CancelledError as cancelled:
        return cancelled
    return None


async def finish(work: Awaitable[R]) -> R:
    """Await what must not be left half done: a cancellation is passed on once it has ended."""
    done = asyncio.ensure_future(work)
    cancelled = await outlast(done)
    if cancelled is not None:
        raise cancelled from None if done.cancelled() else done.exception()
    return done.result()


class Threads:
    """At most ``most`` threads for calls that block. Any thread and any event loop may use them."""

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._executors: dict[int, ThreadPoolExecutor] = {}

    def submit(self, run: Callable[[], R]) -> Future[R]:
        pid = os.getpid()
        if pid not in self._executors:
            from concurrent.futures import ThreadPoolExecutor

            self._executors[pid] = ThreadPoolExecutor(self._most, thread_name_prefix=self._name)
        return self._executors[pid].submit(run)

    async def call(self, run: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run it in a thread, to its end: a cancellation is passed on once it has ended."""
        return await finish(self.begin(partial(run, *args, **kwargs)))

    def begin(self, run: Callable[[], R]) -> asyncio.Future[R]:
        """Run it in a thread. A caller that stops awaiting the future lets go of the call: a thread that has
        begun it goes on."""
        return asyncio.wrap_future(self.submit(run))

    def close(self) -> None:
        """Wait for what was begun; nothing can be begun afterwards."""
        executor = self._executors.get(os.getpid())
        if executor is not None:
            executor.shutdown(wait=True)


class WorkerThreads:
    """Threads for the many short calls of one event loop, at a third of the price of an executor.

    They take calls from one queue. What is done is put aside, and the loop is woken once for all that has
    been done meanwhile: under load one wake serves many calls. They end with ``close``.
    """

    def __init__(self, number: int, name: str) -> None:
        self._number, self._name = number, name
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._done: deque[Callable[[], None]] = deque()
        self._told = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads: list[threading.Thread] = []
        self.busy = 0
        """Calls that have not ended."""
        self.idle: Callable[[], None] = lambda: None
        """Called on the loop when all have."""

    async def call(self, run: Callable[[], R]) -> R:
        """Run it in a thread, to its end: a cancellation is passed on once it has ended."""
        future: UncancellableFuture[R] = UncancellableFuture()
        self.put(future, run)
        return await future

    def put(self, future: UncancellableFuture[R], run: Callable[[], R]) -> None:
        """Run it in a thread; the future is told how it went."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            for each in range(self._number):
                self._threads.append(start_thread(self._work, name=f"{self._name}-{each}"))
        self.busy += 1
        self._jobs.put((future, run))

    def say(self, run: Callable[[], None]) -> None:
        """From a thread: to be run on the loop, before whatever is answered after it."""
        self._done.append(run)
        if not self._told:
            self._told = True
            if self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._hand_over)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            self.say(self._run(*job))
            del job

    def _run(self, future: asyncio.Future[Any], run: Callable[[], Any]) -> Callable[[], None]:
        """Run it; what is left to do on the loop."""
        try:
            return partial(self._answer, future, run(), None)
        except BaseException as failure:
            return partial(self._answer, future, None, failure)

    def _answer(self, future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
        self.busy -= 1
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)
        if not self.busy:
            self.idle()

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
