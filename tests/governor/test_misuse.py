"""What makes no sense is refused where it is said, and costs no other caller a slot."""

from __future__ import annotations

import asyncio
import os
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from flyball import Governor, Limiter, MachineSettings
from flyball.core.signals import Signal, SignalKind
from flyball.errors import StoreError, Throttled, UsageError
from flyball.governor.internals import internals
from flyball.testing import FaultyStore
from tests.cases import every
from tests.governor.people import Person, in_use, nothing_left, pool, wait_for_line

NO_AMOUNTS: list[Any] = [float("nan"), float("inf"), -1, None, "12", True, 10**400]


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, home: object) -> str:
    """What is refused before it reaches a store needs no servers."""
    return "memory:" if request.param == "memory" else f"sqlite://{home}/governor.db"


# -- amounts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("amount", NO_AMOUNTS, ids=lambda a: f"{a!r:.5}")
def test_what_was_used_is_a_number_or_refused_and_the_slot_goes_back(gov: Governor, amount: Any) -> None:
    gov.set_pool("p", windows={"tokens": "1000/min"})
    with (
        pytest.raises(UsageError, match="'tokens' must be a number"),
        gov.slot("p", cost={"tokens": 10}) as lease,
    ):
        lease.settle(tokens=amount)
    assert nothing_left(gov)
    assert [window.spent for window in pool(gov).windows] == [10]


@every("amount", NO_AMOUNTS)
def test_a_limiter_is_told_of_numbers_only(amount: Any) -> None:
    limiter = Limiter(maximum=1, windows={"tokens": "1000/min"})
    with pytest.raises(UsageError, match="'tokens' must be a number"), limiter.slot() as slot:
        slot.settle(tokens=amount)
    with pytest.raises(UsageError, match="'tokens' must be a number"):
        limiter.slot(cost={"tokens": amount})
    assert limiter.stats().in_use == 0


# -- leaving a block --------------------------------------------------------------------------------

NO_WAITS: list[Any] = [float("nan"), float("inf"), -1, "7", [1], 10**400]


@pytest.mark.parametrize("wait", NO_WAITS, ids=lambda w: f"{w!r:.5}")
def test_a_throttle_with_a_senseless_wait_is_still_a_throttle(gov: Governor, wait: Any) -> None:
    with pytest.raises(Throttled, match="slow"), gov.slot("p"):
        raise Throttled("slow", retry_after_s=wait)
    gov.report("p", Signal(SignalKind.THROTTLED, retry_after_s=wait))
    assert nothing_left(gov)
    assert pool(gov).throttle_count == 2


@every("wait", NO_WAITS)
def test_a_limiter_outlives_a_throttle_with_a_senseless_wait(wait: Any) -> None:
    limiter = Limiter(maximum=1)
    with pytest.raises(Throttled, match="slow"), limiter.slot():
        raise Throttled("slow", retry_after_s=wait)
    assert limiter.stats().in_use == 0


def test_a_store_that_fails_to_hear_of_a_throttle_neither_keeps_the_slot_nor_hides_it(
    broken: FaultyStore, gov: Governor, caplog: pytest.LogCaptureFixture
) -> None:
    broken.break_on("report", error=StoreError("no space left"))
    with pytest.raises(Throttled, match="slow"), gov.slot("p"):
        raise Throttled("slow")
    assert nothing_left(gov)
    with pytest.raises(Throttled, match="slow"), gov.acquire("p"):
        raise Throttled("slow")

    async def in_a_loop() -> None:
        async with gov.slot("p"):
            raise Throttled("slow")

    with pytest.raises(Throttled, match="slow"):
        asyncio.run(in_a_loop())
    assert nothing_left(gov)
    assert [record.name for record in caplog.records] == ["flyball"] * 3
    assert "no space left" in caplog.text


def test_words_that_are_not_text_are_refused_and_the_lease_stays(gov: Governor) -> None:
    lease, number = gov.acquire("p"), cast("str", 5)
    with pytest.raises(UsageError, match="as text, not 5"):
        lease.release(words=number)
    assert in_use(gov) == 1
    lease.release(words="done")
    assert nothing_left(gov)


# -- a slot is for one block ------------------------------------------------------------------------


def test_a_slot_used_again_is_refused_and_leaves_nothing_behind(gov: Governor) -> None:
    gov.set_pool("p", cap=4)
    slot = gov.slot("p")
    with slot, pytest.raises(UsageError, match="one use"), slot:
        pass
    assert nothing_left(gov)
    with pytest.raises(UsageError, match="one use"), slot:
        pass
    assert nothing_left(gov)


def test_a_slot_used_again_in_a_loop_is_refused_and_leaves_nothing_behind(gov: Governor) -> None:
    gov.set_pool("p", cap=4)

    async def twice() -> None:
        slot = gov.slot("p")
        async with slot:
            with pytest.raises(UsageError, match="one use"):
                async with slot:
                    pass
        with pytest.raises(UsageError, match="one use"):
            async with slot:
                pass

    asyncio.run(twice())
    assert nothing_left(gov)


