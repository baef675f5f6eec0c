"""Real worker processes against a real provider, small and quick."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from flyball.core.pool.settings import PoolChanges
from flyball.errors import AgentError
from flyball.sim.demo.score import score
from flyball.sim.demo.trial_run import Setup, TrialRun
from flyball.sim.demo.worker import Team, Workload
from flyball.sim.provider.capacity import Capacity
from flyball.sim.provider.server import Manner

pytestmark = pytest.mark.faults

SETUP = Setup(
    workload=Workload(
        teams=(Team("shop", 2), Team("blog", 1)), calls_each=3, tokens_low=1, tokens_high=4, seed=3
    ),
    capacity=Capacity.parse("1"),
    manner=Manner(reject_s=0.01, retry_after_s=0.05),
    settings=PoolChanges(profile="calls", settle_s=0.1, break_s=0.1),
    limit_s=60.0,
)


def finished(setup: Setup, *, governed: bool, folder: Path) -> TrialRun:
    with TrialRun(setup, governed=governed, folder=folder) as trial:
        run_to_its_end(trial)
    return trial


def run_to_its_end(trial: TrialRun) -> None:
    while not trial.over:
        trial.step(0.05)


@pytest.mark.parametrize("governed", [False, True])
def test_every_call_is_made_exactly_once(governed: bool, tmp_path: Path) -> None:
    trial = finished(SETUP, governed=governed, folder=tmp_path)
    found = score(trial.record)
    assert (found.calls_done, found.stopped) == (6, False)
    assert trial.record.tally.accepted == 6
    assert found.throttles == sum(trial.record.throttles.values())
    assert all(row.done == row.calls for row in trial.standing().rows)


def test_a_governed_heat_never_touches_the_users_own_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLYBALL_HOME", str(tmp_path / "mine"))
    monkeypatch.setenv("FLYBALL_URL", f"sqlite://{tmp_path}/mine.db")
    (tmp_path / "demo").mkdir()
    trial = finished(SETUP, governed=True, folder=tmp_path / "demo")
    assert trial.record.calls_done == 6
    assert [path.name for path in tmp_path.iterdir()] == ["demo"]


def test_what_the_governor_did_can_be_told(tmp_path: Path) -> None:
    with TrialRun(replace(SETUP, capacity=Capacity.parse("0")), governed=True, folder=tmp_path) as trial:
        # It has one worker: before its second refusal it reported the first.
        while trial.record.throttles.get("blog", 0) < 2:
            trial.step(0.05)
        trial.setup = replace(trial.setup, limit_s=0.0)
        trial.step(0.0)
    assert any("retry after" in words for words in trial.story)


def test_no_worker_outlives_its_heat(tmp_path: Path) -> None:
    with TrialRun(SETUP, governed=False, folder=tmp_path) as trial:
        trial.step(0.01)
    assert all(worker.process.returncode is not None for worker in trial.workers)


def test_a_heat_that_cannot_end_is_stopped_and_says_so(tmp_path: Path) -> None:
    setup = replace(SETUP, capacity=Capacity.parse("0"), limit_s=0.2)
    found = score(finished(setup, governed=False, folder=tmp_path).record)
    assert (found.calls_done, found.stopped) == (0, True)


def test_a_worker_that_dies_ends_the_heat_with_its_name(tmp_path: Path) -> None:
    setup = replace(SETUP, capacity=Capacity.parse("0"))
    with TrialRun(setup, governed=False, folder=tmp_path) as trial:
        os.kill(trial.workers[0].process.pid, signal.SIGKILL)
        with pytest.raises(AgentError, match="shop died"):
            run_to_its_end(trial)


def test_a_worker_whose_parent_is_gone_leaves_at_once() -> None:
    told = {"url": "http://127.0.0.1:9", "project": "shop", "name": "w", "pool": None, "seed": "1"}
    command = [sys.executable, "-m", "flyball.sim.demo.worker", json.dumps(told)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        assert worker.stdin is not None
        assert worker.stdout.readline() == b"ready\n"
        worker.stdin.close()
    assert worker.returncode == 0
