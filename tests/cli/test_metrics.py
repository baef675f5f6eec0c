"""``flyball metrics``: what the ledger of a project adds up to, on the screen and as JSON."""

from __future__ import annotations

import os

import pytest

from flyball.core.tasks.task_run import RunPhase, Step
from flyball.factory.state.ledger import Ledger
from tests.cli.kit import Cli
from tests.factory.kit import Project


@pytest.fixture
def worked(site: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """One task merged by sonnet, one blocked by haiku."""
    monkeypatch.chdir(site.root)
    ledger = Ledger(site.root / ".flyball", run="r-1")
    for task, model, usd in (("t-1", "sonnet", 1.5), ("t-2", "haiku", 0.25)):
        ledger.note(task, Step.CLAIM)
        ledger.note(task, Step.WORKTREE)
        ledger.note(task, Step.LAUNCH, model=model)
        ledger.note(task, Step.END, tokens=1000, cost_usd=usd, model=model)
    ledger.note("t-1", Step.LAND, RunPhase.BEGUN)
    ledger.note("t-1", Step.MERGED)
    ledger.note("t-2", Step.BLOCK, reason="failed")
    ledger.close()
    return site


def test_what_was_merged_and_what_was_wasted_are_told_apart(cli: Cli, worked: Project) -> None:
    found = cli("metrics", "--json").json
    assert (found["merged"], found["blocked"], found["under_way"]) == (1, 1, 0)
    assert found["spend_per_merged"] == {"tokens": 1000, "usd": 1.5, "unpriced": 0}
    assert found["wasted"] == {"tokens": 1000, "usd": 0.25, "unpriced": 0}
    assert list(found["models"]) == ["sonnet", "haiku"]


def test_the_screen_says_it_in_words(cli: Cli, worked: Project) -> None:
    said = cli("metrics").out
    assert "1 merged, 1 blocked, 0 waiting for a person, 0 under way" in said
    assert "$1.50 (1000 tokens) per merged change; $0.25 (1000 tokens) on work that never merged" in said
    assert "1 merged in " in said, "a run of seconds says nothing about an hour"
    assert "1 merged per hour" in cli("metrics", "--since", "1h").out
    assert "TIME WENT TO" in said
    assert "haiku" in said


def test_only_what_ended_since_then_counts(cli: Cli, worked: Project) -> None:
    assert cli("metrics", "--since", "1h", "--json").json["merged"] == 1
    path = worked.root / ".flyball" / "ledger.db"
    before = os.stat(path).st_mtime
    assert cli("metrics", "--since", "0.0001", "--json").json["merged"] == 0
    assert os.stat(path).st_mtime == before, "looking changes nothing"


def test_a_project_where_nothing_ran_yet_says_so(
    cli: Cli, site: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(site.root)
    assert "No agent has worked here yet" in cli("metrics").out
