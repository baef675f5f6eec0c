"""How an ask becomes a lease, written once for the sync and the async door.

A flow is a generator that yields effects and is sent their results. It decides nothing about limits (the
store does) and performs nothing (the drivers in flow_drivers.py do); it knows the order of things:

    admit -> granted, or parked
    parked: sleep on the mailbox or the timer, whichever is first
    woken: look -> granted, or sleep again; only the store says who has a slot, a wake never does
    one of the line also watches the holders, so that a killed one's slot comes back while the others sleep
    the store does not answer: a new ask fails with that; an ask in line waits until it does
    given up (timeout, Ctrl-C, cancelled): withdraw the ask, or give back the lease it just became
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeVar

from flyball.core.pool.holder import Holder
from flyball.core.pool.model import Ask, Claim, Fact, Outcome
from flyball.core.pool.settings import LEASE_BACKSTOP_S
from flyball.core.pool.verdict import CLOSED_REASONS, Reason, Verdict, granted_verdict, one_line
from flyball.errors import (
    AtCapacityError,
    PoolClosedError,
    RefusedError,
    StoreClosedError,
    StoreError,
    StoreUnreadableError,
    TooLargeError,
    WaitTimeoutError,
)
from flyball.host.log import tell_log
from flyball.host.process import DeathWatch, alive, beside_us, exists, here, is_stopped
from flyball.stores.port import AfterCommit, HolderCensus, Release, Store, WakeUp
from flyball.wake.mailbox import LOOK, Delivery, discard, send

HEARD_S = 4.0
"""A host beats once a second; for so long after a beat it counts as there."""
R = TypeVar("R")
TELL_EVERY_S = 30.0
RELEASING_S = 5.0
"""So long a launcher that lives may take from the end of its command to its release, on a busy machine too.
It is bounded because a launcher may be held up by what reads its own output."""
_RELEASING_AT_ONCE_S = 1.0
"""The same for an ask that is about to be refused, and has no time to wait."""
_RELEASING_STEP_S = (0.01, 0.2)
"""Between two looks whether it has released: at first, and at last."""
_ENDED_KEPT = 1000
_NET_STEP_S = 2.0
_NET_LIMIT_S = 60.0
_NET_RATE = 50.0
_WATCHER_NAP_S = 30.0
_FRESH_WATCHER_S = 0.1
_UNWATCHED_NAP_S = 1.0
_RIDE_LOOK_S = 0.1
"""How often an ask that waits inside a lease looks whether it can ride on that; two system calls."""
_OUTAGE_NAP_S = (0.25, 5.0)
"""How soon a store that did not answer is asked again: at first, and at last."""


@dataclass(frozen=True, slots=True)
class StoreCall:
    """Run this store call; it may block for a moment."""

    run: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class WaitForWake:
    """Sleep until told to look at the claim, a watched process dies, or the timer ends."""

    claim_id: int
    timeout_s: float
    watch: DeathWatch | None


class WakeReason(Enum):
    GRANT = "grant"
    """The driver was told to look, did so, and the store said that the claim is a lease."""
    MAIL = "mail"
    DEATH = "death"
    TIMER = "timer"


Effect = StoreCall | WaitForWake
Flow = Generator[Effect, Any, R]
Observer = Callable[[Fact], None]
OnWait = Callable[[Verdict], None]
Heir = Callable[[int], Holder | None]
"""The process that a lease passes to whose holder has ended: one that works inside it still."""


def acquire(
    store: Store,
    ask: Ask,
    *,
    first: tuple[Verdict, AfterCommit] | None = None,
    wait: bool,
    timeout_s: float | None,
    on_wait: OnWait | None,
    observers: Sequence[Observer],
    heir: Heir,
    try_ride: Callable[[], bool] | None = None,
) -> Flow[Verdict]:
    """Get the ask granted, or raise a RefusedError that says why not.

    ``first``: what the store said to it, where it was asked already. ``try_ride``: true once it needs no slot
    of its own, as it rides on the lease around it; then the verdict is the last one before.
    """
    verdict: Verdict
    verdict, after = first or (yield StoreCall(lambda: store.admit(ask, park=wait)))
    yield from settle(store, after, observers)
    hopeless = verdict.granted or verdict.reason is Reason.TOO_LARGE
    # An ask that would be refused looks for dead holders first.
    at_once_s = _RELEASING_AT_ONCE_S
    if (
        not wait
        and not hopeless
        and (yield from reap(store, ask.pool, observers, heir=heir, patience_s=at_once_s))
    ):
        verdict = yield from _admit(store, ask, wait=wait, observers=observers)
    if verdict.granted:
        return verdict
    if not wait or verdict.reason is Reason.TOO_LARGE:
        raise _refusal(verdict)
    waiter = _ParkedAsk(store, ask, verdict, timeout_s, on_wait, observers, heir, try_ride)
    try:
        verdict = yield from waiter.wait()
    except BaseException:
        # Whatever stops us, no ask and no slot is left behind. The original error is what counts.
        yield from _withdraw(store, waiter.verdict, observers)
        raise
    if waiter.rides:
        yield from _withdraw(store, verdict, observers)
    return verdict


def _withdraw(store: Store, parked: Verdict, observers: Sequence[Observer]) -> Flow[None]:
    """Take the ask out of line, or give back the lease it just became."""
    try:
        after = yield StoreCall(lambda: store.withdraw(parked.claim_id, asked_at=parked.asked_at))
    except BaseException as error:
        store.remember(Release(parked.claim_id, Outcome.ABANDONED, asked_at=parked.asked_at))
        if not isinstance(error, StoreError):
            raise
    else:
        yield from settle(store, after, observers)


class _ParkedAsk:
    """From its first verdict to its grant."""

    def __init__(
        self,
        store: Store,
        ask: Ask,
        verdict: Verdict,
        timeout_s: float | None,
        on_wait: OnWait | None,
        observers: Sequence[Observer],
        heir: Heir,
        try_ride: Callable[[], bool] | None,
    ) -> None:
        self._heir, self._try_ride, self.rides = heir, try_ride, False
        self.store, self.ask, self.verdict, self.observers = store, ask, verdict, observers
        self._on_wait = on_wait
        self._timeout_s = timeout_s
        self._deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._told_at = float("-inf")
        self._watched = False
        self._outage_s: float | None = None
        """While the store does not answer: how long it was last left alone."""

    def wait(self) -> Flow[Verdict]:
        while not self.verdict.granted and not self.rides:
            try:
                if self._outage_s is None:
                    yield from self._turn()
                else:
                    yield from self._look(advance=True)
                    # It answers: say how things stand now.
                    self._outage_s, self._told_at = None, float("-inf")
            except StoreError as error:
                if not self._is_worth_waiting(error):
                    raise
                yield from self._sit_out(error)
        return self.verdict

    def _turn(self) -> Flow[None]:
        """Sleep once, and look."""
        self._tell(self.verdict)
        watching, self._watched = self.verdict.watch and self._watched, self.verdict.watch
        nap_s = self._nap_s(watching=watching)
        woken = yield from self._sleep(nap_s, watching=watching)
        if self.rides:
            return
        if woken is WakeReason.GRANT:
            seen = self.verdict
            self.verdict = granted_verdict(
                seen.pool, seen.claim_id, asked_at=seen.asked_at, in_use=seen.in_use, cap=seen.cap
            )
            return
        if self._deadline is not None and time.monotonic() >= self._deadline:
            # One last look: a slot handed to us in the meantime is ours, and the dead hold none.
            yield from self._reap(_RELEASING_AT_ONCE_S)
            yield from self._look(advance=True)
            if not self.verdict.granted:
                raise WaitTimeoutError(self.verdict, self._timeout_s or 0.0)
            return
        quiet = woken is WakeReason.MAIL or (woken is WakeReason.TIMER and nap_s == _FRESH_WATCHER_S)
        if not quiet:
            yield from self._reap(self._until_deadline(RELEASING_S))
        yield from self._look(advance=not quiet)
        if woken is WakeReason.MAIL and not self.verdict.granted and self.verdict.in_use < self.verdict.cap:
            # What is free may be ours: a waiter that stood still was passed over, and goes on now.
            yield from self._look(advance=True)

    def _reap(self, patience_s: float) -> Flow[int]:
        return reap(
            self.store,
            self.ask.pool,
            self.observers,
            heir=self._heir,
            patience_s=patience_s,
            claim_id=self.verdict.claim_id,
        )

    def _is_worth_waiting(self, error: StoreError) -> bool:
        """Is it worth waiting for the store? Not where it is there and makes no sense, or our time is up."""
        if isinstance(error, StoreClosedError | StoreUnreadableError):
            return False
        return self._deadline is None or time.monotonic() < self._deadline

    def _sit_out(self, error: StoreError) -> Flow[None]:
        """The place in line is the store's to keep, and it may come back with it: we wait, and say so."""
        first_s, last_s = _OUTAGE_NAP_S
        if self._outage_s is None:
            self._told_at = float("-inf")
        self._outage_s = first_s if self._outage_s is None else min(2 * self._outage_s, last_s)
        words = one_line(str(error))
        self._tell(replace(self.verdict, reason=Reason.OUTAGE, detail=words, estimate_s=None, blocker=None))
        nap_s = self._until_deadline(self._outage_s * (0.75 + random.random() / 2))
        yield from self._nap(nap_s, None)

    def _look(self, *, advance: bool) -> Flow[None]:
        claim_id, asked_at = self.verdict.claim_id, self.verdict.asked_at
        verdict, after = yield StoreCall(
            lambda: self.store.poll(claim_id, advance=advance, asked_at=asked_at)
        )
        yield from settle(self.store, after, self.observers)
        if verdict is None:
            # Another process took us for dead, or a person removed our ask: stand in line again.
            verdict = yield from _admit(self.store, self.ask, wait=True, observers=self.observers)
        self.verdict = verdict
        if verdict.reason is Reason.TOO_LARGE:
            # The limits were lowered below what we ask for: waiting has become useless.
            raise TooLargeError(verdict)

    def _sleep(self, nap_s: float, *, watching: bool) -> Flow[WakeReason]:
        watch: DeathWatch | None = None
        if watching:
            holders = yield StoreCall(lambda: self.store.holders(self.ask.pool))
            watch = DeathWatch(holder for holder in holders if holder != self.ask.holder)
            if any(alive(holder) is False for holder in holders):
                watch.close()
                return WakeReason.DEATH
            if watch.partial:
                nap_s = min(nap_s, _UNWATCHED_NAP_S)
        try:
            return (yield from self._nap(self._until_deadline(nap_s), watch))
        finally:
            if watch is not None:
                watch.close()

    def _nap(self, nap_s: float, watch: DeathWatch | None) -> Flow[WakeReason]:
        """One sleep; inside a lease with a look now and then whether another there has ended its ride."""
        while True:
            step_s = nap_s if self._try_ride is None else min(nap_s, _RIDE_LOOK_S)
            woken: WakeReason = yield WaitForWake(self.verdict.claim_id, step_s, watch)
            if self._try_ride is not None and woken is not WakeReason.GRANT:
                self.rides = yield StoreCall(self._try_ride)
            nap_s -= step_s
            if self.rides or woken is not WakeReason.TIMER or nap_s <= 0:
                return woken

    def _nap_s(self, *, watching: bool) -> float:
        """How long to sleep if no mail comes.

        The watcher looks when something is due. The others sleep the longer, the further back they stand, so
        that a line of any length looks a few times a second in all, and a dead watcher is found in seconds.
        """
        verdict = self.verdict
        if not self.ask.mailbox:
            return _UNWATCHED_NAP_S * (0.5 + random.random())
        if verdict.watch:
            # A new waiter is often granted or relieved at once: it starts to watch a moment later.
            nap_s = _WATCHER_NAP_S if watching else _FRESH_WATCHER_S
            due_s = verdict.look_again_s if verdict.look_again_s is not None else nap_s
            return max(0.001, min(nap_s, due_s))
        limit_s = max(_NET_LIMIT_S, verdict.position / _NET_RATE)
        return min(_NET_STEP_S * max(1, verdict.position), limit_s) * (0.75 + random.random() / 2)

    def _until_deadline(self, nap_s: float) -> float:
        if self._deadline is None:
            return nap_s
        return max(0.0, min(nap_s, self._deadline - time.monotonic()))

    def _tell(self, verdict: Verdict) -> None:
        now = time.monotonic()
        if self._on_wait is not None and now - self._told_at >= TELL_EVERY_S:
            self._told_at = now
            self._on_wait(verdict)


