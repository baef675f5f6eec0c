"""A waiter in line when the store stops answering waits for it, says so, and goes on where it was."""

from __future__ import annotations

import asyncio

import pytest

from flyball import Governor
from flyball.core.pool.verdict import Reason, Verdict
from flyball.errors import StoreError, StoreUnreadableError
from flyball.testing import FaultyStore
from tests.governor.people import Person, nothing_left
from tests.waiting import until

LOOKING = ("poll", "holders", "pool_census")


def test_a_waiter_is_served_once_the_store_answers_again(broken: FaultyStore, gov: Governor) -> None:
    lease, heard = gov.acquire("p"), list[Verdict]()
    broken.break_on(*LOOKING)
    waiter = Person(lambda: gov.acquire("p", timeout=10, on_wait=heard.append))
    until(lambda: bool(heard) and heard[-1].reason is Reason.OUTAGE)
    broken.mend()
    until(lambda: heard[-1].reason is not Reason.OUTAGE)
    lease.release()
    waiter.outcome().release()
    assert nothing_left(gov)
    assert [verdict.reason is Reason.OUTAGE for verdict in heard] == [False, True, False]
    assert "the store is broken on purpose" in heard[1].words()


def test_so_is_a_task(broken: FaultyStore, gov: Governor) -> None:
    lease, heard = gov.acquire("p"), list[Verdict]()

    async def story() -> None:
        broken.break_on(*LOOKING)
        waiter = asyncio.create_task(gov.acquire_async("p", timeout=10, on_wait=heard.append))
        await asyncio.to_thread(until, lambda: bool(heard) and heard[-1].reason is Reason.OUTAGE)
        broken.mend()
        lease.release()
        await gov.release_async(await waiter)

    asyncio.run(story())
    assert nothing_left(gov)


def test_a_caller_that_arrives_during_an_outage_is_told_at_once(broken: FaultyStore, gov: Governor) -> None:
    broken.break_on("admit")
    with pytest.raises(StoreError):
        gov.acquire("p", timeout=60)


def test_what_waiting_cannot_mend_is_told_at_once(broken: FaultyStore, gov: Governor) -> None:
    lease = gov.acquire("p")
    broken.break_on(*LOOKING, error=StoreUnreadableError("written by a newer flyball"))
    with pytest.raises(StoreUnreadableError):
        gov.acquire("p", timeout=60)
    broken.mend()
    lease.release()
    assert nothing_left(gov)
