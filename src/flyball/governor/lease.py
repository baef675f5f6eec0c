"""Slots that are held, and the ``with`` block that gets and returns them.

A lease gathers what was heard while it is held, and releases itself: once, by the process that took it. What
could not be written then is kept by the store and goes out with its next step.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING

from flyball.core.pool.model import Outcome
from flyball.core.pool.settings import check_amounts
from flyball.core.pool.verdict import Verdict, one_line
from flyball.core.signals import REJECTIONS, SUCCESSES, Bucket, Signal, SignalKind
from flyball.errors import StoreError, Throttled, UsageError
from flyball.governor.acquisition import release, release_or_keep
from flyball.governor.flow_drivers import aside, run_async, running_loop, store_threads
from flyball.host.log import tell_log
from flyball.stores.port import Release

if TYPE_CHECKING:
    from flyball.core.provider.error_body import Body
    from flyball.core.provider.rate_limit_headers import HeaderLines
    from flyball.governor.ask import AskRequest
    from flyball.governor.inherited_lease import Ride
    from flyball.governor.internals import Internals


class Lease:
    """Slots of a pool, held until released or until this process dies."""

    __slots__ = (
        "_buckets",
        "_granted_at",
        "_internals",
        "_oks",
        "_passed_on",
        "_released",
        "_reported",
        "_ride",
        "_unread",
        "_used",
        "id",
        "name",
        "pid",
        "pool",
        "project",
        "rejected",
        "verdict",
    )

    hears_repeats = True
    """It is told of a call that was throttled before and is throttled again (``Signal.repeated``)."""

    def __init__(
        self, internals: Internals, asking: AskRequest, verdict: Verdict, *, ride: Ride | None = None
    ) -> None:
        self._internals = internals
        self.id = verdict.claim_id
        self.pool, self.project, self.name = asking.pool, asking.project, asking.name
        self.pid = asking.pid
        self.verdict = verdict
        self._ride = ride
        self._passed_on = False
        """Commands were told of it: some may work inside it still when it ends."""
        self.rejected = False
        """The last thing heard was a refusal: what was reserved of the windows was not used."""
        self._released = self._reported = False
        self._unread = asking.unread
        """What the provider answers is not seen as it comes: only what is reported is evidence."""
        self._oks = 0
        self._granted_at = time.monotonic()
        self._used: dict[str, float] = {}
        self._buckets: tuple[Bucket, ...] = ()

    @property
    def nested(self) -> bool:
        """It rides on the lease of an ``exec`` around us: releasing it releases that one's slots to others
        inside, and to no other, unless that lease passed to it."""
        return self._ride is not None

    def report(self, status: int | Signal, headers: HeaderLines | None = None, body: Body = None) -> Signal:
        """Tell the pool what the provider said: an HTTP status with headers and body, or a ready-made signal.

        The body tells a throttle from a window that is used up; it is only looked at when the status is an
        error. A throttle takes effect at once, for every process; successes travel with the release.
        """
        signal, first = self._take_in(status, headers, body)
        if signal.kind is not SignalKind.OK or signal.windows:
            self._pass_on(signal, first=first)
        return signal

    async def report_async(
        self, status: int | Signal, headers: HeaderLines | None = None, body: Body = None
    ) -> Signal:
        """``report`` for an event loop, which goes on while the state is written."""
        from flyball.host.event_loop import asyncio_loop  # an ``exec`` never gets here

        asyncio_loop()
        signal, first = self._take_in(status, headers, body)
        if signal.kind is not SignalKind.OK or signal.windows:
            await store_threads().call(lambda: self._pass_on(signal, first=first))
        return signal

    def _take_in(self, status: int | Signal, headers: HeaderLines | None, body: Body) -> tuple[Signal, bool]:
        """What it means, and whether it is the first thing heard."""
        if isinstance(status, Signal):
            signal = status
        elif not isinstance(status, int):
            raise UsageError(f"report an HTTP status as a number, or a Signal, not {status!r}")
        else:
            # An ``exec`` never gets here, and should not pay for what reads headers and bodies.
            from flyball.core.provider.http_response import from_http

            signal = from_http(status, headers, body, wall_s=time.time())
            if signal.kind is SignalKind.OK and not self._reported:
                took_s = time.monotonic() - self._granted_at
                if self._internals.latency.note(self.pool, took_s):
                    signal = replace(signal, kind=SignalKind.SLOW, detail=f"answers in {self.pool} are slow")
        first, self._reported = not self._reported, True
        self.rejected = signal.kind in REJECTIONS
        if signal.kind in SUCCESSES:
            # One that came slowly, or near the limit, takes back that more would be served.
            self._oks = self._oks + 1 if signal.kind is SignalKind.OK else 0
            # What was left is known for the time of the grant, so only the first answer says it.
            self._buckets = signal.buckets if first else ()
        return signal, first

    def _pass_on(self, signal: Signal, *, first: bool) -> None:
        if signal.windows:
            self._internals.windows.tell(self.pool, signal.windows)
        if signal.kind is SignalKind.OK:
            return
        self._internals.report(
            self.pool,
            signal,
            project=self.project,
            name=self.name,
            claim_id=self.id,
            first=first,
            asked_at=self.verdict.asked_at,
        )

    def settle(self, **used: float) -> None:
        """Say what the call really used of the pool's windows: ``lease.settle(tokens=812)``."""
        check_amounts("what was used", used)
        self._used.update(used)

    def release(self, outcome: Outcome | str = Outcome.FINISHED, *, words: str = "") -> None:
        """Give the slots back. A second call does nothing. ``words``: how it ended, for ``flyball why``."""
        what = self._take_release(outcome, words)
        if what is None:
            return
        ended = release_or_keep(self._internals.store, what)
        if isinstance(ended, StoreError):
            self._internals.say_kept(self, ended)
        elif ended.wakes or ended.facts or ended.notices:
            self._internals.settle(ended)

    async def _release_async(self, outcome: Outcome | str, words: str = "") -> None:
        if running_loop() is None:
            # The loop was closed with the block in it: the collector ends it, and nothing can be awaited.
            aside(lambda: self.release(outcome, words=words))
            return
        what = self._take_release(outcome, words)
        if what is not None:
            behind = self._internals
            kept = await run_async(release(behind.store, what, behind.observers), behind.loop_mail())
            if kept is not None:
                behind.say_kept(self, kept)

    def _take_release(self, outcome: Outcome | str, words: str) -> Release | None:
        """What the store is told, exactly once; None for a lease whose release is not for us to write."""
        if not isinstance(words, str):
            raise UsageError(f"words say how it ended, as text, not {words!r:.80}")
        if not isinstance(outcome, Outcome):
            outcome = _parse_outcome(outcome)
        first, self._released = not self._released, True
        # A forked child inherits the object, not the lease.
        if not first or self.pid != os.getpid():
            return None
        if self._ride is None:
            self._internals.stop_showing(self.pool)
        if (self._ride is not None or self._passed_on) and not self._internals.ends_with(self):
            return None
        return Release(
            self.id,
            outcome,
            # Calls whose answers are evidence for more; None if that is for the outcome to say.
            self._oks if self._reported or self._unread else None,
            self.rejected,
            self._used,
            self._buckets,
            one_line(words) if words else "",
            asked_at=self.verdict.asked_at,
        )

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.release()
            return
        try:
            if isinstance(error, Throttled) and not self.rejected:
                with beside(error, self):
                    self.report(_throttle(error))
        finally:
            with beside(error, self):
                self.release(outcome_of(kind))

    async def _exit_async(self, error: BaseException | None) -> None:
        """``__exit__`` for an event loop."""
        try:
            if isinstance(error, Throttled) and not self.rejected:
                with beside(error, self):
                    await self.report_async(_throttle(error))
        finally:
            with beside(error, self):
                await self._release_async(outcome_of(type(error) if error is not None else None))

    def __repr__(self) -> str:
        state = "released" if self._released else "held"
        return f"<Lease {self.id} of {self.pool!r} for {self.project}/{self.name}, {state}>"


