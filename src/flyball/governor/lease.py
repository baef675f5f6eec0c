"""Slots in somebody's hands, and the ``with`` block that gets and returns them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from flyball.core.pool.model import Outcome
from flyball.core.pool.settings import check_amounts
from flyball.core.pool.verdict import Verdict, one_line
from flyball.core.signals import REJECTIONS, SUCCESSES, Bucket, Signal, SignalKind
from flyball.errors import StoreError, Throttled, UsageError
from flyball.governor.drivers import store_threads
from flyball.host.log import tell_log
from flyball.stores.port import Release

if TYPE_CHECKING:
    from flyball.core.provider.error_body import Body
    from flyball.core.provider.rate_limit_headers import HeaderLines
    from flyball.governor.ask import AskRequest
    from flyball.governor.governor import Governor

T = TypeVar("T")


class Lease:
    """Slots of a pool, held until released or until this process dies."""

    __slots__ = (
        "_governor",
        "_released",
        "_reported",
        "buckets",
        "id",
        "name",
        "nested",
        "oks",
        "pid",
        "pool",
        "project",
        "rejected",
        "unread",
        "used",
        "verdict",
    )

    def __init__(
        self, governor: Governor, asking: AskRequest, verdict: Verdict, *, nested: bool = False
    ) -> None:
        self._governor = governor
        self._released = False
        self.id = verdict.claim_id
        self.pool, self.project, self.name = asking.pool, asking.project, asking.name
        self.pid = asking.pid
        self.verdict = verdict
        self.nested = nested
        """True where an outer ``exec`` already holds the slot: releasing this one releases nothing."""
        self.unread = asking.unread
        """What the provider answers is not seen as it comes: only what is reported is evidence."""
        self.oks = 0
        self._reported = False
        self.rejected = False
        """The last thing heard was a refusal: what was reserved of the windows was not used."""
        self.used: dict[str, float] = {}
        self.buckets: tuple[Bucket, ...] = ()

    @property
    def successes(self) -> int | None:
        """Calls whose answers are evidence for more; None if that is for the outcome to say."""
        return self.oks if self._reported or self.unread else None

    def report(self, status: int | Signal, headers: HeaderLines | None = None, body: Body = None) -> Signal:
        """Tell the pool what the provider said: an HTTP status with headers and body, or a ready-made signal.

        The body tells a throttle from a window that is used up; it is only looked at when the status is an
        error. A throttle takes effect at once, for every process; successes travel with the release.
        """
        signal, first = self._take_in(status, headers, body)
        if signal.kind is not SignalKind.OK:
            self._pass_on(signal, first=first)
        return signal

    async def report_async(
        self, status: int | Signal, headers: HeaderLines | None = None, body: Body = None
    ) -> Signal:
        """``report`` for an event loop, which goes on while the state is written."""
        signal, first = self._take_in(status, headers, body)
        if signal.kind is not SignalKind.OK:
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
        first, self._reported = not self._reported, True
        self.rejected = signal.kind in REJECTIONS
        if signal.kind in SUCCESSES:
            # One that came slowly, or near the limit, takes back that more would be served.
            self.oks = self.oks + 1 if signal.kind is SignalKind.OK else 0
            # What was left is known for the time of the grant, so only the first answer says it.
            self.buckets = signal.buckets if first else ()
        return signal, first

    def _pass_on(self, signal: Signal, *, first: bool) -> None:
        self._governor.report(
            self.pool,
            signal,
            project=self.project,
            name=self.name,
            claim_id=self.id,
            first=first,
            asked_at=self.verdict.asked_at,
        )

    def note_answer(self) -> None:
        """The model answered, as far as can be seen: no refusal stands. A warning that was reported does."""
        if self.rejected or not self._reported:
            self.report(Signal(SignalKind.OK))

    def hear(self, error: BaseException | None) -> None:
        """A ``Throttled`` that ends the block says what nobody else could read."""
        if isinstance(error, Throttled) and not self.rejected:
            with beside(error, self):
                self.report(_said(error))

    async def hear_async(self, error: BaseException | None) -> None:
        """``hear`` for an event loop."""
        if isinstance(error, Throttled) and not self.rejected:
            with beside(error, self):
                await self.report_async(_said(error))

    def settle(self, **used: float) -> None:
        """Say what the call really used of the pool's windows: ``lease.settle(tokens=812)``."""
        check_amounts("what was used", used)
        self.used.update(used)

    def release(self, outcome: Outcome | str = Outcome.FINISHED, *, words: str = "") -> None:
        """Give the slots back. A second call does nothing. ``words``: how it ended, for ``flyball why``."""
        self._governor.release(self, outcome, words=words)

    def take_release(self) -> bool:
        """True exactly once: whoever gets it writes the release."""
        first, self._released = not self._released, True
        return first and not self.nested

    def check_place(self, governor: Governor) -> None:
        """Its id means something else, or somebody else's slot, to a governor of other state."""
        mine = self._governor
        if mine is governor:
            return
        from flyball.governor.state_url import same_place

        if not same_place(mine.address, governor.address):
            raise UsageError(
                f"{self!r} is kept in {mine.place}, and this governor's state is {governor.place}"
                f"{' of its own' if mine.place == governor.place else ''}; use the governor that gave it"
            )

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.hear(error)
        finally:
            with beside(error, self):
                self.release(outcome_of(kind))

    def __repr__(self) -> str:
        state = "released" if self._released else "held"
        return f"<Lease {self.id} of {self.pool!r} for {self.project}/{self.name}, {state}>"