def test_a_slot_that_is_still_waited_for_is_in_use(gov: Governor) -> None:
    first, slot = gov.acquire("p"), gov.slot("p")
    waiting = Person(slot.__enter__)
    wait_for_line(gov)
    with pytest.raises(UsageError, match="one use"), slot:
        pass
    first.release()
    waiting.outcome().release()
    assert nothing_left(gov)


@pytest.mark.parametrize("asked", [{}, {"timeout": 5}], ids=["plain", "asked"])
def test_a_limiters_slot_used_again_is_refused_and_leaves_nothing_behind(asked: Any) -> None:
    limiter = Limiter(maximum=4, cap=4)

    async def in_a_loop() -> None:
        slot = limiter.slot(**asked)
        async with slot:
            with pytest.raises(UsageError, match="one use"):
                async with slot:
                    pass
            assert limiter.stats().in_use == 1

    slot = limiter.slot(**asked)
    with slot, pytest.raises(UsageError, match="one use"), slot:
        pass
    with pytest.raises(UsageError, match="one use"):
        slot._enter_nowait()
    asyncio.run(in_a_loop())
    assert limiter.stats().in_use == 0


# -- a lease belongs to one state -------------------------------------------------------------------


def test_a_lease_of_other_state_is_refused_and_frees_no_slot(gov: Governor, tmp_path: Path) -> None:
    with closing(Governor(f"sqlite://{tmp_path}/other.db")) as other:
        mine, foreign = gov.acquire("p"), other.acquire("p")
        assert mine.id == foreign.id
        with pytest.raises(UsageError, match="the governor that gave it"):
            gov.release(foreign)
        with pytest.raises(UsageError, match="the governor that gave it"):
            internals(gov).rebind(foreign, os.getpid())
        with pytest.raises(UsageError, match="the governor that gave it"):
            asyncio.run(gov.release_async(foreign))
        assert (in_use(gov), in_use(other)) == (1, 1)
        other.release(foreign)
        assert (in_use(gov), in_use(other)) == (1, 0)


def test_what_one_governor_keeps_in_memory_is_not_anothers() -> None:
    one, other = Governor("memory:"), Governor("memory:")
    one.acquire("p")
    with pytest.raises(UsageError, match="of its own"):
        one.release(other.acquire("p"))
    assert in_use(one) == 1


def test_governors_of_one_file_release_each_others_leases(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    urls = [f"sqlite://{tmp_path}/state.db", f"sqlite://{tmp_path}/link/state.db"]
    with (
        closing(Governor(urls[0])) as one,
        closing(Governor(urls[0])) as same,
        closing(Governor(urls[1])) as linked,
    ):
        for other in (same, linked):
            lease = one.acquire("p")
            assert internals(other).rebind(lease, os.getpid())
            other.release(lease)
            assert nothing_left(one)


# -- settings ---------------------------------------------------------------------------------------


def test_limits_of_the_machine_that_are_none_change_nothing(gov: Governor) -> None:
    gov.change_machine(ceiling=3)
    nonsense: list[Any] = [None, 5, "x"]
    for machine in nonsense:
        with pytest.raises(UsageError, match="MachineSettings"):
            gov.set_machine(machine)
    misspelt: dict[str, Any] = {"cieling": 4}
    with pytest.raises(UsageError, match="'cieling'; known: ceiling"):
        gov.change_machine(**misspelt)
    assert internals(gov).store.machine() == MachineSettings(ceiling=3)


# -- asking -----------------------------------------------------------------------------------------

NO_TIMEOUTS: list[Any] = [float("nan"), float("-inf"), 10**400, 1e300, "5", True, [1]]


@pytest.mark.parametrize("timeout", NO_TIMEOUTS, ids=lambda t: f"{t!r:.5}")
def test_a_timeout_that_is_not_a_time_is_refused_and_leaves_no_ask(gov: Governor, timeout: Any) -> None:
    gov.acquire("p")
    with pytest.raises(UsageError, match="timeout must be"), gov.slot("p", timeout=timeout):
        pass
    with pytest.raises(UsageError, match="timeout must be"):
        asyncio.run(gov.acquire_async("p", timeout=timeout))
    with pytest.raises(UsageError, match="timeout must be"):
        Limiter().slot(timeout=timeout)
    assert pool(gov).waiting == 0


def test_an_endless_timeout_waits_for_ever(gov: Governor) -> None:
    first = gov.acquire("p")
    waiting = Person(lambda: gov.acquire("p", timeout=float("inf")))
    wait_for_line(gov)
    first.release()
    waiting.outcome().release()
    assert nothing_left(gov)
