"""What ``make test`` makes of tests that fail always, never, or the first time only."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import suite

TESTS = """
from pathlib import Path

def test_good():
    pass

def test_racy():
    seen = Path(__file__).with_name("seen")
    first = not seen.exists()
    seen.touch()
    assert not first
"""
BAD = """
def test_bad():
    assert False
"""


@pytest.fixture(autouse=True)
def nothing_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "missing", list)
    monkeypatch.delenv("FLYBALL_STRICT", raising=False)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    # Loading all plugins takes longer than the tests.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def run(folder: Path, *tests: str) -> int:
    (folder / "test_it.py").write_text("".join(tests))
    return suite.main(["-q", "-p", "xdist"], folder)


def test_a_test_that_passes_only_the_second_time_is_named_with_the_command_to_repeat_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, TESTS) == 0
    said = capsys.readouterr().out
    assert "PASSED ONLY THE SECOND TIME" in said
    assert "-m pytest 'test_it.py::test_racy'" in said
    assert "test_good" not in said


def test_it_fails_a_strict_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLYBALL_STRICT", "1")
    assert run(tmp_path, TESTS) == 1


def test_a_test_that_fails_twice_fails_the_run_beside_one_that_is_racy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, TESTS, BAD) == 1
    assert "test_it.py::test_racy" in capsys.readouterr().out


def test_a_run_without_failures_says_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "def test_good():\n    pass\n") == 0
    assert capsys.readouterr().out == ""


def test_what_pytest_cannot_collect_fails_the_run(tmp_path: Path) -> None:
    assert run(tmp_path, "import nothing_like_this\n") != 0
