"""One call at a limiter: it waits for its slot, holds it, and says what the provider answered.

``SlotMethods`` makes the slots, for limiters and share leases alike. Only this file writes a slot's fields.

Most calls take a ready pass and put it back (see admission_queue.py). They are measured against asyncio's
semaphore, beside which ``async with`` may take no longer (``python -m bench limiter``); it takes 0.98 of its
430 ns. So three things are written out here that would read better otherwise. A slot has no ``__init__``,
which would cost 50 ns. The first lines of entering stand in ``__enter__`` and ``__aenter__``, where a method
of the queue would cost 20 ns, and those of leaving in ``release`` and ``__aexit__``: 14 ns. Of the queue's
fields they read those that say whether a pass is ready, and write ``free`` and ``left``; all else is a method
of the queue.

A call that ends with an exception says what that says about load (``signal_from_exception``): mostly nothing.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from enum import Enum, auto
from functools import wraps
from inspect import iscoroutinefunction
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from flyball.core.durations import clamped_s
from flyball.core.pool.local_pool import CallStart
from flyball.core.pool.rate_window import Cost
from flyball.core.pool.settings import check_amounts, check_timeout
from flyball.core.provider.http_response import from_http
from flyball.core.signals import CONGESTION, Signal, SignalKind
from flyball.errors import FlyballError, Throttled, UsageError
from flyball.governor.limiter.admission_queue import AdmissionQueue
from flyball.governor.limiter.waiters import TaskWaiter, ThreadWaiter, refusal_error
from flyball.host.event_loop import asyncio_loop

if TYPE_CHECKING:
    from flyball.core.provider.error_body import Body
    from flyball.core.provider.rate_limit_headers import HeaderLines


def signal_from_exception(error: BaseException) -> Signal | None:
    """None where it says nothing: a bug in the call, a cancellation, another limiter's refusal_error.

    >>> signal_from_exception(Throttled(retry_after_s=7)).retry_after_s
    7
    >>> signal_from_exception(ConnectionResetError()).kind
    <SignalKind.TIMEOUT: 'timeout'>
    >>> signal_from_exception(KeyError("x")) is None
    True
    """
    if isinstance(error, Throttled):
        return Signal(SignalKind.THROTTLED, clamped_s(error.retry_after_s), detail=str(error))
    if isinstance(error, FlyballError) or not isinstance(error, TimeoutError | ConnectionError):
        return None
    return Signal(SignalKind.TIMEOUT, detail=type(error).__name__)


NO_COST: Mapping[str, float] = {}
_ONE_USE = "a slot has one use; ask the limiter for another"
_OK = Signal(SignalKind.OK)
_SAYS_NOTHING = Signal(SignalKind.UNKNOWN)


class Use(Enum):
    """A slot has one use. A second one, at the same time or later, would lose the pass of the first."""

    NEW = auto()
    USED = auto()
    """It waits, or was given back, or came to nothing."""


NEW, USED = Use


class CallRecord:
    """What is known of a call beyond the ordinary."""

    __slots__ = ("actual", "heard", "signal", "start")

    def __init__(self, start: CallStart) -> None:
        self.start = start
        self.signal: Signal | None = None
        self.heard = False
        """The pool knows the signal already."""
        self.actual: Mapping[str, float] = NO_COST


class CallSlot:
    """``with`` and ``async with`` around one call, or what ``acquire`` returned. One use each."""

    __slots__ = ("_call", "_in_flight", "_queue", "_sent_at")

    hears_repeats = True
    """It is told of a call that was throttled before and is throttled again (``Signal.repeated``)."""

    _queue: AdmissionQueue
    _call: Use | CallRecord | None
    """While it is held: what is known of the call, None as long as that is ordinary."""
    _sent_at: float
    _in_flight: int

    # -- getting it -------------------------------------------------------------------------------

    async def __aenter__(self) -> CallSlot:
        queue = self._queue
        if self._call is not NEW:
            raise UsageError(_ONE_USE)
        self._call = None
        if queue.left > 0:
            free = queue.loop_free
            try:
                free.pop()
            except IndexError:
                return await self._wait_async()
            queue.left -= 1
            self._sent_at = now = queue.clock()
            self._in_flight = queue.minted - len(free)
            if now < queue.fence_at:
                return self
            queue.return_unused()
        return await self._wait_async()

    def __enter__(self) -> CallSlot:
        queue = self._queue
        if self._call is not NEW:
            raise UsageError(_ONE_USE)
        self._call = None
        if queue.left > 0:
            free = queue.free
            try:
                free.pop()
            except IndexError:
                return self._wait()
            queue.left -= 1
            self._sent_at = now = queue.clock()
            self._in_flight = queue.minted - len(free)
            if now < queue.fence_at:
                return self
            queue.return_unused()
        return self._wait()

    def _enter_nowait(self) -> CallSlot:
        """Enter, or raise at once what stands in the way."""
        self._use()
        start = self._queue.enter(self.cost)
        if start is None:
            raise refusal_error(self._queue.verdict(self.cost))
        self._call = CallRecord(start)
        return self

    async def _wait_async(self) -> CallSlot:
        self._call, queue = USED, self._queue
        if queue.loop_free is not queue.free:
            asyncio_loop()
            queue.loop_free = queue.free
        start = queue.enter(self.cost)
        if start is None:
            waiter = TaskWaiter(queue, asyncio_loop(), self.priority, self.cost)
            queue.enqueue(waiter)
            start = await waiter.wait(self.timeout)
        self._call = CallRecord(start)
        return self

    def _wait(self) -> CallSlot:
        self._call, queue = USED, self._queue
        start = queue.enter(self.cost)
        if start is None:
            waiter = ThreadWaiter(queue, self.priority, self.cost)
            queue.enqueue(waiter)
            start = waiter.wait(self.timeout)
        self._call = CallRecord(start)
        return self

    def _use(self) -> None:
        if self._call is not NEW:
            raise UsageError(_ONE_USE)
        self._call = USED

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
        if signal.kind is SignalKind.OK and not signal.buckets and self._call is None:
            return signal
        call = self._record()
        if call.signal is not None and call.signal.kind in CONGESTION:
            return signal
        if call.signal is not None and call.signal.buckets and not signal.buckets and not call.heard:
            # An error in the middle of a stream: the headers before it are still to be learned from.
            signal = replace(signal, buckets=call.signal.buckets)
        call.signal, call.heard = signal, signal.kind is not SignalKind.OK
        if call.heard:
            self._queue.report(call.start, signal)
        return signal

    def settle(self, **actual: float) -> None:
        """Say what the call really used of the limiter's windows: ``settle(tokens=1830)``."""
        check_amounts("what was used", actual)
        call = self._record()
        call.actual = {**call.actual, **actual}

    @property
    def held(self) -> bool:
        """Whether it has a slot now."""
        return self._call is None or isinstance(self._call, CallRecord)

    def _record(self) -> CallRecord:
        # Not isinstance(call, Use): of an enum that takes five times as long.
        call = self._call
        if isinstance(call, CallRecord):
            return call
        if call is not None:
            raise UsageError("this slot is not held: report and settle inside its block")
        call = self._call = CallRecord(CallStart(0, self._sent_at, self._in_flight, NO_COST, NO_COST))
        return call

    # -- giving it back ---------------------------------------------------------------------------

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        queue = self._queue
        if error is None and self._call is None and self._in_flight <= queue.high:
            self._call = USED
            queue.free.append(None)
            if not queue.calm:
                queue.serve()
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
        if self._call is None and self._in_flight <= queue.high:
            self._call = USED
            queue.free.append(None)
            if not queue.calm:
                queue.serve()
            return
        self._end(None)

    def _end(self, error: BaseException | None) -> None:
        if self._call is NEW or self._call is USED:
            return
        call, self._call = self._record(), USED
        signal, heard = _last_word(call, error)
        self._queue.end(call.start, signal, heard=heard, actual=call.actual)


