"""Two drivers for one flow: a thread that may block, and an event loop that may not.

Sync waits in ``poll`` on the thread's own mailbox. Async has one mailbox per event loop and runs store calls
on one background thread, so that a busy file never stalls the loop. Cancelling an async wait first lets the
store call in progress finish, so that a slot granted at that moment is given back, not lost. A loop may also
be closed with tasks in it, which cannot await any more: a thread of its own gives up what they asked for.
"""

from __future__ import annotations

import _thread
import select
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

from flyball.errors import RefusedError, StoreError
from flyball.governor.acquisition import Effect, Flow, StoreCall, WaitForWake, WakeReason
from flyball.host.flow import drive, drive_async
from flyball.wake.mailbox import LOOK, Box

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

    from flyball.governor.loop_mailbox import LoopMailbox
    from flyball.host.off_loop import Threads

R = TypeVar("R")


# -- sync -------------------------------------------------------------------------------------------


def run_sync(flow: Flow[R], box: Box | None) -> R:
    """Drive a flow to its end in this thread."""
    return drive(
        flow, lambda effect: effect.run() if isinstance(effect, StoreCall) else _wait_sync(effect, box)
    )


def _wait_sync(wait: WaitForWake, box: Box | None) -> WakeReason:
    poller = select.poll()
    if box is not None:
        if box.mend():
            return WakeReason.MAIL
        poller.register(box.fileno(), select.POLLIN)
    for fd in wait.watch.fds if wait.watch else ():
        poller.register(fd, select.POLLIN)
    deadline = time.monotonic() + wait.timeout_s
    while True:
        left_s = deadline - time.monotonic()
        ready = poller.poll(max(0, int(left_s * 1000 + 0.999)))
        if not ready:
            return WakeReason.TIMER
        if any(box is None or fd != box.fileno() for fd, _ in ready):
            return WakeReason.DEATH
        # Mail for an earlier claim of this thread is old news.
        while box is not None and (told := box.receive()) is not None:
            if told in (wait.claim_id, LOOK):
                return WakeReason.MAIL


# -- async ------------------------------------------------------------------------------------------


_under_way: set[Flow[Any]] = set()
"""The collector ends a task and all that only the task knows, in any order; a flow is ended by its driver."""


async def run_async(flow: Flow[R], mail: LoopMailbox, undo: Callable[[R], Flow[Any]] | None = None) -> R:
    """Drive a flow on the running loop. ``undo`` gives back a result that a cancellation makes useless."""
    import asyncio

    from flyball.host.off_loop import outlast

    cancelled: BaseException | None = None
    begun: Future[Any] | None = None

    async def perform(effect: Effect) -> Any:
        nonlocal begun, cancelled
        if isinstance(effect, StoreCall):
            begun = store_threads().submit(effect.run)
            done = asyncio.wrap_future(begun)
            late = await outlast(done)
            begun, cancelled = None, cancelled or late
            return done.result()
        if cancelled is not None:
            raise cancelled
        return await mail.wait(effect)

    def abandon() -> None:
        nonlocal cancelled
        aside(partial(_give_up, flow, begun, undo))
        cancelled = None

    _under_way.add(flow)
    try:
        value = await drive_async(flow, perform, abandon=abandon)
    except BaseException as error:
        if cancelled is not None and error is not cancelled:
            raise cancelled from error
        raise
    finally:
        _under_way.discard(flow)
    if cancelled is not None:
        if undo is not None:
            await run_async(undo(value), mail)
        raise cancelled
    return value


def _give_up(flow: Flow[R], begun: Future[Any] | None, undo: Callable[[R], Flow[Any]] | None) -> None:
    """End a flow that no task awaits any more, in this thread; a call that was begun finishes first."""
    gone = GeneratorExit()
    try:
        effect = flow.throw(gone) if begun is None else _advance(flow, begun.result)
        while True:
            effect = _advance(flow, effect.run) if isinstance(effect, StoreCall) else flow.throw(gone)
    except StopIteration as stop:
        if undo is not None:
            run_sync(undo(stop.value), None)
    except (GeneratorExit, StoreError, RefusedError):
        # A store that cannot be written now was told by the flow to remember.
        return


def _advance(flow: Flow[Any], run: Callable[[], Any]) -> Effect:
    try:
        result = run()
    except Exception as error:
        return flow.throw(error)
    return flow.send(result)


def aside(work: Callable[[], object]) -> None:
    """Soon, in a thread of its own. For what the garbage collector ends: it may have come while this thread
    holds any lock, so nothing can be done on the spot, and even ``threading.Thread`` has locks.
    """
    with suppress(RuntimeError):  # the process ends, and with it what it asked for and held
        _thread.start_new_thread(work, ())


def running_loop() -> asyncio.AbstractEventLoop | None:
    from asyncio import get_running_loop

    try:
        return get_running_loop()
    except RuntimeError:
        return None


@cache
def store_threads() -> Threads:
    """One background thread for store calls, for all event loops of this process."""
    from flyball.host.off_loop import Threads

    return Threads(1, "flyball-store")
