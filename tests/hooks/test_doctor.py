"""The doctor says when the hooks in an agent's settings do nothing any more, or another flyball's."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from flyball.cli.main import main

Said = pytest.CaptureFixture[str]


def findings(said: Said) -> dict[str, dict[str, str]]:
    said.readouterr()
    main(["doctor", "--json"])
    found = json.loads(said.readouterr().out)["findings"]
    return {each["kind"]: each for each in found if "hooks" in each["kind"]}


@pytest.fixture
def settings(person: Path) -> Path:
    main(["hooks", "install", "claude"])
    return person / ".claude" / "settings.json"


def point_to(settings: Path, python: Path) -> None:
    settings.write_text(settings.read_text().replace(sys.executable, str(python)))


def test_hooks_that_are_as_they_should_be_are_not_spoken_of(settings: Path, capsys: Said) -> None:
    assert findings(capsys) == {}


def test_hooks_of_a_flyball_that_is_gone_are_a_problem_with_a_way_out(settings: Path, capsys: Said) -> None:
    point_to(settings, Path("/nowhere/python"))
    found = findings(capsys)["hooks of claude are lost"]
    assert found["severity"] == "problem"
    assert "/nowhere/python, which is gone" in found["words"]
    assert "flyball hooks install claude" in found["remedy"]
    main(["hooks", "install", "claude"])
    assert findings(capsys) == {}


def test_an_interpreter_without_flyball_is_found_too(settings: Path, tmp_path: Path, capsys: Said) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    point_to(settings, python)
    assert "has no flyball with hooks" in findings(capsys)["hooks of claude are lost"]["words"]


def test_hooks_of_another_flyball_are_a_note(settings: Path, tmp_path: Path, capsys: Said) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    point_to(settings, python)
    found = findings(capsys)
    assert list(found) == ["hooks of claude are another's"]
    assert found["hooks of claude are another's"]["severity"] == "note"


def test_hooks_that_are_not_all_there_are_a_problem(settings: Path, capsys: Said) -> None:
    kept = json.loads(settings.read_text())
    del kept["hooks"]["SubagentStop"]
    settings.write_text(json.dumps(kept))
    assert (
        "no hook of flyball's for SubagentStop" in findings(capsys)["hooks of claude are incomplete"]["words"]
    )


def test_hooks_that_claude_does_not_run_are_a_problem(settings: Path, capsys: Said) -> None:
    kept = json.loads(settings.read_text())
    settings.write_text(json.dumps({**kept, "disableAllHooks": True}))
    assert "hooks of claude are off" in findings(capsys)


def test_settings_that_claude_does_not_load_are_a_problem(settings: Path, capsys: Said) -> None:
    settings.write_text("// mine\n" + settings.read_text())
    assert "comments" in findings(capsys)["hooks of claude are off"]["words"]
    main(["hooks", "show", "claude"])
    assert "take the comments out" in capsys.readouterr().out


def test_a_hook_that_failed_lately_is_a_note(person: Path, tmp_path: Path, capsys: Said) -> None:
    log = tmp_path / "flyball" / "hooks" / "log"
    log.parent.mkdir(parents=True)
    log.write_text("2026-01-01 00:00:00 claude SessionStart: StoreError: it was full\n")
    found = findings(capsys)["hooks failed"]
    assert (found["severity"], "it was full" in found["words"]) == ("note", True)
