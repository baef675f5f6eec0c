"""Random SIGKILLs among sixteen busy processes."""

from __future__ import annotations

import pytest

from tests.faults.conftest import SOAK, Scenario


@pytest.mark.timeout(600)
def test_killed_processes_never_exceed_the_cap_nor_lose_a_slot_or_an_ask(scenario: Scenario) -> None:
    seen = scenario("storm", 300 if SOAK else 15, 4, 4, timeout=500)
    assert seen["violations"] == 0
    assert seen["crashes"] == []
    assert seen["kills"] > (100 if SOAK else 30)
    assert seen["finished"] == 16
    assert seen["slots_free_again"] == 4
    assert seen["waiting_left"] == 0
    assert seen["count_is_true"]


def test_the_witness_outside_the_governor_notices_one_slot_too_many(scenario: Scenario) -> None:
    seen = scenario("storm", 2, 5, 4)
    assert seen["violations"] > 0
