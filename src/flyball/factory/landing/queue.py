"""Who waits to land, and the one task that lands them.

A branch that comes alone is taken up at once. Those that come while another lands wait, and go together as
soon as it is over. The landing belongs to none of them: where one is stopped, those that were with it begin
again without it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from flyball.core.tasks.task_run import LandingResult
from flyball.errors import GitError
from flyball.factory.landing.batch import WAITS, BatchMember
from flyball.factory.landing.result import Landed, Refused


@dataclass(slots=True, kw_only=True)
class LandingQueue:
    lock: Callable[[str, Callable[[], None]], AbstractAsyncContextManager[None]]
    """Holds the landing's lock, in this process and in all others, for a task; tells if it has to wait."""
    land: Callable[[Sequence[BatchMember]], Awaitable[None]]
    """Tells each of them how it ended, or raises."""
    most: int = 1
    _waiting: list[BatchMember] = field(default_factory=list)
    _landing: list[BatchMember] = field(default_factory=list)
    _runner: asyncio.Task[None] | None = None

    async def join(self, member: BatchMember) -> Landed:
        """Wait for one's turn, and for how it ended."""
        if self._runner is not None:
            member.say(WAITS)
        self._waiting.append(member)
        self._go_on()
        try:
            return await member.done
        except asyncio.CancelledError:
            await self._without(member)
            raise

    def _go_on(self) -> None:
        if self._waiting and self._runner is None:
            self._runner = asyncio.create_task(self._run(), name="landing")

    async def _without(self, member: BatchMember) -> None:
        waited = member in self._waiting
        if waited:
            self._waiting.remove(member)
        needless = not self._waiting and not self._landing if waited else member in self._landing
        if needless and self._runner is not None:
            runner = self._runner
            # Once: it may be busy ending a gate, and a second time would have it leave that behind.
            if not runner.cancelling():
                runner.cancel()
            await asyncio.wait({runner})

    async def _run(self) -> None:
        try:
            while self._waiting:
                async with self.lock(self._waiting[0].task.id, self._told):
                    await self._next()
        except Exception as error:
            self._landing, self._waiting = [*self._landing, *self._waiting], []
            self._fail_all(error)
        finally:
            self._waiting = [*self._left(), *self._waiting]
            self._landing, self._runner = [], None
            self._go_on()

    def _told(self) -> None:
        for member in self._waiting:
            member.say(WAITS)

    async def _next(self) -> None:
        self._landing, self._waiting = self._waiting[: self.most], self._waiting[self.most :]
        try:
            await self.land(self._landing)
        except Refused as refused:
            self._tell_all(refused.landed)
        except GitError as error:
            self._tell_all(Landed(result=LandingResult.ERROR, why=str(error), detail=error.output))
        except Exception as error:
            self._fail_all(error)
        self._landing = []

    def _tell_all(self, landed: Landed) -> None:
        for member in self._left():
            member.done.set_result(landed)

    def _fail_all(self, error: Exception) -> None:
        for member in self._left():
            member.done.set_exception(error)

    def _left(self) -> list[BatchMember]:
        return [member for member in self._landing if not member.done.done()]
