"""What stands behind a ``Governor``: its store, and the leases of this process that are taken from it.

``Governor`` is what users call. flyball's other rooms need more: a store to read, leases of processes that
run already, the steps of ``exec`` and of the factory. They get it by ``internals(governor)``.

The way of an ask: ``acquire`` fills in an ``Ask`` and gives it to the store. Granted at once, as most are, it
becomes a ``Lease`` on the spot. Only one that has to wait, or whose grant has something to tell, goes on as a
flow (acquisition.py), which a driver runs (flow_drivers.py). A lease releases itself (lease.py).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, TypeGuard, cast

from flyball.core.pool.model import Outcome
from flyball.core.pool.settings import PoolChanges, check_timeout
from flyball.core.pool.verdict import Verdict, VerdictKind, granted_verdict, one_line
from flyball.core.server_url import redacted
from flyball.errors import StoreError, UsageError
from flyball.governor import acquisition, inherited_lease
from flyball.governor.ask import AskRequest, ask_of
from flyball.governor.flow_drivers import run_async, run_sync
from flyball.governor.lease import Lease, OnKept, log_kept
from flyball.governor.loop_mailbox import LoopMailbox, LoopMailboxes
from flyball.governor.state_url import mail_home, on_server, open_box, open_store, same_place
from flyball.host.event_loop import asyncio_loop
from flyball.host.fork import survive_forks
from flyball.host.process import identify
from flyball.stores.port import AfterCommit, AtHand, Release, Store

if TYPE_CHECKING:
    from flyball.core.pool.holder import Holder
    from flyball.core.pool.plan import LearnedState
    from flyball.core.provider.latency import LatencyTracker
    from flyball.core.share_lease.renewal import Renewal, Reply
    from flyball.core.signals import Signal
    from flyball.governor.account_windows import WindowTeller
    from flyball.governor.governor import Governor
    from flyball.governor.heartbeat import Heartbeat
    from flyball.governor.inherited_lease import OuterLease
    from flyball.stores.port import Demand
    from flyball.stores.recount import CountMismatch
    from flyball.wake.mailbox import Box


class ThreadMailbox(threading.local):
    """The mailbox of the current thread, opened when first needed and kept for the next wait."""

    def __init__(self) -> None:
        self._boxes: dict[str, Box | None] = {}
        self._pid = os.getpid()

    def box(self, address: str, open_box: Callable[[], Box | None]) -> Box | None:
        """The one for a place of state; ``open_box`` makes it."""
        pid = os.getpid()
        if self._pid != pid:
            # A forked child must not read its parent's mail.
            self._pid, self._boxes = pid, {}
        box = self._boxes.get(address)
        if box is None:
            box = self._boxes[address] = open_box()
        return box

    def close(self) -> None:
        """Before this process becomes another program: leave no socket file behind."""
        for box in self._boxes.values():
            if box is not None:
                box.close()
        self._boxes = {}


thread_mail = ThreadMailbox()


def internals(governor: Governor) -> Internals:
    """For flyball's own rooms; no promise is made about it to anyone else."""
    return governor._internals


@cache
def _has_at_hand(kind: type[Store]) -> bool:
    return issubclass(kind, AtHand)


def _is_at_hand(store: Store | None) -> TypeGuard[AtHand]:
    """Can it be asked without waiting? Each call of the gateway asks."""
    return store is not None and _has_at_hand(type(store))


