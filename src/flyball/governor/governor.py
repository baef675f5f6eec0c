"""The governor: everything a program can ask of the state, in words.

Safe to share between threads, usable after a fork (the child's leases are its own), and from any number of
event loops. Opening is lazy; nothing is read or written before the first call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flyball.core.pool.model import Fact, Outcome
from flyball.core.pool.settings import (
    DEFAULT_POOL,
    DEMAND_TTL_S,
    MachineChanges,
    MachineSettings,
    PoolChanges,
    check_machine,
)
from flyball.core.signals import Signal
from flyball.governor import acquisition
from flyball.governor.acquisition import Observer, OnWait
from flyball.governor.ask import asking_for, default_project
from flyball.governor.flow_drivers import run_sync
from flyball.governor.internals import Internals
from flyball.governor.lease import Lease, Slot
from flyball.governor.state_url import open_reader, resolve
from flyball.host.process import me

if TYPE_CHECKING:
    from typing import Unpack

    from flyball.governor.ask import AskOptions
    from flyball.governor.share.share import Share, ShareOptions
    from flyball.governor.status import Status


class Governor:
    """Bounds, shares and adapts how much runs at once.

    >>> gov = Governor("memory:")
    >>> with gov.slot("anthropic", project="blog", name="t-14") as lease:
    ...     lease.pool
    'anthropic'
    """

    def __init__(self, url: str | None = None, *, observers: Sequence[Observer] = ()) -> None:
        self.address = resolve(url)
        self.observers = list(observers)
        self._internals = Internals(self.address, self.observers)
        self.place = self._internals.place
        """The address for people: without credentials."""

    # -- asking -----------------------------------------------------------------------------------

    def slot(
        self, pool: str = DEFAULT_POOL, *, timeout: float | None = None, **ask: Unpack[AskOptions]
    ) -> Slot:
        """A lease for a ``with`` or ``async with`` block; waits for it, at most ``timeout`` seconds."""
        return Slot(self._internals, asking_for(pool, **ask), timeout)

    def acquire(
        self,
        pool: str = DEFAULT_POOL,
        *,
        timeout: float | None = None,
        on_wait: OnWait | None = None,
        **ask: Unpack[AskOptions],
    ) -> Lease:
        """Wait for slots. ``on_wait`` hears the verdict at once and then every 30 seconds."""
        return self._internals.acquire(asking_for(pool, **ask), timeout=timeout, on_wait=on_wait)

    def acquire_nowait(self, pool: str = DEFAULT_POOL, **ask: Unpack[AskOptions]) -> Lease:
        """Slots now, or a RefusedError that says why not and when to come back."""
        return self._internals.acquire(asking_for(pool, **ask), wait=False)

    async def acquire_async(
        self,
        pool: str = DEFAULT_POOL,
        *,
        timeout: float | None = None,
        on_wait: OnWait | None = None,
        **ask: Unpack[AskOptions],
    ) -> Lease:
        """``acquire`` for an event loop. Cancelling it leaves neither an ask nor a lease behind."""
        return await self._internals.acquire_async(asking_for(pool, **ask), timeout=timeout, on_wait=on_wait)

    async def acquire_nowait_async(self, pool: str = DEFAULT_POOL, **ask: Unpack[AskOptions]) -> Lease:
        """``acquire_nowait`` for an event loop, which goes on while the state is read and written."""
        return await self._internals.acquire_async(asking_for(pool, **ask), wait=False)

    # -- ending -----------------------------------------------------------------------------------

    def release(self, lease: Lease, outcome: Outcome | str = Outcome.FINISHED, *, words: str = "") -> None:
        """Give a lease back. A store that cannot be written now gets the release with the next call.

        ``words`` say how its work ended, for ``flyball why``.
        """
        self._internals.check_lease(lease)
        lease.release(outcome, words=words)

    async def release_async(
        self, lease: Lease, outcome: Outcome | str = Outcome.FINISHED, *, words: str = ""
    ) -> None:
        """``release`` for an event loop."""
        self._internals.check_lease(lease)
        await lease._release_async(outcome, words)

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
        self._internals.report(
            pool or DEFAULT_POOL,
            signal,
            project=project,
            name=name,
            claim_id=claim_id,
            first=first,
            asked_at=asked_at,
        )

    # -- shares ---------------------------------------------------------------------------------------

    def share(self, pool: str = DEFAULT_POOL, /, **options: Unpack[ShareOptions]) -> Share:
        """Part of a pool for this process to subdivide by itself, as a ``with`` or ``async with`` block."""
        from flyball.governor.share.share import Share

        return Share(self, pool, **options)

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
        return self._internals.hold(pid, asking)

    def demand(
        self, pool: str = DEFAULT_POOL, project: str | None = None, *, ttl_s: float = DEMAND_TTL_S
    ) -> None:
        """Announce ready work, so that fair sharing counts this project; ``ttl_s=0`` takes it back."""
        pool, project = pool or DEFAULT_POOL, project or default_project()
        behind = self._internals
        behind.settle(behind.store.demand(pool, project, me(), ttl_s=ttl_s))

    def reap(self) -> int:
        """Take back what dead processes hold, in every pool; how many were found."""
        behind = self._internals
        steps = acquisition.reclaim(behind.store, behind.store.census(), self.observers, heir=behind.heir)
        return run_sync(steps, None)

    # -- settings and seeing ------------------------------------------------------------------------

    def set_pool(self, pool: str, **changes: Unpack[PoolChanges]) -> None:
        """Change exactly the named settings of a pool."""
        if changes:
            behind = self._internals
            behind.settle(behind.store.set_pool(pool or DEFAULT_POOL, changes))

    def reset_pool(self, pool: str, *, settings: bool = False) -> None:
        """Forget what a pool learned; its leases stay. ``settings``: these are the defaults again, too."""
        behind = self._internals
        behind.settle(behind.store.reset_pool(pool or DEFAULT_POOL, settings=settings))

    def remove_pool(self, pool: str) -> None:
        """Forget a pool, its settings and its history. What dead processes hold does not keep it."""
        self.reap()
        behind = self._internals
        behind.settle(behind.store.remove_pool(pool))

    def set_machine(self, machine: MachineSettings) -> None:
        """Replace the machine-wide limits."""
        check_machine(machine)
        behind = self._internals
        behind.settle(behind.store.set_machine(machine))

    def change_machine(self, **changes: Unpack[MachineChanges]) -> None:
        """Change exactly the named machine-wide limits; None turns one off."""
        if changes:
            behind = self._internals
            behind.settle(behind.store.change_machine(changes))

    def status(self) -> Status:
        """Everything as it is now. Writes nothing, makes nothing, advances nothing."""
        from flyball.governor.status import status_from

        if self._internals.opened is not None:
            return status_from(self._internals.opened.snapshot(), self.place)
        reader = open_reader(self.address)
        try:
            return status_from(reader.snapshot(), self.place)
        finally:
            reader.close()

    def facts(self, limit: int = 100) -> list[Fact]:
        """What happened lately, newest first."""
        return self._internals.store.facts(limit=limit)

    def close(self) -> None:
        """Let go of files. Leases that are still held stay held, and the next call opens what it needs."""
        self._internals.close()
