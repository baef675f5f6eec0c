"""Runs that spend: a width that shrinks, a drain, a pause, ceilings per task and per run, three switches."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flyball.core.tasks.task_run import Step
from flyball.factory.state.ledger import Ledger
from tests.factory.kit import Project, Ran
from tests.waiting import until

WORK = "write(f'pages/{task}.txt', f'page {task}\\n')\n"
DEFAULT = "default:claude"
MONTH = ("month", "--length", "31d")
"""A window that hardly ever ends while a test runs."""


def result(usd: float, **fields: Any) -> str:
    """What claude prints last, as a line of an act."""
    line = {"type": "result", "subtype": "success", "is_error": False, "session_id": "s", "result": "done"}
    return f"print({json.dumps({**line, 'total_cost_usd': usd, **fields})!r}, flush=True)\n"


def told(**windows: tuple[float, float]) -> str:
    """What claude prints of the account's windows: the part used, and in how many seconds it resets."""
    unified = {
        name: {"utilization": used, "resetsAt": time.time() + resets_s, "status": "allowed"}
        for name, (used, resets_s) in windows.items()
    }
    line = {"type": "rate_limit_event", "rate_limit_info": {"status": "allowed", "unifiedWindows": unified}}
    return f"print({json.dumps(line)!r}, flush=True)\n"


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Project]:
    """A project whose agent is claude, as far as its output shows."""
    project = Project(tmp_path)
    project.configure(agent={"runtime": "claude"})
    project.commit("claude")
    yield project
    project.end()


def spending(project: Project, count: int, usd: float, *, then: str = "") -> list[str]:
    names = [f"t-{number}" for number in range(1, count + 1)]
    for name in names:
        project.task(name, act=then + result(usd) + WORK, commit=False)
    project.commit("tasks")
    return names


def quota(project: Project, *words: str) -> Ran:
    ran = project.flyball("quota", *words)
    assert ran.code == 0, ran.said
    return ran


def past(project: Project, *costs: float, account: str = DEFAULT) -> None:
    """Have launches on record that cost so much."""
    ledger = Ledger(project.root / ".flyball", run="r-old")
    for number, usd in enumerate(costs):
        task = f"old-{number}"
        for step in (Step.CLAIM, Step.WORKTREE):
            ledger.note(task, step)
        ledger.note(task, Step.LAUNCH, account=account, kind="task", model="sonnet")
        ledger.note(task, Step.END, end="finished", cost_usd=usd)
        ledger.note(task, Step.BLOCK, reason="over")
    ledger.close()


def most_at_once(project: Project, names: list[str]) -> int:
    running, most = 0, 0
    for line in project.journal():
        if line.task in names:
            running += {"began": 1, "ended": -1}.get(line.event, 0)
            most = max(most, running)
    return most


def test_fewer_agents_run_at_once_between_warn_and_drain(shop: Project) -> None:
    past(shop, 84.4, *[0.01] * 9)
    quota(shop, "declare", *MONTH, "--usd", "100")
    shop.configure(budget={"drain": 0.99, "stop": 1.0})
    names = spending(shop, 4, 0.01, then="time.sleep(0.2)\n")
    ran = shop.run()
    assert ran.code == 0, ran.said
    assert most_at_once(shop, names) == 2
    assert "budget: default:claude: month window at 84% (estimated)" in ran.out
    assert "2 at once instead of 3" in ran.out


def test_at_drain_nothing_is_started_and_the_run_pauses_with_the_window_named(shop: Project) -> None:
    past(shop, 2.0, *[0.5] * 9)
    quota(shop, "declare", *MONTH, "--usd", "8")
    names = spending(shop, 4, 0.5)
    ran = shop.run("--json")
    assert ran.code == 75, ran.said
    assert "month window" in ran.json["paused"]
    assert ran.json["merged"] == ["t-1"], "6.5 are spent, and from 7.2 on nothing is started"
    assert ran.json["not_started"] == names[1:]
    assert shop.leases() == []


def test_a_dry_run_says_what_the_money_would_keep_from_starting(shop: Project) -> None:
    past(shop, 5.0, *[0.5] * 5)
    quota(shop, "declare", *MONTH, "--usd", "8")
    names = spending(shop, 2, 0.5)
    before = sorted(path.name for path in (shop.root / ".flyball").iterdir())
    plan = shop.run("--dry-run", "--json").json
    assert plan["starts"] == []
    assert [(wait["task"], wait["reason"]) for wait in plan["waits"]] == [(name, "budget") for name in names]
    assert all("month window" in wait["words"] for wait in plan["waits"])
    assert ["nothing is started" in note for note in plan["notes"]] == [True]
    assert "month window" in shop.run("--dry-run").out
    unguarded = shop.run("--dry-run", "--budget-guard", "off", "--json").json
    assert ([start["task"] for start in unguarded["starts"]], unguarded["notes"]) == (names, [])
    assert sorted(path.name for path in (shop.root / ".flyball").iterdir()) == before


