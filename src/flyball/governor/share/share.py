"""A share lease: part of a pool, held by this process, which subdivides it by itself.

    async with governor.share("anthropic") as share:
        async with share.slot():
            ...

The store is asked once a heartbeat, in a thread of its own (renewer.py); a slot is taken and given back here
and now. What all holders together have in flight never passes the pool's cap (see
docs/explanation/why-the-bound-holds.md): a share grows only by what others have given back, and closes by
itself when it was not renewed in time.

The admission queue of a share lease is a limiter's, whose maximum is what the store allows, until its fence.

Taking and returning a slot touches nothing but this process, and mostly no lock. Time is checked at every
start: a process that was stopped, or a machine that slept, must not go on with slots that were given away
meanwhile, however late its timers fire.

What renewals have to tell is gathered here: what was answered, the most that was in flight, and signals that
say more than "too much" (a Retry-After, a used-up window), which go to the pool as they are.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, cast

from flyball.core.pool.local_pool import INFINITY, CallStart, LocalPool
from flyball.core.pool.setting_table import resolve_pool
from flyball.core.pool.settings import PoolChanges, check_name
from flyball.core.pool.verdict import Reason, Verdict
from flyball.core.share_lease.holder import HolderState, OnOutage
from flyball.core.share_lease.renewal import CallCounts
from flyball.core.signals import Signal, SignalKind
from flyball.errors import StoreError, UsageError
from flyball.governor.limiter.admission_queue import AdmissionQueue
from flyball.governor.limiter.call_slot import SlotMethods
from flyball.governor.share.renewer import Outage, ShareRenewer, StoreClient, new_incarnation
from flyball.host.clock import CLOCK
from flyball.host.event_loop import asyncio_loop
from flyball.host.fork import survive_forks
from flyball.host.process import host_name

clock: Callable[[], float] = partial(time.clock_gettime, CLOCK)
"""Seconds since boot, sleep included. A partial, for every start asks."""
R = TypeVar("R")
OUTBOX = 100
"""Signals kept for a store that cannot be reached, at most."""
_COUNTED = frozenset({SignalKind.THROTTLED, SignalKind.OVERLOADED})


@dataclass(frozen=True, slots=True)
class ShareNews:
    """What happened here that the store has not been told of."""

    refused_at: float | None
    """When the last call that was throttled or met an overload had been sent."""
    peak: int
    signals: list[Signal]


class ShareLimiter(AdmissionQueue):
    __slots__ = ("_closed_why", "_on_change", "_outbox", "_overloads", "_peak", "_refused_at", "_throttles")

    def __init__(self, pool: LocalPool, clock: Callable[[], float] = clock) -> None:
        self._on_change: Callable[[], None] = _do_nothing
        self._closed_why = "before its first renewal"
        self._peak = self._throttles = self._overloads = 0
        self._refused_at: float | None = None
        self._outbox: deque[Signal] = deque(maxlen=OUTBOX)
        super().__init__(pool, clock, 0)
        self.fence_at = -INFINITY

    # -- all of these with the lock held --------------------------------------------------------------

    def set_listener(self, on_change: Callable[[], None] | None) -> None:
        """Call it, with the lock held, after anything that a renewal might be about."""
        self._on_change = on_change or _do_nothing

    def allow(self, maximum: int, *, until: float, why: str) -> None:
        """So much may be in flight from now on, until then; ``why`` is for those who are refused."""
        now = self._catch_up()
        self.maximum, self.fence_at, self._closed_why = maximum, until, why
        self._serve(now)

    @property
    def wants(self) -> int:
        return self.in_hands + self.line.length

    @property
    def tally(self) -> CallCounts:
        return CallCounts(self.successes, self._throttles, self._overloads)

    @property
    def has_news(self) -> bool:
        return bool(self._outbox) or self._refused_at is not None

    def take_news(self) -> ShareNews:
        """For a renewal, which tells the store of it."""
        news = ShareNews(self._refused_at, max(self._peak, self.in_hands), list(self._outbox))
        self._outbox.clear()
        self._refused_at, self._peak = None, self.in_hands
        return news

    def keep_news(self, *, signals: Sequence[Signal] = (), refused_at: float | None = None) -> None:
        """The store was not told after all: with the next renewal."""
        self._outbox.extendleft(reversed(signals))
        self._refused_at = refused_at if self._refused_at is None else self._refused_at

    def end_all_waits(self) -> None:
        """No waiter is served any more."""
        self.closed = True
        while self.line.length:
            waiter = self.line.last()
            self._remove(waiter)
            waiter.wake()

    # -- what differs from a limiter's ------------------------------------------------------------------

    def _open_at(self, now: float, cost: Mapping[str, float]) -> float:
        if now >= self.fence_at:
            return INFINITY
        return super()._open_at(now, cost)

    def _refill(self) -> None:
        super()._refill()
        self._peak = max(self._peak, self.in_hands)
        self._on_change()

    def report(self, start: CallStart, signal: Signal) -> None:
        super().report(start, signal)
        self._tell(start, signal)

    def end(self, start: CallStart, signal: Signal, *, heard: bool, actual: Mapping[str, float]) -> None:
        super().end(start, signal, heard=heard, actual=actual)
        if not heard:
            self._tell(start, signal)

    def _tell(self, start: CallStart, signal: Signal) -> None:
        if signal.kind in (SignalKind.OK, SignalKind.UNKNOWN) or signal.repeated:
            return
        with self.lock:
            if signal.kind in _COUNTED and signal.retry_after_s is None:
                self._throttles += signal.kind is SignalKind.THROTTLED
                self._overloads += signal.kind is SignalKind.OVERLOADED
                self._refused_at = start.sent_at
            else:
                self._outbox.append(replace(signal, buckets=()))
            self._on_change()

    def verdict(self, cost: Mapping[str, float]) -> Verdict:
        verdict = super().verdict(cost)
        if self.closed or self.clock() >= self.fence_at:
            return replace(verdict, reason=Reason.FENCED, detail=self._closed_why, look_again_s=None)
        if verdict.reason is Reason.CAP:
            return replace(verdict, detail="its share is used")
        return verdict


def _do_nothing() -> None:
    return None


if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from flyball.core.signals import Signal
    from flyball.governor.governor import Governor


class ShareOptions(TypedDict, total=False):
    """What a share may be told beyond its pool."""

    node: str
    """The name of this holder for people; the host's name if none is given."""
    weight: float
    on_outage: str
    """``refuse`` (default): nothing starts while the store cannot be heard. ``local``: ``local`` does."""
    local: int | Mapping[str, Any]
    """What this process may run at most by itself: a number, or settings of a limiter of its own."""
    on_fenced: Callable[[], None]
    """Called, in a thread of ours, when the time is up and work may still run: abort what you can."""
    heartbeat_s: float
    grace_s: float
    allotment: str
    estimates: str


