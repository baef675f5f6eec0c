"""The limiter: adaptive concurrency inside one process, for threads and event loops alike.

It holds a local pool (the plan that also governs pools, with plain attributes for rows) behind an admission
queue. What a controller believes is one thing, what a person allows is another: ``maximum`` is checked where
slots are handed out, whatever the controller says.

For processes that share a limit there is ``flyball.slot``; each process has limiters of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from flyball.core.pool.local_pool import LocalPool
from flyball.core.pool.model import Fact
from flyball.core.pool.setting_table import merge_changes, resolve_pool
from flyball.core.pool.settings import PoolChanges, PoolSettings, check_name
from flyball.errors import UsageError
from flyball.governor.limiter.admission_queue import AdmissionQueue
from flyball.governor.limiter.call_slot import SlotMethods
from flyball.host.fork import survive_forks

if TYPE_CHECKING:
    from typing import Unpack

    from flyball.governor.limiter.admission_queue import AdmissionQueue


_OF_POOLS = frozenset(
    {"share", "rotation_s", "weights", "maxima", "reserve"}
    | {"heartbeat_s", "grace_s", "allotment", "estimates"}
)


def check_maximum(maximum: int | None) -> int | None:
    return _check_whole("maximum", maximum, least=1)


def _check_whole(what: str, given: int | None, *, least: int) -> int | None:
    whole: object = given
    if whole is not None and (not isinstance(whole, int) or isinstance(whole, bool) or whole < least):
        raise UsageError(f"{what} must be a whole number from {least} up, or None; not {given!r}")
    return given


def check_settings(changes: PoolChanges, settings: PoolSettings) -> None:
    """Refuse what a limiter with these settings would silently ignore."""
    useless = sorted(_OF_POOLS & changes.keys())
    if useless:
        raise UsageError(f"{useless[0]} is for pools that projects share; a limiter has none")
    if changes.get("spacing_s") and not settings.adapts:
        raise UsageError("spacing_s is for a cap that adapts; this one is fixed")


@dataclass(frozen=True, slots=True)
class WindowStats:
    name: str
    limit: float
    left: float
    source: str
    """Declared by a person, reported by the provider's headers, or estimated from refusals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimiterStats:
    """A limiter at one moment. ``record`` is the same for JSON.

    Not a ``PoolStatus``: a limiter has no leases, projects or holders, and reading it touches no store.
    """

    name: str
    profile: str
    controller: str
    in_use: int
    cap: int
    """What may run at once now: the controller's cap, within the maximum."""
    cap_ceiling: int
    maximum: int | None
    waiting: int
    max_waiting: int | None
    """More than these do not wait: they are refused at once. None: the line has no end."""
    phase: str
    """Of the breaker: closed (all is well), open, or trial."""
    closed_for_s: float | None
    """How long no call may start yet; None while it is open."""
    hold_mean_s: float
    successes: int
    throttles: int
    last_throttle_age_s: float | None
    retries_left: int
    windows: tuple[WindowStats, ...]

    @classmethod
    def _from_queue(cls, queue: AdmissionQueue) -> LimiterStats:
        with queue.lock:
            pool, now = queue.pool, queue.clock()
            limits, learned, s = pool.limits, pool.memory.cap, pool.settings
            closed_s = 0.0 if limits.closed_until is None else limits.closed_until - now
            throttled_at = learned.last_throttle_at
            return cls(
                name=pool.name,
                profile=s.profile,
                controller=s.controller,
                in_use=queue.in_hands,
                cap=limits.cap if queue.maximum is None else min(limits.cap, queue.maximum),
                cap_ceiling=limits.ceiling,
                maximum=queue.maximum,
                waiting=queue.line.length,
                max_waiting=queue.max_waiting,
                phase=limits.phase.value,
                closed_for_s=closed_s if closed_s > 0 else None,
                hold_mean_s=pool.meters.hold_mean_s,
                successes=queue.successes,
                throttles=learned.throttle_count,
                last_throttle_age_s=None if throttled_at is None else now - throttled_at,
                retries_left=queue.retries_left(now),
                windows=tuple(
                    WindowStats(window.name, window.limit, window.level_at(now), window.source.value)
                    for window in pool.windows
                ),
            )

    def record(self) -> dict[str, Any]:
        """The same as a dictionary, for JSON."""
        return asdict(self)


