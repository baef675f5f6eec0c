"""Leases of holders that have no process here: asked for over a network, under a key, with a time to live.

Whether such a holder lives cannot be looked up, so its ask and its lease end with their time unless they are
extended. The store does the rest in its one step: what was asked before under the same key is told again, and
a holder that stands in the way and is long gone is taken back by the ask itself (``stores/operations.py``).

    place     grant, stand in line (``park``), or refuse
    wait      until an ask in line became a lease; woken by the process that handed the slot over
    extend    go on for so long from now
    end       give the slots back
    sweep     what no request asks about: hand on what has expired, what time has freed, what the dead hold

A client proves that a lease is its own with the lease's token: the time at which it was asked for, and an
HMAC of that time and the claim's id under a secret that all servers of a store share. Nothing is kept per
lease, so a restart forgets none. Where a store gives an id out again, the old token is not the new lease's.

It serves one event loop, which goes on meanwhile. ``look``, ``extend`` and ``claim`` are single store calls,
which may block. A store call that was begun is always finished: cancelling never leaves one half done.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import struct
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import TypeVar

from flyball.core.pool.holder import Holder
from flyball.core.pool.model import Ask, Claim, Outcome
from flyball.core.pool.settings import CONFIRM_S
from flyball.core.pool.verdict import Reason, Verdict, one_line
from flyball.errors import StoreError
from flyball.governor import acquisition
from flyball.governor.flow_drivers import run_sync
from flyball.governor.governor import Governor
from flyball.governor.internals import internals
from flyball.governor.remote.batching import LoopBatcher
from flyball.governor.state_url import on_server
from flyball.host.off_loop import WorkerThreads
from flyball.host.process import alive
from flyball.stores.port import AfterCommit, Release, Store
from flyball.wake.inbox import Inbox, MailWaiter, Wake
from flyball.wake.mailbox import Box

AFAR = Holder("afar", "", 0, 0, 0)
"""Stands for every holder without a process: only time ends what it holds."""
SWEEP_S = 1.0
DEFAULT_TTL_S = 60.0
_STRANGER_NAP_S = 0.5
"""How often an ask is looked at whose mailbox belongs to another server, or to one that is gone."""
_THREADS = 4
_SECRET = "lease-secret"  # noqa: S105 (the name of the note, not what it says)
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteAsk:
    """What a remote client asks for."""

    pool: str
    project: str
    name: str
    slots: int = 1
    priority: int = 0
    model: str = ""
    cost: Mapping[str, float] = field(default_factory=dict)
    ttl_s: float = DEFAULT_TTL_S
    key: str = ""
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class WaitResult:
    """How a wait ended: the claim is a lease; or still an ask; or, with neither, gone."""

    held: bool
    claim: Claim | None = None
    """As it was seen last; None also for a lease of which we were told."""
    left: bool = False
    """The wait was given up before its end."""

    @property
    def gone(self) -> bool:
        return not self.held and self.claim is None and not self.left


class WaitSchedule:
    """When a wait goes on by itself: at its end; half-way through the life of its ask, to extend that; and
    often where another server gets its mail."""

    def __init__(self, clock: Callable[[], float], *, timeout_s: float, ttl_s: float | None) -> None:
        self._clock = clock
        self._ends_at = clock() + timeout_s
        self._extend_every_s = inf if ttl_s is None else ttl_s / 2
        self._extend_at = clock() + self._extend_every_s

    def is_over(self) -> bool:
        return self._clock() >= self._ends_at

    def sleep_s(self, *, woken_here: bool) -> float:
        """How long there is nothing to do unless it is woken."""
        left_s = min(self._ends_at, self._extend_at) - self._clock()
        return left_s if woken_here else min(left_s, _STRANGER_NAP_S)

    def take_extension(self) -> bool:
        """Has the ask to be extended now? Then the next time is counted from here.

        Once the wait is over, the ask is left to its time.
        """
        now = self._clock()
        if now < self._extend_at or now >= self._ends_at:
            return False
        self._extend_at = now + self._extend_every_s
        return True


class RemoteInbox(Inbox):
    """The inbox of a server. Used on its event loop only, but for ``waiting``."""

    def __init__(self, loop: asyncio.AbstractEventLoop, box: Box | None, leases: RemoteLeases) -> None:
        super().__init__(loop, box)
        self._leases = leases
        self.ended = False
        self._pools: dict[str, dict[int, int]] = {}
        """Per pool, how many wait for each claim."""

    def look_for_grants(self) -> None:
        self._leases.look_soon()

    def is_calling(self) -> bool:
        return self._leases.busy

    def waiting(self) -> dict[str, int]:
        """One claim for each pool that a request here waits for."""
        return {pool: claim_id for pool, claims in list(self._pools.items()) for claim_id in [*claims][:1]}

    @contextmanager
    def waiter_in(self, claim_id: int, pool: str) -> Iterator[MailWaiter]:
        """A waiter for the claim, for as long as the block runs."""
        with self.waiter(claim_id) as waiter:
            if self.ended:
                waiter.tell(Wake.LOOK)
            claims = self._pools.setdefault(pool, {})
            claims[claim_id] = claims.get(claim_id, 0) + 1
            try:
                yield waiter
            finally:
                claims[claim_id] -= 1
                if not claims[claim_id]:
                    del claims[claim_id]
                if not claims:
                    del self._pools[pool]

    def end(self) -> None:
        """Every wait ends, and every one that still comes."""
        self.ended = True
        self.tell_all(Wake.LOOK)


class RemoteLeases:
    """The governor for those without a process. ``run`` is its heartbeat on an event loop."""

    def __init__(self, governor: Governor) -> None:
        self._governor = governor
        # A file is written by one at a time: more threads would only get in each other's way.
        many = _THREADS if on_server(governor.address) else 1
        self._threads = WorkerThreads(many, "flyball-afar")
        self._steps = LoopBatcher(lambda: internals(governor).store, self._threads, governor.observers)
        self._keyed: hmac.HMAC | None = None
        self._reaped: dict[str, float] = {}
        self._lock = threading.Lock()
        self._inbox: RemoteInbox | None = None
        self._opening = asyncio.Lock()
        self._looking: asyncio.Task[None] | None = None

    @property
    def _store(self) -> Store:
        return internals(self._governor).store

    # -- single store calls ---------------------------------------------------------------------------

    def look(self, claim_id: int, *, asked_at: float | None = None) -> Verdict | None:
        """How an ask stands, in full; None if it is gone."""
        return self._settle_result(self._store.poll(claim_id, advance=False, asked_at=asked_at))

    def claim(self, claim_id: int) -> Claim | None:
        """The ask or the lease itself."""
        return self._store.claim(claim_id)

    def extend(self, claim_id: int, *, ttl_s: float, asked_at: float | None = None) -> bool:
        """Ask or lease go on for so long from now. False: it is gone."""
        return self._store.extend(claim_id, ttl_s=ttl_s, asked_at=asked_at)

    # -- whose it is --------------------------------------------------------------------------------

    def token(self, claim_id: int, asked_at: float, *, about: str = "") -> str:
        """What proves whose a claim is. ``about``: what else it vouches for."""
        at = struct.pack(">d", asked_at).hex()
        said = f"{claim_id}:{at}:{about}"
        # A copy of one that has the key: hmac.digest would let other threads in each time.
        made = self._mac().copy()
        made.update(said.encode())
        return at + urlsafe_b64encode(made.digest()).decode().rstrip("=")

    def vouched_at(self, claim_id: int, token: str, *, about: str = "") -> float | None:
        """When the claim was asked for whose token this is; None where it is not this claim's token."""
        try:
            (asked_at,) = struct.unpack(">d", bytes.fromhex(token[:16]))
        except (ValueError, struct.error):
            return None
        real = self.token(claim_id, asked_at, about=about)
        return asked_at if hmac.compare_digest(real.encode(), token.encode()) else None

    def _mac(self) -> hmac.HMAC:
        if self._keyed is None:
            secret = self._store.note(_SECRET, secrets.token_hex(32))
            self._keyed = hmac.new(secret.encode(), digestmod=hashlib.sha256)
        return self._keyed

    async def ready_async(self) -> None:
        """After this, tokens are made and checked without the store."""
        if self._keyed is None:
            await self.call(self._mac)

    # -- looking after those who cannot -------------------------------------------------------------

    def sweep(self) -> None:
        """Hand on what has expired, what time has freed, and what the dead hold, for the waiters here."""
        self._settle(self._store.reclaim([]))
        inbox = self._inbox
        for pool, claim_id in inbox.waiting().items() if inbox is not None else ():
            self._reap(pool)
            self._settle_result(self._store.poll(claim_id, advance=True))

    def _reap(self, pool: str) -> bool:
        """Take back what dead processes hold, looking once a second at most; whether there was anything."""
        now = time.monotonic()
        with self._lock:
            if not self._reap_due(pool):
                return False
            self._reaped = {name: at for name, at in self._reaped.items() if now - at < SWEEP_S}
            self._reaped[pool] = now
        if not any(alive(holder) is False for holder in self._store.holders(pool)):
            return False
        return bool(
            run_sync(
                acquisition.reap(
                    self._store, pool, self._governor.observers, heir=internals(self._governor).heir
                ),
                None,
            )
        )

    def _reap_due(self, pool: str) -> bool:
        return time.monotonic() - self._reaped.get(pool, float("-inf")) >= SWEEP_S

    def _settle_result(self, told: tuple[R, AfterCommit]) -> R:
        self._settle(told[1])
        return told[0]

    def _settle(self, after: AfterCommit) -> None:
        self._steps.settle(after)

    # -- for an event loop --------------------------------------------------------------------------

    async def call(self, run: Callable[[], R]) -> R:
        """Run one of the verbs in a thread, to its end."""
        return await self._threads.call(run)

    async def place_async(self, order: RemoteAsk, *, park: bool) -> Verdict:
        ask = _ask(order, (await self._open_inbox()).address if park else "")
        verdict = await self._steps.do(lambda: self._store.admit(ask, park=park))
        if (
            _hopeful(verdict)
            and self._reap_due(order.pool)
            and await self.call(partial(self._reap, order.pool))
        ):
            verdict = await self._steps.do(lambda: self._store.admit(ask, park=park))
        return verdict

    async def end_async(
        self,
        claim_id: int,
        outcome: Outcome = Outcome.FINISHED,
        *,
        words: str = "",
        asked_at: float | None = None,
    ) -> None:
        release = Release(claim_id, outcome, words=one_line(words), asked_at=asked_at)
        await self._steps.do(lambda: (None, self._store.release(release)))

    async def withdraw_async(self, claim_id: int, *, asked_at: float | None = None) -> None:
        await self._steps.do(lambda: (None, self._store.withdraw(claim_id, asked_at=asked_at)))

    async def extend_async(self, claim_id: int, *, ttl_s: float, asked_at: float | None = None) -> bool:
        return await self._steps.do(
            lambda: (self.extend(claim_id, ttl_s=ttl_s, asked_at=asked_at), AfterCommit())
        )

    async def claim_async(self, claim_id: int, *, asked_at: float | None = None) -> Claim | None:
        claim = await self._steps.do(lambda: (self.claim(claim_id), AfterCommit()))
        return claim if claim is not None and asked_at in (None, claim.asked_at) else None

    async def wait_async(
        self,
        claim_id: int,
        *,
        pool: str,
        timeout_s: float,
        ttl_s: float | None,
        mailbox: str | None = None,
        look_first: bool = False,
        left: asyncio.Future[None] | None = None,
        asked_at: float | None = None,
    ) -> WaitResult:
        """Until the ask is a lease, or for so long. Ends early when ``drain`` is called.

        ``ttl_s``: None to look on only. ``mailbox``: the ask's own, where another server may have placed it.
        ``look_first``: it was asked for before, and may be a lease by now, or gone. ``left``: done once no
        request waits for the answer any more.
        """
        inbox = await self._open_inbox()
        due = WaitSchedule(asyncio.get_running_loop().time, timeout_s=timeout_s, ttl_s=ttl_s)
        woken_here = mailbox in (None, inbox.address)
        with inbox.waiter_in(claim_id, pool) as waiter:
            if look_first:
                waiter.tell(Wake.LOOK)
            if left is not None:
                left.add_done_callback(lambda _: waiter.tell(Wake.LEFT))
            while True:
                told = await waiter.wait(due.sleep_s(woken_here=woken_here))
                if told is Wake.LEFT:
                    return WaitResult(held=False, left=True)
                if told is Wake.GRANTED:
                    result = WaitResult(held=True)
                    break
                last = due.is_over()
                if ttl_s is not None and told is None and due.take_extension():
                    await self.extend_async(claim_id, ttl_s=ttl_s, asked_at=asked_at)
                claim = await self.claim_async(claim_id, asked_at=asked_at)
                result = WaitResult(held=claim is not None and claim.held, claim=claim)
                if claim is None or claim.held or last or inbox.ended:
                    break
                # Asked for again elsewhere, it is woken there.
                woken_here = self.woken_here(claim)
            if result.held and ttl_s not in (None, CONFIRM_S):
                # What was handed over is kept for a fixed time, until its holder says how long it needs.
                await self.extend_async(claim_id, ttl_s=ttl_s, asked_at=asked_at)
            return result

    def woken_here(self, claim: Claim) -> bool:
        """Is an ask in line woken at this server? Not where it was asked for again at another one."""
        return self._inbox is not None and claim.mailbox == self._inbox.address

    async def _open_inbox(self) -> RemoteInbox:
        if self._inbox is None:
            async with self._opening:
                if self._inbox is None:
                    box = await self.call(internals(self._governor).open_box)
                    self._inbox = RemoteInbox(asyncio.get_running_loop(), box, self)
                    self._steps.inbox = self._inbox
        return self._inbox

    @property
    def busy(self) -> bool:
        """Is a step under way in a thread?"""
        return self._threads.busy > 0

    async def run(self, *, draining: Callable[[], bool] = lambda: False) -> None:
        """Sweep once a second until cancelled; an outage is told by the requests that meet it."""
        while True:
            await asyncio.sleep(SWEEP_S)
            if draining():
                self.drain()
            with suppress(StoreError):
                await self.call(self.sweep)
            await self._tell_granted()

    async def _tell_granted(self) -> None:
        """Wakes may be lost: one look for all that wait here."""
        inbox = self._inbox
        if inbox is not None and inbox.address and len(inbox):
            with suppress(StoreError):
                newest = inbox.newest
                granted = await self.call(partial(self._store.granted_ids, inbox.address))
                inbox.tell_waiting(granted, Wake.GRANTED, newest=newest)

    def look_soon(self) -> None:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._tell_granted())

    def drain(self) -> None:
        """Every wait ends now; the asks keep their places."""
        if self._inbox is not None:
            self._inbox.end()

    def close(self) -> None:
        if self._inbox is not None:
            self._inbox.close()
        self._threads.close()


def _hopeful(verdict: Verdict) -> bool:
    """Was it refused though it could be granted? Then it looks for dead holders first, as every ask does."""
    return not verdict.claim_id and verdict.reason not in (Reason.TOO_LARGE, Reason.KEY_USED)


def _ask(order: RemoteAsk, mailbox: str) -> Ask:
    return Ask(
        pool=order.pool,
        project=order.project,
        name=order.name,
        holder=AFAR,
        slots=order.slots,
        priority=order.priority,
        model=order.model,
        cost=order.cost,
        mailbox=mailbox,
        ttl_s=order.ttl_s,
        key=order.key,
        fingerprint=order.fingerprint,
    )