CLOSE_S = 5.0
"""How long closing waits for work that still runs; afterwards it is given back in the background."""
_ANY_NUMBER = 1_000_000
_AGREED = ("heartbeat_s", "grace_s", "allotment", "estimates")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareStats:
    """A share at one moment, as its own process knows it. ``record`` is the same for JSON.

    ``ShareStatus`` is the store's side of the same lease: what the last renewal said. The two may differ, and
    a difference is what a person looks for, so neither is made from the other.
    """

    pool: str
    node: str
    incarnation: str
    slots: int
    """What the store counts for this share."""
    limit: int
    """What may be in flight now."""
    target: int
    """What the plan would like it to have."""
    in_flight: int
    waiting: int
    fenced: bool
    learning: bool
    """The store has just begun, and no share grows yet."""
    leaving: bool
    renewals: int
    misses: int
    """Renewals in a row that were not answered."""
    answered_s_ago: float | None
    error: str
    """Why the last renewal failed; empty if it did not."""
    successes: int
    throttles: int
    overloads: int

    def record(self) -> dict[str, Any]:
        """The same as a dictionary, for JSON."""
        return asdict(self)


class Share(SlotMethods):
    """Part of a pool for this process. A ``with`` or ``async with`` block, or ``open`` and ``close``.

    >>> from flyball import Governor
    >>> governor = Governor("memory:")
    >>> _ = governor.set_pool("demo", cap=3, adaptive=False, heartbeat_s=0.05)
    >>> with governor.share("demo", node="here") as share:
    ...     share.wait_ready(5.0)
    ...     with share.slot():
    ...         share.stats().in_flight
    True
    1
    """

    def __init__(self, governor: Governor, pool: str, /, **options: Any) -> None:
        known = {"node", "weight", "on_outage", "local", "on_fenced", *_AGREED}
        if unknown := sorted(options.keys() - known):
            raise UsageError(f"unknown option {unknown[0]!r} of a share; known: {', '.join(sorted(known))}")
        self._governor, self.pool = governor, check_name("pool", pool)
        self.node = check_name("node", options.get("node") or host_name())
        self._agreed = {name: options[name] for name in _AGREED if name in options}
        settings = resolve_pool(cast("PoolChanges", self._agreed))
        outage, local = _outage(options), _settings(options.get("local"))
        self._queue: ShareLimiter = ShareLimiter(LocalPool(resolve_pool(local), clock(), name=self.pool))
        holding = HolderState(node=self.node, incarnation=new_incarnation(), weight=_weight(options))
        line = StoreClient(
            renew=lambda renewal: governor._internals.renew(self.pool, renewal),
            report=lambda signal: governor.report(self.pool, signal, name=self.node),
            open_box=lambda: governor._internals.open_box(),
        )
        self._renewing = ShareRenewer(self._queue, holding, line, outage, settings.share_terms)
        self._opened, self._pid = False, os.getpid()

    # -- opening and closing ------------------------------------------------------------------------

    def open(self) -> Share:
        """Agree with the pool's settings, begin to renew, and wait for the first answer, if there is one."""
        if self._pid != os.getpid():
            raise UsageError("a share belongs to the process that made it; make one after the fork")
        if not self._opened:
            try:
                if self._agreed:
                    agree(self._governor, self.pool, self._agreed)
            except StoreError as error:
                # Not now, then: the store's own terms come with its first answer.
                self._renewing.error = error
            self._opened = True
            survive_forks(self)
            self._renewing.start()
            self._renewing.renew(timeout_s=self._renewing.terms.fence_s)
        return self

    def close(self, timeout: float | None = CLOSE_S) -> bool:
        """Give everything back, running work as it ends; whether all is given back. Again is harmless."""
        return self._renewing.leave(timeout) if self._opened else True

    async def close_async(self, timeout: float | None = CLOSE_S) -> bool:
        """``close`` for an event loop."""
        return await _in_thread(lambda: self.close(timeout))

    def __enter__(self) -> Share:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Share:
        return await _in_thread(self.open)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close_async()

    # -- renewing -----------------------------------------------------------------------------------

    def renew(self, timeout: float | None = None) -> bool:
        """Renew now and wait for the answer; whether there was one. Never raises."""
        self.open()
        return self._renewing.renew(timeout)

    async def renew_async(self, timeout: float | None = None) -> bool:
        """``renew`` for an event loop."""
        return await _in_thread(lambda: self.renew(timeout))

    def wait_ready(self, timeout: float | None = None) -> bool:
        """Wait until something may start here; False if that did not happen in time."""
        queue, changed = self._queue, self._renewing.changed
        with changed:
            return (
                changed.wait_for(lambda: (queue.maximum or 0) > 0 or queue.closed, timeout)
                and not queue.closed
            )

    # -- seeing -------------------------------------------------------------------------------------

    def stats(self) -> ShareStats:
        """What is happening now. Reading changes nothing."""
        queue, renewing = self._queue, self._renewing
        with queue.lock:
            holding, now, tally = renewing.holding, queue.clock(), queue.tally
            answered = holding.fence_at > float("-inf")
            return ShareStats(
                pool=self.pool,
                node=self.node,
                incarnation=holding.incarnation,
                slots=holding.slots,
                limit=(queue.maximum or 0) if now < queue.fence_at else 0,
                target=holding.target,
                in_flight=queue.in_hands,
                waiting=queue.line.length,
                fenced=answered and now >= holding.fence_at,
                learning=renewing.learning,
                leaving=holding.leaving,
                renewals=renewing.renewals,
                misses=holding.misses,
                answered_s_ago=now - renewing.answered_at if answered else None,
                error=str(renewing.error or ""),
                successes=tally.successes,
                throttles=tally.throttles,
                overloads=tally.overloads,
            )

    def __repr__(self) -> str:
        now = self.stats()
        return f"<Share of {self.pool!r} for {self.node!r}: {now.in_flight}/{now.limit}>"

    # -- forking ------------------------------------------------------------------------------------

    def _before_fork(self) -> None:
        self._queue.lock.acquire()

    def _after_fork_in_parent(self) -> None:
        self._queue.lock.release()

    def _after_fork_in_child(self) -> None:
        self._queue.lock.release()
        self._renewing.abandon()


