"""Whole calls through a turnstile: what a limiter and a share lease offer alike."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, ParamSpec, TypeVar, cast

from flyball.errors import UsageError
from flyball.governor.callslot import AskedSlot, CallSlot
from flyball.governor.turnstile import Turnstile

P = ParamSpec("P")
R = TypeVar("R")
Cost = Mapping[str, float]
Answer = tuple[int, Any, Any]
"""Status, headers and body, as ``run`` takes them."""


class Calls:
    """Slots of this process, for threads and event loops alike."""

    _desk: Turnstile

    def slot(self, priority: int = 0, cost: Cost | None = None, timeout: float | None = None) -> CallSlot:
        """A slot for a ``with`` or ``async with`` block; waits for it, at most ``timeout`` seconds.

        Higher priority first, first come first served within one; who waits rises by one every ``ageing_s``.
        ``cost`` is what the call will use of each window: ``{"tokens": 1200}``; it counts as one request by
        itself.
        """
        if timeout is None and cost is None and not priority:
            slot = CallSlot()
        else:
            slot = AskedSlot(priority, cost, timeout)
        slot._door = slot._desk = self._desk
        return slot

    def release(self, slot: CallSlot) -> None:
        """Give a slot back. A second time does nothing."""
        slot.release()

    async def run(
        self,
        call: Callable[[], Awaitable[Answer]],
        *,
        priority: int = 0,
        cost: Cost | None = None,
        timeout: float | None = None,
    ) -> Answer:
        """Run ``call`` in a slot and learn from the status, headers and body it returns.

        A ``Throttled``, a timeout or a dropped connection that it raises is learned from and goes on up.
        """
        async with self.slot(priority, cost, timeout) as slot:
            return _reported(slot, await call())

    def run_sync(
        self,
        call: Callable[[], Answer],
        *,
        priority: int = 0,
        cost: Cost | None = None,
        timeout: float | None = None,
    ) -> Answer:
        """``run`` for threads."""
        with self.slot(priority, cost, timeout) as slot:
            return _reported(slot, call())

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
        desk = self._desk
        with desk.lock:
            return desk.retries_left(desk.clock()) > 0

    def take_retry(self) -> bool:
        """Spend a retry of something that no timeout has paid for, if one is left."""
        return self._desk.take_retry()


def _reported(slot: CallSlot, answer: Answer) -> Answer:
    try:
        status, headers, body = answer
    except (TypeError, ValueError):
        raise UsageError(f"the call must return (status, headers, body), not {answer!r:.80}") from None
    slot.report(status, headers, body)
    return answer
