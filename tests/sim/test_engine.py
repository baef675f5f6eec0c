"""Simulated time: the same seed is the same run, nothing is lost, and no contender beats the oracle."""

from __future__ import annotations

from itertools import islice

import pytest

from flyball.core.signals import Signal, SignalKind
from flyball.sim.simulator.compare import ORACLE, play, score
from flyball.sim.simulator.controllers import CONTENDERS
from flyball.sim.simulator.engine import Engine, Oracle, SimulatedProvider, SimulatedRun
from flyball.sim.simulator.held_out import EVERY_SCENARIO
from flyball.sim.simulator.jobs import Job, Mix, jobs
from flyball.sim.simulator.limits import Flaky, Seats
from flyball.sim.simulator.rivals import Fixed
from flyball.sim.simulator.scenario import Scenario
from tests.cases import every

PART = 0.03
SHORT = [scenario.shorten(0.05) for scenario in EVERY_SCENARIO.values()]


def named(scenario: Scenario) -> str:
    return scenario.name


def looks(run: SimulatedRun) -> object:
    return run.clients, run.moments, run.rejected_at_s, run.in_service


@every("contender", ["measured", "botocore", "inspect", ORACLE])
@every("name", ["neighbour", "bucket-shared", "processes-apart"])
def test_the_same_seed_is_the_same_run(name: str, contender: str) -> None:
    scenario = EVERY_SCENARIO[name].shorten(PART)
    first, again = (play(scenario, contender, 5, moments=50) for _ in range(2))
    assert looks(first) == looks(again)
    assert looks(first) != looks(play(scenario, contender, 6, moments=50))


@every("scenario", SHORT)
def test_the_oracle_fails_only_with_jobs_that_cannot_be_saved(scenario: Scenario) -> None:
    run = play(scenario, ORACLE, 7)
    tried = islice(jobs(scenario.mix, 7), run.total.accepted + 1) if scenario.clients == 1 else ()
    assert run.total.rejected == sum(job.unlucky for job in tried)
    assert run.total.done > 0


@every("scenario", SHORT)
@every("contender", ["measured", "fixed-high", "netflix-aimd"])
def test_no_contender_beats_the_oracle(scenario: Scenario, contender: str) -> None:
    best = play(scenario, ORACLE, 7)
    found = score(scenario, play(scenario, contender, 7).clients, best.clients)
    # Other jobs in the same seats have other lengths: that makes a few in a hundred in so short a time.
    assert found.goodput_pct <= 103


@every("contender", [*CONTENDERS, ORACLE])
@every("name", ["outages", "stale", "bucket-bare", "processes-4"])
def test_what_is_accepted_is_done_or_still_in_service(name: str, contender: str) -> None:
    run = play(EVERY_SCENARIO[name].shorten(PART), contender, 3)
    assert run.total.accepted == run.total.done + run.in_service
    assert run.total.rejected == len(run.rejected_at_s)


def test_a_refused_job_is_tried_until_it_is_served() -> None:
    provider = SimulatedProvider([Seats([(0.0, 2)]), Flaky()])
    run = Engine(provider, [(Oracle(provider), jobs(Mix(unlucky=0.5), 1))], horizon_s=200.0).play()
    accepted = list(islice(jobs(Mix(unlucky=0.5), 1), run.total.accepted))
    assert run.total.rejected == pytest.approx(sum(job.unlucky for job in accepted), abs=2)
    assert run.total.served_s == pytest.approx(400.0, rel=0.05)


def test_a_job_comes_back_after_the_time_its_policy_asks_for() -> None:
    class Patient(Fixed):
        def retry_wait_s(self, job: Job, signal: Signal) -> float:
            return 7.0

    # One seat that is there from second 20 on: refused at 0, 7.15, 14.30 and served at 21.45.
    provider = SimulatedProvider([Seats([(0.0, 0), (20.0, 1)])])
    run = Engine(provider, [(Patient(1), jobs(Mix(), 1))], horizon_s=22.0).play()
    assert run.rejected_at_s == pytest.approx([0.15, 7.3, 14.45])
    assert run.total.served_s == pytest.approx(22.0 - 21.45)


def test_while_one_job_sleeps_the_next_one_runs() -> None:
    class Unlucky(Fixed):
        holds_slot = False

        def retry_wait_s(self, job: Job, signal: Signal) -> float:
            return 1000.0

    provider = SimulatedProvider([Seats([(0.0, 1)]), Flaky()])
    work = iter([Job(1, 5.0, 1.0, unlucky=True), *(Job(n, 5.0, 1.0) for n in range(2, 50))])
    run = Engine(provider, [(Unlucky(1), work)], horizon_s=100.0).play()
    assert (run.total.rejected, run.total.accepted) == (1, 20)


def test_clients_with_one_policy_take_turns() -> None:
    run = play(EVERY_SCENARIO["processes-4"].shorten(0.1), "measured", 1)
    accepted = [client.accepted for client in run.clients]
    assert max(accepted) - min(accepted) <= 5


def test_moments_cover_the_whole_time_at_a_fixed_pace() -> None:
    run = play(EVERY_SCENARIO["constant"].shorten(PART), "measured", 1, moments=36)
    assert [moment.t_s for moment in run.moments] == pytest.approx([6.0 * n for n in range(37)])
    assert all(moment.in_flight >= moment.served for moment in run.moments)
    assert run.moments[-1].served == 24


def test_a_policy_that_starts_without_end_is_a_bug() -> None:
    from flyball.errors import InvariantError

    class Mad(Oracle):
        def earliest_start(self, t_s: float, job: Job) -> float:
            return t_s

    provider = SimulatedProvider([Seats([(0.0, 1)])])
    with pytest.raises(InvariantError, match="without end"):
        Engine(provider, [(Mad(provider), jobs(Mix(), 1))], horizon_s=10.0).play()


def test_an_answer_carries_the_kind_of_its_refusal() -> None:
    provider = SimulatedProvider([Seats([(0.0, 0)], retry_after_s=3.0)])
    signal = provider.attempt(0.0, Job(1, 1.0, 1.0))
    assert (signal.kind, signal.retry_after_s) == (SignalKind.THROTTLED, 3.0)
