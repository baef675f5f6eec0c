"""A slot in hand, given back exactly once: by its user, from any thread, or by the garbage collector.

An answer that streams keeps its slot long after the call returned, so a ``with`` block cannot do it. What
is dropped without being closed is given back too, but never on the spot: the collector may run in the middle
of the very lock that giving back needs.
"""

from __future__ import annotations

import logging
import threading
import warnings
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from flyball.core.signals import Signal, SignalKind
from flyball.errors import StoreError
from flyball.governor.flow_drivers import aside
from flyball.host.background_thread import start_thread
from flyball.host.event_loop import asyncio_loop

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping, Sequence

    from flyball.integrations.gate import Gate, SlotOptions, SlotRequest, SlotTicket


class RepeatedRelease(BaseException):
    """How the slot of a repeated throttle ends: no success, no failure, and nothing more to tell.

    Not an ``Exception``, so it ends as abandoned: a breaker's trial is then neither passed nor failed. It
    stands for the error that was repeated, too, which a gate might hear again when the slot ends with it.
    """


class _BaseHold:
    """What holding a slot is in a thread and in an event loop alike."""

    def __init__(self, entry: SlotRequest, ticket: SlotTicket) -> None:
        self._entry, self._ticket = entry, ticket
        self._freed = threading.Lock()
        self._repeated = False

    @property
    def held(self) -> bool:
        return not self._freed.locked()

    def settle(self, used: Mapping[str, float]) -> None:
        """What the call really used of the gate's windows, where the gate has some and the answer said so."""
        settle = getattr(self._ticket, "settle", None)
        if used and settle is not None and self.held:
            settle(**used)

    def _report(self, signal: Signal, *, news: bool) -> Signal | None:
        """What the ticket is told, if anything. Of the same trouble once more only gates of ours hear that a
        call was throttled again: else a probe that it refutes would pass for served."""
        if news:
            return signal
        self._repeated = True
        hears = getattr(self._ticket, "hears_repeats", False)
        return replace(signal, repeated=True) if hears and signal.kind is SignalKind.THROTTLED else None

    def _take(self) -> bool:
        """True exactly once."""
        return self._freed.acquire(blocking=False)

    def _ends(
        self, error: BaseException | None
    ) -> tuple[type[BaseException] | None, BaseException | None, None]:
        if self._repeated and (error is None or isinstance(error, Exception)):
            error = RepeatedRelease()
        return (None if error is None else type(error)), error, None


class Hold(_BaseHold):
    """A thread's."""

    @classmethod
    def of(cls, gate: Gate, ask: SlotOptions) -> Hold:
        entry = gate.slot(**ask)
        return cls(entry, entry.__enter__())

    def tell(self, signal: Signal, *, news: bool) -> None:
        """Report what the provider said, if it is news. A report that cannot be written costs no answer."""
        said = self._report(signal, news=news)
        if said is None:
            return
        try:
            self._ticket.report(said)
        except StoreError as error:
            _warn_untold(said, error)

    def free(self, error: BaseException | None = None) -> None:
        if self._take():
            self._entry.__exit__(*self._ends(error))

    def lose(self) -> None:
        """From a finaliser: give it back soon, from a thread that holds no locks."""
        if not self._take():
            return
        try:
            start_thread(partial(self._entry.__exit__, *self._ends(None)), name="flyball-lost-slot")
        except RuntimeError:
            return  # the interpreter is shutting down; the lease ends with the process
        warn_lost(self)


class AsyncHold(_BaseHold):
    """A task's."""

    def __init__(self, entry: SlotRequest, ticket: SlotTicket, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(entry, ticket)
        self._loop = loop

    @classmethod
    async def of(cls, gate: Gate, ask: SlotOptions) -> AsyncHold:
        loop, entry = asyncio_loop(), gate.slot(**ask)
        return cls(entry, await entry.__aenter__(), loop)

    async def tell(self, signal: Signal, *, news: bool) -> None:
        """The same as in a thread; while the report is written the loop goes on."""
        said = self._report(signal, news=news)
        if said is None:
            return
        report_async = getattr(self._ticket, "report_async", None)
        try:
            if report_async is None:
                self._ticket.report(said)
            else:
                await report_async(said)
        except StoreError as error:
            _warn_untold(said, error)

    async def free(self, error: BaseException | None = None) -> None:
        if self._take():
            await self._entry.__aexit__(*self._ends(error))

    def free_soon(self, *, after: Sequence[asyncio.Future[None]] = ()) -> asyncio.Future[None] | None:
        """From a callback of the loop: give it back after these; None: it was given back before."""
        if not self._take():
            return None
        freed = self._loop.create_future()
        task = self._loop.create_task(self._free_after(tuple(after)))
        _leaving.add(task)

        def end(task: asyncio.Task[None]) -> None:
            _leaving.discard(task)
            if task.cancelled():
                # The loop ends, and the task had perhaps not begun. To give it back twice is harmless.
                aside(partial(self._entry.__exit__, *self._ends(None)))
            elif task.exception() is not None:
                warn_not_freed(task.exception())
            if not freed.done():
                freed.set_result(None)

        task.add_done_callback(end)
        return freed

    async def _free_after(self, first: tuple[asyncio.Future[None], ...]) -> None:
        for each in first:
            with suppress(Exception):
                await each
        await self._entry.__aexit__(*self._ends(None))

    def lose(self) -> None:
        """From a finaliser: give it back when the loop comes round."""
        if self._loop.is_closed() or not self._take():
            return
        self._loop.call_soon_threadsafe(self._free_soon)
        warn_lost(self)

    def _free_soon(self) -> None:
        task = self._loop.create_task(_leave(self._entry))
        _leaving.add(task)
        task.add_done_callback(_leaving.discard)


_leaving: set[asyncio.Task[None]] = set()
"""The loop itself keeps only weak references to its tasks."""


async def _leave(entry: SlotRequest) -> None:
    await entry.__aexit__(None, None, None)


def _warn_untold(signal: Signal, error: StoreError) -> None:
    logging.getLogger("flyball").warning("could not report %s: %s", signal.kind.value, error)


def warn_not_freed(error: BaseException | None) -> None:
    logging.getLogger("flyball").warning("could not give a slot back: %s", error)


def warn_lost(lost: object) -> None:
    warnings.warn(
        f"an answer was never closed; its slot is given back only now ({type(lost).__name__})",
        ResourceWarning,
        stacklevel=3,
    )


class _NoTicket:
    def report(self, status: Signal, /) -> None:
        """There is no pool to tell."""


class NoGate:
    """The gate that is always open, for calls that are not governed here."""

    def slot(self) -> nullcontext[_NoTicket]:
        return nullcontext(_NoTicket())
