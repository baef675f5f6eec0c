"""Event loops come and go; what one of them leaves behind is nobody's burden."""

from __future__ import annotations

import asyncio
import gc
import weakref
from pathlib import Path

import pytest

from flyball import Governor
from flyball.governor.location import mail_home
from flyball.wake.mailbox import mail_folder
from tests.governor.people import nothing_left

pytestmark = pytest.mark.parametrize("url", ["memory", "sqlite"], indirect=True)


def mailboxes(gov: Governor) -> list[Path]:
    return list(mail_folder(mail_home(gov.address)).iterdir())


async def one_call(gov: Governor) -> None:
    async with gov.slot("p"):
        pass


def test_closed_loops_leave_no_mailboxes_behind_even_if_somebody_keeps_them(gov: Governor) -> None:
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
    gc.collect()
    assert kept() is None
    assert mailboxes(gov) == []
