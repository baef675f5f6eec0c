"""The slots of the gateway's calls: from the store, and from call to call while the store is away.

While the store answers, each call asks it for a lease and releases it, and the store says who is next. A
store that is away takes no lease back, so the slot of a call that has ended is still this process's own. It
is kept, and the next call of the pool that waits here goes out on that very lease:

    the store answers    ask -> lease -> call -> release
    it is away           wait here -> the lease of a call that ended -> call -> kept for the next

What is in flight is never more than what was held when the outage began. With the store's first answer all
that is kept is released, and the calls that wait ask the store.

A lease whose release was sent to a server and not answered may be gone. It is out of use until the server
answers: one at most, since steps are taken one after the other, and those that were not begun are taken back.

In an outage the line is here: the highest priority, then the neediest project, then by turns, then arrival,
as in the pool's own (``core/pool/fairness.py``). How long the provider said to stay away is heeded; what else
the answers say does not reach the pool.

A store on a server may give a lease to others a day after it last heard of its host (``LEASE_BACKSTOP_S``).
Long before that no lease is handed on.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from types import TracebackType

from flyball.core.pool.fairness import rank_asks, start_of_turn
from flyball.core.pool.model import Candidate, Outcome, ProjectUse
from flyball.core.pool.settings import LEASE_BACKSTOP_S, PoolSettings
from flyball.core.signals import REJECTIONS, Signal, SignalKind
from flyball.errors import StoreBusyError, StoreError, StoreUnreadableError, UsageError
from flyball.gateway.store_health import PATIENCE_S, StoreHealth
from flyball.governor.ask import AskRequest
from flyball.governor.flow_drivers import store_threads
from flyball.governor.governor import Governor
from flyball.governor.internals import internals
from flyball.governor.lease import Lease, outcome_of
from flyball.host.off_loop import UncancellableFuture

HANDED_ON_S = LEASE_BACKSTOP_S / 2
REFUSED_S = 1.0
"""So long a refusal that names no time keeps leases from being handed on."""
LATE_S = 1.0
"""So long the line's own word on a wait that is over may take."""
_REQUESTS = "requests"
_LOOP_ONLY = "the slots of calls are for the event loop of their gateway"


@dataclass(slots=True)
class HeldLease:
    """A lease, and the calls that went out on it."""

    lease: Lease
    used: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    outcome: Outcome = Outcome.FINISHED

    def settle(self, used: Mapping[str, float]) -> None:
        for name, amount in used.items():
            self.used[name] += amount
        self.lease.settle(**self.used)

    def hand_on(self) -> None:
        """One more request, where one was asked for."""
        self.settle({_REQUESTS: 1 if self.used[_REQUESTS] else 2})


@dataclass(slots=True, eq=False)
class _WaitingCall:
    number: int
    project: str
    priority: int
    handed: asyncio.Future[HeldLease]


@dataclass(slots=True)
class _PoolCalls:
    """The calls of one pool in this process."""

    waiting: list[_WaitingCall] = field(default_factory=list)
    in_flight: Counter[str] = field(default_factory=Counter)
    """How many calls of each project are in flight."""
    kept: list[HeldLease] = field(default_factory=list)
    turn: float = 0.0
    turns: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Where the hand-out stands, and when it is each project's turn again."""
    closed_until: float = 0.0
    """The provider said to stay away until then, on the loop's clock."""


@dataclass(slots=True)
class _PendingRelease:
    """A release on its way to the store."""

    pool: str
    held: HeldLease
    ended: UncancellableFuture[None]


