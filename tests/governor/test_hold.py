"""Work that already runs."""

from __future__ import annotations

import os

import pytest

from flyball import Governor, UsageError
from flyball.governor import nested


def test_an_agent_recorded_twice_counts_once(gov: Governor) -> None:
    first = gov.hold(os.getpid(), "p", project="blog", name="t-1")
    assert gov.hold(os.getpid(), "p", project="blog", name="t-1") == first
    assert gov.status().pools[0].in_use == 1


def test_an_agent_that_does_not_run_cannot_be_recorded(gov: Governor) -> None:
    with pytest.raises(UsageError, match="no running process"):
        gov.hold(2**22 + 1, "p")


def test_a_larger_ask_inside_a_lease_is_refused_with_the_way_out(
    gov: Governor, monkeypatch: pytest.MonkeyPatch
) -> None:
    outer = gov.acquire("p")
    monkeypatch.setenv(nested.VARIABLE, nested.exported(gov.address, "p", outer.id))
    with pytest.raises(UsageError, match="--slots 2"):
        gov.acquire("p", slots=2)
