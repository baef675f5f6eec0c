"""A gate as the article on self-tuning concurrency wires it: a condition that wakes everybody."""

from __future__ import annotations

import asyncio


class ConditionGate:
    """Every release lets all waiters look at the limit again. It is fixed here: waking is compared."""

    def __init__(self, limit: int) -> None:
        self._limit, self._in_flight = limit, 0
        self._changed = asyncio.Condition()

    async def acquire(self) -> None:
        async with self._changed:
            while self._in_flight >= self._limit:
                await self._changed.wait()
            self._in_flight += 1

    async def release(self) -> None:
        async with self._changed:
            self._in_flight -= 1
            self._changed.notify_all()

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(self, *_: object) -> None:
        await self.release()