OnKept = Callable[[Lease, StoreError], None]


class Slot:
    """``with`` and ``async with`` around one lease. One use each."""

    __slots__ = ("_internals", "_lease", "_timeout", "_unused")

    def __init__(self, internals: Internals, asking: AskRequest, timeout: float | None) -> None:
        self._internals, self._timeout = internals, timeout
        self._unused = iter((asking,))
        """Of two threads one gets it: a second use would lose the first one's lease."""
        self._lease: Lease | None = None

    def __enter__(self) -> Lease:
        asking = next(self._unused, None)
        if asking is None:
            raise second_use()
        self._lease = lease = self._internals.acquire(asking, timeout=self._timeout)
        return lease

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lease is not None:
            self._lease.__exit__(kind, error, trace)

    async def __aenter__(self) -> Lease:
        asking = next(self._unused, None)
        if asking is None:
            raise second_use()
        self._lease = lease = await self._internals.acquire_async(asking, timeout=self._timeout)
        return lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lease is not None:
            await self._lease._exit_async(error)


def second_use() -> UsageError:
    return UsageError("a slot has one use: call slot() again for each block")


@contextmanager
def beside(error: BaseException | None, lease: object) -> Iterator[None]:
    """What fails while an error leaves a block is told to the log: the caller's own error goes on up."""
    try:
        yield
    except Exception:
        if error is None:
            raise
        tell_log("ending the block of %r failed besides", lease, error=True)


def _throttle(error: Throttled) -> Signal:
    return Signal(SignalKind.THROTTLED, error.retry_after_s, detail=str(error))


def outcome_of(kind: type[BaseException] | None) -> Outcome:
    """An error is a failure of the work; being stopped from outside says nothing about it."""
    if kind is None:
        return Outcome.FINISHED
    return Outcome.FAILED if issubclass(kind, Exception) else Outcome.ABANDONED


def note_answer(lease: Lease) -> None:
    """The model answered, as far as can be seen: no refusal stands. A warning that was reported does."""
    if lease.rejected or not lease._reported:
        lease.report(Signal(SignalKind.OK))


def log_kept(lease: Lease, error: StoreError) -> None:
    """For a program that goes on: its next call writes it."""
    tell_log("could not write the release of %r (%s); it goes out with the next call", lease, error)


def _parse_outcome(word: str) -> Outcome:
    try:
        return Outcome(word)
    except ValueError:
        known = ", ".join(o.value for o in Outcome)
        raise UsageError(f"outcome must be one of {known}, not {word!r}") from None
