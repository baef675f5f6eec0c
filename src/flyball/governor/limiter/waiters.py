"""The waiters of an admission queue, the line that they stand in, and the verdict on why one waits.

A waiter is a task of an event loop or a thread; one line holds both. One that is served is woken once, with
its start already made: none overtakes it on the way. Only where starts have an end, the fence of a share,
one that wakes after it gives its start back and waits on. A waiter may also be the one that watches the time
for the whole line (``look_in``): a Retry-After, a breaker or a window opens without any release. All its
methods but ``wait`` are called with the admission queue's lock held.

The line (``WaitQueue``) serves higher priority first, first come first served within one. Every step is O(1):
leaving from the middle costs the same as being served, so a storm of cancellations leaves nothing behind for
a release to step over. A waiter that waits long rises (``fairness.aged_priority``): of each priority only
the oldest can be next, so that as many are compared as there are different priorities.

A call that cannot start now is told why by ``denial_verdict``, in the words of every other refusal.
"""

from __future__ import annotations

import threading
import time
from bisect import insort
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from flyball.core.pool import rate_window as windowing
from flyball.core.pool.fairness import aged_priority
from flyball.core.pool.local_pool import INFINITY, LocalPool
from flyball.core.pool.model import Phase
from flyball.core.pool.verdict import CLOSED_REASONS, Reason, Verdict, VerdictKind
from flyball.errors import AtCapacityError, PoolClosedError, RefusedError, WaitTimeoutError

if TYPE_CHECKING:
    import asyncio

    from flyball.core.pool.local_pool import CallStart
    from flyball.governor.limiter.admission_queue import AdmissionQueue


def denial_verdict(
    pool: LocalPool, cost: Mapping[str, float], *, now: float, at: float, maximum: int | None, waiting: int
) -> Verdict:
    """``at`` is when to look again: infinity where only the end of another call helps."""
    reason, detail = _reason(pool, cost, now, maximum, waiting)
    timed = at != INFINITY and reason not in (Reason.CAP, Reason.QUEUE)
    return Verdict(
        kind=VerdictKind.REFUSED,
        reason=reason,
        pool=pool.name,
        in_use=pool.in_use,
        cap=pool.cap if maximum is None else min(pool.cap, maximum),
        position=waiting + 1 if waiting else 0,
        look_again_s=max(0.0, at - now) if at != INFINITY else None,
        estimate_s=max(0.0, at - now) if timed else None,
        detail=detail,
    )


def refusal_error(verdict: Verdict) -> RefusedError:
    return PoolClosedError(verdict) if verdict.reason in CLOSED_REASONS else AtCapacityError(verdict)


def _reason(
    pool: LocalPool, cost: Mapping[str, float], now: float, maximum: int | None, waiting: int
) -> tuple[Reason, str]:
    limits = pool.limits
    if limits.closed_until is not None and now < limits.closed_until:
        return (Reason.BREAKER if limits.phase is Phase.OPEN else Reason.RETRY_AFTER), ""
    if limits.phase is Phase.TRIAL and pool.meters.trial_id is not None:
        return Reason.TRIAL, ""
    if limits.spacing_s and limits.phase is not Phase.TRIAL and now < pool.meters.next_grant_at:
        return Reason.SPACING, ""
    if maximum is not None and pool.in_use >= maximum:
        return Reason.CAP, "at the hard maximum"
    if pool.in_use >= pool.cap:
        return Reason.CAP, ""
    _, window = windowing.room_at(pool.windows, cost, now)
    if window:
        return Reason.WINDOW, f"no room in the window {window!r}"
    return (Reason.QUEUE if waiting else Reason.CAP), ""


class Waiter(Protocol):
    priority: int
    cost: Mapping[str, float]
    start: CallStart | None
    """Set when it is served."""

    def wake(self) -> bool:
        """It was served. False if its task or thread has gone."""

    def wait_on(self) -> None:
        """It was served, and woke too late to start."""

    def look_in(self, delay_s: float) -> bool:
        """Let the line look at the time again after so long, as long as this one waits."""


class TaskWaiter:
    """A task. Its loop may belong to any thread."""

    __slots__ = ("_future", "_late", "_loop", "_queue", "_thread", "_timer", "cost", "priority", "start")

    def __init__(
        self, queue: AdmissionQueue, loop: asyncio.AbstractEventLoop, priority: int, cost: Mapping[str, float]
    ) -> None:
        self._queue, self._loop, self._thread = queue, loop, threading.get_ident()
        self._future: asyncio.Future[None] = loop.create_future()
        self._timer: asyncio.TimerHandle | None = None
        self._late = False
        self.priority, self.cost = priority, cost
        self.start: CallStart | None = None

    async def wait(self, timeout: float | None) -> CallStart:
        """The start, once it is this one's turn. Cancelled or timed out, it leaves nothing behind."""
        # Not wait_for: where a result and a cancellation arrive together, it drops the cancellation.
        patience = None if timeout is None else self._loop.call_later(max(0.0, timeout), self._give_up)
        try:
            await self._future
            while not self._late and not self._queue.closed and self._queue.too_late(self):
                await self._future
        except BaseException:
            self._queue.leave(self)
            if self.start is not None:
                self._queue.abandon(self.start)
            raise
        finally:
            if patience is not None:
                patience.cancel()
            if self._timer is not None:
                self._timer.cancel()
        return _start_or_raise(self._queue, self, timeout)

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
            self._timer = self._loop.call_later(delay_s, self._queue.serve, self)


