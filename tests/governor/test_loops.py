"""Event loops come and go; what one of them leaves behind burdens no other."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from pathlib import Path

import pytest

from flyball import Governor
from flyball.governor.flow_drivers import store_threads
from flyball.governor.state_url import mail_home
from flyball.wake.mailbox import mail_folder
from tests.governor.people import in_use, nothing_left, pool, wait_for_line
from tests.waiting import LONGEST_S, until

pytestmark = pytest.mark.parametrize("url", ["memory", "sqlite"], indirect=True)


def mailboxes(gov: Governor) -> list[Path]:
    return list(mail_folder(mail_home(gov.address)).iterdir())


async def one_call(gov: Governor) -> None:
    async with gov.slot("p"):
        pass


def test_closed_loops_leave_no_mailboxes_behind_even_if_they_are_kept(gov: Governor) -> None:
    kept = []
    for _ in range(5):
        with asyncio.Runner() as runner:
            runner.run(one_call(gov))
            kept.append(runner.get_loop())
            assert len(mailboxes(gov)) == 1
    assert all(loop.is_closed() for loop in kept)
    assert nothing_left(gov)


def test_a_loop_that_asked_is_not_kept(gov: Governor) -> None:
    loop = asyncio.new_event_loop()
    loop.run_until_complete(one_call(gov))
    loop.close()
    kept = weakref.ref(loop)
    del loop
    # The thread that made the store call lets go of it a moment after it has answered.
    until(lambda: gc.collect() >= 0 and kept() is None)
    assert mailboxes(gov) == []


# -- closed with tasks in them ------------------------------------------------------------------------


async def work(gov: Governor) -> None:
    async with gov.slot("p"):
        await asyncio.Event().wait()


def leave(loop: asyncio.AbstractEventLoop) -> None:
    """Close it without cancelling its tasks, which the collector then ends, with a word about each."""
    loop.set_exception_handler(lambda loop, context: None)
    loop.close()


async def line_of(gov: Governor, length: int) -> None:
    while pool(gov).waiting != length:
        await asyncio.sleep(0.001)


def test_a_waiter_in_a_loop_that_is_closed_leaves_the_line(gov: Governor) -> None:
    held, loop = gov.acquire_nowait("p"), asyncio.new_event_loop()
    task = loop.create_task(work(gov))
    loop.run_until_complete(line_of(gov, 1))
    leave(loop)
    del task, loop
    gc.collect()
    wait_for_line(gov, 0)
    held.release()
    assert nothing_left(gov)
    assert mailboxes(gov) == []


@pytest.mark.parametrize("full", [True, False])
def test_a_task_that_asks_as_its_loop_is_closed_leaves_neither_an_ask_nor_a_lease(
    gov: Governor, full: bool
) -> None:
    """Its store call is in progress, and finishes after the loop did."""
    held = gov.acquire("p") if full else None
    asked, go_on = threading.Event(), threading.Event()
    store_threads().submit(go_on.wait)
    loop = asyncio.new_event_loop()
    task = loop.create_task(work(gov))
    loop.run_until_complete(asyncio.sleep(0))
    leave(loop)
    del task, loop
    go_on.set()
    store_threads().submit(asked.set)
    assert asked.wait(LONGEST_S)
    gc.collect()
    until(lambda: pool(gov).waiting == 0 and in_use(gov) == int(full))
    if held is not None:
        held.release()
    assert nothing_left(gov)


def test_what_is_held_in_a_loop_that_is_closed_is_given_back(gov: Governor) -> None:
    loop = asyncio.new_event_loop()
    task = loop.create_task(work(gov))

    async def granted() -> None:
        while not in_use(gov):
            await asyncio.sleep(0.001)

    loop.run_until_complete(granted())
    leave(loop)
    del task, loop
    gc.collect()
    until(lambda: nothing_left(gov))
