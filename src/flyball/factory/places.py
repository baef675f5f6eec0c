"""How many trips may have an agent at once: the width of a run, which a person may change while it goes
on."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class Places:
    """First come, first served. For one loop."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.narrowed: int | None = None
        """How many of them may be used now; None: all. Money may allow fewer than a person asked for."""
        self.taken = 0
        self.told: Callable[[], None] = lambda: None
        """Called when somebody leaves."""
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
        self.told()

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