def _admit(store: Store, ask: Ask, *, wait: bool, observers: Sequence[Observer]) -> Flow[Verdict]:
    verdict: Verdict
    verdict, after = yield StoreCall(lambda: store.admit(ask, park=wait))
    yield from settle(store, after, observers)
    return verdict


def release(store: Store, what: Release, observers: Sequence[Observer]) -> Flow[StoreError | None]:
    """End a lease. A store that cannot be written now keeps the release for later: then, why it cannot."""
    ended = yield StoreCall(lambda: release_or_keep(store, what))
    if isinstance(ended, StoreError):
        return ended
    yield from settle(store, ended, observers)
    return None


def release_or_keep(store: Store, what: Release) -> AfterCommit | StoreError:
    """End a lease; where the store cannot be written now it keeps the release, and this is why."""
    try:
        return store.release(what)
    except StoreError as error:
        store.remember(what)
        return error


def reap(
    store: Store,
    pool: str,
    observers: Sequence[Observer],
    *,
    heir: Heir,
    patience_s: float | None = None,
    claim_id: int = 0,
) -> Flow[int]:
    """Take back what dead processes hold and what keeps this pool's line waiting; how many were found.

    A lease inside which a command goes on passes to that (``heir``).

    A command that has ended is its launcher's to release, with the words that say how it ended. For that the
    flow waits ``patience_s``, or until ``claim_id`` is told to look; None: it is left for a later reap.
    """
    holders = yield StoreCall(lambda: store.holders(pool))
    if all(alive(holder) for holder in holders):
        return 0
    census: HolderCensus = yield StoreCall(lambda: store.pool_census(pool))
    if patience_s is None:
        return (yield from reclaim(store, census, observers, heir=heir))
    step_s, last_s = _RELEASING_STEP_S
    now = began = time.monotonic()
    # Not ``any``: each of them is seen now.
    while now < began + patience_s and [c for c in census.claims if _is_in_time(c, now, patience_s)]:
        woken = yield WaitForWake(claim_id, step_s, None)
        if claim_id and woken is not WakeReason.TIMER:
            return 0
        step_s, now = min(2 * step_s, last_s), time.monotonic()
        census = yield StoreCall(lambda: store.pool_census(pool))
    return (yield from reclaim(store, census, observers, heir=heir, patience_s=patience_s))


