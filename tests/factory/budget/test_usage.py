"""Where usage comes from: sources that are there, missing, slow, broken or lying, and whom they speak of."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from flyball.core.budget.usage_windows import Spend, UsageCertainty, UsageItem
from flyball.core.durations import moment_s
from flyball.core.tasks.task_run import Step
from flyball.factory.budget.ccusage import Ccusage
from flyball.factory.budget.ledger_usage import API_KEY, LedgerUsage, Lessons, expected_fields
from flyball.factory.budget.port import BillingAccount, UsageUnknown
from flyball.factory.budget.sources import Usage, open_usage
from flyball.factory.budget.transcripts import Transcripts
from flyball.factory.project.registry import ProjectRegistry
from flyball.factory.state.ledger import Ledger

RECORDINGS = Path(__file__).parents[1] / "recordings"
BLOCKS = (RECORDINGS / "ccusage-18.0.11-blocks.json").read_text()
NOW = moment_s("2026-11-15T21:31:00Z") or 0.0
HOUR = 3600.0
Program = Callable[[str], None]


@pytest.fixture
def ccusage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Put a program of that name in front of all others; ``script`` is its Python."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin")

    def make(script: str) -> None:
        path = folder / "ccusage"
        path.write_text(f"#!{sys.executable} -IS\nimport os, sys, time\n{script}\n")
        path.chmod(0o700)

    return make


def says(**changes: Any) -> str:
    """The recording, with the last block changed."""
    told = json.loads(BLOCKS)
    told["blocks"][-1].update(changes)
    return f"print({json.dumps(told)!r})"


# -- ccusage ---------------------------------------------------------------------------------------------


def test_ccusage_is_read_as_it_was_recorded(ccusage: Program, tmp_path: Path) -> None:
    ccusage(f"assert os.environ['CLAUDE_CONFIG_DIR'] == {str(tmp_path)!r}\n" + says())
    spend = Ccusage(tmp_path).look(NOW)
    assert spend.within(NOW - 24 * HOUR, NOW).value == pytest.approx(0.01149 + 0.03798)
    assert spend.within(NOW - 3 * HOUR, NOW).value == pytest.approx(0.03798)
    assert spend.within(NOW - HOUR, NOW).tag is UsageCertainty.ESTIMATED, "a block reaches over the edge"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (says(costUSD=-3.0), "cannot be one"),
        (says(costUSD="nan"), "cannot be one"),
        (says(costUSD=1e9), "cannot be one"),
        (says(costUSD=None), "cannot be one"),
        (says(startTime="soon"), "without its times"),
        ("print('{\"blocks\": [1]}')", "no blocks"),
        ("print('all good')", "no JSON"),
        ("sys.exit(3)", "exited with status 3"),
        ("time.sleep(60)", "took longer"),
    ],
)
def test_a_ccusage_that_cannot_be_believed_says_nothing(
    ccusage: Program, tmp_path: Path, script: str, words: str
) -> None:
    ccusage(script)
    with pytest.raises(UsageUnknown, match=words):
        Ccusage(tmp_path, timeout_s=0.5 if "sleep" in script else 10).look(NOW)


def test_without_ccusage_the_next_source_is_asked(ccusage: Program, tmp_path: Path) -> None:
    with pytest.raises(UsageUnknown, match="not installed"):
        Ccusage(tmp_path).look(NOW)
    payer = BillingAccount(name="default:claude", runtime="claude", folder=tmp_path / "claude")
    seen = open_usage(payer, tmp_path / "home").look(NOW)
    assert seen.source == "ledger"
    assert [words.split()[0] for words in seen.silent] == ["ccusage", "there"]


# -- transcripts -----------------------------------------------------------------------------------------


def line(
    message: str = "m-1",
    request: str = "r-1",
    *,
    minutes_ago: float = 1,
    usd: float | None = 1.0,
    **usage: int,
) -> str:
    at = datetime.fromtimestamp(NOW - 60, UTC).isoformat()
    record: dict[str, Any] = {
        "type": "assistant",
        "timestamp": at,
        "requestId": request,
        "message": {"id": message, "model": "claude-sonnet-4-5", "usage": usage or {"output_tokens": 1}},
    }
    return json.dumps(record | ({"costUSD": usd} if usd is not None else {})) + "\n"


@pytest.fixture
def transcript(tmp_path: Path) -> Path:
    path = tmp_path / "projects" / "-blog" / "s.jsonl"
    path.parent.mkdir(parents=True)
    path.touch()
    return path


def total(spend: Spend) -> float:
    return round(spend.within(0, NOW + 1).value, 6)


def test_a_transcript_costs_what_ccusage_says_it_does(tmp_path: Path, transcript: Path) -> None:
    transcript.write_bytes((RECORDINGS / "claude-transcript.jsonl").read_bytes())
    spend = Transcripts(tmp_path).look(NOW)
    assert total(spend) == pytest.approx(0.01149 + 0.03798)
    assert spend.tag is UsageCertainty.ESTIMATED, "it has tokens only"


def test_a_message_counts_once_however_often_it_is_written(tmp_path: Path, transcript: Path) -> None:
    other = transcript.with_name("resumed.jsonl")
    transcript.write_text(line(usd=0.5) + line(usd=1.0) + line("m-1", "r-2", usd=2.0))
    other.write_text(line(usd=1.0))
    spend = Transcripts(tmp_path).look(NOW)
    assert (total(spend), spend.tag) == (3.0, UsageCertainty.MEASURED)


def test_only_what_is_new_is_read_and_half_a_line_waits(tmp_path: Path, transcript: Path) -> None:
    found = Transcripts(tmp_path)
    transcript.write_text(line("a") + line("b")[:30])
    assert total(found.look(NOW)) == 1.0
    transcript.write_text("x" * len(line("a")) + line("b"))
    assert total(found.look(NOW)) == 2.0, "the beginning was not read again"
    transcript.write_text(line("c"))
    assert total(found.look(NOW)) == 3.0, "it was written anew"
    transcript.unlink()
    assert total(found.look(NOW)) == 3.0


def test_long_and_broken_lines_are_not_a_problem(tmp_path: Path, transcript: Path) -> None:
    picture = json.dumps({"type": "user", "toolUseResult": "A" * (12 << 20), "usage": {}}) + "\n"
    long = line("long").replace('"type"', f'"content": "{"B" * (3 << 20)}", "type"', 1)
    odd = [
        '{"usage": \n',
        '{"message": {"usage": 7}}\n',
        '"usage"\n',
        line("neg", usd=-5.0),
        line("x", usd=1e9),
    ]
    deep = '{"usage":' + "[" * 100_000 + "\n"
    transcript.write_text("".join([picture, *odd, deep, "\xff\x00\n", long, line("good")]))
    assert total(Transcripts(tmp_path).look(NOW)) == 2.0


def test_negative_tokens_are_not_a_refund(tmp_path: Path, transcript: Path) -> None:
    transcript.write_text(line(usd=None, input_tokens=-(10**9)) + line("b", usd=1.0))
    assert total(Transcripts(tmp_path).look(NOW)) == 1.0


def test_no_folder_is_not_nothing_spent(tmp_path: Path) -> None:
    with pytest.raises(UsageUnknown):
        Transcripts(tmp_path / "nowhere").look(NOW)


# -- the ledgers -----------------------------------------------------------------------------------------


def launched(folder: Path, *costs: float, account: Any = "work", **fields: Any) -> Ledger:
    ledger = Ledger(folder, run="r-1")
    for usd in costs:
        task = f"t-{len(ledger.records)}"
        for step in (Step.CLAIM, Step.WORKTREE):
            ledger.note(task, step)
        ledger.note(task, Step.LAUNCH, account=account, kind="bug", model="opus", **fields)
        ledger.note(task, Step.END, end="finished", cost_usd=usd)
    return ledger


def test_the_ledgers_of_all_projects_are_one_account_s_and_no_other_s(tmp_path: Path) -> None:
    home, wall = tmp_path / "home", time.time()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        ProjectRegistry(home).add(name, tmp_path / name)
    launched(tmp_path / "one" / ".flyball", 1.0, 2.0).close()
    launched(tmp_path / "two" / ".flyball", 4.0).close()
    launched(tmp_path / "two" / ".flyball", 8.0, account="home").close()
    launched(tmp_path / "two" / ".flyball", 16.0, billing=API_KEY).close()
    looks = [LedgerUsage(home, account) for account in ("work", "home", "nobody")]
    assert [look.look(wall + 1).within(0, wall + 2).value for look in looks] == [7.0, 8.0, 0.0]
    assert [look.look(wall + 1).within(0, wall + 2).value for look in looks] == [7.0, 8.0, 0.0]


def test_of_agents_that_run_at_once_each_is_billed_as_it_was_launched(tmp_path: Path) -> None:
    home, wall = tmp_path / "home", time.time()
    (tmp_path / "one").mkdir()
    ProjectRegistry(home).add("one", tmp_path / "one")
    ledger = Ledger(tmp_path / "one" / ".flyball", run="r-1")
    for task, billing in (("t-1", None), ("t-2", API_KEY)):
        for step in (Step.CLAIM, Step.WORKTREE):
            ledger.note(task, step)
        ledger.note(task, Step.LAUNCH, account="work", billing=billing)
    for task, usd in (("t-1", 1.0), ("t-2", 2.0)):
        ledger.note(task, Step.END, end="finished", cost_usd=usd)
    ledger.close()
    assert LedgerUsage(home, "work").look(wall + 1).within(0, wall + 2).value == 1.0


def test_a_ledger_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path) -> None:
    home, wall = tmp_path / "home", time.time()
    for name in ("good", "bad"):
        (tmp_path / name / ".flyball").mkdir(parents=True)
        ProjectRegistry(home).add(name, tmp_path / name)
    launched(tmp_path / "good" / ".flyball", 1.0).close()
    (tmp_path / "bad" / ".flyball" / "ledger.db").write_bytes(b"no database" * 100)
    assert LedgerUsage(home, "work").look(wall).within(0, wall + 2).value == 1.0


def test_estimates_are_learned_from_launches_and_scored_against_them(tmp_path: Path) -> None:
    ledger, lessons = launched(tmp_path, *[2.0] * 6), Lessons()
    lessons.learn(ledger)
    expected = lessons.experience.estimate("bug", "opus")
    assert (expected.cost_usd.p90, lessons.costs) == (2.0, [])
    ledger.close()
    later = launched(tmp_path, 3.0, **expected_fields(expected))
    lessons.learn(later)
    later.close()
    assert [(each.expected.p90, each.actual) for each in lessons.costs] == [(2.0, 3.0)]


# -- several of them -------------------------------------------------------------------------------------


class Says:
    """A source that says what it is told to."""

    def __init__(self, name: str, *, whole: bool = True) -> None:
        self.name, self.whole, self.usd = name, whole, 0.0
        self.at = NOW - HOUR

    def look(self, now: float) -> Spend:
        return Spend(self.name, [UsageItem(self.at, self.at, self.usd)], whole=self.whole)


def test_a_source_that_contradicts_itself_is_passed_over(tmp_path: Path) -> None:
    first, second, ledger = Says("first"), Says("second"), Says("ledger", whole=False)
    usage = Usage([first, second], ledger)
    first.usd, second.usd = 20.0, 21.0
    assert usage.look(NOW).source == "first"
    first.usd = 2.0
    seen = usage.look(NOW + 10)
    assert (seen.source, seen.silent) == (
        "second",
        ["first contradicts itself: $20.00 were $2.00 later"],
    )
    first.usd = 1e5
    assert usage.look(NOW + 20).source == "second"
    first.usd, first.at = 500.0, NOW + 25
    assert usage.look(NOW + 30).source == "second", "that cannot be spent in half a minute"
    first.usd, first.at = 20.5, NOW - HOUR
    assert usage.look(NOW + 40).source == "first"


def test_what_the_ledgers_know_is_the_least_that_was_spent(tmp_path: Path) -> None:
    first, ledger = Says("first"), Says("ledger", whole=False)
    ledger.usd = 5.0
    found = Usage([first], ledger).look(NOW).spend
    assert found is not None
    assert total(found) == 5.0


def test_one_agent_that_cost_a_fortune_is_believed(tmp_path: Path) -> None:
    ledger = Says("ledger", whole=False)
    usage = Usage([], ledger)
    usage.look(NOW)
    ledger.usd, ledger.at = 900.0, NOW + 5
    found = usage.look(NOW + 10).spend
    assert found is not None
    assert found.within(0, NOW + 11).value == 900.0


def test_where_no_source_answers_that_is_said(tmp_path: Path) -> None:
    class Broken(Says):
        def look(self, now: float) -> Spend:
            raise OSError("the disk is gone")

    seen = Usage([Broken("first")], Broken("ledger")).look(NOW)
    assert (seen.spend, seen.source, seen.silent) == (None, "none", ["the disk is gone"] * 2)
