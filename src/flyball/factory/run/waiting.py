"""What a task run waits for: a pause to end, money, a place in the run's width, a slot of the pool.

Every agent of a task run comes through here, whether it does the task, a stage of it, or its review. While
only waiting is going on nothing is half done, so a task run that waits can be left at once.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum

from flyball.core.budget.limits import TASK, Refusal
from flyball.core.pool.model import Outcome
from flyball.core.pool.verdict import CLOSED_REASONS, Verdict
from flyball.factory.budget.guard import BudgetGuard
from flyball.governor.ask import AskRequest
from flyball.governor.governor import Governor
from flyball.governor.internals import internals
from flyball.governor.lease import Lease

_LOOK_EVERY_S = 30.0


class WaitKind(Enum):
    WORKTREE = "worktree"
    """Its worktree is being made."""
    BASE_GATE = "base gate"
    """The gate is tried on the base first."""
    PLACE = "place"
    """In the run's width."""
    SLOT = "slot"
    """The pool was asked a moment ago."""
    POOL = "pool"
    """The pool has parked its ask."""
    MONEY = "money"
    PAUSE = "pause"
    COMMIT = "commit"
    """What its agent left is being kept."""
    LANDING = "landing"
    """Another landing, or the gate of those that land together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitReason:
    """What a task run waits for beside what its state says."""

    kind: WaitKind | None = None
    """None: for nothing; its agent or its landing is under way."""
    stage: str = ""
    """The stage or the review it is in."""
    detail: str = ""
    """What the pool, the budget, the landing or the provider said."""
    until: float = 0.0
    """Wall clock of a pause's end."""


class RunSlots:
    """The places in a run's width, which a person may change while the run goes on. First come, first served.
    For one loop."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.narrowed: int | None = None
        """How many of them may be used now; None: all. Money may allow fewer than a person asked for."""
        self.taken = 0
        self.on_change: Callable[[], None] = lambda: None
        """Called when a place is given back."""
        self._line: deque[asyncio.Future[None]] = deque()

    @property
    def usable(self) -> int:
        return self.width if self.narrowed is None else min(self.width, max(1, self.narrowed))

    @property
    def room(self) -> int:
        """How many more could start now, those in line first."""
        return max(0, self.usable - self.taken - len(self._line))

    async def take(self) -> None:
        if self.taken < self.usable and not self._line:
            self.taken += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_back()
            elif turn in self._line:
                self._line.remove(turn)
            raise

    def give_back(self) -> None:
        self.taken -= 1
        self._hand_on()
        self.on_change()

    def resize(self, width: int) -> None:
        self.width = width
        self._hand_on()

    def narrow(self, usable: int | None) -> None:
        self.narrowed = usable
        self._hand_on()

    def _hand_on(self) -> None:
        while self._line and self.taken < self.usable:
            turn = self._line.popleft()
            if not turn.done():
                self.taken += 1
                turn.set_result(None)


class Waits:
    """Of one task run."""

    def __init__(
        self, governor: Governor, places: RunSlots, budget: BudgetGuard, *, changed: Callable[[], None]
    ) -> None:
        self._governor, self._places, self._budget, self._changed = governor, places, budget, changed
        self.reason = WaitReason()
        self.parked_in_pool = False
        self.shut_out = ""
        """Why the pool admits no ask, while it does not."""
        self.wants_place = True
        self.waiting = False
        self.leaving = self.stopping = False
        """No more agents are started; those that run are ended."""
        self._has_place = False

    def show(self, kind: WaitKind | None, *, stage: str = "", detail: str = "", until: float = 0.0) -> None:
        self.reason = WaitReason(kind=kind, stage=stage, detail=detail, until=until)
        self._changed()

    def show_landing(self, words: str) -> None:
        self.show(WaitKind.LANDING if words else None, detail=words)

    async def until(self, wall: float, why: str, *, stage: str = "") -> None:
        """A pause, the time of a sleeping machine counted."""
        with self._waiting():
            while (left_s := wall - time.time()) > 0:
                self.show(WaitKind.PAUSE, stage=stage, detail=why, until=wall)
                await asyncio.sleep(min(left_s, _LOOK_EVERY_S))

    async def take_place(self, *, stage: str = "") -> None:
        self.wants_place = True
        if not self._has_place:
            self.show(WaitKind.PLACE, stage=stage)
            with self._waiting():
                await self._places.take()
            self._has_place = True

    def count_place(self) -> None:
        """It runs already, so it has its place, whatever the width."""
        self._places.taken += 1
        self._has_place = self.wants_place = True

    def give_place_back(self) -> None:
        self.wants_place = False
        if self._has_place:
            self._has_place = False
            self._places.give_back()

    @property
    def placed(self) -> bool:
        return self._has_place

    async def pay(self, admit: Callable[[], Refusal | None], *, stage: str = "") -> str:
        """Until the next launch may be paid for; why it never may, where no waiting helps. Cost comes first:
        a task run that waits for money keeps neither a place nor a slot from others."""
        try:
            while (refused := admit()) is not None:
                if refused.window == TASK:
                    return refused.words
                await self._wait_for_money(refused, stage)
        finally:
            self.shut_out = ""
        return ""

    async def _wait_for_money(self, refused: Refusal, stage: str) -> None:
        self.show(WaitKind.MONEY, stage=stage, detail=refused.words)
        if not self.shut_out:
            self._places.on_change()
        self.shut_out = refused.words
        with self._waiting():
            await self._budget.wait_for_change(refused)

    async def take_slot(self, asking: AskRequest, *, stage: str = "") -> Lease:
        """Every launch comes through here, however often the task has been tried. A window may have filled
        up while the pool was waited for; a stage or a review (``stage``) is part of what runs."""
        while True:
            lease = await self._ask_pool(asking, stage)
            held = self._budget.hold if not stage else None
            if held is None:
                return lease
            await self._governor.release_async(lease, Outcome.ABANDONED)
            try:
                await self._wait_for_money(held, stage)
            finally:
                self.shut_out = ""

    async def _ask_pool(self, asking: AskRequest, stage: str) -> Lease:
        self.show(WaitKind.SLOT, stage=stage)
        try:
            with self._waiting():
                return await internals(self._governor).acquire_async(
                    asking, on_wait=lambda verdict: self._show_verdict(verdict, stage)
                )
        finally:
            self.shut_out = ""
            if self.parked_in_pool:
                self.parked_in_pool = False
                self._places.on_change()

    def _show_verdict(self, verdict: Verdict, stage: str) -> None:
        words = f"{verdict.pool} {verdict.why()}"
        self.parked_in_pool = True
        self.shut_out = words if verdict.reason in CLOSED_REASONS else ""
        self.show(WaitKind.POOL, stage=stage, detail=words)
        self._places.on_change()

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        self.waiting = True
        try:
            yield
        finally:
            self.waiting = False
