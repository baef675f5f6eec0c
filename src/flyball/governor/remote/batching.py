"""Store verbs for an event loop: together and at once where nobody is in the way, else in a thread.

A step of a store beside us takes less time than waking a thread for it, so the loop takes it itself, if it
can have the store without waiting: all that were asked for in one turn of the loop, in one transaction. If
anything goes wrong with one of them, nothing was done, and each goes its own way, in a thread. Who comes
while threads are at work waits until they are done: nobody overtakes, and a busy moment does not last.

Of those whom a step wakes, the ones who wait on this very loop are told directly. They need no mail, and who
was handed a slot no look at the store.

Blocking calls for an event loop, at a third of the price of an executor.

A few threads take calls from one queue. What is done is put aside, and the loop is woken once for all that
has been done meanwhile: under load one wake serves many calls.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from flyball.governor import acquisition
from flyball.governor.drivers import run_sync
from flyball.governor.remote.waiters import RemoteWake, WaiterRegistry
from flyball.stores.port import AfterCommit, BatchStore, Store, WakeUp

R = TypeVar("R")
Job = tuple[asyncio.Future[Any], Callable[[], Any]]


class UncancellableFuture(asyncio.Future[R]):
    """A future that is always told: who waits for it can be cancelled only once it is done."""

    def cancel(self, msg: Any | None = None) -> bool:  # noqa: ARG002 (the loop's signature)
        return False


class WorkerThreads:
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
        future: UncancellableFuture[R] = UncancellableFuture()
        self.put(future, run)
        return await future

    def put(self, future: UncancellableFuture[R], run: Callable[[], R]) -> None:
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


Verb = Callable[[], tuple[R, AfterCommit]]
MOST_TOGETHER = 32
"""Others on this machine wait for the transaction to end."""


class LoopBatcher:
    """Store verbs for one event loop, and what follows them."""

    def __init__(
        self, store: Callable[[], Store], threads: WorkerThreads, observers: Sequence[acquisition.Observer]
    ) -> None:
        self._store, self._threads, self._observers = store, threads, observers
        self._together: BatchStore | None = None
        self._seen: Store | None = None
        self._asked: list[tuple[UncancellableFuture[Any], Verb[Any]]] = []
        self.bells: WaiterRegistry | None = None
        threads.idle = self._take_turn

    async def do(self, verb: Verb[R]) -> R:
        """One step, to its end, and what it leaves to do."""
        future: UncancellableFuture[R] = UncancellableFuture()
        if self._at_hand() is None:
            self._threads.put(future, partial(self._alone, verb))
        else:
            if not self._asked and not self._threads.busy:
                asyncio.get_running_loop().call_soon(self._take_turn)
            self._asked.append((future, verb))
        return await future

    def _take_turn(self) -> None:
        if self._threads.busy or not self._asked:
            return
        asked, self._asked = self._asked[:MOST_TOGETHER], self._asked[MOST_TOGETHER:]
        if self._asked:
            asyncio.get_running_loop().call_soon(self._take_turn)
        told = self._done_together([verb for _, verb in asked])
        if told is None:
            for future, verb in asked:
                self._threads.put(future, partial(self._alone, verb))
            return
        for (future, _), (result, after) in zip(asked, told, strict=True):
            self._ring(_ours(after, self.bells))
            if after.wakes or after.notices or (after.facts and self._observers):
                self._threads.put(UncancellableFuture(), partial(self.settle, after))
            future.set_result(result)

    def _done_together(self, verbs: list[Verb[Any]]) -> list[tuple[Any, AfterCommit]] | None:
        """What each said; None where none of it was done."""
        store = self._at_hand()
        if store is None or not store.begin_together():
            return None
        told: list[tuple[Any, AfterCommit]] = []
        try:
            # What is wrong with one of them shows when each is done alone.
            with suppress(Exception):
                told = [verb() for verb in verbs]
        finally:
            done = store.end_together(keep=len(told) == len(verbs))
        return told if done else None

    def settle(self, after: AfterCommit) -> None:
        """Wake the others, tell the observers."""
        run_sync(acquisition.settle(self._store(), after, self._observers), None)

    def _at_hand(self) -> BatchStore | None:
        """The store, if it is one that the loop may use itself."""
        store = self._store()
        if store is not self._seen:
            self._seen, self._together = store, store if isinstance(store, BatchStore) else None
        return self._together

    def _alone(self, verb: Verb[R]) -> R:
        result, after = verb()
        ours = _ours(after, self.bells)
        if ours:
            # On the loop, and also where whoever asked for this step does not wait for its end.
            self._threads.say(partial(self._ring, ours))
        self.settle(after)
        return result

    def _ring(self, wakes: list[WakeUp]) -> None:
        if self.bells is not None:
            for wake in wakes:
                self.bells.tell([wake.claim_id], RemoteWake.GRANTED if wake.granted else RemoteWake.LOOK)


def _ours(after: AfterCommit, bells: WaiterRegistry | None) -> list[WakeUp]:
    """Take those out who wait on this loop."""
    if bells is None or not bells.address or not after.wakes:
        return []
    ours = [wake for wake in after.wakes if wake.mailbox == bells.address]
    after.wakes = [wake for wake in after.wakes if wake.mailbox != bells.address]
    return ours