def test_a_dry_run_starts_as_many_as_the_money_allows(shop: Project) -> None:
    past(shop, 84.4, *[0.01] * 9)
    quota(shop, "declare", *MONTH, "--usd", "100")
    shop.configure(budget={"drain": 0.99, "stop": 1.0})
    spending(shop, 4, 0.01)
    plan = shop.run("--dry-run", "--json").json
    assert len(plan["starts"]) == 2
    assert ["2 at once instead of 3" in note for note in plan["notes"]] == [True]


def test_what_the_provider_reports_stops_a_run_in_the_middle(shop: Project) -> None:
    act = told(five_hour=(0.97, 3600), seven_day=(0.4, 90000)) + "time.sleep(600)"
    shop.task("t-1", act=act)
    ran = shop.run("--json")
    assert ran.code == 75, ran.said
    assert "5h window at 97% (reported)" in ran.json["paused"]
    assert "t-1" in ran.json["left"]
    assert shop.processes() == []
    again = shop.run("--json")
    assert again.code == 75, "the next run knows it still"
    assert len(shop.began()) == 1


def test_advisory_says_and_does_nothing(shop: Project) -> None:
    shop.task("t-1", act=told(five_hour=(0.97, 3600)) + result(0.5) + WORK)
    ran = shop.run("--budget-guard", "advisory")
    assert ran.code == 0, ran.said
    assert "5h window at 97% (reported)" in ran.out
    assert "nothing is done about it (advisory)" in ran.out


def test_the_run_s_word_wins_over_the_project_s(shop: Project) -> None:
    shop.configure(budget={"guard": "off", "run_usd": 0.1})
    spending(shop, 2, 0.5)
    ran = shop.run("--budget-guard", "enforce")
    assert ran.code == 75, ran.said


def test_a_task_stops_at_what_it_may_cost(shop: Project) -> None:
    shop.configure(budget={"task_usd": 0.5})
    shop.task("t-1", act=result(0.75) + "time.sleep(600)")
    ran = shop.run()
    assert ran.code == 1, ran.said
    assert "budget.task_usd" in ran.out
    assert len(shop.began("t-1")) == 1, "there is nothing left for another try"
    assert shop.processes() == []


def test_the_agent_is_told_what_is_left_for_it(shop: Project) -> None:
    shop.configure(budget={"task_usd": 2}, agent={"max_cost_usd": 5})
    shop.task("t-1", act="assert '--max-budget-usd=2' in sys.argv, sys.argv\n" + result(0.1) + WORK)
    ran = shop.run()
    assert ran.code == 0, ran.said


def test_a_run_pauses_at_what_it_may_cost(shop: Project) -> None:
    shop.configure(budget={"run_usd": 1.5}, run={"width": 1})
    spending(shop, 4, 1.0)
    ran = shop.run("--json")
    assert ran.code == 75, ran.said
    assert "budget.run_usd allows $1.5" in ran.json["paused"]
    assert len(shop.began()) == 2
    assert ran.json["cost_usd"] == 2.0


def test_an_uncalibrated_account_runs_as_if_there_were_no_budget(shop: Project) -> None:
    names = spending(shop, 3, 100.0)
    ran = shop.run()
    assert ran.code == 0, ran.said
    assert sorted(shop.landed()) == names


def test_a_task_says_that_it_waits_for_money(shop: Project) -> None:
    shop.configure(run={"width": 1, "patience_s": "40d"})
    quota(shop, "declare", *MONTH, "--usd", "1.0")
    shop.task("t-1", act=result(0.93) + "wait_for(folder / 'go')\n" + WORK)
    shop.task("t-2")
    running = shop.start("run")
    try:
        shop.wait("journal")
        shop.say("go")
        shop.read_until(running, "budget: ")
        # Until the first one has landed, there is no room either.
        why = ("task", "why", "t-2")
        until(lambda: shop.flyball(*why, "--json").json["reason"] in ("budget", ""), "the reason")
        until(lambda: "month window" in shop.flyball(*why).out, "the reason in words")
    finally:
        shop.flyball("stop")
        running.wait()


def test_budgets_that_contradict_each_other_are_refused_before_anything_runs(shop: Project) -> None:
    shop.configure(budget={"warn": 0.9, "drain": 0.5})
    ran = shop.run()
    assert ran.code == 2
    assert "budget.drain is 0.5, below budget.warn (0.9)" in ran.err
    assert "Raise budget.drain to at least 0.9, or lower budget.warn" in ran.err


