"""``flyball quota``, as it is typed."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from flyball.cli.main import main
from flyball.core.signals import WindowReading
from flyball.governor.governor import Governor
from flyball.governor.internals import internals
from tests.cli.kit import Cli
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


def test_an_account_that_was_never_calibrated_is_shown_as_such_with_the_next_step(shop: Project) -> None:
    ran = shop.flyball("quota", "show")
    assert ran.code == 0, ran.said
    assert "default:claude  ok" in ran.out
    assert "not measured yet: shown for information, not enforced" in ran.out
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
        (["calibrate", "--window", "5h", "--used", "62%"], "when the 5h window began is not known"),
        (
            ["calibrate", "--window", "5h", "--used", "62%", "--resets-in", "2h"],
            "nothing was spent in the 5h window yet",
        ),
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


def test_outside_a_project_every_account_that_is_known_is_shown(cli: Cli, governor: Governor) -> None:
    assert "No window of an account was measured yet." in cli("quota", "show").out
    assert cli("quota", "show", "--json").json == {"accounts": []}
    readings = (WindowReading("5h", 0.72, 4200.0, "default:claude"), WindowReading("7d", 0.18, None, "work"))
    for pool, reading in zip(("anthropic", "night"), readings, strict=True):
        internals(governor).windows.tell(pool, [reading])
    shown = cli("quota", "show").out
    assert re.search(r"default:claude +anthropic +5h +72% +70 min +reported \d+ s ago", shown)
    assert re.search(r"work +night +7d +18% +not known +reported", shown)
    assert "flyball quota show --account default:claude" in shown
    told = cli("quota", "show", "--json").json["accounts"]
    assert [(each["account"], each["used"]) for each in told] == [("default:claude", 0.72), ("work", 0.18)]
    one = cli("quota", "show", "--account", "default:claude", "--json").json["windows"]
    assert [(each["name"], each["used"]["value"], each["used"]["tag"]) for each in one[:1]] == [
        ("5h", 0.72, "reported")
    ]


def test_no_end_is_made_up_for_a_window_of_which_nothing_was_heard(cli: Cli) -> None:
    shown = cli("quota", "show", "--account", "work")
    assert "not measured yet" in shown.out
    assert "not known" in shown.out
    windows = cli("quota", "show", "--account", "work", "--json").json["windows"]
    assert [each["ends_in_s"] for each in windows] == [None, None]


def test_calibrating_outside_a_project_needs_the_account(cli: Cli) -> None:
    said = cli("quota", "calibrate", "--window", "5h", "--used", "62%", "--spent", "3")
    assert said.code == 2
    assert "--account default:claude" in said.err
    said = cli("quota", "calibrate", "--account", "work", "--window", "5h", "--used", "50%", "--spent", "3")
    assert (said.code, said.out) == (0, "work: 50% is $3.00 (a person), so the 5h window holds $6.00\n")


def test_what_counts_towards_a_calibration_began_with_the_window(cli: Cli, tmp_path: Path) -> None:
    transcripts = tmp_path / "login" / "projects" / "p"
    transcripts.mkdir(parents=True)
    lines = [
        {
            "message": {"id": f"m{n}", "model": "x", "usage": {"output_tokens": 1}},
            "requestId": f"r{n}",
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - ago_s)),
            "costUSD": 4.0,
        }
        for n, ago_s in enumerate((4 * 3600.0, 60.0))
    ]
    (transcripts / "s.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    account = ("account", "add", "work", "--runtime", "claude", "--identity", "me@example.org")
    assert cli(*account, "--config-dir", str(tmp_path / "login")).code == 0
    words = (
        "quota",
        "calibrate",
        "--account",
        "work",
        "--window",
        "5h",
        "--used",
        "50%",
        "--resets-in",
        "3h",
    )
    said = cli(*words)
    assert said.code == 0, said.err
    assert "50% is $4.00" in said.out, "what was spent four hours ago was in the window before"
