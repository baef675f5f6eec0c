"""Work inside ``exec`` uses the lease it runs under instead of waiting for itself."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from flyball import Governor
from flyball.errors import AtCapacityError, UsageError
from flyball.governor.inherited_lease import VARIABLE, inherited_id, variable_value
from flyball.governor.internals import internals
from flyball.governor.lease import Lease
from tests.governor.people import Person, in_use, nothing_left, pool, wait_for_line
from tests.waiting import LONGEST_S


@pytest.fixture
def outer(gov: Governor, monkeypatch: pytest.MonkeyPatch) -> Lease:
    """A lease of ``p`` that this process runs under."""
    lease = gov.acquire("p")
    monkeypatch.setenv(VARIABLE, variable_value(gov.address, "p", lease.id))
    return lease


def test_a_slot_inside_uses_the_lease_around_it(gov: Governor, outer: Lease) -> None:
    with gov.slot("p", timeout=0) as inner:
        assert (inner.id, inner.nested, in_use(gov)) == (outer.id, True, 1)


def test_the_inner_release_releases_nothing(gov: Governor, outer: Lease) -> None:
    gov.acquire("p").release()
    assert in_use(gov) == 1
    outer.release()
    assert nothing_left(gov)


def test_as_many_ride_as_the_lease_has_slots_and_the_rest_stand_in_line(gov: Governor, outer: Lease) -> None:
    inner = gov.acquire("p")
    with pytest.raises(AtCapacityError):
        gov.acquire_nowait("p")
    gov.set_pool("p", cap=2)
    beside = gov.acquire_nowait("p")
    assert (inner.nested, beside.nested, in_use(gov)) == (True, False, 2)


def test_one_that_waits_rides_when_another_has_ended(gov: Governor, outer: Lease) -> None:
    inner = gov.acquire("p")
    waits = Person(lambda: gov.acquire("p", timeout=LONGEST_S))
    wait_for_line(gov)
    inner.release()
    assert waits.outcome().nested
    assert (in_use(gov), pool(gov).waiting) == (1, 0)


def test_a_task_that_waits_rides_when_another_has_ended(gov: Governor, outer: Lease) -> None:
    async def story() -> None:
        inner = await gov.acquire_async("p")
        waits = asyncio.create_task(gov.acquire_async("p", timeout=LONGEST_S))
        given_up = asyncio.create_task(gov.acquire_async("p", timeout=LONGEST_S))
        await asyncio.to_thread(wait_for_line, gov, 2)
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        inner.release()
        assert (await waits).nested

    asyncio.run(story())
    assert (in_use(gov), pool(gov).waiting) == (1, 0)


def test_one_that_waits_inside_is_served_by_the_pool_where_that_has_room_first(
    gov: Governor, outer: Lease
) -> None:
    gov.set_pool("p", cap=2)
    beside = gov.acquire("p"), gov.acquire("p")
    waits = Person(lambda: gov.acquire("p", timeout=LONGEST_S))
    wait_for_line(gov)
    beside[1].release()
    assert not waits.outcome().nested


def test_several_slots_ride_together_or_not_at_all(gov: Governor, monkeypatch: pytest.MonkeyPatch) -> None:
    gov.set_pool("p", cap=3)
    outer = gov.acquire("p", slots=3)
    monkeypatch.setenv(VARIABLE, variable_value(gov.address, "p", outer.id))
    two = gov.acquire_nowait("p", slots=2)
    with pytest.raises(AtCapacityError):
        gov.acquire_nowait("p", slots=2)
    one = gov.acquire_nowait("p")
    two.release()
    assert gov.acquire_nowait("p", slots=2).nested
    assert one.nested


def test_what_rides_passes_on_what_it_rides_on_and_no_more(
    gov: Governor, outer: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = gov.acquire("p")
    monkeypatch.setenv(VARIABLE, internals(gov).variable_value(inner))
    innermost = gov.acquire_nowait("p")
    assert (innermost.id, innermost.nested) == (outer.id, True)
    with pytest.raises(AtCapacityError):
        gov.acquire_nowait("p")


def test_a_ride_that_ended_leaves_no_file_behind(gov: Governor, outer: Lease, home: Path) -> None:
    gov.acquire("p").release()
    assert [
        path for path in (home, Path(os.environ["XDG_RUNTIME_DIR"])) if list(path.rglob("riding/*"))
    ] == []


@pytest.mark.parametrize("url", ["memory", "sqlite"], indirect=True)
def test_an_ask_that_would_wait_for_the_lease_around_it_is_refused_with_the_way_out(
    gov: Governor, outer: Lease
) -> None:
    gov.change_machine(ceiling=1)
    with pytest.raises(UsageError, match="flyball machine set --ceiling 2"):
        gov.acquire("q")
    gov.change_machine(ceiling=2)
    with gov.slot("q") as lease:
        assert not lease.nested


def test_what_the_inner_one_reports_reaches_the_pool(gov: Governor, outer: Lease) -> None:
    gov.acquire("p").report(429, {"retry-after": "60"})
    assert (pool(gov).closed_for_s or 0) > 50


def test_another_pool_is_asked_as_usual(gov: Governor, outer: Lease) -> None:
    with gov.slot("q") as lease:
        assert not lease.nested


def test_a_lease_that_is_gone_is_no_longer_used(gov: Governor, outer: Lease) -> None:
    outer.release()
    lease = gov.acquire_nowait("p")
    assert not lease.nested
    with pytest.raises(AtCapacityError):
        gov.acquire_nowait("p")


def test_another_home_is_asked_as_usual(gov: Governor, outer: Lease) -> None:
    assert inherited_id("sqlite:///elsewhere.db", "p") is None


def test_exports_pile_up_by_pool(gov: Governor, outer: Lease, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, variable_value(gov.address, "q", 77))
    assert (inherited_id(gov.address, "p"), inherited_id(gov.address, "q")) == (outer.id, 77)
    again = json.loads(variable_value(gov.address, "q", 78))
    assert [entry["id"] for entry in again] == [outer.id, 78]


@pytest.mark.parametrize("text", ["", "{", "7", "[7]", '[{"at": "x"}]', '{"id": 1}', '[{"id": "1"}]', "null"])
def test_nonsense_in_the_environment_is_ignored(
    gov: Governor, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, text)
    with gov.slot("p", timeout=0) as lease:
        assert not lease.nested


@pytest.mark.parametrize("found", [10**30, 2**63, 0, -1, True, 1.5, "1", None])
def test_an_id_that_no_lease_can_have_is_ignored(
    gov: Governor, found: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, json.dumps([{"at": gov.place, "pool": "p", "id": found}]))
    assert inherited_id(gov.address, "p") is None
    with gov.slot("p", timeout=0) as lease:
        assert not lease.nested


def test_an_environment_nested_beyond_reading_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "[" * 100_000)
    assert inherited_id("sqlite:///x.db", "p") is None