_ended_at: dict[tuple[int, Holder], float] = {}
"""When this process first saw that a launcher's command had ended; the oldest are forgotten."""


def _is_in_time(claim: Claim, now: float, patience_s: float) -> bool:
    """Is it to be released, and has its launcher not had its time yet?"""
    if not _is_being_released(claim):
        return False
    while len(_ended_at) > _ENDED_KEPT:
        del _ended_at[next(iter(_ended_at))]
    return now - _ended_at.setdefault((claim.id, claim.holder), now) < patience_s


def _is_being_released(claim: Claim) -> bool:
    """Its command has ended, and the launcher that is to say how lives and is not stopped."""
    launcher = claim.launcher_pid
    if not claim.held or launcher in (0, claim.holder.pid) or not here(claim.holder):
        return False
    return alive(claim.holder) is False and exists(launcher) and not is_stopped(launcher)


def reclaim(
    store: Store,
    census: HolderCensus,
    observers: Sequence[Observer],
    *,
    heir: Heir,
    patience_s: float = RELEASING_S,
) -> Flow[int]:
    """Remove the dead of a census from the store; how many there were.

    Not what a launcher is about to release, as long as it has its time. That is asked last: a command that
    ends while we look has ended just now.
    """
    now = store.now()
    gone = [c for c in census.claims if is_gone(c, now) and not _is_in_time(c, time.monotonic(), patience_s)]
    passed_on: set[int] = set()
    for claim in gone:
        if (yield from _pass_on(store, claim, heir, observers)):
            passed_on.add(claim.id)
    claims = [(claim.id, claim.holder) for claim in gone if claim.id not in passed_on]
    demands = [d for d in census.demands if d.until <= now or alive(d.holder) is False]
    unconfirmed = any(c.expires_at is not None and c.expires_at <= now for c in census.claims)
    if claims or demands or unconfirmed:
        after = yield StoreCall(lambda: store.reclaim(claims, demands))
        yield from settle(store, after, observers)
    return len(claims) + len(demands) + unconfirmed


