"""The governor for those without a process, from a thread and from a loop, without any HTTP."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from flyball.core.model import Outcome
from flyball.core.verdict import Kind, Reason
from flyball.governor.afar import Afar, Order
from flyball.governor.governor import Governor
from tests.service.kit import until
from tests.service.leases_kit import STORES, url_for


@pytest.fixture(params=STORES)
def governor(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Governor]:
    governor = Governor(url_for(request.param, request, tmp_path))
    yield governor
    governor.close()


def order(pool: str, **rest: object) -> Order:
    return Order(pool=pool, project="p", name="n", **rest)  # type: ignore[arg-type]


def pool_of(governor: Governor, name: str, cap: int = 1) -> str:
    governor.set_pool(name, cap=cap, adaptive=False)
    return name


def test_a_thread_waits_until_another_gives_back(governor: Governor) -> None:
    pool, afar = pool_of(governor, "afar-thread"), Afar(governor)
    first = afar.place(order(pool), park=True)
    second = afar.place(order(pool), park=True)
    assert (first.kind, second.kind) == (Kind.GRANTED, Kind.PARKED)
    threading.Timer(0.1, afar.end, (first.claim_id, Outcome.FINISHED)).start()
    lease = afar.wait(second.claim_id, timeout_s=20, ttl_s=30)
    assert lease is not None
    assert lease.held
    afar.withdraw(second.claim_id)
    assert afar.wait(second.claim_id, timeout_s=20) is None
    afar.close()


def test_tokens_are_the_same_for_every_server_of_a_store(governor: Governor) -> None:
    one, other = (
        Afar(governor),
        Afar(Governor(governor.address) if governor.address != "memory:" else governor),
    )
    assert one.token(7) == other.token(7)
    assert other.matches(7, one.token(7))
    assert not other.matches(8, one.token(7))
    assert not other.matches(7, one.token(7, about="more"))
    assert not other.matches(7, "ü")


def test_slots_of_dead_processes_are_given_to_whoever_asks_from_afar(governor: Governor) -> None:
    import subprocess

    pool, afar = pool_of(governor, "afar-dead"), Afar(governor)
    with subprocess.Popen(["sleep", "60"]) as process:
        governor.hold(process.pid, pool, project="q", name="dead")
        assert afar.place(order(pool), park=False).reason is Reason.CAP
        process.kill()
    until(lambda: afar.place(order(pool), park=False).granted, "the slot comes back")
    afar.close()


def test_a_loop_that_sweeps_hands_on_what_has_expired(governor: Governor) -> None:
    pool = pool_of(governor, "afar-loop")

    async def main() -> None:
        afar = Afar(governor)
        sweeping = asyncio.create_task(afar.run())
        await afar.place_async(order(pool, ttl_s=0.2), park=False)
        asks = [await afar.place_async(order(pool), park=True) for _ in range(2)]
        waits = [afar.wait_async(ask.claim_id, pool=pool, timeout_s=20, ttl_s=60.0) for ask in asks]
        first, second = (asyncio.create_task(wait) for wait in waits)
        claim = await first
        assert claim is not None
        assert claim.held
        afar.drain()
        left = await second
        assert left is not None
        assert not left.held
        sweeping.cancel()
        await asyncio.wait({sweeping})
        afar.close()

    asyncio.run(main())