OnKept = Callable[[Lease, StoreError], None]


class Slot:
    """``with`` and ``async with`` around one lease. One use each."""

    def __init__(self, governor: Governor, asking: AskRequest, timeout: float | None) -> None:
        self._governor, self._timeout = governor, timeout
        self._unused = [asking]
        self._lease: Lease | None = None

    def __enter__(self) -> Lease:
        self._lease = self._governor.acquire_asking(take_once(self._unused), timeout=self._timeout)
        return self._lease

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lease is not None:
            self._lease.__exit__(kind, error, trace)

    async def __aenter__(self) -> Lease:
        self._lease = await self._governor.acquire_asking_async(
            take_once(self._unused), timeout=self._timeout
        )
        return self._lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lease is not None:
            try:
                await self._lease.hear_async(error)
            finally:
                with beside(error, self._lease):
                    await self._governor.release_async(self._lease, outcome_of(kind))


def take_once(unused: list[T]) -> T:
    """The ask of a slot, once: a second use would lose the first one's lease. Of two threads one gets it."""
    try:
        return unused.pop()
    except IndexError:
        raise UsageError("a slot has one use: call slot() again for each block") from None


@contextmanager
def beside(error: BaseException | None, lease: object) -> Iterator[None]:
    """What fails while an error leaves a block is told to the log: the caller's own error goes on up."""
    try:
        yield
    except Exception:
        if error is None:
            raise
        tell_log("ending the block of %r failed besides", lease, error=True)


def _said(error: Throttled) -> Signal:
    return Signal(SignalKind.THROTTLED, error.retry_after_s, detail=str(error))


def outcome_of(kind: type[BaseException] | None) -> Outcome:
    """An error is a failure of the work; being stopped from outside says nothing about it."""
    if kind is None:
        return Outcome.FINISHED
    return Outcome.FAILED if issubclass(kind, Exception) else Outcome.ABANDONED


def release_of(lease: Lease, outcome: Outcome | str, words: str) -> Release:
    """What the end of a lease says, for a store."""
    if not isinstance(words, str):
        raise UsageError(f"words say how it ended, as text, not {words!r:.80}")
    told = one_line(words) if words else ""
    ended = outcome if isinstance(outcome, Outcome) else _outcome_named(outcome)
    return Release(
        lease.id,
        ended,
        lease.successes,
        lease.rejected,
        lease.used,
        lease.buckets,
        told,
        asked_at=lease.verdict.asked_at,
    )


def log_kept(lease: Lease, error: StoreError) -> None:
    """For a program that goes on: its next call writes it."""
    tell_log("could not write the release of %r (%s); it goes out with the next call", lease, error)


def _outcome_named(word: str) -> Outcome:
    try:
        return Outcome(word)
    except ValueError:
        known = ", ".join(o.value for o in Outcome)
        raise UsageError(f"outcome must be one of {known}, not {word!r}") from None