def test_what_a_stage_costs_is_the_task_s_and_comes_out_of_what_it_may_cost(shop: Project) -> None:
    shop.configure(budget={"task_usd": 2}, **{"stages.docs": {}, "stages.test": {}})
    shop.task("t-1", act=result(1.5) + WORK)
    shop.act(
        "t-1@docs", "assert '--max-budget-usd=0.5' in sys.argv\n" + result(0.5) + "write('pages/d', 'x')"
    )
    ran = shop.run("--json")
    assert ran.code == 1, ran.said
    assert ran.json["blocked"]["t-1"] == "budget: t-1 has cost $2.00; budget.task_usd allows $2"
    assert ran.json["cost_usd"] == 2.0
    assert [line.task for line in shop.began()] == ["t-1", "t-1@docs"]


# -- an API key is money ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flag", "setting", "missing"),
    [
        ([], "explicit", None),
        (["--allow-api-spend"], "never", 'account.api_spend is not "explicit"'),
        (["--allow-api-spend"], "explicit", "the profile names no api_key_env"),
    ],
)
def test_an_api_key_is_not_charged_unless_three_switches_say_so(
    shop: Project, flag: list[str], setting: str, missing: str | None
) -> None:
    shop.configure(account={"api_spend": setting})
    shop.env["ANTHROPIC_API_KEY"] = "sk-ambient"
    ran = shop.run(*flag)
    if missing is None:
        assert ran.code == 0
        assert "API KEY" not in ran.said
    else:
        assert ran.code == 2
        assert missing in ran.err


def test_with_all_three_the_key_pays_once_the_windows_are_used_up_and_that_is_said(
    shop: Project,
) -> None:
    (shop.place / "user" / ".claude.json").write_text('{"oauthAccount": {"emailAddress": "me@example.org"}}')
    who = ("--runtime", "claude", "--identity", "me@example.org", "--api-key-env", "WORK_KEY")
    assert shop.flyball("account", "add", "work", *who).code == 0
    shop.configure(account={"profile": "work", "api_spend": "explicit"}, run={"patience_s": 0})
    shop.env |= {"WORK_KEY": "sk-work", "ANTHROPIC_API_KEY": "sk-ambient"}
    past(shop, 9.5, account="work")
    quota(shop, "declare", *MONTH, "--usd", "10")
    shop.configure(**{"stages.docs": {}})
    pays = "assert os.environ['ANTHROPIC_API_KEY'] == 'sk-work'\n" + result(1.0)
    shop.task("t-1", act=pays + WORK)
    shop.act("t-1@docs", pays)
    paused = shop.run()
    assert paused.code == 75, paused.said
    assert "work: month window at 95%" in paused.out
    ran = shop.run("--allow-api-spend")
    assert ran.code == 0, ran.said
    assert "API KEY SPEND IS ON" in ran.out
    assert "sk-work" not in ran.said
    assert "api spend allowed" in (shop.home / "registry" / "audit.jsonl").read_text()
    shown = quota(shop, "show", "--json").json["windows"][-1]
    assert shown["spent_usd"]["value"] == 9.5, "what the key paid for is not in the window"


def claude_outside(shop: Project, line: str) -> None:
    """A ``claude`` under ``flyball exec`` in a folder that is not a project, which prints this line."""
    folder = shop.root.parent / "elsewhere"
    folder.mkdir()
    script = folder / "claude"
    script.write_text(f"#!/bin/sh\ncat > /dev/null\ncat {folder}/line\n")
    script.chmod(0o755)
    (folder / "line").write_text(line)
    command = [sys.executable, "-m", "flyball", "exec", "--quiet", "--", str(script), "-p"]
    subprocess.run(
        [*command, "--output-format=stream-json"],
        cwd=folder,
        env=shop.env,
        check=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )


def windows_line(used: float) -> str:
    unified = {"five_hour": {"utilization": used, "resetsAt": time.time() + 3600, "status": "allowed"}}
    done = {"type": "result", "subtype": "success", "is_error": False, "session_id": "s", "result": "done"}
    said = {"type": "rate_limit_event", "rate_limit_info": {"status": "allowed", "unifiedWindows": unified}}
    return f"{json.dumps(said)}\n{json.dumps(done)}\n"


def test_a_run_keeps_to_what_exec_measured_of_the_same_account(shop: Project) -> None:
    claude_outside(shop, windows_line(0.97))
    spending(shop, 1, 0.1)
    ran = shop.run("--json")
    assert ran.code == 75, ran.said
    assert "5h window at 97% (reported)" in ran.json["paused"]
    assert shop.began() == []
    assert "97%" in quota(shop, "show").out


def test_what_an_older_flyball_kept_of_the_windows_reaches_the_pool(shop: Project) -> None:
    now = time.time()
    kept = {"windows": [{"name": "5h", "fraction": 0.97, "at": now - 60, "resets_at": now + 3600}]}
    (shop.home / "usage").mkdir(parents=True)
    (shop.home / "usage" / f"{DEFAULT}.json").write_text(json.dumps(kept))
    spending(shop, 1, 0.1)
    assert shop.run().code == 75
    (pool,) = shop.flyball("status", "anthropic", "--json").json["pools"]
    assert [(each["name"], each["used"]) for each in pool["usage_windows"]] == [("5h", 0.97)]
