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
from flyball.governor.flow_drivers import running_loop, store_threads
from flyball.wake.inbox import Inbox, Wake
from flyball.wake.mailbox import Box

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

    def of(self, loop: asyncio.AbstractEventLoop, open_mail: Callable[[], LoopMailbox]) -> LoopMailbox:
        mail = self._mails.get(loop)
        if mail is None:
            self._sweep()
            mail = self._mails[loop] = open_mail()
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


class LoopMailbox(Inbox):
    """One mailbox for all waiters of one event loop. A waiter is inside it, as a ``with`` block."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        box: Box | None,
        granted: Granted,
        granted_now: GrantedNow,
    ) -> None:
        super().__init__(loop, box)
        self._granted, self._granted_now = granted, granted_now
        self._inside, self._last = 0, False

    def __enter__(self) -> None:
        self._inside += 1

    def __exit__(self, *_: object) -> None:
        self._inside -= 1
        if self._last and not self._inside:
            self._shut()

    def look_for_grants(self) -> None:
        asked = store_threads().begin(partial(self._granted, self.address))
        asked.add_done_callback(self._hear)

    def _hear(self, asked: asyncio.Future[list[int]]) -> None:
        # A store that cannot answer now does no harm: waiters also look by themselves.
        if not asked.cancelled() and asked.exception() is None:
            self.tell_waiting(asked.result(), Wake.LOOK)

    async def wait(self, wait: WaitForWake) -> WakeReason:
        from asyncio import get_running_loop

        loop, watched = get_running_loop(), wait.watch.fds if wait.watch else ()
        with self.waiter(wait.claim_id) as waiter:
            if self.mend():
                waiter.tell(Wake.LOOK)
            for fd in watched:
                loop.add_reader(fd, waiter.tell, Wake.DEATH)
            try:
                told = await waiter.wait(wait.timeout_s)
            finally:
                for fd in () if loop.is_closed() else watched:
                    loop.remove_reader(fd)
        if told is None:
            return WakeReason.TIMER
        if told is Wake.DEATH:
            return WakeReason.DEATH
        # A look on the spot costs less than waking the store's thread for it.
        return WakeReason.GRANT if self._granted_now(wait.claim_id) else WakeReason.MAIL

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
        self.tell_all(Wake.LOOK)
        if not self._inside:
            self._shut()

    def _shut(self) -> None:
        super().close()
        # An ask that came now would name a mailbox on which nothing listens.
        self.address = ""
