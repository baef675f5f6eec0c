"""A store that cannot be written: the caller's own error counts, and the slot still comes back."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path

import pytest

from flyball import Governor
from flyball.core.pool.model import Phase
from flyball.errors import AtCapacityError, StoreBusyError, StoreError, WaitTimeoutError
from flyball.governor.internals import internals
from flyball.stores.port import AfterCommit, Release
from flyball.stores.sqlite import schema
from flyball.testing import FaultyStore
from tests.governor.people import nothing_left, pool
from tests.waiting import until


def test_a_release_that_cannot_be_written_does_not_hide_the_callers_error(
    broken: FaultyStore, gov: Governor, caplog: pytest.LogCaptureFixture
) -> None:
    broken.break_on("release")
    with pytest.raises(ZeroDivisionError), gov.slot("p"):
        raise ZeroDivisionError
    assert "goes out with the next call" in caplog.text


def test_a_release_that_cannot_be_written_is_not_an_error_of_the_caller(
    broken: FaultyStore, gov: Governor
) -> None:
    with gov.slot("p"):
        broken.break_on("release")


def test_a_release_that_could_not_be_written_goes_out_with_the_next_call(
    broken: FaultyStore, gov: Governor
) -> None:
    with gov.slot("p"):
        broken.break_on("release")
    broken.mend()
    gov.acquire_nowait("p").release()
    assert nothing_left(gov)


def test_the_same_holds_for_tasks(broken: FaultyStore, gov: Governor) -> None:
    async def story() -> None:
        broken.break_on("release")
        with pytest.raises(ZeroDivisionError):
            async with gov.slot("p"):
                raise ZeroDivisionError
        broken.mend()
        await gov.release_async(await gov.acquire_async("p", timeout=5))

    asyncio.run(story())
    assert nothing_left(gov)


def test_a_cancellation_during_a_release_that_fails_is_not_lost(
    faulty: list[FaultyStore], gov: Governor, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancelled = threading.Event()
    lease = gov.acquire("p")

    def slow_and_broken(_: Release) -> AfterCommit:
        cancelled.wait(5)
        raise StoreError("disk on fire")

    monkeypatch.setattr(faulty[0], "release", slow_and_broken, raising=False)

    async def work() -> None:
        await gov.release_async(lease)
        await asyncio.sleep(0)

    async def story() -> None:
        task = asyncio.create_task(work())
        await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.sleep(0)
        cancelled.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(story())


def test_giving_up_while_the_store_is_broken_raises_what_the_caller_expects(
    broken: FaultyStore, gov: Governor
) -> None:
    lease = gov.acquire("p")
    broken.break_on("withdraw")
    with pytest.raises(WaitTimeoutError):
        gov.acquire("p", timeout=0)
    broken.mend()
    lease.release()
    gov.acquire_nowait("p").release()
    assert nothing_left(gov)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_an_ask_that_could_not_be_withdrawn_never_counts_as_work_that_finished(
    broken: FaultyStore, gov: Governor, url: str
) -> None:
    """Another process hands it the trial after its owner gave up: that says nothing about the provider."""
    gov.set_pool("q", cap=1, controller="koryph", cap_ceiling=2, break_s=0.1, trial_clean_s=600.0)
    with gov.slot("q") as lease:
        lease.report(429)
    broken.break_on("withdraw")
    with pytest.raises(WaitTimeoutError):
        gov.acquire("q", timeout=0)
    broken.mend()
    (ask,), other = pool(gov, "q").asks, Governor(url)
    until(lambda: pool(gov, "q").breaker == Phase.TRIAL.value)
    verdict, _ = internals(other).store.poll(ask.id, advance=True)
    assert verdict is not None
    assert verdict.granted
    gov.acquire_nowait("p").release()
    assert (pool(gov, "q").breaker, pool(gov, "q").in_use) == (Phase.TRIAL.value, 0)
    other.close()


def test_an_ask_that_cannot_be_written_is_an_error(broken: FaultyStore, gov: Governor) -> None:
    broken.break_on("admit")
    with pytest.raises(StoreError), gov.slot("p"):
        raise AssertionError("ran without a slot")


def test_a_wait_that_cannot_be_looked_at_leaves_nothing_behind(broken: FaultyStore, gov: Governor) -> None:
    lease = gov.acquire("p")
    broken.break_on("poll", "holders", "pool_census")
    with pytest.raises(StoreError):
        gov.acquire("p", timeout=1)
    broken.mend()
    lease.release()
    assert nothing_left(gov)


# -- a real file ------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_file_locked_by_another_program_is_reported_and_the_release_is_kept(
    url: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "BUSY_TIMEOUT_S", 0.05)
    gov = Governor(url)
    gov.set_pool("p", cap=1, adaptive=False)
    intruder = sqlite3.connect(home / "governor.db", isolation_level=None)
    with gov.slot("p"):
        intruder.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusyError, match="locked by another program"):
            gov.acquire_nowait("p")
    intruder.execute("ROLLBACK")
    intruder.close()
    gov.acquire_nowait("p").release()
    assert nothing_left(gov)
    gov.close()


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_closing_leaves_leases_held(gov: Governor, url: str) -> None:
    gov.acquire("p")
    gov.close()
    with pytest.raises(AtCapacityError):
        Governor(url).acquire_nowait("p")


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_closed_governor_opens_again_when_used(gov: Governor) -> None:
    gov.close()
    gov.acquire("p").release()
    assert nothing_left(gov)