class CallSlots:
    """Used from one event loop only. ``weights``: of the projects of a pool."""

    def __init__(self, governor: Governor, weights: Callable[[str], Mapping[str, float]]) -> None:
        self._behind, self._weights = internals(governor), weights
        self.health = StoreHealth(
            lambda: self._behind.store, is_needed=lambda: bool(self._lines), on_change=self._follow_store
        )
        self._lines: defaultdict[str, _PoolCalls] = defaultdict(_PoolCalls)
        self._ending: dict[Future[StoreError | None], _PendingRelease] = {}
        self._numbers = count(1)

    @property
    def waiting(self) -> int:
        return sum(len(line.waiting) for line in self._lines.values())

    # -- taking ------------------------------------------------------------------------------------------

    async def take(self, asking: AskRequest, *, deadline: float) -> HeldLease:
        """A lease, or the error that ends the wait."""
        loop = asyncio.get_running_loop()
        pool, line = asking.pool, self._lines[asking.pool]
        if not line.waiting and self.health.answers:
            lease = self._behind.acquire_at_once(asking)
            if lease is not None:
                self.health.keep()
                line.in_flight[asking.project] += 1
                return HeldLease(lease)
        waiter = _WaitingCall(next(self._numbers), asking.project, asking.priority, loop.create_future())
        line.waiting.append(waiter)
        ask = loop.create_task(self._ask(asking, deadline))
        ask.add_done_callback(partial(self._hear, pool, waiter))
        self.health.keep()
        self._hand_on(pool)
        try:
            async with asyncio.timeout_at(deadline + LATE_S):
                held = await waiter.handed
        except BaseException as error:
            if not waiter.handed.cancelled() and waiter.handed.exception() is None:
                self._put_back(pool, waiter.handed.result())
            if type(error) is TimeoutError:
                raise self.health.error or StoreBusyError("the state does not answer") from None
            raise
        else:
            line.in_flight[asking.project] += 1
            return held
        finally:
            line.waiting.remove(waiter)
            ask.cancel()
            self._forget(pool)

    async def _ask(self, asking: AskRequest, deadline: float) -> Lease:
        """Stand in the store's line, as soon as it answers."""
        loop = asyncio.get_running_loop()
        while True:
            await self.health.wait_for_answer(deadline)
            try:
                return await self._behind.acquire_async(asking, timeout=max(0.0, deadline - loop.time()))
            except StoreUnreadableError:
                raise
            except StoreError as error:
                self.health.fail(error)

    def _hear(self, pool: str, waiter: _WaitingCall, ask: asyncio.Task[Lease]) -> None:
        """What the store said to an ask. A slot for a call that has one by now goes back."""
        if ask.cancelled():
            return
        error = ask.exception()
        if error is None and waiter.handed.done():
            self._put_back(pool, HeldLease(ask.result()))
        elif error is None:
            waiter.handed.set_result(HeldLease(ask.result()))
        elif not waiter.handed.done():
            waiter.handed.set_exception(error)

    # -- giving back -------------------------------------------------------------------------------------

    async def end(self, asking: AskRequest, held: HeldLease, outcome: Outcome) -> None:
        """A call has ended: until its slot is free, or the store is away."""
        in_flight = self._lines[asking.pool].in_flight
        in_flight[asking.project] -= 1
        if not in_flight[asking.project]:
            del in_flight[asking.project]
        held.outcome = outcome
        ended = self._give_back(asking.pool, held)
        if ended is not None:
            await ended

    def _put_back(self, pool: str, held: HeldLease) -> None:
        """A slot that no call went out on."""
        held.outcome = Outcome.ABANDONED
        self._give_back(pool, held)

    def _give_back(self, pool: str, held: HeldLease) -> asyncio.Future[None] | None:
        if not self.health.answers:
            self._keep(pool, held)
            return None
        loop, ended = asyncio.get_running_loop(), UncancellableFuture[None]()
        begun = store_threads().submit(partial(self._behind.try_release, held.lease, held.outcome))
        self._ending[begun] = _PendingRelease(pool, held, ended)
        begun.add_done_callback(lambda begun: loop.call_soon_threadsafe(self._note_end, begun))
        return ended

    def _note_end(self, begun: Future[StoreError | None]) -> None:
        ending = self._ending.pop(begun, None)
        if ending is None:
            return  # it was taken back before it began
        if not ending.ended.done():
            ending.ended.set_result(None)
        failure = begun.exception()
        if failure is not None:
            logging.getLogger("flyball").error("could not give a slot back", exc_info=failure)
        elif (error := begun.result()) is not None:
            self.health.fail(error)
            if not error.maybe_done:
                self._keep(ending.pool, ending.held)
        self._forget(ending.pool)

    def _forget(self, pool: str) -> None:
        line = self._lines.get(pool)
        if line is not None and not (line.waiting or line.in_flight or line.kept):
            del self._lines[pool]

    # -- while the store is away -------------------------------------------------------------------------

    def _follow_store(self) -> None:
        """It is away, or answers again."""
        if self.health.answers:
            for pool, line in tuple(self._lines.items()):
                kept, line.kept = line.kept, []
                for held in kept:
                    self._give_back(pool, held)
            return
        for begun, ending in tuple(self._ending.items()):
            if begun.cancel():
                del self._ending[begun]
                self._keep(ending.pool, ending.held)
            if not ending.ended.done():
                ending.ended.set_result(None)

    def _keep(self, pool: str, held: HeldLease) -> None:
        self._lines[pool].kept.append(held)
        self._hand_on(pool)

    def _hand_on(self, pool: str) -> None:
        """Kept leases for those that wait."""
        loop, line = asyncio.get_running_loop(), self._lines.get(pool)
        if line is None or self.health.answers or self.health.away_s > HANDED_ON_S or not line.kept:
            return
        if loop.time() < line.closed_until:
            loop.call_at(line.closed_until, self._hand_on, pool)
            return
        while line.kept and (waiter := self._next(pool, line)) is not None:
            held = line.kept.pop()
            held.hand_on()
            waiter.handed.set_result(held)

    def _next(self, pool: str, line: _PoolCalls) -> _WaitingCall | None:
        """Whose turn it is."""
        waiting = {waiter.number: waiter for waiter in line.waiting if not waiter.handed.done()}
        handed = Counter(waiter.project for waiter in line.waiting if waiter.handed.done())
        weights = self._weights(pool)
        uses = {
            project: ProjectUse(
                project,
                in_use=line.in_flight[project] + handed[project],
                weight=weights.get(project, 1.0),
                turn=line.turns[project],
            )
            for project in {waiter.project for waiter in waiting.values()}
        }
        asks = [Candidate(number, waiter.project, waiter.priority) for number, waiter in waiting.items()]
        ranked = rank_asks(asks, uses, turn=line.turn, ageing_s=PoolSettings().ageing_s, now=0.0)
        if not ranked:
            return None
        use = uses[ranked[0].project]
        line.turn = start_of_turn(use, line.turn)
        line.turns[use.name] = line.turn + 1 / use.weight
        return waiting[ranked[0].id]

    async def tell(self, pool: str, lease: Lease, signal: Signal) -> None:
        """What the provider said under a lease. A store that is away holds no answer up."""
        if signal.kind in REJECTIONS:
            now, line = asyncio.get_running_loop().time(), self._lines[pool]
            line.closed_until = max(line.closed_until, now + (signal.retry_after_s or REFUSED_S))
        if signal.kind is SignalKind.OK and not signal.windows:
            lease.report(signal)
        elif not self.health.answers:
            self._behind.note_answer(lease, signal)
        else:
            telling = asyncio.ensure_future(lease.report_async(signal))
            telling.add_done_callback(partial(_log_untold, signal))
            await asyncio.wait({telling}, timeout=PATIENCE_S)

    def close(self) -> None:
        self.health.close()


