"""One mailbox, many waiters on one event loop."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from flyball.wake.inbox import Inbox, Wake
from flyball.wake.mailbox import LOOK, OVERFLOW, Mailbox, open_mailbox, path_of, send

LONG_S = 60.0


class Recording(Inbox):
    misses, calling = 0, False

    def look_for_grants(self) -> None:
        self.misses += 1

    def is_calling(self) -> bool:
        return self.calling


Scene = Callable[[Recording], Awaitable[None]]


@pytest.fixture
def run(tmp_path: Path) -> Callable[[Scene], None]:
    def run(scene: Scene) -> None:
        async def main() -> None:
            inbox = Recording(asyncio.get_running_loop(), open_mailbox(tmp_path))
            try:
                await scene(inbox)
            finally:
                inbox.close()

        asyncio.run(main())

    return run


def test_mail_wakes_the_waiters_of_its_claim_and_no_others(run: Callable[[Scene], None]) -> None:
    async def scene(inbox: Recording) -> None:
        async def wait(claim_id: int, timeout_s: float) -> Wake | None:
            with inbox.waiter(claim_id) as waiter:
                return await waiter.wait(timeout_s)

        waits = [asyncio.ensure_future(wait(*each)) for each in ((1, LONG_S), (1, LONG_S), (2, 0.05))]
        await asyncio.sleep(0)
        send(inbox.address, 1)
        assert await asyncio.gather(*waits) == [Wake.LOOK, Wake.LOOK, None]
        assert len(inbox) == 0

    run(scene)


def test_mail_that_comes_before_its_waiter_is_kept_as_a_word_to_look(run: Callable[[Scene], None]) -> None:
    async def scene(inbox: Recording) -> None:
        inbox.tell([7], Wake.GRANTED)
        inbox.tell([7], Wake.LOOK)
        inbox.tell_waiting([8], Wake.GRANTED)
        with inbox.waiter(7) as told, inbox.waiter(8) as other:
            assert await told.wait(LONG_S) is Wake.LOOK
            assert await told.wait(0) is None, "once"
            assert await other.wait(0) is None, "it did not wait then"

    run(scene)


def test_of_several_wakes_the_highest_counts(run: Callable[[Scene], None]) -> None:
    async def scene(inbox: Recording) -> None:
        with inbox.waiter(7) as waiter:
            for what in (Wake.LOOK, Wake.LEFT, Wake.GRANTED):
                waiter.tell(what)
            assert await waiter.wait(LONG_S) is Wake.LEFT

    run(scene)


@pytest.mark.parametrize("mail", [[LOOK], list(range(1, OVERFLOW + 1))])
def test_where_mail_may_be_lost_all_grants_are_asked_for(
    run: Callable[[Scene], None], mail: list[int]
) -> None:
    async def scene(inbox: Recording) -> None:
        for waiting in (False, True):
            for claim_id in mail:
                send(inbox.address, claim_id)
            if waiting:
                with inbox.waiter(99) as waiter:
                    await waiter.wait(0.05)
            else:
                await asyncio.sleep(0.05)
            assert inbox.misses == int(waiting), "only where a waiter waits"

    run(scene)


def test_mail_waits_a_moment_for_a_step_that_says_more(run: Callable[[Scene], None]) -> None:
    async def scene(inbox: Recording) -> None:
        inbox.calling = True
        with inbox.waiter(7) as waiter:
            send(inbox.address, 7)
            asyncio.get_running_loop().call_later(0, inbox.tell, [7], Wake.GRANTED)
            assert await waiter.wait(LONG_S) is Wake.GRANTED

    run(scene)


def test_a_mailbox_whose_file_is_gone_is_made_anew_and_all_look(run: Callable[[Scene], None]) -> None:
    async def scene(inbox: Recording) -> None:
        assert not inbox.mend()
        Path(path_of(inbox.address)).unlink()
        assert inbox.mend()
        assert inbox.misses == 1
        with inbox.waiter(7) as waiter:
            send(inbox.address, 7)
            assert await waiter.wait(LONG_S) is Wake.LOOK

    run(scene)


def test_a_cancelled_waiter_leaves_nothing_behind(run: Callable[[Scene], None]) -> None:
    async def scene(inbox: Recording) -> None:
        async def wait() -> None:
            with inbox.waiter(7) as waiter:
                await waiter.wait(LONG_S)

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        assert len(inbox) == 0

    run(scene)


def test_an_inbox_does_not_keep_the_loop_of_a_waiter_that_was_left_in_it(tmp_path: Path) -> None:
    loop = asyncio.new_event_loop()
    inbox = Recording(loop, Mailbox(tmp_path))

    async def wait() -> None:
        with inbox.waiter(7) as waiter:
            await waiter.wait(LONG_S)

    loop.set_exception_handler(lambda *_: None)  # it complains of the task that was left
    waiting = loop.create_task(wait())
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    seen = weakref.ref(loop)
    del loop, waiting
    gc.collect()
    assert seen() is None
    assert len(inbox) == 0
    inbox.close()


def test_a_grant_counts_for_waiters_from_before_it_and_others_look(run: Callable[[Scene], None]) -> None:
    async def scene(inbox: Recording) -> None:
        with inbox.waiter(1) as before:
            newest = inbox.newest
            with inbox.waiter(1) as later:
                inbox.tell([1, 2], Wake.GRANTED, newest=newest)
                assert await before.wait(LONG_S) is Wake.GRANTED
                assert await later.wait(LONG_S) is Wake.LOOK
        with inbox.waiter(2) as after:
            assert await after.wait(LONG_S) is Wake.LOOK, "it was told before this one came"

    run(scene)
