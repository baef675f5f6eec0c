"""A share lease: part of a pool that one process subdivides by itself."""

from __future__ import annotations

import asyncio
import os
import threading
import time

import pytest

from flyball import AtCapacityError, Governor, PoolClosedError, Reason, UsageError
from flyball.core.signals import Signal, SignalKind
from flyball.errors import Throttled
from flyball.governor.internals import internals
from tests.governor.sharing import POOL, Counter, Crowd, divided, in_use
from tests.waiting import until


def test_a_share_gets_the_whole_cap_and_gives_it_all_back(gov: Governor) -> None:
    divided(gov, 3)
    with gov.share(POOL, node="a") as share:
        assert share.stats().limit == 3
        with share.slot(), share.slot(), share.slot():
            assert share.stats().in_flight == 3
            with pytest.raises(AtCapacityError, match="its share is used"):
                share.acquire_nowait()
        assert in_use(gov) == 3
    assert in_use(gov) == 0
    assert internals(gov).store.miscounts() == []


def test_it_works_in_an_event_loop(gov: Governor) -> None:
    divided(gov, 2)

    async def main() -> int:
        counter = Counter()
        async with gov.share(POOL, node="a") as share:

            async def one() -> None:
                async with share.slot():
                    with counter.piece():
                        await asyncio.sleep(0.001)

            await asyncio.gather(*(one() for _ in range(50)))
            assert await share.renew_async()
        return counter.most

    assert asyncio.run(main()) == 2
    assert in_use(gov) == 0


def test_single_leases_and_a_share_keep_to_one_cap(gov: Governor) -> None:
    divided(gov, 3)
    with gov.slot(POOL), gov.share(POOL, node="a") as share:
        assert share.stats().limit == 2
        with pytest.raises(AtCapacityError):
            gov.acquire_nowait(POOL)


def test_two_holders_never_have_more_in_flight_than_the_cap(gov: Governor) -> None:
    divided(gov, 5)
    counter = Counter()
    with gov.share(POOL, node="a") as a:
        first = Crowd(a, counter, workers=8)
        with gov.share(POOL, node="b") as b:
            second = Crowd(b, counter, workers=8)
            until(lambda: b.stats().limit >= 2 and second.pieces > 50, "the joiner to work")
            gov.set_pool(POOL, cap=2)
            until(lambda: a.stats().limit + b.stats().limit <= 2, "both to be lowered")
            until(lambda: in_use(gov) <= 2, "what was lowered to be given back")
            counter.most = 0
            before = counter.pieces
            until(lambda: counter.pieces > before + 50, "work under the lower cap")
            assert counter.most <= 2
            gov.set_pool(POOL, cap=5)
            until(lambda: a.stats().limit + b.stats().limit == 5, "both to be raised")
            second.stop()
        first.stop()
    assert counter.most <= 5
    until(lambda: in_use(gov) == 0, "everything to be given back")


def test_a_joiner_gets_its_part_as_soon_as_the_other_has_drained(gov: Governor) -> None:
    divided(gov, 4, heartbeat_s=30.0)
    counter = Counter()
    with gov.share(POOL, node="a") as a:
        busy = Crowd(a, counter, workers=8)
        until(lambda: counter.now == 4, "the first to use it all")
        with gov.share(POOL, node="b") as b:
            also = Crowd(b, counter, workers=8)
            # Eagerly, before either has to renew.
            until(lambda: b.stats().limit == 2, "the joiner to have its half", within_s=27.0)
            also.stop()
        busy.stop()
    assert counter.most <= 4


def test_what_an_idle_holder_has_goes_to_a_busy_one(gov: Governor) -> None:
    divided(gov, 10)
    with gov.share(POOL, node="idle"), gov.share(POOL, node="hot") as hot:
        busy = Crowd(hot, Counter(), workers=20)
        until(lambda: hot.stats().limit >= 9, "the busy one to have nearly all")
        busy.stop()


def test_an_event_loop_that_stalls_does_not_cost_its_share(gov: Governor) -> None:
    divided(gov, 2, heartbeat_s=0.1)

    async def main() -> None:
        async with gov.share(POOL, node="a") as share:
            until(lambda: share.stats().limit == 2, "both slots")
            renewals = share.stats().renewals
            time.sleep(1.0)
            assert share.stats().renewals > renewals + 3

    asyncio.run(main())


