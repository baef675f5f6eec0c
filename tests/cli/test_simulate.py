"""``flyball simulate``: what it prints, writes and refuses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from flyball.sim.simulator.controllers import CONTENDERS
from flyball.sim.simulator.held_out import EVERY_SCENARIO
from tests.cli.kit import Cli

QUICK = ("--part", "0.02", "--processes", "1")


def test_a_scenario_is_run_and_judged(cli: Cli) -> None:
    found = cli("simulate", "constant", *QUICK)
    assert (found.code, found.err) == (0, "")
    assert "constant  measured" in found.out
    assert "at least 99 %, at most 0.5 rejected" in found.out
    assert "flyball simulate constant --compare" in found.out


def test_the_same_seed_gives_the_same_numbers(cli: Cli) -> None:
    first, again, other = (cli("simulate", "neighbour", "--seed", seed, *QUICK).out for seed in "114")
    assert first == again != other


def test_the_list_is_json_too(cli: Cli) -> None:
    listed = cli("simulate", "--list", "--json").json
    assert {one["name"] for one in listed["scenarios"]} == set(EVERY_SCENARIO)
    assert {one["name"] for one in listed["contenders"]} == set(CONTENDERS)


def test_every_scenario_and_contender_is_listed(cli: Cli) -> None:
    listed = cli("simulate", "--list").out
    for name in (*EVERY_SCENARIO, *CONTENDERS):
        assert name in listed


def test_compare_ranks_every_contender_and_says_what_to_choose(cli: Cli) -> None:
    found = cli("simulate", "constant", "--compare", *QUICK)
    assert found.code == 0
    for name in CONTENDERS:
        assert f"\n  {name} " in found.out
    assert "choose    the controller " in found.out
    assert "flyball pool set NAME --profile calls" in found.out


def test_compare_of_several_scenarios_has_a_word_for_all_of_them(cli: Cli) -> None:
    found = cli("simulate", "seven", "agents", "--compare", *QUICK)
    assert "of 2 scenarios" in found.out


def test_json_has_everything(cli: Cli) -> None:
    found = cli("simulate", "step", "bucket-bare", "--controller", "inspect", "--json", *QUICK)
    assert [row["scenario"] for row in found.json["results"]] == ["step", "bucket-bare"]
    assert {row["contender"] for row in found.json["results"]} == {"inspect"}
    assert found.json["seeds"] == [1]


def test_settings_that_are_named_count(cli: Cli) -> None:
    low = cli("simulate", "constant", "--cap", "2", "--ceiling", "6", "--json", *QUICK).json["results"][0]
    assert low["goodput_pct"] < 30


def test_a_plot_is_written(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "step.svg"
    found = cli("simulate", "step", "--plot", str(file), *QUICK)
    assert found.code == 0
    assert "step under measured" in found.out
    assert ElementTree.parse(file).getroot().tag.endswith("svg")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["contant"], "there is no scenario 'contant'; did you mean 'constant'?"),
        (["xyzzy"], "flyball simulate --list"),
        (["constant", "--controller", "measurd"], "did you mean 'measured'?"),
        (["constant", "--part", "2"], "--part must be above 0 and at most 1"),
        (["constant", "--cap", "600"], "cap_ceiling 512 is below cap 600"),
        (["constant", "step", "--plot", "x.svg"], "a plot shows one scenario"),
        (["constant", "--plot", "x.png"], "plots are written as SVG"),
        (["constant", "--plot", "/nowhere/at/all.svg"], "cannot write"),
    ],
)
def test_what_cannot_be_is_said_in_words(cli: Cli, words: list[str], expected: str) -> None:
    found = cli("simulate", *words)
    assert found.code == 2
    assert expected in found.err


def test_it_touches_no_state(cli: Cli) -> None:
    cli("simulate", "constant", *QUICK)
    assert not cli.database.exists()


@pytest.mark.faults
def test_ctrl_c_stops_it_and_leaves_no_process_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "flyball", "simulate", "--compare", "--processes", "2"]
    process = subprocess.Popen(
        command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        assert " runs: " in process.stderr.readline()
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, (out, err)
    assert "Traceback" not in err
    assert eventually_gone(process.pid)


def eventually_gone(group: int) -> bool:
    for _ in range(100):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False
