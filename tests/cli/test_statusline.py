"""``flyball statusline`` as Claude Code runs it: a record on stdin, one line back, the rest beside it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flyball.cli.commands.pools.statusline import windows_in
from flyball.governor.account_windows import account_windows
from flyball.governor.governor import Governor
from flyball.governor.internals import internals
from tests.waiting import until


@pytest.fixture(autouse=True)
def login(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)


def shown(record: object, *words: str) -> str:
    text = record if isinstance(record, str) else json.dumps(record)
    done = subprocess.run(
        [sys.executable, "-m", "flyball", "statusline", *words],
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.rstrip("\n")


def session(five_hours: float, *, resets_in_s: float = 4205.0) -> dict[str, object]:
    windows = {
        "five_hour": {"used_percentage": five_hours, "resets_at": round(time.time() + resets_in_s)},
        "seven_day": {"used_percentage": 18.4, "resets_at": round(time.time() + 3 * 86400)},
    }
    return {"session_id": "s", "model": {"display_name": "Opus"}, "rate_limits": windows}


def measured(governor: Governor) -> dict[str, float]:
    found = account_windows(internals(governor).store.snapshot(), "default:claude")
    return {each.name: each.used for each in found}


def test_one_short_line_and_the_pool_is_told(home: Path, governor: Governor) -> None:
    governor.set_pool("anthropic", cap=8)
    assert shown(session(72)).startswith("5h 72% 70 min | 7d 18% 3 d")
    until(lambda: measured(governor) == {"5h": 0.72, "7d": 0.184}, "the pool to be told")
    until(lambda: list((home / "statusline").glob("*.json")), "what is kept")
    assert shown(session(72)) == "5h 72% 70 min | 7d 18% 3 d | anthropic 0/8"


def test_a_window_from_which_on_the_pool_warns_is_marked(home: Path, governor: Governor) -> None:
    governor.set_pool("anthropic", cap=8, usage_warn=0.7)
    shown(session(72))
    until(lambda: list((home / "statusline").glob("*.json")), "what is kept")
    assert shown(session(72)) == "5h 72%! 70 min | 7d 18% 3 d | anthropic 0/8"


def test_a_session_that_says_nothing_shows_what_others_measured(home: Path, governor: Governor) -> None:
    shown(session(41))
    until(lambda: list((home / "statusline").glob("*.json")), "what is kept")
    assert shown({"session_id": "s"}).startswith("5h 41% 70 min | 7d 18%")
    told = json.loads(shown({}, "--json"))
    assert [(each["name"], each["used"]) for each in told["windows"]] == [("5h", 0.41), ("7d", 0.184)]


@pytest.mark.parametrize("record", ["", "{", "[]", '{"rate_limits": {"five_hour": 7}}', "\x00"])
def test_what_cannot_be_understood_does_not_trouble_the_session(home: Path, record: str) -> None:
    assert shown(record) == "flyball: nothing measured yet"


def test_a_file_that_cannot_be_read_is_made_again(home: Path, governor: Governor) -> None:
    shown(session(41))
    until(lambda: list((home / "statusline").glob("*.json")), "what is kept")
    (kept,) = (home / "statusline").glob("*.json")
    kept.write_text("{")
    assert shown(session(43)).startswith("5h 43%")
    until(lambda: kept.read_text() != "{" and json.loads(kept.read_text())["windows"], "a new file")


def test_windows_that_make_no_sense_are_left_out() -> None:
    told = {"five_hour": {"used_percentage": "much"}, "seven_day": {"used_percentage": -3}, "x": 1}
    assert windows_in({"rate_limits": told}, 0.0) == {}
    assert windows_in({"rate_limits": {"five_hour": {"used_percentage": 5, "resets_at": 9e12}}}, 0.0) == {
        "5h": (0.05, None)
    }
