"""Closing a governor lets go of files; what is held stays held, and a waiter is served."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from flyball import Governor
from flyball.errors import AtCapacityError
from flyball.governor.state_url import mail_home
from flyball.wake.mailbox import mail_folder
from tests.governor.people import Person, in_use, nothing_left, pool, wait_for_line
from tests.waiting import LONGEST_S

pytestmark = pytest.mark.parametrize("url", ["memory", "sqlite"], indirect=True)


def test_what_is_held_stays_held_and_settings_stay(gov: Governor) -> None:
    lease = gov.acquire("p")
    gov.close()
    assert (in_use(gov), pool(gov).cap) == (1, 1)
    with pytest.raises(AtCapacityError):
        gov.acquire_nowait("p")
    lease.release()
    assert nothing_left(gov)


def test_a_thread_that_waits_is_served_afterwards(gov: Governor) -> None:
    lease = gov.acquire("p")
    waiting = Person(lambda: gov.acquire("p"))
    wait_for_line(gov)
    gov.close()
    lease.release()
    waiting.outcome().release()
    assert nothing_left(gov)


async def in_line(gov: Governor) -> None:
    while pool(gov).waiting != 1:
        await asyncio.sleep(0.001)


async def on_the_loop(work: Callable[[], None]) -> None:
    work()


@pytest.mark.parametrize("somewhere", [on_the_loop, asyncio.to_thread])
def test_a_task_that_waits_is_told_afterwards_as_before(
    gov: Governor, somewhere: Callable[[Callable[[], None]], object]
) -> None:
    """Told, not left to look by itself: its mailbox is read as long as it waits, and then closed."""

    async def story() -> None:
        lease = await gov.acquire_async("p")
        waiting = asyncio.create_task(gov.acquire_async("p"))
        await in_line(gov)
        (mailbox,) = mail_folder(mail_home(gov.address)).iterdir()
        await somewhere(gov.close)  # type: ignore[misc]
        assert mailbox.exists()
        await gov.release_async(lease)
        lease = await waiting
        assert not mailbox.exists()
        waiting = asyncio.create_task(gov.acquire_async("p"))
        await in_line(gov)
        assert len(list(mail_folder(mail_home(gov.address)).iterdir())) == 1
        await gov.release_async(lease)
        await gov.release_async(await waiting)

    asyncio.run(asyncio.wait_for(story(), LONGEST_S))
    assert nothing_left(gov)
