"""What is simulated: defined once, seeded, the same shape in any length."""

from __future__ import annotations

from itertools import islice, pairwise

import pytest

from flyball.core.pool.setting_table import resolve_pool
from flyball.sim.simulator import shapes
from flyball.sim.simulator.held_out import EVERY_SCENARIO, HELD_OUT
from flyball.sim.simulator.jobs import Mix, jobs
from flyball.sim.simulator.plot import at, curve
from flyball.sim.simulator.scenario import FINAL_SEEDS, GOALS, SCENARIOS, TUNING_SEEDS, ScenarioKind
from tests.cases import every


def test_tuning_shares_nothing_with_what_the_final_table_is_made_of() -> None:
    assert not set(SCENARIOS) & set(HELD_OUT)
    assert not set(TUNING_SEEDS) & set(FINAL_SEEDS)


def test_every_class_has_a_goal_and_a_scenario() -> None:
    assert set(GOALS) == set(ScenarioKind) == {scenario.kind for scenario in SCENARIOS.values()}
    judged = [name for name, scenario in EVERY_SCENARIO.items() if scenario.goal is None]
    assert judged == ["processes-apart"]


@every("name", EVERY_SCENARIO)
def test_a_scenario_has_words_and_settings_that_hold(name: str) -> None:
    scenario = EVERY_SCENARIO[name]
    assert (scenario.name, scenario.title != "", scenario.words != "") == (name, True, True)
    resolve_pool(scenario.pool)


@every("name", EVERY_SCENARIO)
def test_the_same_seed_is_the_same_provider(name: str) -> None:
    scenario = EVERY_SCENARIO[name]
    assert curve(scenario, 1) == curve(scenario, 1)


@every("name", ["neighbour", "bucket-shared", "square", "walk", "outages-mixed"])
def test_another_seed_is_another_provider(name: str) -> None:
    assert curve(EVERY_SCENARIO[name], 1) != curve(EVERY_SCENARIO[name], 2)


def test_a_shorter_run_has_the_same_shape() -> None:
    step = EVERY_SCENARIO["step"]
    assert curve(step, 1) == [(0.0, 32.0), (2400.0, 12.0), (4800.0, 32.0)]
    assert curve(step.shorten(0.1), 1) == [(0.0, 32.0), (240.0, 12.0), (480.0, 32.0)]


def test_the_curve_is_zero_in_an_outage_and_a_quota_is_told_in_calls() -> None:
    outages = curve(EVERY_SCENARIO["outages"], 1)
    assert (at(outages, 1199.0), at(outages, 1230.0), at(outages, 1260.0)) == (24.0, 0.0, 24.0)
    assert curve(EVERY_SCENARIO["bucket-bare"], 1) == [(0.0, 12.0)]


def test_a_neighbour_on_the_quota_takes_about_its_share_in_bursts() -> None:
    shares = []
    for seed in (*TUNING_SEEDS, *FINAL_SEEDS):
        draws = shapes.bursty(1_000, 7200.0, seed)
        shares.append(sum(draw.amount for draw in draws) / 7200.0)
        gaps = [b.at_s - a.at_s for a, b in pairwise(draws)]
        assert max(gaps) > 60
        assert sorted(gaps)[len(gaps) // 2] < 1
    assert sum(shares) / len(shares) == pytest.approx(1_000, rel=0.15)


def test_jobs_have_the_means_they_were_given() -> None:
    work = list(islice(jobs(Mix(unlucky=0.1, stale=0.05), 1), 20_000))
    assert sum(job.service_s for job in work) / len(work) == pytest.approx(6.0, rel=0.03)
    assert sum(job.tokens for job in work) / len(work) == pytest.approx(2000.0, rel=0.03)
    assert sum(job.unlucky for job in work) / len(work) == pytest.approx(0.1, rel=0.1)
    stale = [job for job in work if job.lingers_s]
    assert len(stale) / len(work) == pytest.approx(0.05, rel=0.15)
    assert all(job.lingers_s == 20 * job.service_s for job in stale)
