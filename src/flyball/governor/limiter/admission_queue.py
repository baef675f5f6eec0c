"""One pool, one line, one lock: which calls may start now, in this process.

Two ways through. Most calls meet no line, no window and a cap that is not full: for them passes lie ready
in ``free``, made in advance, and taking or returning one is a single list operation (atomic, no lock).
Everything else goes through the lock and asks the pool.

    free     passes that any caller may take; empty whenever the plan has to be asked
    minted   passes that exist, in hands or free: never above the cap, nor above the maximum
    calm     no caller waits, the plan is open, there are no windows and no spacing, the cap is not full

Passes are made only here, under the lock, so no controller can put more into hands than ``maximum``. The
pass that fills a cap that can move is never made in advance: the pool has to see it, a full cap is what
growth is about. A pass that comes back while it is not calm is looked after by the caller that returned it
(first return, then look at ``calm``; a waiter does it the other way round, so neither can miss the other).

A release serves exactly those that fit now, and makes their starts in the same step. Time too makes room:
one waiter, the last in line, watches the time for all.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from random import random

from flyball.core.pool.local_pool import INFINITY, CallStart, LocalPool
from flyball.core.pool.model import Fact, Phase, PoolCounts
from flyball.core.pool.settings import PoolSettings
from flyball.core.pool.verdict import Reason, Verdict
from flyball.core.provider.latency import LatencyTracker
from flyball.core.signals import SUCCESSES, Signal, SignalKind
from flyball.governor.limiter.retry_budget import RetryBudget
from flyball.governor.limiter.waiters import Waiter, WaitQueue, denial_verdict, refusal_error

AHEAD = 256
"""Passes made in advance, at most."""
UNSEEN_MOST = 1024
"""After so many starts with a ready pass one goes by the pool, so that it learns how long a call takes."""
SERVED_MOST = 100
"""Waiters served in one step; more are served in the next, so that none holds up an event loop."""
SOONEST_S = 0.001
FACTS_KEPT = 100
_CALL = "a call"
"""All calls of a limiter are of one class: what they are is not known."""


class AdmissionQueue:
    __slots__ = (
        "_earned",
        "_earned_at",
        "_watch_at",
        "_watcher",
        "budget",
        "calm",
        "clock",
        "closed",
        "facts",
        "failures",
        "fence_at",
        "free",
        "high",
        "latency",
        "left",
        "line",
        "lock",
        "loop_free",
        "max_waiting",
        "maximum",
        "minted",
        "pool",
        "started",
    )

    def __init__(
        self,
        pool: LocalPool,
        clock: Callable[[], float],
        maximum: int | None,
        max_waiting: int | None = None,
    ) -> None:
        self.pool, self.clock, self.maximum, self.max_waiting = pool, clock, maximum, max_waiting
        self.lock, self.budget, self.latency = threading.Lock(), RetryBudget(), LatencyTracker()
        self.line: WaitQueue[Waiter] = WaitQueue()
        self.free: deque[None] = deque()
        self.loop_free: deque[None] = deque()
        """``free`` for tasks, once one has shown that its event loop is asyncio's. Empty until then, so that
        under another loop the very first is refused, and those that come later pay nothing for it."""
        self.minted, self.calm, self.left = 0, False, UNSEEN_MOST
        """``left``: starts with a ready pass until one must go by the pool. Counted without the lock: where
        threads really run at once a few may be missed, which only blurs a statistic."""
        self.high = -1
        """What the pool has seen succeed at once: ends of more must be shown to it; below 0, all ends."""
        self.started = self.failures = 0
        self.closed = False
        """No waiter is served any more, and none need wait."""
        self.fence_at = INFINITY
        """No call starts from then on; only share leases have such a time."""
        self.facts: deque[Fact] = deque(maxlen=FACTS_KEPT)
        self._watcher: Waiter | None = None
        self._watch_at = INFINITY
        self._earned, self._earned_at = 0, clock()
        """Starts that the budget knows of, and since when it knows of no other."""
        self._refill()

    @property
    def in_hands(self) -> int:
        return self.minted - len(self.free)

    @property
    def starts(self) -> int:
        return self.started + UNSEEN_MOST - self.left

    @property
    def successes(self) -> int:
        """Calls that ended and did not fail."""
        return max(0, self.starts - self.in_hands - self.failures)

    # -- starting ---------------------------------------------------------------------------------

    def enter(self, cost: Mapping[str, float]) -> CallStart | None:
        """A start, if one may be made now and the line is empty."""
        with self.lock:
            now = self._catch_up()
            free = not self.line.length and self._open_at(now, cost) <= now
            start = self._start(now, cost) if free else None
            self._refill()
            return start

    def enqueue(self, waiter: Waiter) -> None:
        """Get in line. It may be served at once. Raises RefusedError where as many wait as may wait."""
        with self.lock:
            self.calm = False
            now = self._catch_up()
            if self.max_waiting is not None and self.line.length >= self.max_waiting:
                self._refill()
                raise refusal_error(self._verdict(waiter.cost, now, line_full=True))
            self.line.join(waiter, waiter.priority, now=now)
            self._serve(now)

    def return_unused(self) -> None:
        """A ready pass whose time was over when it was taken: it goes back, and the pool is asked."""
        self.free.append(None)
        self.left += 1

    @property
    def fenced(self) -> bool:
        return self.fence_at != INFINITY and self.clock() >= self.fence_at

    def too_late(self, waiter: Waiter) -> bool:
        """Whether one that was served has woken only after the fence; then it stands in line again.

        Its thread or event loop may have been held up since it was served, or the machine have slept.
        """
        if waiter.start is None or not self.fenced:
            return False
        with self.lock:
            now = self._catch_up()
            self._undo(waiter.start, now)
            waiter.wait_on()
            self.line.join(waiter, waiter.priority, now=now)
            self._serve(now)
        return True

    def leave(self, waiter: Waiter) -> None:
        """Get out of line, if it still stands there."""
        with self.lock:
            if self._remove(waiter):
                self._serve(self._catch_up())

    def serve(self, waiter: Waiter | None = None) -> None:
        """Serve the waiters that fit now: after a pass came back, or when the time has come."""
        with self.lock:
            if waiter is not None and waiter is self._watcher:
                self._watch_at = INFINITY
            self._serve(self._catch_up())

    def _catch_up(self) -> float:
        """Before anything under the lock: the pool learns what happened without it."""
        pool, unseen = self.pool, UNSEEN_MOST - self.left
        if unseen:
            self.left += unseen
            self.started += unseen
            pool.count_starts(unseen)
        pool.counts.in_use = self.minted - len(self.free)
        return self.clock()

    def _open_at(self, now: float, cost: Mapping[str, float]) -> float:
        if self.maximum is not None and self.in_hands >= self.maximum:
            return INFINITY
        return self.pool.earliest_start(now, cost)

    def _start(self, now: float, cost: Mapping[str, float]) -> CallStart | None:
        if not self._take_pass():
            return None
        self.started += 1
        self.pool.counts.in_use = self.minted - len(self.free) - 1
        # Chance costs more than half a start, and only spacing has a use for it.
        return self.pool.start(now, cost, chance=random() if self.pool.limits.spacing_s else 0.5)

    def _take_pass(self) -> bool:
        if self._pop_free():
            return True
        limits = self.pool.limits
        most = limits.ceiling if limits.phase is Phase.TRIAL else limits.cap
        if self.minted >= most or (self.maximum is not None and self.minted >= self.maximum):
            return False
        self.minted += 1
        return True

    def _pop_free(self) -> bool:
        if not self.free:
            return False
        try:
            self.free.pop()
        except IndexError:
            # Another thread took it since.
            return False
        return True

    # -- ending -----------------------------------------------------------------------------------

    def report(self, start: CallStart, signal: Signal) -> None:
        """Something was said about a call that goes on: it takes effect now."""
        with self.lock:
            now = self._catch_up()
            self.pool.renew(now)
            self.pool.report(start, signal, now)
            self._serve(now)

    def end(self, start: CallStart, signal: Signal, *, heard: bool, actual: Mapping[str, float]) -> None:
        with self.lock:
            now = self._catch_up()
            if signal.kind is SignalKind.OK and self.latency.note(_CALL, now - start.sent_at):
                signal = replace(signal, kind=SignalKind.SLOW, detail=f"{_CALL} is slow")
            if signal.kind is not SignalKind.OK:
                self.failures += signal.kind not in SUCCESSES
                self.pool.renew(now)
                if signal.kind is SignalKind.TIMEOUT:
                    self._current_budget(now).take(now)
            self.pool.end(start, signal, now, actual=actual, heard=heard)
            self.minted -= 1
            self._serve(now)

    def abandon(self, start: CallStart) -> None:
        """A start that came to nothing: its waiter was cancelled before it could begin."""
        with self.lock:
            now = self._catch_up()
            self._undo(start, now)
            self._serve(now)

    def _undo(self, start: CallStart, now: float) -> None:
        self.pool.abandon(start, now)
        self.minted -= 1
        self.started -= 1

    # -- trying again -----------------------------------------------------------------------------

    def retries_left(self, now: float) -> int:
        """Under the lock."""
        return self._current_budget(now).left(now)

    def take_retry(self) -> bool:
        with self.lock:
            now = self.clock()
            return self._current_budget(now).take(now)

    def _current_budget(self, now: float) -> RetryBudget:
        """The budget, told of the calls since it was last asked: the quick way through has no time for it."""
        starts = self.starts
        self.budget.call(now, count=max(0, starts - self._earned), since=self._earned_at)
        self._earned, self._earned_at = starts, now
        return self.budget

    # -- the line ---------------------------------------------------------------------------------

    def _serve(self, now: float) -> None:
        """Start as many of the line as fit now, in order, and let one of the rest watch the time."""
        line, served, at = self.line, 0, INFINITY
        while line.length:
            if served == SERVED_MOST:
                at = now
                break
            waiter = line.first(now=now, ageing_s=self.pool.limits.ageing_s)
            at = self._open_at(now, waiter.cost)
            start = self._start(now, waiter.cost) if at <= now else None
            if start is None:
                break
            self._remove(waiter)
            waiter.start = start
            if not waiter.wake():
                waiter.start = None
                self._undo(start, now)
            served += 1
        self._refill()
        if line.length:
            self._watch(at, now)

    def _remove(self, waiter: Waiter) -> bool:
        if waiter is self._watcher:
            self._watcher, self._watch_at = None, INFINITY
        return self.line.leave(waiter, waiter.priority)

    def _watch(self, at: float, now: float) -> None:
        """The line is looked at again at ``at``, unless that happens sooner anyway."""
        if at == INFINITY or (self._watcher is not None and self._watch_at <= at):
            return
        while self.line.length:
            # The last one waits longest, so it rarely has to pass this duty on.
            watcher = self._watcher or self.line.last()
            if watcher.look_in(max(at - now, SOONEST_S)):
                self._watcher, self._watch_at = watcher, at
                return
            self._remove(watcher)

    def _refill(self) -> None:
        """After anything under the lock: make or take away passes, so that as many lie ready as may."""
        pool, limits, in_hands = self.pool, self.pool.limits, self.minted - len(self.free)
        unseen_most = limits.cap if pool.is_fixed else limits.cap - 1
        calm = (
            in_hands <= unseen_most
            and not self.line.length
            and not pool.windows
            and not limits.spacing_s
            and limits.phase is Phase.CLOSED
            and limits.closed_until is None
        )
        most = 0
        if calm:
            most = min(unseen_most, in_hands + AHEAD)
            most = most if self.maximum is None else min(most, self.maximum)
        else:
            self.calm = False
        while self.minted > most and self._pop_free():
            self.minted -= 1
        if self.minted < most:
            # Counted before they can be taken: the count of calls in flight is never too low.
            more, self.minted = most - self.minted, most
            self.free.extend([None] * more)
        self.high = pool.meters.high if calm else -1
        self.calm = calm
        if pool.facts:
            self.facts.extend(pool.facts)
            pool.facts.clear()

    # -- telling, changing, forking ---------------------------------------------------------------

    def verdict(self, cost: Mapping[str, float]) -> Verdict:
        """Why a call of this cost cannot start now."""
        with self.lock:
            now = self._catch_up()
            verdict = self._verdict(cost, now)
            self._refill()
            return verdict

    def _verdict(self, cost: Mapping[str, float], now: float, *, line_full: bool = False) -> Verdict:
        at, waiting = self._open_at(now, cost), self.line.length
        verdict = denial_verdict(self.pool, cost, now=now, at=at, maximum=self.maximum, waiting=waiting)
        if not line_full:
            return verdict
        return replace(
            verdict, reason=Reason.LINE_FULL, position=0, detail=f"{waiting} wait, and more may not"
        )

    def change(
        self, settings: PoolSettings, *, maximum: int | None, max_waiting: int | None, reseed: bool
    ) -> None:
        """Other limits from now on: waiters that fit are served, calls that are too many finish."""
        with self.lock:
            now = self._catch_up()
            self.maximum, self.max_waiting = maximum, max_waiting
            self.pool.change(settings, now, reseed=reseed)
            self._serve(now)

    def copy_for_child(self) -> AdmissionQueue:
        """In a forked child: what was learned goes on, what was in hands and in line is the parent's."""
        self.line, self.calm = WaitQueue(), False
        self._watcher, self._watch_at = None, INFINITY
        pool = copy(self.pool)
        pool.counts, pool.facts = PoolCounts(), []
        pool.meters = copy(pool.meters)
        pool.meters.trial_id = None
        return AdmissionQueue(pool, self.clock, self.maximum, self.max_waiting)