def _pass_on(store: Store, claim: Claim, heir: Heir, observers: Sequence[Observer]) -> Flow[bool]:
    """Let a lease pass to a command that works inside it still, if there is one."""
    to = heir(claim.id) if claim.held and here(claim.holder) else None
    if to is None:
        return False
    bound, after = yield StoreCall(
        lambda: store.rebind(claim.id, to, launcher_pid=to.pid, asked_at=claim.asked_at)
    )
    yield from settle(store, after, observers)
    return bool(bound)


def lives(claim: Claim, now: float) -> bool | None:
    """Does its holder still run? None where that cannot be known from here.

    Two machines may have one name. Then the other's processes look like those of an earlier boot of ours,
    but for the beats of its host, which say that they are looked after.
    """
    known = alive(claim.holder)
    heard = claim.confirmed_at is not None and now - claim.confirmed_at < HEARD_S
    return None if known is False and heard and not here(claim.holder) else known


def is_gone(claim: Claim, now: float) -> bool:
    """Dead; or, where that cannot be told from here, silent for longer than any work should take."""
    if not claim.holder.pid:
        # Asked for from afar: it ends with its own time.
        return False
    known = lives(claim, now)
    since = claim.granted_at if claim.granted_at is not None else claim.asked_at
    heard_at = max(since, claim.confirmed_at or since)
    return known is False or (known is None and now - heard_at > LEASE_BACKSTOP_S)


