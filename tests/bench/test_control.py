"""The control suite runs and answers in the form its reports need. Figures are judged by people, not here."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from bench import control, machine
from bench.__main__ import main
from bench.report import as_text
from flyball.sim.simulator.controllers import CONTENDERS
from flyball.sim.simulator.scenario import SCENARIOS

TINY = control.Sizes(
    tuning_seeds=(1,),
    final_seeds=(11,),
    scenarios=("constant", "agents", "processes-4"),
    held_out=("seven",),
    peers=("fixed-low", "article-aimd"),
    part=0.02,
    processes=1,
    moments_per_hold=4,
)


def test_it_finds_figures_tables_and_keeps_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "COLD", ("seven",))
    monkeypatch.setattr(control, "OUTAGES", ())
    outcome = control.run(TINY, lambda _: None)
    assert [section.name for section in outcome.sections] == ["tuning", "final", "exec", "peers", "speed"]
    for section in outcome.sections:
        assert as_text(section)
        assert all(math.isfinite(figure.ours) for figure in section.figures)
    file = tmp_path / "control.json"
    control.keep(file, outcome, machine.describe())
    told = json.loads(file.read_text())
    assert len(told["tuning"]["results"]) == 9
    assert len(told["final"]["results"]) == 12
    table = file.with_suffix(".md").read_text()
    for words in ("| constant |", "| seven |", "| median |", "## speed:", "article-aimd"):
        assert words in table


def test_recovery_is_counted_from_the_end_of_each_outage() -> None:
    sizes = control.Sizes(part=0.2, moments_per_hold=4)
    took = control.recoveries_holds("outages", 1, sizes)
    assert len(took) == 3
    assert all(0 <= holds < 60 for holds in took)


def test_a_cold_start_is_counted_in_hold_times() -> None:
    assert 0 < control.cold_start_holds("constant", 1) < 30


def test_every_picture_is_of_something_that_exists() -> None:
    for scenario, contenders in control.PICTURES.values():
        assert scenario in SCENARIOS
        assert set(contenders) <= set(CONTENDERS)


def test_control_runs_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["control", "startup"])
    assert "control runs alone" in capsys.readouterr().err
