"""A share whose store cannot be heard: it closes by itself, and comes back by itself."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from flyball import Governor, PoolClosedError, Reason
from flyball.governor.internals import internals
from flyball.testing import FaultyStore
from tests.governor.sharing import POOL, Counter, Crowd, divided, in_use
from tests.waiting import LONGEST_S, until

BEAT_S = 0.1


class Hung(threading.Event):
    """Once it is set, renewals hang until it is cleared; they are handled then."""

    def __init__(self) -> None:
        super().__init__()
        self.has_one = threading.Event()
        """A renewal hangs: its share hears nothing any more."""


@pytest.fixture
def hung(broken: FaultyStore, monkeypatch: pytest.MonkeyPatch) -> Hung:
    hangs, renew = Hung(), broken.port.renew

    def hang(*arguments: object) -> object:
        while hangs.is_set():
            hangs.has_one.set()
            time.sleep(0.01)
        return renew(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(broken, "renew", hang, raising=False)
    return hangs


def test_it_is_fenced_when_the_store_fails_and_comes_back(broken: FaultyStore, gov: Governor) -> None:
    divided(gov, 2, heartbeat_s=BEAT_S)
    fences: list[float] = []
    with gov.share(POOL, node="a", on_fenced=lambda: fences.append(time.monotonic())) as share:
        until(lambda: share.stats().limit == 2, "both slots")
        broken.break_on("renew")
        until(lambda: share.stats().fenced, "the fence")
        until(lambda: fences, "on_fenced")
        with pytest.raises(PoolClosedError) as refused:
            share.acquire_nowait()
        assert refused.value.verdict.reason is Reason.FENCED
        assert "was not renewed" in str(refused.value)
        assert "broken on purpose" in share.stats().error
        assert len(fences) == 1
        broken.mend()
        until(lambda: share.stats().limit == 2, "both slots again")
        assert share.stats().error == ""
    assert in_use(gov) == 0


def test_it_is_fenced_though_the_store_hangs(hung: Hung, gov: Governor) -> None:
    divided(gov, 2, heartbeat_s=BEAT_S)
    fenced = threading.Event()
    with gov.share(POOL, node="a", on_fenced=fenced.set) as share:
        until(lambda: share.stats().limit == 2, "both slots")
        hung.set()
        # On a busy machine it may have been fenced before, by a renewal that was late and still answered.
        assert hung.has_one.wait(LONGEST_S)
        until(lambda: share.stats().fenced, "the fence")
        assert fenced.wait(LONGEST_S)
        with pytest.raises(PoolClosedError):
            share.acquire_nowait()
        hung.clear()
        until(lambda: share.stats().limit == 2, "both slots again")


def test_its_slots_are_given_away_only_after_its_fence(hung: Hung, gov: Governor) -> None:
    divided(gov, 2, heartbeat_s=BEAT_S)
    counter = Counter()
    other = Governor(gov.address)
    with gov.share(POOL, node="a") as a:
        until(lambda: a.stats().limit == 2, "both slots")
        crowd = Crowd(a, counter, workers=4)
        until(lambda: counter.pieces > 10, "the first to work")
        hung.set()
        if gov.address == "memory:":
            hung.clear()
            crowd.stop()
            pytest.skip("no other process reaches a store in memory")
        with other.share(POOL, node="b") as b:
            also = Crowd(b, counter, workers=4)
            until(lambda: b.stats().limit == 2 and also.pieces > 10, "the second to have it all")
            assert a.stats().fenced
            hung.clear()
            until(lambda: a.stats().limit == 1, "both to share")
            also.stop()
        crowd.stop()
    other.close()
    assert counter.most <= 2


def test_local_serves_through_an_outage(broken: FaultyStore, gov: Governor) -> None:
    divided(gov, 4, heartbeat_s=BEAT_S)
    fences: list[int] = []
    with gov.share(POOL, node="a", on_outage="local", local=2, on_fenced=lambda: fences.append(1)) as share:
        until(lambda: share.stats().slots == 4, "the store's word")
        broken.break_on("renew")
        until(lambda: share.stats().limit == 2 and share.stats().fenced, "its own word")
        with share.slot(), share.slot():
            assert share.stats().in_flight == 2
        broken.mend()
        until(lambda: not share.stats().fenced, "the store again")
    assert fences == []


def test_local_serves_before_the_first_answer(broken: FaultyStore, gov: Governor) -> None:
    broken.break_on("renew")
    gov.set_pool(POOL, heartbeat_s=BEAT_S)
    with gov.share(POOL, node="a", on_outage="local", local=2, heartbeat_s=BEAT_S) as share, share.slot():
        assert share.stats().in_flight == 1


def test_before_the_first_answer_nothing_starts(broken: FaultyStore, gov: Governor) -> None:
    broken.break_on("renew")
    gov.set_pool(POOL, heartbeat_s=BEAT_S)
    with gov.share(POOL, node="a", heartbeat_s=BEAT_S) as share:
        with pytest.raises(PoolClosedError, match="waits for the first answer"):
            share.acquire_nowait()
        assert share.renew(5.0) is False
        broken.mend()
        until(lambda: share.stats().limit == 1, "the store to have learned")


def test_renewing_never_raises(broken: FaultyStore, gov: Governor) -> None:
    divided(gov, 1, heartbeat_s=BEAT_S)

    async def main() -> list[bool]:
        async with gov.share(POOL, node="a") as share:
            broken.break_on("renew")
            # One that was already on its way when the store broke may still succeed.
            until(lambda: share.stats().misses > 0, "a renewal to fail")
            failed = await share.renew_async(5.0)
            broken.mend()
            until(lambda: share.stats().limit == 1, "it to come back")
            return [failed, await share.renew_async(5.0)]

    assert asyncio.run(main()) == [False, True]


def test_a_signal_that_could_not_be_told_is_told_later(broken: FaultyStore, gov: Governor) -> None:
    divided(gov, 2, heartbeat_s=BEAT_S)
    with gov.share(POOL, node="a") as share:
        until(lambda: share.stats().limit == 2, "both slots")
        broken.break_on("renew", "report")
        with share.slot() as slot:
            slot.report(429, {"Retry-After": "60"})
        until(lambda: share.stats().misses > 1, "renewals to fail")
        broken.mend()
        until(
            lambda: any(fact.kind == "closed" for fact in internals(gov).store.facts(limit=50)),
            "the pool to be closed",
        )


def test_leaving_a_store_that_is_gone_does_not_hang(broken: FaultyStore, gov: Governor) -> None:
    divided(gov, 1, heartbeat_s=BEAT_S)
    share = gov.share(POOL, node="a").open()
    until(lambda: share.stats().limit == 1, "its slot")
    broken.break_on("renew")
    assert share.close(timeout=10.0)
    broken.mend()
    until(lambda: _granted(gov), "its slot to be taken back")


def _granted(gov: Governor) -> bool:
    try:
        gov.acquire_nowait(POOL).release()
    except Exception:
        return False
    return True