async def _in_thread(run: Callable[[], R]) -> R:
    from asyncio import to_thread

    asyncio_loop()
    return await to_thread(run)


def agree(governor: Governor, pool: str, wanted: Mapping[str, Any]) -> None:
    """All holders of a pool go by the same settings: name what is not named yet, refuse what differs."""
    for attempt in range(2):
        named: Mapping[str, Any] = governor._internals.named_settings(pool)
        for name, value in wanted.items():
            if name in named and named[name] != value:
                flag = name.removesuffix("_s").replace("_", "-")
                raise UsageError(
                    f"pool {pool!r} divides with {name}={named[name]!r}, and this process wants {value!r}; "
                    "all holders must agree: "
                    f"leave {name} out here, or change it for all: flyball pool set {pool} --{flag} {value}"
                )
        missing = {name: value for name, value in wanted.items() if name not in named}
        if not missing or attempt:
            return
        governor.set_pool(pool, **missing)


def _outage(options: Mapping[str, Any]) -> Outage:
    word, local = options.get("on_outage", "refuse"), options.get("local")
    try:
        rule = OnOutage(word)
    except ValueError:
        raise UsageError(f"on_outage must be refuse or local, not {word!r}") from None
    if rule is OnOutage.LOCAL and local is None:
        raise UsageError("on_outage='local' needs local=...: what this process may run by itself, such as 2")
    most = local if isinstance(local, int) else _ANY_NUMBER
    return Outage(rule=rule, local=most, on_fenced=options.get("on_fenced"))


def _settings(local: object) -> PoolChanges:
    """Of the limiter beneath: none of its own, a fixed number, or one that adapts."""
    if local is None or (isinstance(local, int) and not isinstance(local, bool)):
        cap = _ANY_NUMBER if local is None else local
        return {"adaptive": False, "cap": cap, "cap_ceiling": cap}
    if isinstance(local, dict):
        return cast("PoolChanges", {"profile": "calls", **local})
    raise UsageError(f"local must be a number or a limiter's settings, not {local!r}")


def _weight(options: Mapping[str, Any]) -> float:
    weight = options.get("weight", 1.0)
    if not isinstance(weight, (int, float)) or isinstance(weight, bool) or not 0 < weight < float("inf"):
        raise UsageError(f"weight must be a positive number, not {weight!r}")
    return float(weight)