def _log_untold(signal: Signal, telling: asyncio.Task[Signal]) -> None:
    if not telling.cancelled() and (error := telling.exception()) is not None:
        logging.getLogger("flyball").warning("could not report %s: %s", signal.kind.value, error)


@dataclass(frozen=True, slots=True)
class CallGate:
    """What lets one call in."""

    slots: CallSlots
    asking: AskRequest
    deadline: float
    """When its client's time is over, on the loop's clock."""

    def slot(self) -> AttemptSlot:
        return AttemptSlot(self)


class AttemptSlot:
    """``async with`` around one attempt of a call, which reports to it."""

    __slots__ = ("_gate", "_held")

    hears_repeats = True
    """A repeated refusal is reported here, too, as it is on a lease."""

    def __init__(self, gate: CallGate) -> None:
        self._gate = gate

    async def __aenter__(self) -> AttemptSlot:
        self._held = await self._gate.slots.take(self._gate.asking, deadline=self._gate.deadline)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._gate.slots.end(self._gate.asking, self._held, outcome_of(kind))

    async def report_async(self, signal: Signal) -> None:
        await self._gate.slots.tell(self._gate.asking.pool, self._held.lease, signal)

    def settle(self, **used: float) -> None:
        self._held.settle(used)

    def report(self, _signal: Signal, /) -> object:
        raise UsageError(_LOOP_ONLY)

    def __enter__(self) -> AttemptSlot:
        raise UsageError(_LOOP_ONLY)

    def __exit__(self, *_: object) -> None:
        raise UsageError(_LOOP_ONLY)
