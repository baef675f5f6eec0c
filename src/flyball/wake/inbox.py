"""One mailbox for all waiters of one event loop.

Mail names a claim, and wakes every waiter for it. Mail that comes before its waiter is kept for a while: a
slot may be handed over between the moment an ask stands in line and the moment its waiter begins to wait.
What is done where mail may have been lost is for the subclass to say.

That a slot was handed over counts as a grant for a waiter that was there before that step began. One that
came later looks: the lease may be over by then.

An event loop comes and goes, and may be closed with tasks in it. So nothing here keeps a loop, nor a future
in which a task of it waits.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING

from flyball.wake.mailbox import LOOK, OVERFLOW, Box

if TYPE_CHECKING:
    import asyncio

_EARLY_KEPT = 4096
_ANSWER_S = 0.005
_LONGEST_S = 86400.0


class Wake(IntEnum):
    """What a waiter is told; of several the highest counts."""

    LOOK = 1
    """Something about the claim has changed."""
    DEATH = 2
    """A process that the waiter watches has ended."""
    GRANTED = 3
    """The claim is a lease: the waiter need not look."""
    LEFT = 4
    """No request waits for the claim any more."""


class MailWaiter:
    """Waits for a claim. Used on its event loop only."""

    __slots__ = ("_future", "_told", "number")

    def __init__(self, number: int, told: Wake | None) -> None:
        self.number, self._told = number, told
        self._future: weakref.ref[asyncio.Future[None]] | None = None

    def tell(self, what: Wake) -> None:
        self._told = what if self._told is None else max(self._told, what)
        if self._future is not None:
            _finish(self._future())

    async def wait(self, timeout_s: float) -> Wake | None:
        """What it was told, once it was; None where the time was up first."""
        if self._told is None and timeout_s > 0:
            from asyncio import get_running_loop

            loop = get_running_loop()
            future: asyncio.Future[None] = loop.create_future()
            self._future = weakref.ref(future)
            # Not wait_for: where a result and a cancellation arrive together, it drops the cancellation.
            timer = loop.call_later(min(timeout_s, _LONGEST_S), _finish, future)
            try:
                await future
            finally:
                timer.cancel()
                self._future = None
        told, self._told = self._told, None
        return told


class Inbox:
    """The mailbox and its waiters. Used on its event loop only."""

    def __init__(self, loop: asyncio.AbstractEventLoop, box: Box | None) -> None:
        self._loop, self._box = weakref.ref(loop), box
        self._waiters: dict[int, list[MailWaiter]] = {}
        self._early: OrderedDict[int, None] = OrderedDict()
        """Claims about which something came before a waiter did."""
        self.newest = 0
        """The number of the waiter that came last. May be read from any thread."""
        self.address = box.address if box is not None else ""
        """Empty where no mailbox can be had: then the waiters poll."""
        if box is not None:
            loop.add_reader(box.fileno(), self._read)

    def look_for_grants(self) -> None:
        """Mail may have been lost: ask the store for all grants at once, and wake their waiters."""
        raise NotImplementedError

    def is_calling(self) -> bool:
        """Is a step of ours under way? Then it may be what the mail is about."""
        return False

    def __len__(self) -> int:
        return len(self._waiters)

    @contextmanager
    def waiter(self, claim_id: int) -> Iterator[MailWaiter]:
        """A waiter for the claim, for as long as the block runs. A claim may have several."""
        self.newest += 1
        early = claim_id in self._early
        if early:
            del self._early[claim_id]
        waiter = MailWaiter(self.newest, Wake.LOOK if early else None)
        self._waiters.setdefault(claim_id, []).append(waiter)
        try:
            yield waiter
        finally:
            self._waiters[claim_id].remove(waiter)
            if not self._waiters[claim_id]:
                del self._waiters[claim_id]

    def _read(self) -> None:
        loop = self._loop()
        if self._box is None or loop is None:
            return
        told = self._box.drain()
        if self.is_calling():
            # Its own answer comes in a moment, and says more: a waiter that was granted need not look.
            loop.call_later(_ANSWER_S, self.tell, told, Wake.LOOK)
        else:
            self.tell(told, Wake.LOOK)
        if self._waiters and (LOOK in told or (self._box.lossy and len(told) >= OVERFLOW)):
            # A full socket drops what does not fit (it holds about ten), a channel what no process hears.
            self.look_for_grants()

    def tell_waiting(self, claim_ids: Iterable[int], what: Wake, *, newest: int | None = None) -> None:
        """Wake those that wait for the claims now.

        ``newest``: as it was before ``what`` was found out. Waiters that came later look.
        """
        for claim_id in claim_ids:
            for waiter in self._waiters.get(claim_id, ()):
                waiter.tell(what if newest is None or waiter.number <= newest else Wake.LOOK)

    def tell(self, claim_ids: Sequence[int], what: Wake, *, newest: int | None = None) -> None:
        """The same; those that are about to wait look first."""
        self.tell_waiting(claim_ids, what, newest=newest)
        for claim_id in claim_ids:
            if claim_id not in self._waiters and claim_id != LOOK:
                self._early[claim_id] = None
        while len(self._early) > _EARLY_KEPT:
            self._early.popitem(last=False)

    def tell_all(self, what: Wake) -> None:
        self.tell_waiting(list(self._waiters), what)

    def mend(self) -> bool:
        """Make the mailbox reachable again. True if it was not: all waiters may have missed something."""
        loop = self._loop()
        if self._box is None or loop is None:
            return False
        before = self._box.fileno()
        if not self._box.mend():
            return False
        loop.remove_reader(before)
        loop.add_reader(self._box.fileno(), self._read)
        self.look_for_grants()
        return True

    def close(self) -> None:
        """No mail is read any more; the address stays what it was, for wakes that are still under way."""
        loop, box, self._box = self._loop(), self._box, None
        if box is not None:
            if loop is not None and not loop.is_closed():
                loop.remove_reader(box.fileno())
            box.close()


def _finish(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)
