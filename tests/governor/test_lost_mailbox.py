"""A cleaner of /tmp, or a person, removes the mailboxes of living processes: the next wait has one again."""

from __future__ import annotations

import asyncio
import shutil
import threading

import pytest

from flyball import Governor
from flyball.governor.state_url import mail_home
from flyball.wake.mailbox import folder_for
from tests.governor.people import Person, nothing_left, pool, wait_for_line
from tests.waiting import LONGEST_S, until

pytestmark = pytest.mark.parametrize("url", ["memory", "sqlite"], indirect=True)


def remove_mailboxes(gov: Governor) -> None:
    shutil.rmtree(folder_for(mail_home(gov.address)))


def reachable(gov: Governor) -> bool:
    folder = folder_for(mail_home(gov.address))
    return folder.is_dir() and any(folder.iterdir())


def test_a_thread_that_waits_again_is_woken(gov: Governor) -> None:
    held, served, go = gov.acquire("p"), threading.Event(), threading.Event()

    def worker() -> None:
        gov.acquire("p").release()
        served.set()
        go.wait()
        gov.acquire("p").release()

    working = Person(worker)
    wait_for_line(gov)
    held.release()
    assert served.wait(LONGEST_S)
    held = gov.acquire("p")
    remove_mailboxes(gov)
    go.set()
    wait_for_line(gov)
    until(lambda: reachable(gov))
    held.release()
    working.outcome()
    assert nothing_left(gov)


def test_a_task_that_waits_again_is_woken(gov: Governor) -> None:
    async def hand_over() -> None:
        held = await gov.acquire_async("p")
        waiting = asyncio.create_task(gov.acquire_async("p"))
        while pool(gov).waiting != 1 or not reachable(gov):
            await asyncio.sleep(0.001)
        await gov.release_async(held)
        await gov.release_async(await waiting)

    async def story() -> None:
        await hand_over()
        remove_mailboxes(gov)
        await hand_over()

    asyncio.run(asyncio.wait_for(story(), LONGEST_S))
    assert nothing_left(gov)
