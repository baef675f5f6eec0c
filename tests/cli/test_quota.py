"""``flyball quota``, as it is typed."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from flyball.cli.main import main
from tests.factory.kit import Project


@pytest.fixture
def shop(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    project.configure(agent={"runtime": "claude"})
    return project


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that is a project, for what needs no process of its own."""
    (tmp_path / "flyball.toml").write_text('[project]\nid = "blog"\n[agent]\nruntime = "claude"\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("FLYBALL_HOME", str(tmp_path / "home"))


def test_an_account_nobody_calibrated_is_shown_as_such_with_the_next_step(shop: Project) -> None:
    ran = shop.flyball("quota", "show")
    assert ran.code == 0, ran.said
    assert "default:claude  ok" in ran.out
    assert "not calibrated: shown for information, not enforced" in ran.out
    assert "flyball quota calibrate --window 5h --used 62%" in ran.out


def test_declaring_calibrating_showing_and_forgetting(shop: Project) -> None:
    said = shop.flyball("quota", "declare", "day", "--length", "1d", "--usd", "20")
    assert said.out == "default:claude: the day window (24 h) holds $20.00\n"
    said = shop.flyball("quota", "calibrate", "--window", "5h", "--used", "62%", "--spent", "6.2")
    assert said.out == "default:claude: 62% is $6.20 (a person), so the 5h window holds $10.00\n"
    shown = shop.flyball("quota", "show", "--json").json
    assert [(each["name"], each["enforced"]) for each in shown["windows"]] == [
        ("5h", True),
        ("7d", False),
        ("day", True),
    ]
    assert shown["windows"][0]["ceiling_usd"] == {"value": 10.0, "tag": "measured"}
    assert shown["windows"][0]["spent_usd"] == {"value": 6.2, "tag": "estimated"}
    assert shown["windows"][0]["used"]["value"] == pytest.approx(0.62)
    gone = shop.flyball("quota", "forget", "--all", "--json").json
    assert gone == {"account": "default:claude", "forgotten": ["day", "5h"]}


def test_another_account_is_not_this_project_s(shop: Project) -> None:
    shop.flyball("quota", "declare", "5h", "--usd", "20", "--account", "work")
    ours = shop.flyball("quota", "show", "--json").json
    theirs = shop.flyball("quota", "show", "--account", "work", "--json").json
    assert [each["windows"][0]["enforced"] for each in (ours, theirs)] == [False, True]
    shop.flyball("account", "add", "work", "--runtime", "claude", "--identity", "me@example.org")
    shop.configure(account={"profile": "work"})
    assert shop.flyball("quota", "show", "--json").json["account"] == "work"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["calibrate", "--window", "5h", "--used", "62"], "write 62% or 0.62"),
        (["calibrate", "--window", "5h", "--used", "0%"], "write 62% or 0.62"),
        (["calibrate", "--window", "5h", "--used", "nan"], "write 62% or 0.62"),
        (["calibrate", "--window", "5h", "--used", "62%"], "nothing was spent in the 5h window yet"),
        (["calibrate", "--window", "5k", "--used", "62%"], "has no window '5k'"),
        (["declare", "day", "--usd", "-3", "--length", "1d"], "not an amount of dollars"),
        (["declare", "day", "--usd", "3"], "how long is 'day'?"),
        (["declare", "day", "--usd", "3", "--length", "90d"], "between a minute and 31 days"),
        (["forget"], "name a window, or --all"),
        (["forget", "5h"], "nothing was set for 5h"),
        (["show", "--account", "../x"], "cannot be an account"),
    ],
)
def test_what_cannot_be_is_refused_with_the_way_out(
    here: None, capsys: pytest.CaptureFixture[str], words: list[str], why: str
) -> None:
    assert main(["quota", *words]) == 2
    assert why in capsys.readouterr().err


def test_a_damaged_file_is_told_and_nothing_runs_on_without_it(shop: Project) -> None:
    shop.flyball("quota", "declare", "5h", "--usd", "20")
    (shop.home / "registry" / "quotas" / "default:claude.json").write_text("{")
    for words in (["quota", "show"], ["run"]):
        ran = shop.flyball(*words)
        assert ran.code == 74, ran.said
        assert "bring it back with git" in ran.err


def test_every_figure_is_in_the_json_with_how_it_is_known(shop: Project) -> None:
    now = time.time()
    told = {"windows": [{"name": "5h", "fraction": 0.5, "at": now, "resets_at": now + 600}]}
    (shop.home / "usage").mkdir(parents=True)
    (shop.home / "usage" / "default:claude.json").write_text(json.dumps(told))
    shown = shop.flyball("quota", "show", "--json").json
    assert shown["windows"][0]["used"] == {"value": 0.5, "tag": "reported"}
    assert shown["level"] == "ok"