class Limiter(SlotMethods):
    """Bounds how many calls run at once, and finds out how many that should be.

    >>> limiter = Limiter(maximum=20)
    >>> with limiter.slot() as slot:
    ...     slot.report(200).kind.value
    'ok'
    >>> limiter.run(lambda: (429, {"Retry-After": "2"}, ""))[0]
    429
    >>> limiter.stats().throttles
    1
    """

    def __init__(
        self,
        *,
        maximum: int | None = None,
        max_waiting: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        name: str = "limiter",
        **settings: Unpack[PoolChanges],
    ) -> None:
        """``maximum`` is the most that ever runs at once, whatever is learned; None: the cap's own ceiling.

        The settings are a pool's, of the profile ``calls`` if none is named. ``controller`` chooses how the
        cap moves. ``windows`` are budgets over time that were promised: ``{"requests": "60/min"}``; those
        that a provider's headers name are found without.

        ``max_waiting`` bounds the line: a call that would be one too many to wait is refused at once with a
        ``RefusedError`` whose ``reason`` is ``line-full``. None: as many wait as come.
        """
        check_maximum(maximum)
        _check_whole("max_waiting", max_waiting, least=0)
        self._changes: PoolChanges = {"profile": "calls", **settings}
        resolved, now = self._resolve(self._changes, maximum), clock()
        check_settings(settings, resolved)
        pool = LocalPool(resolved, now, name=check_name("limiter", name))
        self._queue = AdmissionQueue(pool, clock, maximum, max_waiting)
        survive_forks(self)

    @staticmethod
    def _resolve(changes: PoolChanges, maximum: int | None) -> PoolSettings:
        if maximum is not None and "cap_ceiling" not in changes:
            # A person who names the most wants it reached, not the profile's own ceiling.
            changes = {**changes, "cap_ceiling": max(maximum, resolve_pool(changes).cap)}
        return resolve_pool(changes)

    def set(self, *, maximum: int | None = None, **changes: Unpack[PoolChanges]) -> None:
        """Change settings while calls run and wait. What is not named stays; running calls go on."""
        most = check_maximum(maximum) if maximum is not None else self._queue.maximum
        changed = merge_changes(self._changes, changes)
        settings = self._resolve(changed, most)
        check_settings(changes, settings)
        self._queue.change(
            settings, maximum=most, max_waiting=self._queue.max_waiting, reseed="cap" in changes
        )
        self._changes = changed

    def tune(
        self,
        *,
        maximum: int | None = None,
        minimum: int | None = None,
        max_waiting: int | None = None,
    ) -> None:
        """Move the bounds of a limiter while calls run and wait. What is not named stays.

        Where ``maximum`` grows, waiters that fit start at once. Where it shrinks nothing is interrupted:
        calls that are too many finish, and no other starts until then. ``minimum`` is the least that the cap
        falls to, and a cap below it rises at once. A shorter line refuses those who come, not those who wait.

        >>> limiter = Limiter(maximum=1, max_waiting=0)
        >>> limiter.tune(maximum=8, minimum=4)
        >>> limiter.stats().cap, limiter.stats().maximum, limiter.stats().max_waiting
        (4, 8, 0)
        """
        queue = self._queue
        most = queue.maximum if maximum is None else check_maximum(maximum)
        line = queue.max_waiting if max_waiting is None else _check_whole("max_waiting", max_waiting, least=0)
        changed = self._changes if minimum is None else self._with_floor(minimum, most)
        queue.change(self._resolve(changed, most), maximum=most, max_waiting=line, reseed=False)
        self._changes = changed

    def _with_floor(self, minimum: int, maximum: int | None) -> PoolChanges:
        now = resolve_pool(self._changes)
        if not now.adapts:
            raise UsageError("minimum is for a cap that adapts; this one is fixed: limiter.set(cap=...)")
        if maximum is not None and minimum > maximum:
            raise UsageError(f"minimum {minimum} is above maximum {maximum}")
        changes: PoolChanges = {"cap_floor": minimum}
        if minimum > now.cap:
            changes["cap"] = minimum  # where a cap would start; the one that was learned goes on
        return merge_changes(self._changes, changes)

    def _look(self) -> None:
        """Look at the clock now. Only tests with a clock of their own, which stands still, need it."""
        self._queue.serve()

    def stats(self) -> LimiterStats:
        """What is happening now. Reading changes nothing."""
        return LimiterStats._from_queue(self._queue)

    @property
    def facts(self) -> tuple[Fact, ...]:
        """What happened to the cap and the breaker lately, oldest first."""
        return tuple(self._queue.facts)

    def __repr__(self) -> str:
        now = self.stats()
        return f"<Limiter {now.name!r} {now.in_use}/{now.cap}, {now.waiting} waiting>"

    # -- forking ----------------------------------------------------------------------------------

    def _before_fork(self) -> None:
        self._queue.lock.acquire()

    def _after_fork_in_parent(self) -> None:
        self._queue.lock.release()

    def _after_fork_in_child(self) -> None:
        """Slots and waiters are the parent's; what it learned stays."""
        left = self._queue
        left.lock.release()
        self._queue = left.copy_for_child()
