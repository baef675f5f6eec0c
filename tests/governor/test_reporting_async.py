"""What a provider said is written while the event loop goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from flyball import Governor, Throttled
from flyball.core.signals import Signal, SignalKind
from flyball.integrations.gate import Pool
from flyball.integrations.held_slot import AsyncHold
from tests.governor.people import nothing_left
from tests.waiting import LONGEST_S

Told = Callable[[Governor], Awaitable[None]]


async def by_an_error(gov: Governor) -> None:
    with pytest.raises(Throttled):
        async with gov.slot("p"):
            raise Throttled("slow down", retry_after_s=1)


async def by_a_report(gov: Governor) -> None:
    async with gov.slot("p") as lease:
        said = await lease.report_async(429, {"retry-after": "1"})
        assert (said.kind, lease.rejected) == (SignalKind.THROTTLED, True)


async def by_a_client(gov: Governor) -> None:
    hold = await AsyncHold.of(Pool(gov, "p"), {})
    await hold.tell(Signal(SignalKind.THROTTLED, 1.0), news=True)
    await hold.free()


@pytest.mark.parametrize("told", [by_an_error, by_a_report, by_a_client])
@pytest.mark.parametrize("url", ["memory", "sqlite"], indirect=True)
def test_a_throttle_is_written_by_another_thread_than_the_loops(gov: Governor, told: Told) -> None:
    wrote: list[int] = []
    gov.observers.append(lambda fact: wrote.append(threading.get_ident()))

    async def story() -> None:
        await told(gov)

    asyncio.run(asyncio.wait_for(story(), LONGEST_S))
    assert wrote
    assert threading.get_ident() not in wrote
    assert nothing_left(gov)


@pytest.mark.parametrize("url", ["memory"], indirect=True)
def test_a_cancelled_report_is_written_and_its_slot_given_back(gov: Governor) -> None:
    async def story() -> None:
        writing, go_on = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def wait_to_write(fact: object) -> None:
            loop.call_soon_threadsafe(writing.set)
            go_on.wait(LONGEST_S)

        gov.observers.append(wait_to_write)
        task = asyncio.create_task(by_a_report(gov))
        await writing.wait()
        task.cancel()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(asyncio.wait_for(story(), LONGEST_S))
    assert nothing_left(gov)
    assert [fact.kind for fact in gov.facts()] == ["closed"]
