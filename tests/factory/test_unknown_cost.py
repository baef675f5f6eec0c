"""Dollars that are not reported: codex and gemini say how many tokens they used, and not what those cost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.factory.kit import Project
from tests.runtimes.recorded import FOLDER

WORK = "write('pages/t-1.txt', 'x')"


@pytest.fixture
def codex(project: Project) -> Project:
    """One task whose agent prints what a real codex printed, and does its work."""
    project.configure(agent={"runtime": "codex"})
    stdout = next(Path(FOLDER).glob("codex/ok_text.stdout.*"))
    project.task("t-1", act=f"os.write(1, Path({str(stdout)!r}).read_bytes())\n{WORK}\nsys.exit(0)")
    return project


# -- what is shown ----------------------------------------------------------------------------------------


def test_a_run_whose_agents_say_no_dollars_says_that_its_cost_is_unknown(codex: Project) -> None:
    ran = codex.run()
    assert ran.code == 0, ran.said
    assert "cost      unknown" in ran.out, ran.out
    assert "$" not in ran.out


def test_the_unknown_cost_of_a_run_is_null_in_json(codex: Project) -> None:
    ran = codex.run("--json")
    assert (ran.json["merged"], ran.json["cost_usd"]) == (["t-1"], None)


def test_metrics_of_unknown_dollars_count_tokens_and_invent_no_cost(codex: Project) -> None:
    codex.run()
    found = codex.flyball("metrics", "--json").json
    assert found["spend"]["usd"] is None
    assert found["spend_per_merged"]["usd"] is None
    assert found["spend"]["tokens"] > 0
    assert found["wasted"] == {"tokens": 0, "usd": 0.0, "unpriced": 0}, "nothing was wasted: that is known"
    said = codex.flyball("metrics").out
    assert "unknown cost (" in said
    assert "$0.00 (0 tokens) on work that never merged" in said


def test_quota_show_says_unknown_where_spending_is_not_reported(codex: Project) -> None:
    codex.run()
    shown = codex.flyball("quota", "show", "--json").json
    assert [each["spent_usd"] for each in shown["windows"]] == [None, None]
    said = codex.flyball("quota", "show").out
    assert "unknown" in said
    assert "$0.00" not in said
    assert "codex does not report what its calls cost" in said


def test_the_board_says_unknown_for_a_task_whose_agent_counts_tokens_only(codex: Project) -> None:
    codex.act("t-1", (codex.folder / "acts" / "t-1.py").read_text().replace("'x'", "'bad'"))
    codex.configure(run={"attempts": 1, "gate_retries": 0})
    assert codex.run().code == 1
    [row] = codex.flyball("board", "--json").json["rows"]
    assert (row["tokens"] > 0, row["cost_usd"]) == (True, None)
    assert "unknown" in codex.flyball("board").out


def test_where_some_launches_say_no_dollars_the_sum_is_a_least(project: Project) -> None:
    """A claude that is killed never says what it cost."""
    project.configure(agent={"runtime": "claude"}, run={"attempts": 2})
    result = {"type": "result", "is_error": False, "session_id": "s", "total_cost_usd": 1.25}
    project.task("t-1", act=f"print({json.dumps(result)!r}, flush=True)\n{WORK}")
    project.act("t-1", "os.kill(os.getpid(), 9)", launch=1)
    ran = project.run()
    assert ran.code == 0, ran.said
    assert "at least $1.25" in ran.out, ran.out
    found = project.flyball("metrics", "--json").json
    assert (found["spend"]["usd"], found["spend"]["unpriced"]) == (1.25, 1)


# -- what is refused --------------------------------------------------------------------------------------

CEILINGS = [
    ("budget.run_usd", {"budget": {"run_usd": 0.0001}}),
    ("budget.task_usd", {"budget": {"task_usd": 0.0001}}),
    ("agent.max_cost_usd", {"agent": {"max_cost_usd": 0.0001}}),
]


@pytest.mark.parametrize(("key", "sections"), CEILINGS, ids=[key for key, _ in CEILINGS])
def test_a_ceiling_in_dollars_that_cannot_be_measured_is_refused_before_anything_starts(
    codex: Project, key: str, sections: dict[str, dict[str, float]]
) -> None:
    codex.configure(**sections)
    ran = codex.run()
    assert ran.code == 2, ran.said
    assert key in ran.err
    assert "codex does not report what its calls cost" in ran.err
    assert "agent.max_turns" in ran.err, "the way out"
    assert codex.began() == []
    assert not (codex.root / ".flyball").exists()


@pytest.mark.parametrize(("key", "sections"), CEILINGS, ids=[key for key, _ in CEILINGS])
def test_validate_doctor_and_a_dry_run_name_a_ceiling_that_cannot_be_measured(
    codex: Project, key: str, sections: dict[str, dict[str, float]]
) -> None:
    codex.configure(**sections)
    found = codex.flyball("validate", "--json").json
    assert [each["where"] for each in found["findings"] if each["severity"] == "problem"] == [key]
    assert key in codex.flyball("doctor").out
    [problem] = codex.run("--dry-run", "--json").json["problems"]
    assert key in problem


def test_a_declared_window_that_cannot_be_measured_is_refused_when_it_is_declared(codex: Project) -> None:
    ran = codex.flyball("quota", "declare", "5h", "--usd", "20")
    assert ran.code == 2, ran.said
    assert "codex does not report what its calls cost" in ran.err


def test_a_window_that_was_declared_for_an_account_without_dollars_keeps_a_run_from_starting(
    codex: Project,
) -> None:
    book = codex.home / "registry" / "quotas" / "default:codex.json"
    book.parent.mkdir(parents=True)
    window = {"name": "5h", "length_s": 18000.0, "ceiling_usd": 20.0, "set_by": "declared", "at": "2026"}
    book.write_text(json.dumps({"account": "default:codex", "windows": [window]}))
    ran = codex.run()
    assert ran.code == 2, ran.said
    assert "flyball quota forget 5h" in ran.err
    assert codex.began() == []


def test_a_run_that_does_not_enforce_budgets_starts_in_spite_of_them(codex: Project) -> None:
    codex.configure(budget={"run_usd": 0.0001})
    ran = codex.run("--budget-guard", "advisory")
    assert ran.code == 0, ran.said
    assert "budget.run_usd" in ran.out, "it is said all the same"


def test_a_runtime_that_reports_dollars_is_held_to_its_ceiling_as_before(project: Project) -> None:
    project.configure(agent={"runtime": "claude"}, budget={"run_usd": 5})
    assert project.flyball("validate").code == 0
