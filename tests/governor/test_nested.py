"""Work inside ``exec`` uses the lease it runs under instead of waiting for itself."""

from __future__ import annotations

import json

import pytest

from flyball import Governor
from flyball.errors import AtCapacityError
from flyball.governor.inherited_lease import VARIABLE, inherited_id, variable_value
from flyball.governor.lease import Lease
from tests.governor.people import in_use, nothing_left, pool


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
