"""The same calls for every contender, and the patience of a client without a governor."""

from __future__ import annotations

import random

import pytest

from flyball.errors import UsageError
from flyball.sim.demo.worker import Team, Workload, retry_delay_s

TEAMS = (Team("shop", 3), Team("blog", 1))


def test_one_seed_gives_the_same_calls_again() -> None:
    one, two = (Workload(teams=TEAMS, calls_each=20, seed=7) for _ in range(2))
    assert one.planned_calls("shop") == two.planned_calls("shop")


def test_another_seed_or_project_gives_other_calls() -> None:
    workload = Workload(teams=TEAMS, calls_each=20, seed=7)
    assert workload.planned_calls("shop") != workload.planned_calls("blog")
    assert workload.planned_calls("shop") != Workload(teams=TEAMS, calls_each=20, seed=8).planned_calls(
        "shop"
    )


def test_every_project_has_the_same_number_of_calls() -> None:
    workload = Workload(teams=TEAMS, calls_each=20)
    assert [len(workload.planned_calls(team.project)) for team in TEAMS] == [20, 20]
    assert (workload.calls, workload.workers) == (40, 4)


def test_a_workload_without_calls_is_refused() -> None:
    with pytest.raises(UsageError):
        Workload(teams=TEAMS, calls_each=0)


def test_a_client_waits_exactly_as_long_as_it_is_told() -> None:
    assert retry_delay_s(5, 1.0, random.Random(1)) == 1.0


@pytest.mark.parametrize("retry_after_s", [None, 0.0, 3600.0])
def test_a_client_that_is_told_nothing_useful_doubles_its_own_wait(retry_after_s: float | None) -> None:
    waits = [retry_delay_s(attempt, retry_after_s, random.Random(1)) for attempt in range(100)]
    assert 0.375 <= waits[0] <= 0.5
    assert waits[0] < waits[1] < waits[2]
    assert max(waits) <= 8.0
