"""The governor for those without a process, from a thread and from a loop, without any HTTP."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from flyball.core.pool.model import Ask, Claim, Outcome
from flyball.core.pool.verdict import Reason, Verdict, VerdictKind
from flyball.governor.governor import Governor
from flyball.governor.internals import internals
from flyball.governor.remote.leases import RemoteAsk, RemoteLeases, WaitSchedule
from flyball.stores.port import AfterCommit
from tests.service.leases_kit import STORES, url_for


@pytest.fixture(params=STORES)
def governor(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Governor]:
    governor = Governor(url_for(request.param, request, tmp_path))
    yield governor
    governor.close()


def order(pool: str, **rest: object) -> RemoteAsk:
    return RemoteAsk(pool=pool, project="p", name="n", **rest)  # type: ignore[arg-type]


def pool_of(governor: Governor, name: str, cap: int = 1) -> str:
    governor.set_pool(name, cap=cap, adaptive=False)
    return name


def test_an_ask_waits_until_a_slot_is_given_back_and_is_gone_once_withdrawn(governor: Governor) -> None:
    pool = pool_of(governor, "afar-back")

    async def main() -> None:
        afar = RemoteLeases(governor)
        first = await afar.place_async(order(pool), park=True)
        second = await afar.place_async(order(pool), park=True)
        assert (first.kind, second.kind) == (VerdictKind.GRANTED, VerdictKind.PARKED)
        wait = partial(afar.wait_async, second.claim_id, pool=pool, timeout_s=60, look_first=True)
        waiting = asyncio.create_task(wait(ttl_s=30.0))
        await afar.end_async(first.claim_id, Outcome.FINISHED)
        assert (await waiting).held
        claim = await afar.claim_async(second.claim_id)
        assert claim is not None
        assert claim.expires_at is not None
        assert claim.expires_at - internals(governor).store.now() < 31, "kept for as long as it asked"
        await afar.withdraw_async(second.claim_id)
        assert (await wait(ttl_s=30.0)).gone
        afar.close()

    asyncio.run(main())


def test_a_slot_that_was_handed_over_and_given_back_is_gone_for_a_wait_that_begins_then(
    governor: Governor,
) -> None:
    """The word that it was handed over came while no request waited for it."""
    pool = pool_of(governor, "afar-over")

    async def main() -> None:
        afar = RemoteLeases(governor)
        first = await afar.place_async(order(pool), park=True)
        second = await afar.place_async(order(pool), park=True)
        await afar.end_async(first.claim_id, Outcome.FINISHED)
        await afar.withdraw_async(second.claim_id)
        found = await afar.wait_async(second.claim_id, pool=pool, timeout_s=60, ttl_s=30.0, look_first=True)
        assert found.gone
        afar.close()

    asyncio.run(main())


class TestWhenAWaitGoesOnByItself:
    """With a clock that a test moves."""

    now = 100.0

    def schedule(self, *, timeout_s: float, ttl_s: float | None) -> WaitSchedule:
        return WaitSchedule(lambda: self.now, timeout_s=timeout_s, ttl_s=ttl_s)

    def test_at_its_end(self) -> None:
        due = self.schedule(timeout_s=20, ttl_s=None)
        assert (due.sleep_s(woken_here=True), due.is_over(), due.take_extension()) == (20, False, False)
        self.now += 20
        assert (due.sleep_s(woken_here=True), due.is_over(), due.take_extension()) == (0, True, False)

    def test_half_way_through_the_life_of_its_ask(self) -> None:
        due = self.schedule(timeout_s=20, ttl_s=12)
        assert due.sleep_s(woken_here=True) == 6
        self.now += 7
        assert due.take_extension()
        assert not due.take_extension()
        assert due.sleep_s(woken_here=True) == 6, "counted from when it was extended"

    def test_often_where_another_server_gets_its_mail(self) -> None:
        due = self.schedule(timeout_s=20, ttl_s=12)
        assert due.sleep_s(woken_here=False) < 1
        self.now += 19.9
        assert due.sleep_s(woken_here=False) <= 0, "to extend it"

    def test_an_ask_whose_wait_is_over_is_left_to_its_time(self) -> None:
        due = self.schedule(timeout_s=5, ttl_s=10)
        self.now += 5
        assert not due.take_extension()


def test_tokens_are_the_same_for_every_server_of_a_store(governor: Governor) -> None:
    one, other = (
        RemoteLeases(governor),
        RemoteLeases(Governor(governor.address) if governor.address != "memory:" else governor),
    )
    token = one.token(7, 12.5)
    assert token == other.token(7, 12.5)
    assert other.vouched_at(7, token) == 12.5
    assert other.vouched_at(8, token) is None
    assert other.vouched_at(7, one.token(7, 12.5, about="more")) is None
    assert other.vouched_at(7, "ü") is None
    assert other.vouched_at(7, one.token(7, 13.5)[:16] + token[16:]) is None


def test_slots_of_dead_processes_are_given_to_a_client_that_asks_from_afar(governor: Governor) -> None:
    import subprocess

    pool = pool_of(governor, "afar-dead")

    async def main() -> None:
        afar = RemoteLeases(governor)
        with subprocess.Popen(["sleep", "60"]) as process:
            governor.hold(process.pid, pool, project="q", name="dead")
            assert (await afar.place_async(order(pool), park=False)).reason is Reason.CAP
            process.kill()
        async with asyncio.timeout(60):
            while not (await afar.place_async(order(pool), park=False)).granted:
                await asyncio.sleep(0.02)
        afar.close()

    asyncio.run(main())


def test_a_loop_that_sweeps_hands_on_what_has_expired(governor: Governor) -> None:
    pool = pool_of(governor, "afar-loop")

    async def main() -> None:
        afar = RemoteLeases(governor)
        sweeping = asyncio.create_task(afar.run())
        await afar.place_async(order(pool, ttl_s=0.2), park=False)
        asks = [await afar.place_async(order(pool), park=True) for _ in range(2)]
        waits = [afar.wait_async(ask.claim_id, pool=pool, timeout_s=20, ttl_s=60.0) for ask in asks]
        first, second = (asyncio.create_task(wait) for wait in waits)
        assert (await first).held
        afar.drain()
        left = await second
        assert not left.held
        assert not left.gone
        sweeping.cancel()
        await asyncio.wait({sweeping})
        afar.close()

    asyncio.run(main())


def test_a_client_that_is_handed_a_slot_is_told_and_need_not_look(
    governor: Governor, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = pool_of(governor, "afar-told")
    looks: list[int] = []

    async def main() -> None:
        afar = RemoteLeases(governor)
        look = internals(governor).store.claim

        def looked(claim_id: int) -> Claim | None:
            looks.append(claim_id)
            return look(claim_id)

        monkeypatch.setattr(internals(governor).store, "claim", looked)
        first = await afar.place_async(order(pool), park=True)
        second = await afar.place_async(order(pool), park=True)
        waiting = asyncio.create_task(afar.wait_async(second.claim_id, pool=pool, timeout_s=20, ttl_s=60.0))
        while not len(afar._inbox or ()):
            await asyncio.sleep(0)
        await afar.end_async(first.claim_id)
        assert (await waiting).held
        # On a server, a process that begins to listen looks once, in case something was missed before.
        assert len(looks) <= 1
        await afar.withdraw_async(second.claim_id)
        afar.close()

    asyncio.run(main())


def test_a_wait_whose_client_left_ends(governor: Governor) -> None:
    pool = pool_of(governor, "afar-left")

    async def main() -> None:
        afar = RemoteLeases(governor)
        await afar.place_async(order(pool), park=True)
        second = await afar.place_async(order(pool), park=True)
        left: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        left.set_result(None)
        waited = await afar.wait_async(second.claim_id, pool=pool, timeout_s=20, ttl_s=60.0, left=left)
        assert (waited.left, waited.held, waited.gone) == (True, False, False)
        afar.close()

    asyncio.run(main())


def test_what_is_asked_in_one_turn_of_the_loop_is_granted_in_order(governor: Governor) -> None:
    pool = pool_of(governor, "afar-many", cap=5)

    async def main() -> None:
        afar = RemoteLeases(governor)
        asked = await asyncio.gather(*(afar.place_async(order(pool), park=False) for _ in range(40)))
        assert [verdict.granted for verdict in asked].count(True) == 5
        await asyncio.gather(*(afar.end_async(verdict.claim_id) for verdict in asked if verdict.granted))
        assert internals(governor).store.miscounts() == []
        again = await afar.place_async(order(pool), park=False)
        assert again.granted
        afar.close()

    asyncio.run(main())


def test_one_bad_ask_among_many_spoils_no_other(governor: Governor) -> None:
    from flyball.errors import UsageError

    pool = pool_of(governor, "afar-bad", cap=5)

    async def main() -> None:
        afar = RemoteLeases(governor)
        good = [afar.place_async(order(pool), park=False) for _ in range(3)]
        bad = afar.place_async(order(pool, slots=0), park=False)
        found = await asyncio.gather(good[0], bad, *good[1:], return_exceptions=True)
        assert isinstance(found[1], UsageError)
        granted = [verdict.granted for verdict in found if not isinstance(verdict, BaseException)]
        assert granted == [True, True, True]
        afar.close()

    asyncio.run(main())


def test_a_cancelled_ask_is_still_done_to_its_end(governor: Governor) -> None:
    pool = pool_of(governor, "afar-cancel")

    async def main() -> None:
        afar = RemoteLeases(governor)
        asking = asyncio.create_task(afar.place_async(order(pool), park=False))
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert not (await afar.place_async(order(pool), park=False)).granted
        afar.close()

    asyncio.run(main())


def test_a_client_that_comes_in_a_busy_moment_is_served_by_the_loop_once_it_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    governor = Governor(f"sqlite://{tmp_path}/governor.db")
    pool, store, by = pool_of(governor, "afar-busy", cap=9), internals(governor).store, []
    admit = store.admit

    def seen(ask: Ask, *, park: bool) -> tuple[Verdict, AfterCommit]:
        by.append(threading.current_thread())
        return admit(ask, park=park)

    monkeypatch.setattr(store, "admit", seen)

    async def story() -> list[VerdictKind]:
        afar, over = RemoteLeases(governor), threading.Event()
        busy = asyncio.create_task(afar.call(over.wait))
        await asyncio.sleep(0)
        placing = [asyncio.create_task(afar.place_async(order(pool), park=False)) for _ in range(3)]
        await asyncio.sleep(0.05)
        assert not by, "no ask overtakes what is under way"
        over.set()
        placed = await asyncio.gather(*placing)
        await busy
        afar.close()
        return [verdict.kind for verdict in placed]

    assert asyncio.run(story()) == [VerdictKind.GRANTED] * 3
    assert set(by) == {threading.main_thread()}
    governor.close()
