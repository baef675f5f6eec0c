"""The board: one panel for every metric, made from the list."""

from __future__ import annotations

import json
from typing import Any

from flyball.observe.grafana import board
from flyball.observe.metrics import METRICS


def panels() -> list[Any]:
    found: list[Any] = json.loads(board())["panels"]
    return found


def test_every_metric_has_a_panel_and_no_panel_asks_for_anything_else() -> None:
    asked = [" ".join(target["expr"] for target in panel["targets"]) for panel in panels()]
    assert len(asked) == len(METRICS)
    for metric, queries in zip(METRICS, asked, strict=True):
        assert metric.name in queries
        for other in METRICS:
            assert other is metric or f"{other.name}{{" not in queries


def test_panels_do_not_overlap_and_have_their_own_ids() -> None:
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels()]
    assert len(set(places)) == len(places)
    assert len({panel["id"] for panel in panels()}) == len(places)


def test_what_must_stay_zero_turns_red_when_it_does_not() -> None:
    (over,) = [panel for panel in panels() if "over_admitted" in panel["targets"][0]["expr"]]
    steps = over["fieldConfig"]["defaults"]["thresholds"]["steps"]
    assert [step["color"] for step in steps] == ["green", "red"]
    assert "rate(" not in over["targets"][0]["expr"]


def test_the_data_source_is_asked_for_on_import() -> None:
    variables = {found["name"]: found for found in json.loads(board())["templating"]["list"]}
    assert variables["source"]["type"] == "datasource"
    assert all(panel["datasource"]["uid"] == "${source}" for panel in panels())
