"""Who waits here for which claim: one mailbox for all of one event loop, and a bell for each who waits.

Several may wait for one claim. A bell that rings before anybody hangs it is remembered for a while: a slot
may be handed over between the moment an ask stands in line and the moment its waiter begins to listen.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum

from flyball.wake.mailbox import LOOK, OVERFLOW, Box

_EARLY_KEPT = 4096
_ANSWER_S = 0.005


class RemoteWake(Enum):
    """What a bell has to say; the later in this list drowns the earlier."""

    LOOK = 1
    """Something about the claim has changed."""
    GRANTED = 2
    """It is a lease: whoever hears it need not look."""
    LEFT = 3
    """Nobody waits for it any more."""


class RemoteWaiter:
    """One who waits."""

    __slots__ = ("_future", "_loop", "_rung")

    def __init__(self, loop: asyncio.AbstractEventLoop, rung: RemoteWake | None) -> None:
        self._loop, self._rung = loop, rung
        self._future: asyncio.Future[None] | None = None

    def ring(self, what: RemoteWake) -> None:
        if self._rung is None or self._rung.value < what.value:
            self._rung = what
        _finish(self._future)

    async def wait(self, timeout_s: float) -> RemoteWake | None:
        """Until it rings; None where the time was up first."""
        if self._rung is None and timeout_s > 0:
            self._future = self._loop.create_future()
            timer = self._loop.call_later(min(timeout_s, 86400.0), _finish, self._future)
            try:
                await self._future
            finally:
                timer.cancel()
                self._future = None
        rung, self._rung = self._rung, None
        return rung


class WaiterRegistry:
    """All who wait on one event loop. Used from that loop only, but for ``waiting``."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        box: Box | None,
        missed: Callable[[], object],
        *,
        calling: Callable[[], bool] = lambda: False,
    ) -> None:
        """``missed`` is called when mail may have been lost: somebody should look for all at once.

        ``calling``: is a step of ours under way? Then it may be what the mail is about.
        """
        self._loop, self._box, self._missed, self._calling = loop, box, missed, calling
        self.address = box.address if box is not None else ""
        self.ended = False
        self._hung: dict[int, list[RemoteWaiter]] = {}
        self._pools: dict[str, dict[int, None]] = {}
        self._early: OrderedDict[int, RemoteWake] = OrderedDict()
        if box is not None:
            loop.add_reader(box.fileno(), self._read)

    def __len__(self) -> int:
        return len(self._hung)

    def waiting(self) -> dict[str, int]:
        """One claim for each pool that somebody here waits for."""
        return {pool: claim_id for pool, claims in list(self._pools.items()) for claim_id in [*claims][:1]}

    @contextmanager
    def hang(self, claim_id: int, pool: str) -> Iterator[RemoteWaiter]:
        """A bell for the claim, for as long as the block runs."""
        bell = RemoteWaiter(self._loop, self._early.pop(claim_id, RemoteWake.LOOK if self.ended else None))
        self._hung.setdefault(claim_id, []).append(bell)
        self._pools.setdefault(pool, {})[claim_id] = None
        try:
            yield bell
        finally:
            self._take_down(claim_id, pool, bell)

    def _take_down(self, claim_id: int, pool: str, bell: RemoteWaiter) -> None:
        self._hung[claim_id].remove(bell)
        if not self._hung[claim_id]:
            del self._hung[claim_id]
            claims = self._pools[pool]
            del claims[claim_id]
            if not claims:
                del self._pools[pool]

    def _read(self) -> None:
        if self._box is None:
            return
        told = self._box.drain()
        if self._calling():
            # Its own answer comes in a moment, and says more: who was granted need not look.
            self._loop.call_later(_ANSWER_S, self.tell, told, RemoteWake.LOOK)
        else:
            self.tell(told, RemoteWake.LOOK)
        if LOOK in told or (self._box.lossy and len(told) >= OVERFLOW):
            # A full mailbox drops what does not fit, and a channel what nobody listens to.
            self._missed()

    def ring(self, claim_ids: Iterable[int], what: RemoteWake) -> None:
        """For whoever waits for them now."""
        for claim_id in claim_ids:
            for bell in self._hung.get(claim_id, ()):
                bell.ring(what)

    def tell(self, claim_ids: Sequence[int], what: RemoteWake) -> None:
        """The same, also for whoever is about to wait."""
        for claim_id in claim_ids:
            if claim_id not in self._hung and self._early.get(claim_id) is not RemoteWake.GRANTED:
                self._early[claim_id] = what
        self.ring(claim_ids, what)
        while len(self._early) > _EARLY_KEPT:
            self._early.popitem(last=False)

    def end(self) -> None:
        """Nobody waits any longer, and nobody who still comes."""
        self.ended = True
        self.ring(list(self._hung), RemoteWake.LOOK)

    def close(self) -> None:
        if self._box is not None:
            if not self._loop.is_closed():
                self._loop.remove_reader(self._box.fileno())
            self._box.close()
            self._box = None


def _finish(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)