def test_throttles_of_all_holders_reach_the_one_controller(gov: Governor) -> None:
    divided(gov, 8)
    gov.set_pool(POOL, adaptive=True, controller="koryph", cap=8)
    with gov.share(POOL, node="a") as a:
        until(lambda: a.stats().limit == 8, "the whole cap")
        with a.slot() as slot:
            slot.report(429)
        until(lambda: a.stats().limit == 4, "the cap to be halved")
        assert a.stats().throttles == 1


def test_a_retry_after_closes_the_pool_for_every_node(gov: Governor) -> None:
    divided(gov, 4)
    with gov.share(POOL, node="a") as a:
        with pytest.raises(Throttled), a.slot():
            raise Throttled(retry_after_s=30)
        until(lambda: _refused_for(gov, Reason.RETRY_AFTER), "single asks to be refused")
        with pytest.raises(PoolClosedError):
            a.acquire_nowait()


def _refused_for(gov: Governor, reason: Reason) -> bool:
    try:
        gov.acquire_nowait(POOL).release()
    except (AtCapacityError, PoolClosedError) as refused:
        return refused.verdict.reason is reason
    return False


def test_a_signal_of_the_world_is_told_as_it_is(gov: Governor) -> None:
    divided(gov, 4)
    with gov.share(POOL, node="a") as a:
        with a.slot() as slot:
            slot.report(Signal(SignalKind.AUTH, detail="the key is wrong"))
        until(
            lambda: any("the key is wrong" in fact.words for fact in internals(gov).store.facts(limit=20)),
            "it to be told",
        )


def test_a_waiter_is_told_when_it_closes(gov: Governor) -> None:
    divided(gov, 1)
    share = gov.share(POOL, node="a").open()
    held, said = share.acquire_nowait(), list[str]()

    def wait() -> None:
        try:
            share.slot().__enter__()
        except PoolClosedError as refused:
            said.append(str(refused))

    waiting = threading.Thread(target=wait)
    waiting.start()
    until(lambda: share.stats().waiting == 1, "a call to wait")
    assert not share.close(timeout=0.0)
    waiting.join(10.0)
    assert "the share is closed" in said[0]
    with pytest.raises(PoolClosedError, match="the share is closed"):
        share.acquire_nowait()
    held.release()
    assert share.close(timeout=10.0)
    assert share.close()
    assert in_use(gov) == 0


def test_a_forked_child_has_no_part_of_it(gov: Governor) -> None:
    divided(gov, 2)
    with gov.share(POOL, node="a") as share:
        until(lambda: share.stats().limit == 2, "both slots")
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                share.acquire_nowait()
            except PoolClosedError:
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        with share.slot():
            assert share.stats().in_flight == 1
        assert share.renew(10.0)


def test_all_holders_must_agree_on_the_settings(gov: Governor) -> None:
    divided(gov, 2)
    with pytest.raises(UsageError, match=r"heartbeat_s=0\.5.*all holders must agree.*--heartbeat 2"):
        gov.share(POOL, heartbeat_s=2.0).open()
    with gov.share(POOL, grace_s=1.0) as share:
        assert share.stats().limit == 2
    assert internals(gov).named_settings(POOL)["grace_s"] == 1.0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"hearbeat_s": 1.0}, "unknown option 'hearbeat_s'"),
        ({"node": "x" * 500}, "node is 500 characters long"),
        ({"weight": 0}, "weight must be a positive number"),
        ({"on_outage": "panic"}, "on_outage must be refuse or local"),
        ({"on_outage": "local"}, "needs local="),
        ({"local": "many"}, "local must be a number"),
        ({"heartbeat_s": -1.0}, "heartbeat_s must be above 0"),
        ({"allotment": "odd"}, "allotment must be even or demand"),
    ],
)
def test_nonsense_is_refused_before_anything_happens(options: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Governor("memory:").share(POOL, **options)  # type: ignore[arg-type]


def test_a_limiter_beneath_keeps_the_lower_of_both(gov: Governor) -> None:
    divided(gov, 6)
    with gov.share(POOL, node="a", local={"cap": 2, "adaptive": False}) as share:
        with share.slot(), share.slot(), pytest.raises(AtCapacityError):
            share.acquire_nowait()
        assert share.stats().limit == 6


def test_what_a_holder_believes_by_itself_counts_for_the_pool(gov: Governor) -> None:
    divided(gov, 8)
    with gov.share(POOL, node="a", local={"cap": 3, "cap_ceiling": 3}) as share:
        busy = Crowd(share, Counter(), workers=8)
        until(lambda: share.stats().slots == 3, "the pool to go by the estimate")
        busy.stop()