def settle(store: Store, after: AfterCommit, observers: Sequence[Observer]) -> Flow[None]:
    """What follows a committed step: wake the waiters it named, tell the observers."""
    for mailbox in after.notices:
        if mailbox:
            send(mailbox, LOOK)
    while True:
        gone = [wake for wake in after.wakes if not _deliver(wake)]
        _tell(observers, after.facts)
        if not gone:
            return
        # No process listens: that waiter is dead. Take the slot back and hand it on.
        dead = [(wake.claim_id, wake.holder) for wake in gone]
        after = yield StoreCall(lambda dead=dead: store.reclaim(dead))  # type: ignore[misc]


def _tell(observers: Sequence[Observer], facts: Sequence[Fact]) -> None:
    """An observer that fails is its own problem: it neither stops a hand-off nor hides a caller's error."""
    for fact in facts:
        for observer in observers:
            try:
                observer(fact)
            except Exception:
                tell_log("an observer failed on %r", fact, error=True)


def _deliver(wake: WakeUp) -> bool:
    """False only for a waiter that is certainly dead. One that cannot be reached but lives will look."""
    delivery = send(wake.mailbox, wake.claim_id) if wake.mailbox else Delivery.SENT
    if delivery in (Delivery.SENT, Delivery.FULL):
        return True
    # A closed socket says of a process in another pid namespace what its pid cannot.
    closed = delivery is Delivery.REFUSED and beside_us(wake.holder)
    if not closed and alive(wake.holder) is not False:
        return True
    discard(wake.mailbox)
    return False


def _refusal(verdict: Verdict) -> RefusedError:
    if verdict.reason is Reason.TOO_LARGE:
        return TooLargeError(verdict)
    return PoolClosedError(verdict) if verdict.reason in CLOSED_REASONS else AtCapacityError(verdict)
