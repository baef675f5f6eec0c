"""The limiter: adaptive concurrency inside one process, for threads and event loops alike.

It holds a gate (the plan that also governs pools, with plain attributes for rows) behind a turnstile. What
a controller believes is one thing, what a person allows is another: ``maximum`` is checked where slots are
handed out, whatever the controller says.

For processes that share a limit there is ``flyball.slot``; each process has limiters of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from flyball.core.gate import Gate
from flyball.core.model import Fact
from flyball.core.settings import PoolChanges, check_name, merge_changes, resolve_pool
from flyball.governor.calls import Calls, Cost
from flyball.governor.callslot import CallSlot
from flyball.governor.limiter_terms import LimiterStats, check_maximum, check_settings
from flyball.governor.turnstile import Turnstile
from flyball.host.fork import survive_forks

if TYPE_CHECKING:
    from typing import Unpack


class Limiter(Calls):
    """Bounds how many calls run at once, and finds out how many that should be.

    >>> limiter = Limiter(maximum=20)
    >>> with limiter.slot() as slot:
    ...     slot.report(200).kind.value
    'ok'
    >>> limiter.run_sync(lambda: (429, {"Retry-After": "2"}, ""))[0]
    429
    >>> limiter.stats().closed_for_s > 1
    True
    """

    def __init__(
        self,
        *,
        maximum: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        name: str = "limiter",
        **settings: Unpack[PoolChanges],
    ) -> None:
        """``maximum`` is the most that ever runs at once, whatever is learned; None: the cap's own ceiling.

        The settings are a pool's, of the profile ``calls`` if none is named. ``controller`` chooses how the
        cap moves. ``windows`` are budgets over time that were promised: ``{"requests": "60/min"}``; those
        that a provider's headers name are found without.
        """
        check_maximum(maximum)
        self._changes: PoolChanges = {"profile": "calls", **settings}
        if maximum is not None and "cap_ceiling" not in settings:
            # A person who names the most wants it reached, not the profile's own ceiling.
            self._changes["cap_ceiling"] = max(maximum, resolve_pool(self._changes).cap)
        pool, now = resolve_pool(self._changes), clock()
        check_settings(settings, pool)
        gate = Gate(pool, now, name=check_name("limiter", name))
        self._desk = Turnstile(gate, clock, check_maximum(maximum))
        survive_forks(self)

    # -- one call ---------------------------------------------------------------------------------

    def acquire(
        self, priority: int = 0, cost: Cost | None = None, timeout: float | None = None
    ) -> Coroutine[Any, Any, CallSlot]:
        """Wait for a slot in an event loop. Cancelling it leaves nothing behind."""
        return self.slot(priority, cost, timeout).__aenter__()

    def acquire_sync(
        self, priority: int = 0, cost: Cost | None = None, timeout: float | None = None
    ) -> CallSlot:
        """Wait for a slot in a thread."""
        return self.slot(priority, cost, timeout).__enter__()

    def acquire_nowait(self, cost: Cost | None = None) -> CallSlot:
        """A slot now, or a RefusedError that says why not."""
        return self.slot(0, cost).enter_nowait()

    # -- everything at once -----------------------------------------------------------------------

    def set(self, *, maximum: int | None = None, **changes: Unpack[PoolChanges]) -> None:
        """Change settings while calls run and wait. What is not named stays; running calls go on."""
        changed = merge_changes(self._changes, changes)
        check_settings(changes, resolve_pool(changed))
        most = check_maximum(maximum) if maximum is not None else self._desk.maximum
        self._desk.change(resolve_pool(changed), maximum=most, reseed="cap" in changes)
        self._changes = changed

    def look(self) -> None:
        """Look at the clock now. Only tests with a clock of their own need it: nobody else's stands still."""
        self._desk.look()

    def stats(self) -> LimiterStats:
        """What is happening now. Reading changes nothing."""
        return LimiterStats.of(self._desk)

    @property
    def facts(self) -> tuple[Fact, ...]:
        """What happened to the cap and the breaker lately, oldest first."""
        return tuple(self._desk.facts)

    def __repr__(self) -> str:
        now = self.stats()
        return f"<Limiter {now.name!r} {now.in_use}/{now.cap}, {now.waiting} waiting>"

    # -- forking ----------------------------------------------------------------------------------

    def before_fork(self) -> None:
        self._desk.lock.acquire()

    def after_fork_in_parent(self) -> None:
        self._desk.lock.release()

    def after_fork_in_child(self) -> None:
        """Slots and waiters are the parent's; what it learned stays."""
        left = self._desk
        left.lock.release()
        self._desk = left.heir()
