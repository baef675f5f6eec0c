"""The governor: everything a program can ask of the state, in words.

Safe to share between threads, usable after a fork (the child's leases are its own), and from any number of
event loops. Opening is lazy; nothing is read or written before the first call.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from flyball.core.pool.model import Fact, Outcome
from flyball.core.pool.settings import (
    DEFAULT_POOL,
    DEMAND_TTL_S,
    MachineChanges,
    MachineSettings,
    PoolChanges,
    check_machine,
    check_timeout,
)
from flyball.core.pool.verdict import Verdict, granted_verdict, one_line
from flyball.core.signals import Signal
from flyball.governor import acquisition, inherited_lease
from flyball.governor.ask import AskRequest, ask_of, asking_for, default_project
from flyball.governor.drivers import aside, run_async, run_sync, running_loop, thread_mail
from flyball.governor.lease import Lease, OnKept, Slot, log_kept, release_of
from flyball.governor.loop_mailbox import LoopMailbox, LoopMailboxes
from flyball.governor.state_url import on_server, open_box, open_reader, open_store, resolve, shown
from flyball.host.fork import survive_forks
from flyball.host.process import identify, me
from flyball.stores.port import AfterCommit, AtHand, Release, Store

if TYPE_CHECKING:
    from typing import Unpack

    from flyball.core.pool.model import Holder
    from flyball.core.pool.plan import LearnedState
    from flyball.core.share_lease.renewal import Renewal, Reply
    from flyball.errors import StoreError
    from flyball.governor.ask import AskOptions
    from flyball.governor.heartbeat import Heartbeat
    from flyball.governor.share.share import Share, ShareOptions
    from flyball.governor.status import Status
    from flyball.stores.port import CountMismatch, Demand
    from flyball.wake.mailbox import Box


class Governor:
    """Bounds, shares and adapts how much runs at once.

    >>> gov = Governor("memory:")
    >>> with gov.slot("anthropic", project="blog", name="t-14") as lease:
    ...     lease.pool
    'anthropic'
    """

    def __init__(self, url: str | None = None, *, observers: Sequence[acquisition.Observer] = ()) -> None:
        self.address = resolve(url)
        self.observers = list(observers)
        self.place = shown(self.address)
        """The address for people: without credentials."""
        self.on_kept: OnKept = log_kept
        """Hears of a release that could not be written now, and why."""
        self._store: Store | None = None
        self._heart: Heartbeat | None = None
        self._lock = threading.Lock()
        self._loops = LoopMailboxes()
        survive_forks(self, rank=0)

    @property
    def store(self) -> Store:
        with self._lock:
            if self._store is None:
                self._store = open_store(self.address)
            return self._store

    def before_fork(self) -> None:
        self._lock.acquire()

    def after_fork_in_parent(self) -> None:
        self._lock.release()

    def after_fork_in_child(self) -> None:
        """The parent's event loops and their mailboxes are not ours."""
        self._lock = threading.Lock()
        self._loops = LoopMailboxes()
        self._heart = None

    def _keep(self, lease: Lease) -> Lease:
        """On a server somebody of this host has to show that the lease's holder lives."""
        if on_server(self.address) and not lease.nested:
            store = self.store
            with self._lock:
                if self._heart is None:
                    from flyball.governor import heartbeat, host_agent

                    self._heart = heartbeat.Heartbeat(
                        cast("heartbeat.HeldLease", store),
                        self.observers,
                        warden=lambda: host_agent.ensure(self.address),
                    )
                self._heart.keep(lease.pool)
        return lease

    # -- asking -----------------------------------------------------------------------------------

    def slot(
        self, pool: str = DEFAULT_POOL, *, timeout: float | None = None, **ask: Unpack[AskOptions]
    ) -> Slot:
        """A lease for a ``with`` or ``async with`` block; waits for it, at most ``timeout`` seconds."""
        return Slot(self, asking_for(pool, **ask), timeout)

    def acquire(
        self,
        pool: str = DEFAULT_POOL,
        *,
        timeout: float | None = None,
        on_wait: acquisition.OnWait | None = None,
        **ask: Unpack[AskOptions],
    ) -> Lease:
        """Wait for slots. ``on_wait`` hears the verdict at once and then every 30 seconds."""
        return self.acquire_asking(asking_for(pool, **ask), timeout=timeout, on_wait=on_wait)

    def acquire_nowait(self, pool: str = DEFAULT_POOL, **ask: Unpack[AskOptions]) -> Lease:
        """Slots now, or a RefusedError that says why not and when to come back."""
        return self.acquire_asking(asking_for(pool, **ask), wait=False)

    async def acquire_async(
        self,
        pool: str = DEFAULT_POOL,
        *,
        timeout: float | None = None,
        on_wait: acquisition.OnWait | None = None,
        **ask: Unpack[AskOptions],
    ) -> Lease:
        """``acquire`` for an event loop. Cancelling it leaves neither an ask nor a lease behind."""
        return await self.acquire_asking_async(asking_for(pool, **ask), timeout=timeout, on_wait=on_wait)

    async def acquire_nowait_async(self, pool: str = DEFAULT_POOL, **ask: Unpack[AskOptions]) -> Lease:
        """``acquire_nowait`` for an event loop, which goes on while the state is read and written."""
        return await self.acquire_asking_async(asking_for(pool, **ask), wait=False)

    def acquire_asking(
        self,
        asking: AskRequest,
        *,
        wait: bool = True,
        timeout: float | None = None,
        on_wait: acquisition.OnWait | None = None,
    ) -> Lease:
        check_timeout(timeout)
        held = self._inherited(asking)
        if held is not None:
            return held
        box = thread_mail.box(self.address, self.open_box) if wait else None
        ask = ask_of(asking, box.address if box else "")
        steps = acquisition.acquire(
            self.store, ask, wait=wait, timeout_s=timeout, on_wait=on_wait, observers=self.observers
        )
        return self._keep(Lease(self, asking, run_sync(steps, box)))

    async def acquire_asking_async(
        self,
        asking: AskRequest,
        *,
        wait: bool = True,
        timeout: float | None = None,
        on_wait: acquisition.OnWait | None = None,
    ) -> Lease:
        check_timeout(timeout)
        held = self._inherited(asking)
        if held is not None:
            return held
        mail = self._loop_mail()
        ask = ask_of(asking, mail.address if wait else "")
        store = self.store
        steps = acquisition.acquire(
            store, ask, wait=wait, timeout_s=timeout, on_wait=on_wait, observers=self.observers
        )

        def undo(verdict: Verdict) -> acquisition.Flow[StoreError | None]:
            what = Release(verdict.claim_id, Outcome.ABANDONED, asked_at=verdict.asked_at)
            return acquisition.release(store, what, self.observers)

        with mail:
            verdict = await run_async(steps, mail, undo)
        return self._keep(Lease(self, asking, verdict))

    def _inherited(self, asking: AskRequest) -> Lease | None:
        """The lease of an ``exec`` around us, if it is on this pool and still held."""
        claim_id = inherited_lease.inherited(self.address, asking.pool)
        claim = self.store.claim(claim_id) if claim_id is not None else None
        if claim is None or not claim.held or claim.pool != asking.pool:
            return None
        inherited_lease.check_fits(asking.slots, claim)
        return Lease(
            self, asking, granted_verdict(asking.pool, claim.id, asked_at=claim.asked_at), nested=True
        )

    def open_box(self) -> Box | None:
        """A mailbox that whoever works on this state can reach; None where none can be had."""
        return open_box(self.address, self.store)

    def _loop_mail(self) -> LoopMailbox:
        import asyncio

        loop, store = asyncio.get_running_loop(), self.store
        with self._lock:
            now = store.is_granted_now if isinstance(store, AtHand) else lambda _claim_id: False
            return self._loops.of(loop, lambda: open_box(self.address, store), store.granted_ids, now)

    # -- ending -----------------------------------------------------------------------------------

    def release(self, lease: Lease, outcome: Outcome | str = Outcome.FINISHED, *, words: str = "") -> None:
        """Give a lease back. A store that cannot be written now gets the release with the next call.

        ``words`` say how its work ended, for ``flyball why``.
        """
        lease.check_place(self)
        what = release_of(lease, outcome, words)
        if self._may_release(lease):
            self._say_kept(lease, run_sync(acquisition.release(self.store, what, self.observers), None))

    async def release_async(
        self, lease: Lease, outcome: Outcome | str = Outcome.FINISHED, *, words: str = ""
    ) -> None:
        """``release`` for an event loop."""
        lease.check_place(self)
        if running_loop() is None:
            # The loop was closed with the block in it: the collector ends it, and nothing can be awaited.
            aside(lambda: self.release(lease, outcome, words=words))
            return
        what = release_of(lease, outcome, words)
        if self._may_release(lease):
            steps = acquisition.release(self.store, what, self.observers)
            self._say_kept(lease, await run_async(steps, self._loop_mail()))

    def _may_release(self, lease: Lease) -> bool:
        # A forked child inherits the object, not the lease.
        if not lease.take_release() or lease.pid != os.getpid():
            return False
        if self._heart is not None:
            self._heart.let_go(lease.pool)
        return True

    def _say_kept(self, lease: Lease, error: StoreError | None) -> None:
        if error is not None:
            self.on_kept(lease, error)
            if self._heart is not None:
                self._heart.owe(lease.pool)

    def report(
        self,
        pool: str,
        signal: Signal,
        *,
        project: str = "",
        name: str = "",
        claim_id: int | None = None,
        first: bool = False,
        asked_at: float | None = None,
    ) -> None:
        """Tell a pool what the world said. ``first``: it answers the one call a lease was taken for.

        ``asked_at``: when that lease was asked for, on the store's clock.
        """
        self._settle(
            self.store.report(
                pool or DEFAULT_POOL,
                signal,
                project=project,
                name=name,
                claim_id=claim_id,
                first=first,
                asked_at=asked_at,
            )
        )

    # -- shares ---------------------------------------------------------------------------------------

    def share(self, pool: str = DEFAULT_POOL, /, **options: Unpack[ShareOptions]) -> Share:
        """Part of a pool for this process to subdivide by itself, as a ``with`` or ``async with`` block."""
        from flyball.governor.share.share import Share

        return Share(self, pool, **options)

    def renew(self, pool: str, renewal: Renewal) -> Reply:
        """Renew a share lease; whoever should renew because of it is told."""
        reply, after = self.store.renew(pool, renewal)
        self._settle(after)
        return reply

    def named_settings(self, pool: str) -> PoolChanges:
        """The settings of a pool that somebody named."""
        found = (seen for seen in self.store.snapshot().pools if seen.name == pool)
        return next((seen.named for seen in found), PoolChanges())

    # -- work that runs by itself -------------------------------------------------------------------

    def hold(
        self,
        pid: int,
        pool: str = DEFAULT_POOL,
        *,
        project: str | None = None,
        name: str | None = None,
        slots: int = 1,
        model: str = "",
    ) -> int:
        """Record an agent that already runs; it counts, even above the cap. Returns the lease's id."""
        asking = asking_for(pool, project=project, name=name or f"pid-{pid}", slots=slots, model=model)
        return self._hold(pid, asking)

    def _hold(self, pid: int, asking: AskRequest) -> int:
        # What it already used of the windows is not known, and was not reserved.
        claim_id, after = self.store.record_running(
            replace(ask_of(asking, ""), holder=identify(pid), cost={})
        )
        self._settle(after)
        return claim_id

    def take_over(self, pid: int, asking: AskRequest, claim_id: int) -> Lease:
        """The lease of an agent that outlived whoever launched it, to be released by us at its end.

        Where the store no longer knows it, the agent is recorded anew: it runs, so it counts.
        """
        claim = self.store.claim(claim_id) if claim_id else None
        if claim is None or not claim.held or claim.holder.pid != pid:
            claim_id = self._hold(pid, asking)
        return self._recorded(asking, claim_id)

    def rest(self, asking: AskRequest, *, for_s: float, why: str) -> Lease:
        """Show a run that waits out a limit: a lease of no slots, to be released when it goes on."""
        claim_id, after = self.store.pause(ask_of(asking, ""), for_s=for_s, why=one_line(why))
        self._settle(after)
        return self._recorded(asking, claim_id)

    def _recorded(self, asking: AskRequest, claim_id: int) -> Lease:
        """The lease of a claim that was not asked for, to be released by us."""
        claim = self.store.claim(claim_id)
        asked_at = claim.asked_at if claim is not None else 0.0
        return self._keep(Lease(self, asking, granted_verdict(asking.pool, claim_id, asked_at=asked_at)))

    def rebind(self, lease: Lease, pid: int) -> bool:
        """Tie a lease to the life of another process, such as the child it was taken for."""
        lease.check_place(self)
        bound, after = self.store.rebind(
            lease.id, identify(pid), launcher_pid=os.getpid(), asked_at=lease.verdict.asked_at
        )
        self._settle(after)
        return bound

    def demand(
        self, pool: str = DEFAULT_POOL, project: str | None = None, *, ttl_s: float = DEMAND_TTL_S
    ) -> None:
        """Announce ready work, so that fair sharing counts this project; ``ttl_s=0`` takes it back."""
        pool, project = pool or DEFAULT_POOL, project or default_project()
        self._settle(self.store.demand(pool, project, me(), ttl_s=ttl_s))

    def reap(self) -> int:
        """Take back what dead processes hold, in every pool; how many were found."""
        return run_sync(acquisition.bury(self.store, self.store.census(), self.observers), None)

    def bury(
        self, claims: Sequence[tuple[int, Holder]], demands: Sequence[Demand] = (), *, why: str = ""
    ) -> None:
        """Remove these claims, if they still belong to these holders, and these demands."""
        self._settle(self.store.reclaim(claims, demands, why=why))

    # -- settings and seeing ------------------------------------------------------------------------

    def set_pool(self, pool: str, **changes: Unpack[PoolChanges]) -> None:
        """Change exactly the named settings of a pool."""
        if changes:
            self._settle(self.store.set_pool(pool or DEFAULT_POOL, changes))

    def reset_pool(self, pool: str, *, settings: bool = False) -> None:
        """Forget what a pool learned; its leases stay. ``settings``: these are the defaults again, too."""
        self._settle(self.store.reset_pool(pool or DEFAULT_POOL, settings=settings))

    def remove_pool(self, pool: str) -> None:
        """Forget a pool, its settings and its history. What dead processes hold does not keep it."""
        self.reap()
        self._settle(self.store.remove_pool(pool))

    def import_pool(self, pool: str, changes: PoolChanges, memory: LearnedState) -> None:
        """Take over a pool's settings and what it learned from another governor."""
        self._settle(self.store.import_pool(pool, changes, memory))

    def recount(self) -> list[CountMismatch]:
        """Set every kept count to what the claims say; what was wrong (nothing, ever, is the plan)."""
        found, after = self.store.recount()
        self._settle(after)
        return found

    def set_machine(self, machine: MachineSettings) -> None:
        """Replace the machine-wide limits."""
        check_machine(machine)
        self._settle(self.store.set_machine(machine))

    def change_machine(self, **changes: Unpack[MachineChanges]) -> None:
        """Change exactly the named machine-wide limits; None turns one off."""
        if changes:
            self._settle(self.store.change_machine(changes))

    def status(self) -> Status:
        """Everything as it is now. Writes nothing, makes nothing, advances nothing."""
        from flyball.governor.status import status_from

        if self._store is not None:
            return status_from(self._store.snapshot(), self.place)
        reader = open_reader(self.address)
        try:
            return status_from(reader.snapshot(), self.place)
        finally:
            reader.close()

    def facts(self, limit: int = 100) -> list[Fact]:
        """What happened lately, newest first."""
        return self.store.facts(limit=limit)

    def close(self) -> None:
        """Let go of files. Leases that are still held stay held, and the next call opens what it needs."""
        with self._lock:
            if self._heart is not None:
                self._heart.close()
                self._heart = None
            if self._store is not None:
                self._store.close()
            # What is in memory is nowhere else.
            if self.address != "memory:":
                self._store = None
            # Last, so that waiters who look now see that it was closed.
            self._loops.close()

    def _settle(self, after: AfterCommit) -> None:
        run_sync(acquisition.settle(self.store, after, self.observers), None)