class Internals:
    """Safe to share between threads, usable after a fork, and from any number of event loops."""

    def __init__(self, address: str, observers: list[acquisition.Observer]) -> None:
        self.address, self.observers = address, observers
        self.place = redacted(address)
        """The address for people: without credentials."""
        self.on_kept: OnKept = log_kept
        """Hears of a release that could not be written now, and why."""
        self._on_server = on_server(address)
        self._store: Store | None = None
        self._heart: Heartbeat | None = None
        self._windows: WindowTeller | None = None
        self._latency: LatencyTracker | None = None
        self._lock = threading.Lock()
        self._loops = LoopMailboxes()
        survive_forks(self, rank=0)

    @property
    def store(self) -> Store:
        """The store, opened with its first use."""
        with self._lock:
            if self._store is None:
                self._store = open_store(self.address)
            return self._store

    @property
    def opened(self) -> Store | None:
        """The store, if it is open."""
        return self._store

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

    def _before_fork(self) -> None:
        self._lock.acquire()

    def _after_fork_in_parent(self) -> None:
        self._lock.release()

    def _after_fork_in_child(self) -> None:
        """The parent's event loops and their mailboxes are not ours."""
        self._lock = threading.Lock()
        self._loops = LoopMailboxes()
        self._heart = self._windows = None

    def settle(self, after: AfterCommit) -> None:
        """Wake the waiters that a committed step named, and tell the observers."""
        run_sync(acquisition.settle(self.store, after, self.observers), None)

    # -- asking -----------------------------------------------------------------------------------

    def acquire(
        self,
        asking: AskRequest,
        *,
        wait: bool = True,
        timeout: float | None = None,
        on_wait: acquisition.OnWait | None = None,
    ) -> Lease:
        """A lease for this thread."""
        if timeout is not None:
            check_timeout(timeout)
        outer = self._outer_lease(asking) if inherited_lease.VARIABLE in os.environ else None
        if outer is not None and outer.try_ride(asking.slots):
            return self._riding_lease(asking, outer)
        box = thread_mail.box(self.address, self.open_box) if wait else None
        ask = ask_of(asking, box.address if box else "")
        store = self._store or self.store
        verdict, after = store.admit(ask, park=wait)
        if verdict.kind is not VerdictKind.GRANTED or after.wakes or after.facts or after.notices:
            steps = acquisition.acquire(
                store,
                ask,
                first=(verdict, after),
                wait=wait,
                timeout_s=timeout,
                on_wait=on_wait,
                observers=self.observers,
                heir=self.heir,
                try_ride=None if outer is None else partial(outer.try_ride, asking.slots),
            )
            try:
                verdict = run_sync(steps, box)
            except BaseException:
                if outer is not None:
                    outer.get_off()
                raise
            if outer is not None and outer.ride is not None:
                return self._riding_lease(asking, outer)
        if self._on_server:
            self.show_alive(asking.pool)
        return Lease(self, asking, verdict)

    async def acquire_async(
        self,
        asking: AskRequest,
        *,
        wait: bool = True,
        timeout: float | None = None,
        on_wait: acquisition.OnWait | None = None,
    ) -> Lease:
        """A lease for a task of the running loop."""
        check_timeout(timeout)
        outer = self._outer_lease(asking)
        if outer is not None and outer.try_ride(asking.slots):
            return self._riding_lease(asking, outer)
        mail = self.loop_mail()
        ask = ask_of(asking, mail.address if wait else "")
        store = self.store
        steps = acquisition.acquire(
            store,
            ask,
            wait=wait,
            timeout_s=timeout,
            on_wait=on_wait,
            observers=self.observers,
            heir=self.heir,
            try_ride=None if outer is None else partial(outer.try_ride, asking.slots),
        )

        def undo(verdict: Verdict) -> acquisition.Flow[StoreError | None]:
            # What rides has left the line already, and to leave it once more changes nothing.
            what = Release(verdict.claim_id, Outcome.ABANDONED, asked_at=verdict.asked_at)
            return acquisition.release(store, what, self.observers)

        try:
            with mail:
                verdict = await run_async(steps, mail, undo)
        except BaseException:
            if outer is not None:
                outer.get_off()
            raise
        if outer is not None and outer.ride is not None:
            return self._riding_lease(asking, outer)
        if self._on_server:
            self.show_alive(asking.pool)
        return Lease(self, asking, verdict)

    def acquire_at_once(self, asking: AskRequest) -> Lease | None:
        """A lease for a task of the running loop, where it can be had without waiting for anything."""
        store = self._store
        if inherited_lease.VARIABLE in os.environ or not _is_at_hand(store):
            return None
        verdict = store.grant_now(ask_of(asking, ""))
        return None if verdict is None else Lease(self, asking, verdict)

    def _outer_lease(self, asking: AskRequest) -> OuterLease | None:
        """The lease of an ``exec`` around us, if it is on this pool and still held."""
        around = map(self.store.claim, inherited_lease.inherited_ids(self.address))
        held = [claim for claim in around if claim is not None and claim.held]
        claim_id = inherited_lease.inherited_id(self.address, asking.pool)
        ours = (each for each in held if (each.id, each.pool) == (claim_id, asking.pool))
        claim = next((each for each in ours if inherited_lease.is_around_us(each.holder)), None)
        if claim is None:
            if held:
                ceiling = self.store.machine().ceiling
                inherited_lease.check_machine(asking.pool, asking.slots, held, ceiling)
            return None
        inherited_lease.check_fits(asking.slots, claim)
        return inherited_lease.outer_lease(self.address, asking.pool, claim, mail_home(self.address))

    def _riding_lease(self, asking: AskRequest, outer: OuterLease) -> Lease:
        verdict = granted_verdict(asking.pool, outer.claim.id, asked_at=outer.claim.asked_at)
        return Lease(self, asking, verdict, ride=outer.ride)

    def variable_value(self, lease: Lease) -> str:
        """What ``FLYBALL_LEASE`` is for a command that is started under this lease."""
        lease._passed_on = True
        return inherited_lease.variable_value(self.address, lease.pool, lease.id, ride=lease._ride)

    def ends_with(self, lease: Lease) -> bool:
        """Ends with this one what the store keeps? Not while a command inside it goes on, to which it passes;
        and what rides only ends its ride, unless the lease has passed to it."""
        ride = lease._ride
        if ride is not None:
            ride.end()
        try:
            if ride is not None and not ride.inherited(self.store.claim(lease.id)):
                return False
            heir = self.heir(lease.id)
            return heir is None or not self._bind(lease, heir, launcher_pid=heir.pid)
        except StoreError:
            # The release is kept then, and what goes on is not counted: the store forgot it, or will.
            return ride is None

    def heir(self, claim_id: int) -> Holder | None:
        """The process that a lease passes to whose holder has ended; None where none works inside it."""
        return inherited_lease.heir(self.address, claim_id, mail_home(self.address))

    def open_box(self) -> Box | None:
        """A mailbox that every process that works on this state can reach; None where none can be had."""
        return open_box(self.address, self.store)

    def loop_mail(self) -> LoopMailbox:
        """The mailbox of the running event loop."""

        loop, store = asyncio_loop(), self.store

        def open_mail() -> LoopMailbox:
            now = store.is_granted_now if isinstance(store, AtHand) else lambda _claim_id: False
            return LoopMailbox(loop, open_box(self.address, store), store.granted_ids, now)

        with self._lock:
            return self._loops.of(loop, open_mail)

    # -- holding and ending -----------------------------------------------------------------------

    def show_alive(self, pool: str) -> None:
        """A lease of this pool is held. On a server its host has to show that its holder lives."""
        if not self._on_server:
            return
        store = self.store
        with self._lock:
            if self._heart is None:
                from flyball.governor import heartbeat, host_agent

                self._heart = heartbeat.Heartbeat(
                    cast("heartbeat.SharedStore", store),
                    self.observers,
                    ensure_host_agent=lambda: host_agent.ensure(self.address),
                    heir=self.heir,
                )
            self._heart.keep(pool)

    def stop_showing(self, pool: str) -> None:
        """A lease of this pool is about to be released."""
        if self._heart is not None:
            self._heart.let_go(pool)

    def try_release(self, lease: Lease, outcome: Outcome) -> StoreError | None:
        """Release a lease whose holder can use it as long as the store is away.

        Where it is certain that nothing was written (not ``maybe_done``), it is still held.
        """
        what = lease._take_release(outcome, "")
        if what is None:
            return None
        try:
            after = self.store.release(what)
        except StoreError as error:
            if error.maybe_done:
                self.store.remember(what)
                self.say_kept(lease, error)
            else:
                lease._released = False
                self.show_alive(lease.pool)
            return error
        self.settle(after)
        return None

    def note_answer(self, lease: Lease, signal: Signal) -> None:
        """What the provider said under a lease, where the pool cannot be told because its store is away."""
        lease._take_in(signal, None, None)

    def say_kept(self, lease: Lease, error: StoreError) -> None:
        """The release of a lease could not be written now; the next step of the store takes it along."""
        self.on_kept(lease, error)
        if self._heart is not None:
            self._heart.owe(lease.pool)

    def check_lease(self, lease: Lease) -> None:
        """Its id means something else, or the slot of another holder, to a governor of other state."""
        giver = lease._internals
        if giver is not self and not same_place(giver.address, self.address):
            raise UsageError(
                f"{lease!r} is kept in {giver.place}, and this governor's state is {self.place}"
                f"{' of its own' if giver.place == self.place else ''}; use the governor that gave it"
            )

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
        after = self.store.report(
            pool, signal, project=project, name=name, claim_id=claim_id, first=first, asked_at=asked_at
        )
        self.settle(after)

    @property
    def latency(self) -> LatencyTracker:
        """How long the answers took that this process saw, by pool."""
        with self._lock:
            if self._latency is None:
                from flyball.core.provider.latency import LatencyTracker

                self._latency = LatencyTracker()
            return self._latency

    @property
    def windows(self) -> WindowTeller:
        """Tells pools what answers say about the usage windows of accounts."""
        with self._lock:
            if self._windows is None:
                from flyball.governor.account_windows import WindowTeller

                self._windows = WindowTeller(self.report, lambda: self.store)
            return self._windows

    # -- work that runs by itself -----------------------------------------------------------------

    def hold(self, pid: int, asking: AskRequest) -> int:
        """Record a process that already runs; it counts, even above the cap. Returns the lease's id."""
        # What it already used of the windows is not known, and was not reserved.
        claim_id, after = self.store.record_running(
            replace(ask_of(asking, ""), holder=identify(pid), cost={})
        )
        self.settle(after)
        return claim_id

    def take_over(self, pid: int, asking: AskRequest, claim_id: int) -> Lease:
        """The lease of an agent that outlived its launcher, to be released by us at its end.

        Where the store no longer knows it, the agent is recorded anew: it runs, so it counts.
        """
        claim = self.store.claim(claim_id) if claim_id else None
        if claim is None or not claim.held or claim.holder.pid != pid:
            claim_id = self.hold(pid, asking)
        return self._recorded_lease(asking, claim_id)

    def rest(self, asking: AskRequest, *, for_s: float, why: str) -> Lease:
        """Show a run that waits out a limit: a lease of no slots, to be released when it goes on."""
        claim_id, after = self.store.pause(ask_of(asking, ""), for_s=for_s, why=one_line(why))
        self.settle(after)
        return self._recorded_lease(asking, claim_id)

    def _recorded_lease(self, asking: AskRequest, claim_id: int) -> Lease:
        """The lease of a claim that was not asked for, to be released by us."""
        claim = self.store.claim(claim_id)
        asked_at = claim.asked_at if claim is not None else 0.0
        self.show_alive(asking.pool)
        return Lease(self, asking, granted_verdict(asking.pool, claim_id, asked_at=asked_at))

    def rebind(self, lease: Lease, pid: int) -> bool:
        """Tie a lease to the life of another process, such as the child it was taken for."""
        self.check_lease(lease)
        if lease._ride is not None:
            lease._ride.pass_to(pid)
            return True
        return self._bind(lease, identify(pid), launcher_pid=os.getpid())

    def _bind(self, lease: Lease, holder: Holder, *, launcher_pid: int) -> bool:
        asked_at = lease.verdict.asked_at
        bound, after = self.store.rebind(lease.id, holder, launcher_pid=launcher_pid, asked_at=asked_at)
        self.settle(after)
        return bound

    def reclaim(
        self, claims: Sequence[tuple[int, Holder]], demands: Sequence[Demand] = (), *, why: str = ""
    ) -> None:
        """Remove these claims, if they still belong to these holders, and these demands."""
        self.settle(self.store.reclaim(claims, demands, why=why))

    # -- pools ------------------------------------------------------------------------------------

    def renew(self, pool: str, renewal: Renewal) -> Reply:
        """Renew a share lease; the holders that should renew because of it are told."""
        reply, after = self.store.renew(pool, renewal)
        self.settle(after)
        return reply

    def named_settings(self, pool: str) -> PoolChanges:
        """The settings of a pool that a person named."""
        return self.store.named_settings().get(pool, PoolChanges())

    def import_pool(self, pool: str, changes: PoolChanges, memory: LearnedState) -> None:
        """Take over a pool's settings and what it learned from another governor."""
        self.settle(self.store.import_pool(pool, changes, memory))

    def recount(self) -> list[CountMismatch]:
        """Set every kept count to what the claims say; what was wrong (nothing, ever, is the plan)."""
        found, after = self.store.recount()
        self.settle(after)
        return found
