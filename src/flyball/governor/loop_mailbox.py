"""Mailboxes of event loops: one for all waiters of a loop.

An event loop comes and goes (``asyncio.run`` makes one for each call), and a mailbox is a socket and a file,
so nothing here keeps a loop: neither its mailbox, nor what waits in it. A loop that was closed takes its
mailbox with it: when it is forgotten, or at the latest when another loop asks for one.

A mailbox is closed when its governor is, but not under those who wait: their asks carry its address. They are
told to look, and the last of them closes it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from flyball.governor.acquisition import WaitForWake, WakeReason
from flyball.governor.drivers import running_loop, store_threads
from flyball.wake.mailbox import LOOK, OVERFLOW, Box

if TYPE_CHECKING:
    import asyncio

Granted = Callable[[str], list[int]]
"""Asks the store whose turn has come, by mailbox."""
GrantedNow = Callable[[int], bool]
"""Asks the store for one claim, without waiting: False where it cannot say."""


class LoopMailboxes:
    """The mail of every event loop that asks one governor; the caller lets in one thread at a time."""

    def __init__(self) -> None:
        self._mails: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopMailbox] = (
            weakref.WeakKeyDictionary()
        )

    def of(
        self,
        loop: asyncio.AbstractEventLoop,
        open_box: Callable[[], Box | None],
        granted: Granted,
        granted_now: GrantedNow,
    ) -> LoopMailbox:
        mail = self._mails.get(loop)
        if mail is None:
            self._sweep()
            mail = self._mails[loop] = LoopMailbox(loop, open_box(), granted, granted_now)
        return mail

    def _sweep(self) -> None:
        for loop, mail in list(self._mails.items()):
            if loop.is_closed():
                mail.close()
                del self._mails[loop]

    def close(self) -> None:
        mails, self._mails = self._mails, weakref.WeakKeyDictionary()
        for mail in list(mails.values()):
            mail.close()


class LoopMailbox:
    """One mailbox for all waiters of one event loop. Whoever waits is inside it, as a ``with`` block."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        box: Box | None,
        granted: Granted,
        granted_now: GrantedNow,
    ) -> None:
        self.box = box
        self._loop = weakref.ref(loop)
        self._granted, self._granted_now = granted, granted_now
        self._waiting: weakref.WeakValueDictionary[int, asyncio.Future[WakeReason]] = (
            weakref.WeakValueDictionary()
        )
        self._early: set[int] = set()
        self._inside, self._last = 0, False
        if self.box is not None:
            loop.add_reader(self.box.fileno(), self._read)

    @property
    def address(self) -> str:
        """Empty where there is no mailbox to be had: then the waiter polls."""
        return self.box.address if self.box is not None else ""

    def __enter__(self) -> None:
        self._inside += 1

    def __exit__(self, *_: object) -> None:
        self._inside -= 1
        if self._last and not self._inside:
            self._shut()

    def _read(self) -> None:
        if self.box is None:
            return
        told = self.box.drain()
        for claim_id in told:
            self._wake(claim_id)
        if self._waiting and (LOOK in told or (self.box.lossy and len(told) >= OVERFLOW)):
            # A socket holds about ten messages, a channel none for who does not listen: ask for all grants
            # at once.
            self._ask_for_all(self.box)

    def _ask_for_all(self, box: Box) -> None:
        asked = store_threads().begin(partial(self._granted, box.address))
        asked.add_done_callback(self._hear)

    def _hear(self, asked: asyncio.Future[list[int]]) -> None:
        # A store that cannot answer now is no harm: waiters also look by themselves.
        if not asked.cancelled() and asked.exception() is None:
            for claim_id in asked.result():
                if claim_id in self._waiting:
                    self._wake(claim_id)

    def _wake(self, claim_id: int) -> None:
        future = self._waiting.get(claim_id)
        if future is None:
            self._early.add(claim_id)
        else:
            _finish(future, WakeReason.MAIL)

    async def wait(self, wait: WaitForWake) -> WakeReason:
        woken = await self._woken(wait)
        # A look on the spot costs less than waking the store's thread for it.
        return WakeReason.GRANT if woken is WakeReason.MAIL and self._granted_now(wait.claim_id) else woken

    async def _woken(self, wait: WaitForWake) -> WakeReason:
        from asyncio import get_running_loop

        if wait.claim_id in self._early:
            self._early.discard(wait.claim_id)
            return WakeReason.MAIL
        loop = get_running_loop()
        if self._mend(loop):
            return WakeReason.MAIL
        future: asyncio.Future[WakeReason] = loop.create_future()
        self._waiting[wait.claim_id] = future
        # Not wait_for: where a result and a cancellation arrive together, it drops the cancellation.
        timer = loop.call_later(wait.timeout_s, _finish, future, WakeReason.TIMER)
        watched = wait.watch.fds if wait.watch else ()
        for fd in watched:
            loop.add_reader(fd, _finish, future, WakeReason.DEATH)
        try:
            return await future
        finally:
            timer.cancel()
            for fd in () if loop.is_closed() else watched:
                loop.remove_reader(fd)
            self._waiting.pop(wait.claim_id, None)
            if len(self._early) > 4096:
                self._early.clear()

    def _mend(self, loop: asyncio.AbstractEventLoop) -> bool:
        if self.box is None:
            return False
        before = self.box.fileno()
        if not self.box.mend():
            return False
        loop.remove_reader(before)
        loop.add_reader(self.box.fileno(), self._read)
        # The others of this loop may have missed something, too.
        self._ask_for_all(self.box)
        return True

    def close(self) -> None:
        """From any thread."""
        loop = self._loop()
        if loop is None or loop.is_closed():
            self._shut()
        elif loop is running_loop() or not loop.is_running():
            self._close_soon()
        else:
            # A loop that is closed meanwhile takes its mailbox with it.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._close_soon)

    def _close_soon(self) -> None:
        self._last = True
        for future in list(self._waiting.values()):
            _finish(future, WakeReason.MAIL)
        if not self._inside:
            self._shut()

    def _shut(self) -> None:
        if self.box is not None:
            loop = self._loop()
            if loop is not None and not loop.is_closed():
                loop.remove_reader(self.box.fileno())
            self.box.close()
            self.box = None


def _finish(future: asyncio.Future[WakeReason], result: WakeReason) -> None:
    if not future.done():
        future.set_result(result)
