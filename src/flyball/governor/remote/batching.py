"""Store verbs for an event loop: together and at once where no thread is in the way, else in a thread.

A step of a store beside us takes less time than waking a thread for it, so the loop takes it itself, if it
can have the store without waiting: all that were asked for in one turn of the loop, in one transaction. If
anything goes wrong with one of them, nothing was done, and each goes its own way, in a thread. Who comes
while threads are at work waits until they are done: none overtakes, and a busy moment does not last.

Of those whom a step wakes, the ones who wait on this very loop are told directly. They need no mail, and who
was handed a slot no look at the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from flyball.governor import acquisition
from flyball.governor.flow_drivers import run_sync
from flyball.host.off_loop import UncancellableFuture, WorkerThreads
from flyball.stores.port import AfterCommit, BatchStore, Store, WakeUp
from flyball.wake.inbox import Inbox, Wake

R = TypeVar("R")
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
        self.inbox: Inbox | None = None
        threads.idle = self._take_turn

    async def do(self, verb: Verb[R]) -> R:
        """One step, to its end, and what it leaves to do."""
        future: UncancellableFuture[R] = UncancellableFuture()
        if self._at_hand() is None:
            self._threads.put(future, partial(self._do_alone, verb))
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
        newest = self._newest
        told = self._do_together([verb for _, verb in asked])
        if told is None:
            for future, verb in asked:
                self._threads.put(future, partial(self._do_alone, verb))
            return
        for (future, _), (result, after) in zip(asked, told, strict=True):
            self._tell(_ours(after, self.inbox), newest)
            if after.wakes or after.notices or (after.facts and self._observers):
                self._threads.put(UncancellableFuture(), partial(self.settle, after))
            future.set_result(result)

    def _do_together(self, verbs: list[Verb[Any]]) -> list[tuple[Any, AfterCommit]] | None:
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

    def _do_alone(self, verb: Verb[R]) -> R:
        newest = self._newest
        result, after = verb()
        ours = _ours(after, self.inbox)
        if ours:
            # On the loop, and also where the task that asked for this step does not wait for its end.
            self._threads.say(partial(self._tell, ours, newest))
        self.settle(after)
        return result

    @property
    def _newest(self) -> int:
        """Of the waiters that are there before a step begins: only these take a grant of that step as one."""
        return self.inbox.newest if self.inbox is not None else 0

    def _tell(self, wakes: list[WakeUp], newest: int) -> None:
        if self.inbox is not None:
            for wake in wakes:
                what = Wake.GRANTED if wake.granted else Wake.LOOK
                self.inbox.tell([wake.claim_id], what, newest=newest)


def _ours(after: AfterCommit, inbox: Inbox | None) -> list[WakeUp]:
    """Take those out who wait on this loop."""
    if inbox is None or not inbox.address or not after.wakes:
        return []
    ours = [wake for wake in after.wakes if wake.mailbox == inbox.address]
    after.wakes = [wake for wake in after.wakes if wake.mailbox != inbox.address]
    return ours