class ThreadWaiter:
    """A thread. It waits on a lock that is released to wake it."""

    __slots__ = ("_look_at", "_queue", "_wakeup", "cost", "priority", "start")

    def __init__(self, queue: AdmissionQueue, priority: int, cost: Mapping[str, float]) -> None:
        self._queue, self._wakeup, self._look_at = queue, threading.Lock(), INFINITY
        self._wakeup.acquire()
        self.priority, self.cost = priority, cost
        self.start: CallStart | None = None

    def wait(self, timeout: float | None) -> CallStart:
        """The start, once it is this one's turn. Interrupted or timed out, it leaves nothing behind."""
        deadline = INFINITY if timeout is None else time.monotonic() + timeout
        try:
            while not self._queue.closed and (self.start is None or self._queue.too_late(self)):
                if self._sleep(min(deadline, self._look_at)):
                    continue
                if time.monotonic() >= deadline:
                    break
                self._look_at = INFINITY
                self._queue.serve(self)
        except BaseException:
            self._queue.leave(self)
            if self.start is not None:
                self._queue.abandon(self.start)
            raise
        return _start_or_raise(self._queue, self, timeout)

    def _sleep(self, until: float) -> bool:
        if until == INFINITY:
            return self._wakeup.acquire()
        return self._wakeup.acquire(timeout=min(max(0.0, until - time.monotonic()), threading.TIMEOUT_MAX))

    def wake(self) -> bool:
        if self._wakeup.locked():
            self._wakeup.release()
        return True

    def wait_on(self) -> None:
        self.start = None

    def look_in(self, delay_s: float) -> bool:
        self._look_at = time.monotonic() + delay_s
        # It sleeps with the old time: woken, it goes back to sleep with the new one.
        return self.wake()


def _start_or_raise(
    queue: AdmissionQueue, waiter: TaskWaiter | ThreadWaiter, timeout: float | None
) -> CallStart:
    """Served wins over timed out, where both happened at once, and the fence over both."""
    if waiter.start is not None and queue.fenced:
        queue.abandon(waiter.start)
        waiter.start = None
    if waiter.start is None:
        queue.leave(waiter)
    if waiter.start is None and queue.closed:
        raise refusal_error(queue.verdict(waiter.cost))
    if waiter.start is None:
        raise WaitTimeoutError(queue.verdict(waiter.cost), timeout or 0.0)
    return waiter.start


W = TypeVar("W")


class WaitQueue(Generic[W]):
    """
    >>> line = WaitQueue[str]()
    >>> for name, priority in (("a", 0), ("b", 0), ("c", 1)):
    ...     line.join(name, priority, now=0.0)
    >>> line.first(now=1.0, ageing_s=60.0), line.first(now=61.0, ageing_s=60.0), line.length
    ('c', 'a', 3)
    >>> line.leave("a", 0), line.first(now=61.0, ageing_s=60.0), line.last()
    (True, 'b', 'b')
    """

    __slots__ = ("_joined", "_priorities", "_rows", "length")

    def __init__(self) -> None:
        self._rows: dict[int, OrderedDict[W, tuple[int, float]]] = {}
        """Who waits, and each one's number and time of arrival."""
        self._priorities: list[int] = []
        """Those that have waiters, the lowest first."""
        self._joined = 0
        self.length = 0
        """Read only; an attribute because every start and end looks at it."""

    def join(self, waiter: W, priority: int, *, now: float) -> None:
        row = self._rows.get(priority)
        if row is None:
            row = self._rows[priority] = OrderedDict()
            insort(self._priorities, priority)
        self._joined += 1
        row[waiter] = (self._joined, now)
        self.length += 1

    def leave(self, waiter: W, priority: int) -> bool:
        """Whether it was in line."""
        row = self._rows.get(priority)
        if row is None or waiter not in row:
            return False
        del row[waiter]
        self.length -= 1
        if not row:
            del self._rows[priority]
            self._priorities.remove(priority)
        return True

    def first(self, *, now: float, ageing_s: float) -> W:
        """The waiter that is served next; only where there is one."""
        top = self._priorities[-1]
        if len(self._priorities) == 1:
            return next(iter(self._rows[top]))

        def rank(priority: int) -> tuple[int, int]:
            number, joined_at = next(iter(self._rows[priority].values()))
            return aged_priority(priority, now - joined_at, ageing_s=ageing_s, top=top), -number

        return next(iter(self._rows[max(self._priorities, key=rank)]))

    def last(self) -> W:
        """The waiter that will wait longest yet, without ageing; only where there is one."""
        return next(reversed(self._rows[self._priorities[0]]))
