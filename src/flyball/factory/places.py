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
        self.taken = 0
        self.told: Callable[[], None] = lambda: None
        """Called when somebody leaves."""
        self._line: deque[asyncio.Future[None]] = deque()

    @property
    def room(self) -> int:
        """How many more could start now, those in line first."""
        return max(0, self.width - self.taken - len(self._line))

    async def take(self) -> None:
        if self.taken < self.width and not self._line:
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

    def _hand_on(self) -> None:
        while self._line and self.taken < self.width:
            turn = self._line.popleft()
            if not turn.done():
                self.taken += 1
                turn.set_result(None)
