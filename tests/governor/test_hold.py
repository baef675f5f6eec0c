"""Work that already runs."""

from __future__ import annotations

import os

import pytest

from flyball import AtCapacityError, Governor, UsageError
from flyball.governor import inherited_lease
from flyball.governor.ask import asking_for
from flyball.governor.internals import internals


def test_an_agent_recorded_twice_counts_once(gov: Governor) -> None:
    first = gov.hold(os.getpid(), "p", project="blog", name="t-1")
    assert gov.hold(os.getpid(), "p", project="blog", name="t-1") == first
    assert gov.status().pools[0].in_use == 1


def test_an_agent_that_does_not_run_cannot_be_recorded(gov: Governor) -> None:
    with pytest.raises(UsageError, match="no running process"):
        gov.hold(2**22 + 1, "p")


def test_an_agent_taken_over_that_the_store_forgot_counts_with_all_it_was_started_with() -> None:
    gov = Governor("memory:")
    gov.change_machine(resources={"docker": 1})
    asking = asking_for("p", project="blog", name="t-1", slots=2, priority=1, resources={"docker": 1})
    lease = internals(gov).take_over(os.getpid(), asking, claim_id=0)
    (pool,) = gov.status().pools
    assert (pool.in_use, pool.leases[0].resources, pool.leases[0].priority) == (2, {"docker": 1}, 1)
    with pytest.raises(AtCapacityError, match="resource"):
        gov.acquire_nowait("p", resources={"docker": 1})
    lease.release()
    gov.acquire_nowait("p", resources={"docker": 1})


def test_a_larger_ask_inside_a_lease_is_refused_with_the_way_out(
    gov: Governor, monkeypatch: pytest.MonkeyPatch
) -> None:
    outer = gov.acquire("p")
    monkeypatch.setenv(inherited_lease.VARIABLE, inherited_lease.variable_value(gov.address, "p", outer.id))
    with pytest.raises(UsageError, match="--slots 2"):
        gov.acquire("p", slots=2)
