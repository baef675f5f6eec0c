"""The threads behind a share lease: one renews it, one watches its fence. Neither is ever the user's own.

    renewing   sleeps until the next renewal is due (core/share_lease/holder.py), is woken early by mail or by
               what happens at the queue, and talks to the store. It may hang there.
    fencing    sleeps until the time of the last answered renewal is up. It never talks to the store, so one
               that hangs cannot keep it from closing the queue.

All that both decide on, and the queue, changes under the queue's one lock, so that a renewal never declares
less than can be running at that moment: the passes that lie ready count too.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flyball.core.pool.verdict import span_words
from flyball.core.share_lease import holder
from flyball.core.share_lease.holder import HolderState, OnOutage
from flyball.core.share_lease.timing import BEATS_PER_TTL, ShareTiming, timing_for
from flyball.errors import FlyballError, StoreError
from flyball.host.background_thread import start_thread

if TYPE_CHECKING:
    from flyball.core.share_lease.renewal import Renewal, Reply
    from flyball.core.signals import Signal
    from flyball.governor.share.share import ShareLimiter, ShareNews
    from flyball.wake.mailbox import Box

_log = logging.getLogger("flyball")
INFINITY = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreClient:
    """What a share lease needs of the store."""

    renew: Callable[[Renewal], Reply]
    report: Callable[[Signal], None]
    open_box: Callable[[], Box | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """What a holder does that has not been answered in time, and whom it tells."""

    rule: OnOutage = OnOutage.REFUSE
    local: int = 0
    """What this process may run by itself, where the rule says so."""
    on_fenced: Callable[[], None] | None = None


class ShareRenewer:
    """Drives one holding. ``start`` once, ``leave`` once; everything else whenever."""

    def __init__(
        self, queue: ShareLimiter, holding: HolderState, line: StoreClient, outage: Outage, terms: ShareTiming
    ) -> None:
        self.queue, self.holding, self.terms = queue, holding, terms
        self.learning = self.fenced = False
        self.error: FlyballError | None = None
        """Why the last renewal failed; None once one is answered again."""
        self.renewals = 0
        """Renewals that were answered."""
        self.answered_at = -INFINITY
        self._line, self._outage = line, outage
        self.changed = threading.Condition(queue.lock)
        """Notified after every renewal."""
        self._box: Box | None = None
        self._sleeps_until = -INFINITY
        self._over = False
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        self._bell, self._ear = socket.socketpair()
        for end in (self._bell, self._ear):
            end.setblocking(False)
        with self.queue.lock:
            self._limit(self.queue.clock())
            self.queue.set_listener(self._on_change)
        for work in (self._renewing, self._fencing):
            self._threads.append(start_thread(work, name=f"flyball-{work.__name__.strip('_')}"))

    # -- from outside -----------------------------------------------------------------------------------

    def renew(self, timeout_s: float | None) -> bool:
        """Renew now and wait for the answer; whether there was one. Never raises."""
        with self.changed:
            answered, begun = self.renewals, self.holding.seq
            self.holding = replace(self.holding, noticed=True)
            self._ring()
            # The one under way may have been sent before we asked.
            done = self.changed.wait_for(
                lambda: self._over or (self.holding.seq > begun and not self.holding.pending), timeout_s
            )
            return done and self.renewals > answered

    def leave(self, timeout_s: float | None) -> bool:
        """Admit no more calls and give back what ends; whether all is given back. Again is harmless."""
        with self.changed:
            if not self.holding.leaving:
                self.holding = holder.leave(self.holding)
                self._limit(self.queue.clock())
                self.queue.end_all_waits()
                self._ring()
        for renewing in self._threads[:1]:
            if renewing is not threading.current_thread():
                renewing.join(timeout_s)
                return not renewing.is_alive()
        return True

    def abandon(self) -> None:
        """In a forked child: the lease and its threads are the parent's."""
        self._over = True
        self.holding = holder.leave(self.holding)
        self.queue.set_listener(None)
        self.queue.allow(0, until=-INFINITY, why="the share belongs to the parent process")
        self.queue.end_all_waits()
        self._threads = []

    # -- with the lock held -------------------------------------------------------------------------------

    def _limit(self, now: float) -> None:
        """Tell the queue what is allowed from now on."""
        by_itself = self._outage.rule is OnOutage.LOCAL
        most = holder.limit(self.holding, now=now, on_outage=self._outage.rule, local=self._outage.local)
        until = INFINITY if by_itself else self.holding.fence_at
        self.queue.allow(most, until=until, why=self._words(now))

    def _words(self, now: float) -> str:
        if self.holding.leaving:
            return "the share is closed"
        why = f" ({self.error})" if self.error is not None else ""
        if self.holding.fence_at == -INFINITY:
            return f"its share waits for the first answer of the store{why}"
        return f"its share was not renewed for {span_words(now - self.answered_at)}{why}"

    def _due(self) -> holder.Due:
        return holder.next_renewal(
            self.holding,
            in_flight=self.queue.minted,
            wants=self.queue.wants,
            terms=self.terms,
            now=self.queue.clock(),
        )

    def _on_change(self) -> None:
        """Something happened at the queue: a renewal may be due sooner."""
        queue, holding = self.queue, self.holding
        if queue.line.length or queue.minted < holding.slots or queue.has_news:
            if queue.has_news:
                # The controller should hear of it soon.
                self.holding = replace(holding, noticed=True)
            if self._due().at < self._sleeps_until:
                self._ring()

    def _ring(self) -> None:
        with contextlib.suppress(OSError):
            self._bell.send(b"!")

    # -- the thread that renews -----------------------------------------------------------------------------

    def _renewing(self) -> None:
        with contextlib.suppress(FlyballError):
            self._box = self._line.open_box()
        try:
            while not self._is_gone() and self._sleep():
                with self.queue.lock:
                    due = self._due()
                if due.at <= self.queue.clock():
                    self._renew(due)
        finally:
            with self.changed:
                self._over = True
                self.queue.set_listener(None)
                self.changed.notify_all()
            for end in (self._bell, self._ear):
                end.close()
            if self._box is not None:
                self._box.close()

    def _is_gone(self) -> bool:
        with self.queue.lock:
            holding = self.holding
            if holder.has_left(holding, in_flight=self.queue.minted):
                return True
            # The store cannot be told that we leave, and nothing runs: what is left expires by itself.
            return holding.leaving and not self.queue.minted and (holding.misses > 1 or not holding.seq)

    def _sleep(self) -> bool:
        """Until the next renewal is due, or the queue rings, or mail comes. False: the process ends."""
        with self.queue.lock:
            now, self._sleeps_until = self.queue.clock(), self._due().at
        poller = select.poll()
        poller.register(self._ear.fileno(), select.POLLIN)
        if self._box is not None:
            mail = self._box.fileno()
            if mail < 0:
                # Only the end of the process closes it under this thread, which goes on for a moment.
                return False
            poller.register(mail, select.POLLIN)
        poller.poll(max(0.0, min(self._sleeps_until - now, 3600.0)) * 1000 + 0.5)
        with contextlib.suppress(OSError):
            self._ear.recv(4096)
        told = False
        with contextlib.suppress(OSError):
            told = self._box is not None and bool(self._box.drain())
        with self.queue.lock:
            self._sleeps_until = -INFINITY
            if told:
                self.holding = holder.notice(self.holding, target=self.holding.target)
        return True

    def _renew(self, due: holder.Due) -> None:
        with self.queue.lock:
            renewal, news = self._declare(due)
        signals = news.signals
        try:
            while signals:
                self._line.report(signals[0])
                signals.pop(0)
            reply = self._line.renew(renewal)
        except FlyballError as error:
            self._note_failure(renewal, signals, error)
        except Exception as error:  # a renewing thread that dies would be found out by its fence only
            _log.exception("the share of %s could not be renewed", self.queue.pool.name)
            self._note_failure(renewal, signals, StoreError(str(error)))
        else:
            self._receive(reply, news.refused_at)

    def _declare(self, due: holder.Due) -> tuple[Renewal, ShareNews]:
        queue, now = self.queue, self.queue.clock()
        self.holding = holder.note_reason(self.holding, due, now=now)
        self._limit(now)
        self.holding, renewal = holder.send(
            self.holding, now=now, in_flight=queue.minted, wants=queue.wants, tally=queue.tally
        )
        news = queue.take_news()
        told = replace(
            renewal,
            in_flight=queue.in_hands,
            peak=news.peak,
            hold_s=queue.pool.meters.hold_mean_s,
            refused_age_s=None if news.refused_at is None else now - news.refused_at,
            estimate=None if queue.pool.is_fixed else float(queue.pool.cap),
            mailbox=self._box.address if self._box is not None else "",
        )
        return told, news

    def _receive(self, reply: Reply, refused_at: float | None) -> None:
        with self.changed:
            now = self.queue.clock()
            if not reply.stale and reply.ttl_s != self.terms.ttl_s:
                # The holder's terms follow the store's word: all of them derive from the heartbeat.
                self.terms = timing_for(reply.ttl_s / BEATS_PER_TTL)
            self.holding = holder.receive(self.holding, reply, now=now, terms=self.terms)
            if not self.holding.pending and not self.holding.misses:
                self.renewals += 1
                self.learning, self.error, self.answered_at = reply.learning, None, now
                self.fenced = holder.is_fenced(self.holding, now=now)
            else:
                self.queue.keep_news(refused_at=refused_at)
            self._after(now)

    def _note_failure(self, renewal: Renewal, signals: list[Signal], error: FlyballError) -> None:
        with self.changed:
            now = self.queue.clock()
            self.holding = holder.on_missed(self.holding, seq=renewal.seq, now=now)
            self.queue.keep_news(signals=signals)
            self.error = error
            self._after(now)

    def _after(self, now: float) -> None:
        self._limit(now)
        self.changed.notify_all()

    # -- the thread that watches the fence ------------------------------------------------------------------

    def _fencing(self) -> None:
        while self._wait_for_fence():
            if self._outage.rule is OnOutage.LOCAL or self._outage.on_fenced is None:
                continue
            try:
                self._outage.on_fenced()
            except Exception:
                _log.exception("on_fenced of the share of %s failed", self.queue.pool.name)

    def _wait_for_fence(self) -> bool:
        """True each time that a share which was answered before runs out of time; False at the end."""
        with self.changed:
            while not self._over:
                left_s = self.holding.fence_at - self.queue.clock()
                if self.fenced or self.holding.fence_at == -INFINITY:
                    self.changed.wait()
                elif left_s > 0:
                    self.changed.wait(left_s)
                else:
                    self.fenced = True
                    self._limit(self.queue.clock())
                    return True
            return False


def new_incarnation() -> str:
    """Never used before: the old lease of a node that was restarted is not taken for the new one."""
    return os.urandom(8).hex()