def _last_word(call: CallRecord, error: BaseException | None) -> tuple[Signal, bool]:
    """The signal the call ends with, and whether the pool knows it already."""
    said = call.signal
    if said is not None and said.kind in CONGESTION:
        return said, True
    found = None if error is None else signal_from_exception(error)
    if found is not None:
        return found, False
    if said is not None:
        return said, call.heard
    return (_OK if error is None else _SAYS_NOTHING), False


class PendingCallSlot(CallSlot):
    """A slot asked for with a priority, a cost or a timeout. It always asks the pool."""

    __slots__ = ("_cost", "_priority", "_timeout")

    def __init__(self, priority: int, cost: Mapping[str, float] | None, timeout: float | None) -> None:
        check_timeout(timeout)
        if cost is not None:
            check_amounts("the cost", cost)
        self._priority, self._cost, self._timeout = priority, cost or NO_COST, timeout

    async def __aenter__(self) -> CallSlot:
        self._use()
        return await self._wait_async()

    def __enter__(self) -> CallSlot:
        self._use()
        return self._wait()

    @property
    def priority(self) -> int:
        return self._priority

    @property
    def cost(self) -> Mapping[str, float]:
        return self._cost

    @property
    def timeout(self) -> float | None:
        return self._timeout


P = ParamSpec("P")
R = TypeVar("R")
Answer = tuple[int, Any, Any]
"""Status, headers and body, as ``run`` takes them."""


