"""Who stands in line at a turnstile: a task of an event loop, or a thread. One line holds both.

Whoever is served is woken once, with its start already made: nobody can overtake it on the way. Only where
starts have an end, the fence of a share, one that wakes after it gives its start back and waits on. A waiter
may also be the one that watches the time for the whole line (``look_in``): a Retry-After, a breaker or a
window opens without anybody releasing anything.

All methods but ``wait`` are called with the turnstile's lock held.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from flyball.errors import WaitTimeoutError
from flyball.governor.refusal import refusal

if TYPE_CHECKING:
    import asyncio

    from flyball.core.gate import Start
    from flyball.governor.turnstile import Turnstile

INFINITY = float("inf")


class Waiter(Protocol):
    priority: int
    cost: Mapping[str, float]
    start: Start | None
    """Set when it is served."""

    def wake(self) -> bool:
        """It was served. False if nobody is there any more to hear it."""

    def wait_on(self) -> None:
        """It was served, and woke too late to start."""

    def look_in(self, delay_s: float) -> bool:
        """Let the line look at the time again after so long, as long as this one waits."""


class TaskWaiter:
    """A task. Its loop may belong to any thread."""

    __slots__ = ("_desk", "_future", "_late", "_loop", "_thread", "_timer", "cost", "priority", "start")

    def __init__(
        self, desk: Turnstile, loop: asyncio.AbstractEventLoop, priority: int, cost: Mapping[str, float]
    ) -> None:
        self._desk, self._loop, self._thread = desk, loop, threading.get_ident()
        self._future: asyncio.Future[None] = loop.create_future()
        self._timer: asyncio.TimerHandle | None = None
        self._late = False
        self.priority, self.cost = priority, cost
        self.start: Start | None = None

    async def wait(self, timeout: float | None) -> Start:
        """The start, once it is this one's turn. Cancelled or timed out, it leaves nothing behind."""
        # Not wait_for: where a result and a cancellation arrive together, it drops the cancellation.
        patience = None if timeout is None else self._loop.call_later(max(0.0, timeout), self._give_up)
        try:
            await self._future
            while not self._late and not self._desk.closed and self._desk.too_late(self):
                await self._future
        except BaseException:
            self._desk.leave(self)
            if self.start is not None:
                self._desk.abandon(self.start)
            raise
        finally:
            if patience is not None:
                patience.cancel()
            if self._timer is not None:
                self._timer.cancel()
        return _served(self._desk, self, timeout)

    def _give_up(self) -> None:
        self._late = True
        self._finish()

    def _finish(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    def wake(self) -> bool:
        return self._run(self._finish)

    def wait_on(self) -> None:
        self.start, self._future = None, self._loop.create_future()

    def look_in(self, delay_s: float) -> bool:
        return self._run(self._set_timer, delay_s)

    def _run(self, step: object, *arguments: float) -> bool:
        try:
            if threading.get_ident() == self._thread:
                step(*arguments)  # type: ignore[operator]
            else:
                self._loop.call_soon_threadsafe(step, *arguments)  # type: ignore[arg-type]
        except RuntimeError:
            # The loop is closed.
            return False
        return True

    def _set_timer(self, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._future.done():
            self._timer = self._loop.call_later(delay_s, self._desk.look, self)


class ThreadWaiter:
    """A thread. Its bell is a lock that is locked until somebody rings."""

    __slots__ = ("_bell", "_desk", "_look_at", "cost", "priority", "start")

    def __init__(self, desk: Turnstile, priority: int, cost: Mapping[str, float]) -> None:
        self._desk, self._bell, self._look_at = desk, threading.Lock(), INFINITY
        self._bell.acquire()
        self.priority, self.cost = priority, cost
        self.start: Start | None = None

    def wait(self, timeout: float | None) -> Start:
        """The start, once it is this one's turn. Interrupted or timed out, it leaves nothing behind."""
        deadline = INFINITY if timeout is None else time.monotonic() + timeout
        try:
            while not self._desk.closed and (self.start is None or self._desk.too_late(self)):
                if self._rung(min(deadline, self._look_at)):
                    continue
                if time.monotonic() >= deadline:
                    break
                self._look_at = INFINITY
                self._desk.look(self)
        except BaseException:
            self._desk.leave(self)
            if self.start is not None:
                self._desk.abandon(self.start)
            raise
        return _served(self._desk, self, timeout)

    def _rung(self, until: float) -> bool:
        if until == INFINITY:
            return self._bell.acquire()
        return self._bell.acquire(timeout=min(max(0.0, until - time.monotonic()), threading.TIMEOUT_MAX))

    def wake(self) -> bool:
        if self._bell.locked():
            self._bell.release()
        return True

    def wait_on(self) -> None:
        self.start = None

    def look_in(self, delay_s: float) -> bool:
        self._look_at = time.monotonic() + delay_s
        # It sleeps with the old time: rung, it goes back to sleep with the new one.
        return self.wake()


def _served(desk: Turnstile, waiter: TaskWaiter | ThreadWaiter, timeout: float | None) -> Start:
    """Served wins over timed out, where both happened at once, and the fence over both."""
    if waiter.start is not None and desk.fenced:
        desk.abandon(waiter.start)
        waiter.start = None
    if waiter.start is None:
        desk.leave(waiter)
    if waiter.start is None and desk.closed:
        raise refusal(desk.verdict(waiter.cost))
    if waiter.start is None:
        raise WaitTimeoutError(desk.verdict(waiter.cost), timeout or 0.0)
    return waiter.start
