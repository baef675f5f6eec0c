"""Every interleaving of a small fleet, taken by the shipped functions; and the same with the rule broken.

Here each search only begins: `make soak` runs them in full.
"""

from __future__ import annotations

import pytest

from tests.explore.mutants import Mutant
from tests.explore.report import BROKEN, caught, explored
from tests.explore.rule import broken
from tests.explore.scenarios import QUICK_STATES, SCENARIOS
from tests.explore.world import RARE, AtFence, Kind, Scenario


@pytest.mark.parametrize("mutant", BROKEN, ids=lambda one: one.name)
def test_a_broken_rule_is_found_out(mutant: Mutant) -> None:
    found = caught(mutant)
    print(found.words())
    assert found.fault is not None
    assert found.fault.kind is mutant.finds


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
def test_nothing_goes_wrong_in_any_order(scenario: Scenario) -> None:
    found = explored(scenario, max_states=QUICK_STATES)
    assert found.fault is None, found.words()
    assert found.states >= QUICK_STATES


def test_every_kind_of_fault_can_be_found() -> None:
    assert {mutant.finds for mutant in BROKEN} == set(Kind)


def test_a_line_that_is_not_there_cannot_be_broken() -> None:
    with pytest.raises(LookupError, match="0 times"):
        broken("renewal", ("slots = everything", ""))


def test_the_scenarios_cover_all_that_may_happen() -> None:
    assert {kind for scenario in SCENARIOS for kind in scenario.rare} == set(RARE)
    assert {scenario.at_fence for scenario in SCENARIOS} == set(AtFence) - {AtFence.DEAF}
    assert any(process.drift for scenario in SCENARIOS for process in scenario.processes)
    for option in ("local", "grace", "impatient", "lossy", "twice", "prompt", "demand"):
        assert any(getattr(scenario, option) for scenario in SCENARIOS), option
