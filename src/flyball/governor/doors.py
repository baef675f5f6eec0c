"""Two drivers for one flow: a thread that may block, and an event loop that may not.

Sync waits in ``poll`` on the thread's own mailbox. Async has one mailbox per event loop and runs store calls
on one background thread, so that a busy file never stalls the loop. Cancelling an async wait first lets the
store call in progress finish, so that a slot granted at that moment is given back, not lost.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from flyball.governor.flow import Call, Flow, Wait, Woken
from flyball.wake.mailbox import LOOK, Box, grant_of

if TYPE_CHECKING:
    import asyncio

    from flyball.governor.loopmail import LoopMail

R = TypeVar("R")


# -- sync -------------------------------------------------------------------------------------------


class ThreadMail(threading.local):
    """The mailbox of the current thread, opened when first needed and kept for the next wait."""

    def __init__(self) -> None:
        self._boxes: dict[str, Box | None] = {}

    def box(self, address: str, open_box: Callable[[], Box | None]) -> Box | None:
        """The one for a place of state; ``open_box`` makes it."""
        box = self._boxes.get(address)
        if box is None or not box.ours:
            box = self._boxes[address] = open_box()
        return box

    def close(self) -> None:
        """Before this process becomes another program: leave no socket file behind."""
        for box in self._boxes.values():
            if box is not None:
                box.close()
        self._boxes = {}


thread_mail = ThreadMail()


def run_sync(flow: Flow[R], box: Box | None) -> R:
    """Drive a flow to its end in this thread."""
    try:
        effect = next(flow)
        while True:
            try:
                result = effect.run() if isinstance(effect, Call) else _wait_sync(effect, box)
            except BaseException as error:
                effect = flow.throw(error)
            else:
                effect = flow.send(result)
    except StopIteration as stop:
        value: R = stop.value
        return value


def _wait_sync(wait: Wait, box: Box | None) -> Woken:
    poller = select.poll()
    if box is not None:
        if box.mend():
            return Woken.MAIL
        poller.register(box.fileno(), select.POLLIN)
    for fd in wait.watch.fds if wait.watch else ():
        poller.register(fd, select.POLLIN)
    deadline = time.monotonic() + wait.timeout_s
    while True:
        left_s = deadline - time.monotonic()
        ready = poller.poll(max(0, int(left_s * 1000 + 0.999)))
        if not ready:
            return Woken.TIMER
        if any(box is None or fd != box.fileno() for fd, _ in ready):
            return Woken.DEATH
        # Mail for an earlier claim of this thread is old news.
        while box is not None and (told := box.receive()) is not None:
            if told == grant_of(wait.claim_id):
                return Woken.GRANT
            if told in (wait.claim_id, LOOK):
                return Woken.MAIL


# -- async ------------------------------------------------------------------------------------------


async def run_async(flow: Flow[R], mail: LoopMail, undo: Callable[[R], Flow[Any]] | None = None) -> R:
    """Drive a flow on the running loop. ``undo`` gives back a result that a cancellation makes useless."""
    cancelled: BaseException | None = None
    try:
        effect = next(flow)
        while True:
            try:
                if isinstance(effect, Call):
                    done, late = await _call_in_thread(effect)
                    cancelled = cancelled or late
                    result = done.result()
                elif cancelled is not None:
                    raise cancelled
                else:
                    result = await mail.wait(effect)
            except BaseException as error:
                effect = flow.throw(error)
            else:
                effect = flow.send(result)
    except StopIteration as stop:
        value: R = stop.value
    except BaseException as error:
        if cancelled is not None and error is not cancelled:
            raise cancelled from error
        raise
    if cancelled is not None:
        if undo is not None:
            await run_async(undo(value), mail)
        raise cancelled
    return value


async def _call_in_thread(call: Call) -> tuple[asyncio.Future[Any], asyncio.CancelledError | None]:
    """The finished call, and the cancellation that arrived meanwhile: no store call is left half done."""
    import asyncio

    task = asyncio.get_running_loop().run_in_executor(store_thread(), call.run)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    return task, cancelled


_executors: dict[int, Any] = {}


def store_thread() -> Any:
    """One background thread per process; a forked child starts its own."""
    pid = os.getpid()
    if pid not in _executors:
        from concurrent.futures import ThreadPoolExecutor

        _executors[pid] = ThreadPoolExecutor(1, thread_name_prefix="flyball-store")
    return _executors[pid]
