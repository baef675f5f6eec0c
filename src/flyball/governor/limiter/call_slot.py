"""One call at a limiter: it waits for its slot, holds it, and says what the provider answered.

The first lines of entering and leaving are the way of most calls (see admission_queue.py): take a ready pass,
put it back. They stand here, twice, and not in a method of the queue because they are measured against a
semaphore, where every call of a function shows.

What an exception that leaves a call says about load. Most say nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING

from flyball.core.durations import clamped_s
from flyball.core.pool.local_pool import CallStart
from flyball.core.pool.settings import check_amounts, check_timeout
from flyball.core.provider.http_response import from_http
from flyball.core.signals import CONGESTION, Signal, SignalKind
from flyball.errors import FlyballError, Throttled, UsageError
from flyball.governor.limiter.admission_queue import AdmissionQueue
from flyball.governor.limiter.waiters import TaskWaiter, ThreadWaiter, refusal

if TYPE_CHECKING:
    from flyball.core.provider.error_body import Body
    from flyball.core.provider.rate_limit_headers import HeaderLines


def signal_of(error: BaseException) -> Signal | None:
    """None where it says nothing: a bug in the call, a cancellation, another limiter's refusal.

    >>> signal_of(Throttled(retry_after_s=7)).retry_after_s
    7
    >>> signal_of(ConnectionResetError()).kind
    <SignalKind.TIMEOUT: 'timeout'>
    >>> signal_of(KeyError("x")) is None
    True
    """
    if isinstance(error, Throttled):
        return Signal(SignalKind.THROTTLED, clamped_s(error.retry_after_s), detail=str(error))
    if isinstance(error, FlyballError) or not isinstance(error, TimeoutError | ConnectionError):
        return None
    return Signal(SignalKind.TIMEOUT, detail=type(error).__name__)


NO_COST: Mapping[str, float] = {}
_OK = Signal(SignalKind.OK)
_SAYS_NOTHING = Signal(SignalKind.UNKNOWN)


class _Ended:
    """Stands in for the queue of a slot that was entered or given back: there is no easy way through."""

    left, high = 0, -1


_ENDED: AdmissionQueue = _Ended()  # type: ignore[assignment]


class CallRecord:
    """What is known of a call beyond the ordinary."""

    __slots__ = ("actual", "heard", "signal", "start")

    def __init__(self, start: CallStart) -> None:
        self.start = start
        self.signal: Signal | None = None
        self.heard = False
        """The gate knows the signal already."""
        self.actual: Mapping[str, float] = NO_COST


class CallSlot:
    """``with`` and ``async with`` around one call, or what ``acquire`` returned. One use each."""

    __slots__ = ("_door", "_in_flight", "_notes", "_queue", "_sent_at")

    _door: AdmissionQueue
    """Where to enter: once. A second use, at the same time or later, would lose the first one's pass."""
    _queue: AdmissionQueue
    """Where to give back."""
    _notes: CallRecord | None
    _sent_at: float
    _in_flight: int

    # -- getting it -------------------------------------------------------------------------------

    async def __aenter__(self) -> CallSlot:
        queue = self._door
        self._door = _ENDED
        if queue.left > 0:
            free = queue.free
            try:
                free.pop()
            except IndexError:
                return await self._wait_async(queue)
            queue.left -= 1
            self._notes = None
            self._sent_at = now = queue.clock()
            self._in_flight = queue.minted - len(free)
            if now < queue.fence_at:
                return self
            self._put_back()
        return await self._wait_async(queue)

    def __enter__(self) -> CallSlot:
        queue = self._door
        self._door = _ENDED
        if queue.left > 0:
            free = queue.free
            try:
                free.pop()
            except IndexError:
                return self._wait(queue)
            queue.left -= 1
            self._notes = None
            self._sent_at = now = queue.clock()
            self._in_flight = queue.minted - len(free)
            if now < queue.fence_at:
                return self
            self._put_back()
        return self._wait(queue)

    def _put_back(self) -> None:
        """The time of a ready pass was over when it was taken: it goes back unused, and the gate is asked."""
        self._queue.free.append(None)
        self._queue.left += 1

    def _enter_nowait(self) -> CallSlot:
        """Enter, or raise at once what stands in the way."""
        queue = self._take()
        start = queue.enter(self.cost)
        if start is None:
            raise refusal(queue.verdict(self.cost))
        return self._begin(start)

    async def _wait_async(self, queue: AdmissionQueue) -> CallSlot:
        import asyncio

        _check_unused(queue)
        start = queue.enter(self.cost)
        if start is None:
            waiter = TaskWaiter(queue, asyncio.get_running_loop(), self.priority, self.cost)
            queue.stand(waiter)
            start = await waiter.wait(self.timeout)
        return self._begin(start)

    def _wait(self, queue: AdmissionQueue) -> CallSlot:
        _check_unused(queue)
        start = queue.enter(self.cost)
        if start is None:
            waiter = ThreadWaiter(queue, self.priority, self.cost)
            queue.stand(waiter)
            start = waiter.wait(self.timeout)
        return self._begin(start)

    def _begin(self, start: CallStart) -> CallSlot:
        self._notes = CallRecord(start)
        return self

    def _take(self) -> AdmissionQueue:
        queue = self._door
        self._door = _ENDED
        _check_unused(queue)
        return queue

    # Ordinary calls carry none of these; ``PendingCallSlot`` does.
    @property
    def priority(self) -> int:
        """The priority with which it stands in line; higher first."""
        return 0

    @property
    def cost(self) -> Mapping[str, float]:
        """What the call is expected to use of each window."""
        return NO_COST

    @property
    def timeout(self) -> float | None:
        """How many seconds it waits for a slot; None: without end."""
        return None

    # -- telling ----------------------------------------------------------------------------------

    def report(self, status: int | Signal, headers: HeaderLines | None = None, body: Body = None) -> Signal:
        """Tell the limiter what the provider said: an HTTP status with headers and body, or a ready signal.

        A throttle takes effect at once, for all callers. One call asks for less only once: after the first
        throttle, overload or timeout, what its retries meet changes nothing.
        """
        signal = (
            status if isinstance(status, Signal) else from_http(status, headers, body, wall_s=time.time())
        )
        if signal.kind is SignalKind.OK and not signal.buckets and self.held and self._notes is None:
            return signal
        notes = self._record()
        if notes.signal is not None and notes.signal.kind in CONGESTION:
            return signal
        if notes.signal is not None and notes.signal.buckets and not signal.buckets and not notes.heard:
            # An error in the middle of a stream: the headers before it are still to be learned from.
            signal = replace(signal, buckets=notes.signal.buckets)
        notes.signal, notes.heard = signal, signal.kind is not SignalKind.OK
        if notes.heard:
            self._queue.hear(notes.start, signal)
        return signal

    def settle(self, **actual: float) -> None:
        """Say what the call really used of the limiter's windows: ``settle(tokens=1830)``."""
        check_amounts("what was used", actual)
        notes = self._record()
        notes.actual = {**notes.actual, **actual}

    @property
    def held(self) -> bool:
        """Whether it has a slot now."""
        return self._queue is not _ENDED and hasattr(self, "_notes")

    def _record(self) -> CallRecord:
        if not self.held:
            raise UsageError("this slot is not held: report and settle inside its block")
        if self._notes is None:
            self._notes = CallRecord(CallStart(0, self._sent_at, self._in_flight, NO_COST, NO_COST))
        return self._notes

    # -- giving it back ---------------------------------------------------------------------------

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        queue = self._queue
        if kind is None and self._notes is None and self._in_flight <= queue.high:
            self._queue = _ENDED
            queue.free.append(None)
            if not queue.calm:
                queue.look()
            return
        self._end(error)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.release()
        else:
            self._end(error)

    def release(self) -> None:
        """Give the slot back. A second call does nothing."""
        queue = self._queue
        try:
            if self._notes is None and self._in_flight <= queue.high:
                self._queue = _ENDED
                queue.free.append(None)
                if not queue.calm:
                    queue.look()
                return
        except AttributeError:
            # It was never entered: there is nothing to give back.
            if self.held:
                raise
            return
        self._end(None)

    def _end(self, error: BaseException | None) -> None:
        queue = self._queue
        if queue is _ENDED:
            return
        notes = self._notes or self._record()
        self._queue = _ENDED
        signal, heard = _last_word(notes, error)
        queue.end(notes.start, signal, heard=heard, actual=notes.actual)


