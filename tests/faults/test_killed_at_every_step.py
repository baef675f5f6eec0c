"""kill -9 between any two calls of acquire, release, hand-off and exec."""

from __future__ import annotations

import pytest

from tests.faults.conftest import SOAK, Scenario


def test_a_process_killed_anywhere_in_acquire_and_release_leaves_no_slot_taken(scenario: Scenario) -> None:
    seen = scenario("nursery", "acquire", 1)
    assert seen["wrong"] == []
    assert seen["deaths"] > 120


@pytest.mark.timeout(400)
def test_a_waiter_is_served_wherever_the_holder_dies_while_handing_over(scenario: Scenario) -> None:
    seen = scenario("nursery", "handover", 1 if SOAK else 7, timeout=390)
    assert seen["wrong"] == []
    assert seen["deaths"] > 20


def test_exec_killed_at_any_step_never_leaves_its_command_running_without_a_lease(scenario: Scenario) -> None:
    seen = scenario("nursery", "exec", 1)
    assert seen["wrong"] == []
    assert seen["deaths"] > 200
    assert seen["commands"] > 10
