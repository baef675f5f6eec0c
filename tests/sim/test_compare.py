"""Every contender in every scenario: the numbers, the tables and the pictures made of runs."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree

import pytest

from flyball.core.pool.settings import PoolChanges
from flyball.sim.simulator import report
from flyball.sim.simulator.compare import ORACLE, ScenarioResult, ScenarioScore, compare, play
from flyball.sim.simulator.controllers import CONTENDERS, DEFAULT, OURS, PEERS
from flyball.sim.simulator.held_out import EVERY_SCENARIO
from flyball.sim.simulator.plot import draw, picture
from flyball.sim.simulator.scenario import Goal
from tests.cases import every

SVG = "{http://www.w3.org/2000/svg}"


def result(
    contender: str,
    goodput: float,
    waste: float,
    *,
    scenario: str = "constant",
    slot_waste: float = 0.0,
    jain: float = 1.0,
) -> ScenarioResult:
    return ScenarioResult(scenario, contender, (ScenarioScore(goodput, waste, slot_waste, jain, 1000, 10),))


# -- numbers --------------------------------------------------------------------------------------


def test_the_work_is_the_same_for_every_contender_and_number_of_processes() -> None:
    names = ["constant", "bucket-bare"]
    alone = compare(names, [DEFAULT, "fixed-low"], [1, 2], part=0.02)
    spread = compare(names, [DEFAULT, "fixed-low"], [1, 2], part=0.02, processes=2)
    assert alone == spread
    assert [(one.scenario, one.contender) for one in alone] == [
        (name, contender) for name in names for contender in (DEFAULT, "fixed-low")
    ]
    assert all(len(one.scores) == 2 for one in alone)


def test_progress_is_told_run_by_run() -> None:
    told: list[str] = []
    compare(["constant"], ["fixed-low"], [1, 2], part=0.01, report=told.append)
    assert len(told) == 4
    assert told[-1] == "4 of 4 runs: constant, fixed-low"


def test_a_low_cap_gets_its_part_of_the_seats_and_wastes_nothing() -> None:
    (found,) = compare(["constant"], ["fixed-low"], [1], part=0.1)
    assert found.goodput_pct == pytest.approx(100 * 8 / 24, rel=0.02)
    assert found.waste_pct == 0.0


def test_settings_reach_only_flyballs_own_contenders() -> None:
    changes = PoolChanges(cap=4, cap_ceiling=4)
    ours, theirs = compare(["constant"], [DEFAULT, "fixed-low"], [1], part=0.05, changes=changes)
    assert ours.goodput_pct == pytest.approx(100 * 4 / 24, rel=0.03)
    assert theirs.goodput_pct == pytest.approx(100 * 8 / 24, rel=0.03)


@every("contender", CONTENDERS)
def test_every_contender_gets_something_done(contender: str) -> None:
    run = play(EVERY_SCENARIO["constant"].shorten(0.05), contender, 1)
    assert run.total.done > 0


def test_the_oracles_own_failures_are_no_contenders_waste() -> None:
    scenario = EVERY_SCENARIO["outages"].shorten(0.2)
    assert play(scenario, ORACLE, 1).total.rejected > 0
    (found,) = compare(["outages"], ["fixed-low"], [1], part=0.2)
    assert found.scores[0].rejected > found.waste_pct * found.scores[0].done / 100


def test_a_goal_is_met_only_in_every_part() -> None:
    goal = Goal(goodput=99.0, waste=0.5, jain=0.99)
    assert result(DEFAULT, 99.1, 0.4).meets(goal)
    assert not result(DEFAULT, 98.9, 0.4).meets(goal)
    assert not result(DEFAULT, 99.1, 0.6).meets(goal)
    assert not result(DEFAULT, 99.1, 0.4, jain=0.9).meets(goal)
    assert not result(DEFAULT, 99.1, 0.0, slot_waste=0.4).meets(Goal(goodput=98.5, slot_waste=0.3))


# -- tables ---------------------------------------------------------------------------------------


def test_a_little_more_waste_for_much_more_goodput_is_worth_it() -> None:
    results = [result("fixed-low", 33.0, 0.0), result(DEFAULT, 99.0, 0.7)]
    order = [one.contender for one in report.ranking(results, EVERY_SCENARIO["constant"].goal)]
    assert order == [DEFAULT, "fixed-low"]


def test_goodput_bought_with_waste_is_not() -> None:
    results = [result("fixed-high", 100.0, 140.0), result("fixed-low", 33.0, 0.0), result(DEFAULT, 99.0, 0.4)]
    order = [one.contender for one in report.ranking(results, EVERY_SCENARIO["constant"].goal)]
    assert order == [DEFAULT, "fixed-low", "fixed-high"]


def test_for_agents_the_slot_time_decides() -> None:
    results = [
        result("fixed-low", 80.0, 0.0, scenario="agents"),
        result(DEFAULT, 99.0, 6.0, scenario="agents", slot_waste=0.2),
    ]
    order = [one.contender for one in report.ranking(results, EVERY_SCENARIO["agents"].goal)]
    assert order == [DEFAULT, "fixed-low"]
    assert report.cell(results[1]) == "99.0 / 0.20"


def test_advice_says_what_to_choose_and_what_more_would_cost() -> None:
    scenario = EVERY_SCENARIO["constant"]
    results = [result("fixed-high", 100.0, 140.6), result(DEFAULT, 99.0, 0.4), result("article", 80.0, 2.0)]
    words = report.advice(scenario, results, PoolChanges(cap_ceiling=64))
    assert words[0].startswith("the controller 'measured': 99.0 % of what an oracle gets")
    assert "'fixed-high' gets 1.0 points more and pays for it: 141 rejected per 100 served" in words
    assert words[-1] == "flyball pool set NAME --profile calls --cap 2 --ceiling 64"


def test_the_whole_table_has_a_row_of_medians() -> None:
    results = [
        result(DEFAULT, 99.0, 0.4),
        result("fixed-low", 33.0, 0.0),
        result(DEFAULT, 97.0, 0.6, scenario="step"),
        result("fixed-low", 31.0, 0.0, scenario="step"),
    ]
    table = report.matrix(results)
    assert table[0] == ["scenario", DEFAULT, "fixed-low"]
    assert table[1] == ["constant", "99.0 / 0.40", "33.0 / 0.00"]
    assert table[-1] == ["median", "98.0 / 0.50", "32.0 / 0.00"]
    assert report.markdown(table).splitlines()[1] == "| --- | --- | --- |"
    assert len(report.text(table).splitlines()) == 4


def test_the_record_is_plain_json() -> None:
    told = json.loads(json.dumps(report.record([result(DEFAULT, 99.0, 0.4)], seeds=[1]), allow_nan=False))
    assert told["tag"] == "simulated"
    assert told["results"][0]["class"] == "hard cap"
    assert told["results"][0]["by_seed"][0]["done"] == 1000


def test_flyballs_own_have_the_names_that_settings_have() -> None:
    from flyball.core.pool.settings import CONTROLLERS

    assert tuple(OURS) == CONTROLLERS
    assert not set(OURS) & set(PEERS)


# -- pictures -------------------------------------------------------------------------------------


@every("name", ["step", "bucket-shared", "outages", "agents", "processes-apart"])
def test_a_picture_is_valid_and_has_everything_in_it(name: str) -> None:
    shown = picture(EVERY_SCENARIO[name].shorten(0.05), [DEFAULT], 1)
    root = ElementTree.fromstring(draw(shown))
    assert root.tag == f"{SVG}svg"
    words = "".join(root.itertext())
    for expected in (shown.title, "calls at once", "cap, measured", "served", "rejected:", "waiting"):
        assert expected in words
    assert len(root.findall(f"{SVG}polyline")) == 2
    assert len(root.findall(f"{SVG}polygon")) == 1


def test_several_contenders_have_a_line_and_a_strip_each() -> None:
    shown = picture(EVERY_SCENARIO["step"].shorten(0.05), [DEFAULT, "article-raised"], 1)
    root = ElementTree.fromstring(draw(shown))
    assert len(root.findall(f"{SVG}polyline")) == 2
    words = "".join(root.itertext())
    assert "rejected, measured:" in words
    assert "rejected, article-raised:" in words


@pytest.mark.parametrize("contender", ["netflix-gradient2", "botocore", DEFAULT])
def test_nothing_is_drawn_outside(contender: str) -> None:
    root = ElementTree.fromstring(draw(picture(EVERY_SCENARIO["constant"].shorten(0.05), [contender], 1)))
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for shape in [*root.iter(f"{SVG}polyline"), *root.findall(f"{SVG}polygon")]:
        for point in shape.attrib["points"].split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= width
            assert 0 <= y <= height


def test_words_in_a_picture_are_escaped() -> None:
    from dataclasses import replace

    shown = picture(EVERY_SCENARIO["constant"].shorten(0.01), [DEFAULT], 1)
    root = ElementTree.fromstring(draw(replace(shown, title="a < b & c")))
    assert "a < b & c" in "".join(root.itertext())