def _check_unused(queue: AdmissionQueue) -> None:
    if queue is _ENDED:
        raise UsageError("a slot has one use; ask the limiter for another")


def _last_word(notes: CallRecord, error: BaseException | None) -> tuple[Signal, bool]:
    """The signal the call ends with, and whether the gate knows it already."""
    said = notes.signal
    if said is not None and said.kind in CONGESTION:
        return said, True
    found = None if error is None else signal_of(error)
    if found is not None:
        return found, False
    if said is not None:
        return said, notes.heard
    return (_OK if error is None else _SAYS_NOTHING), False


class PendingCallSlot(CallSlot):
    """A slot asked for with a priority, a cost or a timeout. It always goes by the gate."""

    __slots__ = ("_cost", "_priority", "_timeout")

    def __init__(self, priority: int, cost: Mapping[str, float] | None, timeout: float | None) -> None:
        check_timeout(timeout)
        if cost is not None:
            check_amounts("the cost", cost)
        self._priority, self._cost, self._timeout = priority, cost or NO_COST, timeout

    async def __aenter__(self) -> CallSlot:
        return await self._wait_async(self._take())

    def __enter__(self) -> CallSlot:
        return self._wait(self._take())

    @property
    def priority(self) -> int:
        return self._priority

    @property
    def cost(self) -> Mapping[str, float]:
        return self._cost

    @property
    def timeout(self) -> float | None:
        return self._timeout