class SlotMethods:
    """Slots of this process, for threads and event loops alike."""

    _queue: AdmissionQueue

    def slot(self, priority: int = 0, cost: Cost | None = None, timeout: float | None = None) -> CallSlot:
        """A slot for a ``with`` or ``async with`` block; waits for it, at most ``timeout`` seconds.

        Higher priority first, first come first served within one; who waits rises by one every ``ageing_s``.
        ``cost`` is what the call will use of each window: ``{"tokens": 1200}``; it counts as one request by
        itself.
        """
        if timeout is None and cost is None and not priority:
            slot = CallSlot()
        else:
            slot = PendingCallSlot(priority, cost, timeout)
        slot._queue, slot._call = self._queue, NEW
        return slot

    def acquire(self, priority: int = 0, cost: Cost | None = None, timeout: float | None = None) -> CallSlot:
        """Wait for a slot in a thread. End it with ``release``."""
        return self.slot(priority, cost, timeout).__enter__()

    def acquire_async(
        self, priority: int = 0, cost: Cost | None = None, timeout: float | None = None
    ) -> Coroutine[Any, Any, CallSlot]:
        """Wait for a slot in an event loop. Cancelling it leaves nothing behind."""
        return self.slot(priority, cost, timeout).__aenter__()

    def acquire_nowait(self, cost: Cost | None = None) -> CallSlot:
        """A slot now, or a RefusedError that says why not."""
        return self.slot(0, cost)._enter_nowait()

    def release(self, slot: CallSlot) -> None:
        """Give a slot back. A second time does nothing."""
        slot.release()

    def run(
        self,
        call: Callable[[], Answer],
        *,
        priority: int = 0,
        cost: Cost | None = None,
        timeout: float | None = None,
    ) -> Answer:
        """Run ``call`` in a slot and learn from the status, headers and body it returns.

        A ``Throttled``, a timeout or a dropped connection that it raises is learned from and goes on up.
        """
        with self.slot(priority, cost, timeout) as slot:
            return _report_answer(slot, call())

    async def run_async(
        self,
        call: Callable[[], Awaitable[Answer]],
        *,
        priority: int = 0,
        cost: Cost | None = None,
        timeout: float | None = None,
    ) -> Answer:
        """``run`` for an event loop; ``call`` returns an awaitable."""
        async with self.slot(priority, cost, timeout) as slot:
            return _report_answer(slot, await call())

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """As a decorator: every call of the function takes a slot; what it raises is learned from."""
        if iscoroutinefunction(function):

            @wraps(function)
            async def in_slot(*args: P.args, **kwargs: P.kwargs) -> Any:
                async with self.slot():
                    return await function(*args, **kwargs)

            return cast("Callable[P, R]", in_slot)

        @wraps(function)
        def in_slot_sync(*args: P.args, **kwargs: P.kwargs) -> R:
            with self.slot():
                return function(*args, **kwargs)

        return in_slot_sync

    def may_retry(self) -> bool:
        """Whether a retry is affordable: a call earns a tenth of one, a timeout or lost line spends one."""
        queue = self._queue
        with queue.lock:
            return queue.retries_left(queue.clock()) > 0

    def take_retry(self) -> bool:
        """Spend a retry of something that no timeout has paid for, if one is left."""
        return self._queue.take_retry()


def _report_answer(slot: CallSlot, answer: Answer) -> Answer:
    try:
        status, headers, body = answer
    except (TypeError, ValueError):
        raise UsageError(f"the call must return (status, headers, body), not {answer!r:.80}") from None
    slot.report(status, headers, body)
    return answer
