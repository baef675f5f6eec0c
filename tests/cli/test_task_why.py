"""``flyball task why``: why a task is not running now, from the source that knows best."""

from __future__ import annotations

from pathlib import Path

import pytest

from flyball.core.signals import Signal, SignalKind
from flyball.core.tasks.task_run import RunPhase, Step
from flyball.factory.state.ledger import Ledger
from flyball.governor.governor import Governor
from tests.cli.kit import Cli
from tests.factory.kit import Project
from tests.waiting import until

WAITS = "(folder / f'up-{task}').touch()\nwait_for(folder / 'go')\nwrite(f'pages/{task}.txt', 'page')"


def noted(site: Project, task: str, *steps: Step, **fields: str) -> None:
    ledger = Ledger(site.root / ".flyball", run="r-1")
    for step in steps:
        ledger.note(task, step, RunPhase.DONE, **fields)
    ledger.close()


def state(here: Cli, task: str) -> str:
    found: str = here("task", "why", task, "--json").json["state"]
    return found


# -- what is wrong with it -------------------------------------------------------------------------------


def test_an_unknown_task_is_asked_about(here: Cli, site: Project) -> None:
    site.task("t-1")
    result = here("task", "why", "t1")
    assert result.code == 2
    assert "there is no task 't1'; did you mean 't-1'?" in result.err


def test_a_task_that_cannot_be_read_says_what_is_wrong(here: Cli, site: Project) -> None:
    site.task("t-1", "priority: high")
    found = here("task", "why", "t-1", "--json").json
    assert found["state"] == "unreadable"
    assert "tasks/t-1.md" in found["words"]
    assert "priority" in found["words"]


def test_a_type_that_is_not_dispatched_comes_with_the_way_out(here: Cli, site: Project) -> None:
    site.task("t-1", "type: feature")
    found = here("task", "why", "t-1", "--json").json
    assert found["reason"] == "type"
    assert "make its type task in tasks/t-1.md, or add its parts" in found["next"][0]


def test_a_blocked_task_names_the_reason_how_long_and_the_next_steps(here: Cli, site: Project) -> None:
    site.task("t-1", act="pass")
    assert site.run().code == 1
    out = here("task", "why", "t-1").out
    assert "t-1 is blocked: no-changes" in out
    assert "flyball tail t-1" in out
    assert "flyball merge t-1" in out
    found = here("task", "why", "t-1", "--json").json
    assert found["state"] == "blocked"
    assert found["since_s"] >= 0


def test_a_red_gate_points_at_its_output(here: Cli, site: Project) -> None:
    site.configure(run={"gate_retries": 0})
    site.task("t-1", act="write('pages/t-1.txt', 'bad')")
    site.run()
    assert "flyball tail t-1 --gate" in here("task", "why", "t-1").out


def test_a_task_that_is_gone_says_so(here: Cli, site: Project) -> None:
    path = site.task("t-1")
    assert site.run().code == 0
    path.unlink()
    assert "is gone from where tasks are kept; is merged in" in here("task", "why", "t-1").out


# -- no run is going on ----------------------------------------------------------------------------------


def test_a_task_with_nothing_in_its_way_is_ready(here: Cli, site: Project) -> None:
    site.task("t-1")
    found = here("task", "why", "t-1", "--json").json
    assert (found["state"], found["next"]) == ("ready", ["flyball run starts it"])
    assert not (site.root / ".flyball").exists()


def test_a_need_that_is_open_is_the_blocker_to_ask_about(here: Cli, site: Project) -> None:
    site.task("t-1")
    site.task("t-2", "needs: [t-1]")
    found = here("task", "why", "t-2", "--json").json
    assert (found["state"], found["reason"], found["blocker"]) == ("waiting", "needs", "t-1")
    assert found["next"] == ["flyball task why t-1 says how that one stands"]


def test_a_need_that_does_not_exist_leads_to_the_task_itself(here: Cli, site: Project) -> None:
    site.task("t-2", "needs: [t-9]")
    out = here("task", "why", "t-2").out
    assert "needs t-9, which does not exist" in out
    assert "flyball task show t-2 (tasks/t-2.md)" in out


def test_work_that_waits_for_a_person_names_the_verb(here: Cli, site: Project) -> None:
    site.configure(merge={"policy": "manual"})
    site.task("t-1")
    assert site.run().code == 0
    out = here("task", "why", "t-1").out
    assert "is finished and waits for you" in out
    assert "flyball merge t-1 lands it" in out


def test_a_merged_task_names_its_commit(here: Cli, site: Project) -> None:
    site.task("t-1")
    assert site.run().code == 0
    commit = site.git("rev-parse", "--short=12", "main")
    assert f"t-1 is merged in {commit}" in here("task", "why", "t-1").out


def test_a_task_closed_by_hand_has_nothing_left_to_do(here: Cli, site: Project) -> None:
    path = site.task("t-1")
    path.write_text(path.read_text().replace("open", "closed"))
    assert here("task", "why", "t-1", "--json").json["state"] == "closed"


def test_a_merged_task_whose_file_here_has_not_followed_is_merged(here: Cli, site: Project) -> None:
    site.task("t-1")
    file = site.root / "tasks/t-1.md"
    before = file.read_text()
    assert site.run().code == 0
    file.write_text(before)
    assert here("task", "why", "t-1", "--json").json["state"] == "merged"


def test_a_trip_that_was_cut_short_is_gone_on_with(here: Cli, site: Project) -> None:
    site.task("t-1")
    noted(site, "t-1", Step.CLAIM, Step.WORKTREE)
    found = here("task", "why", "t-1", "--json").json
    assert found["state"] == "left"
    assert "flyball run goes on with it" in found["words"]


def test_it_works_in_any_folder_of_the_project(
    here: Cli, site: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.task("t-1")
    monkeypatch.chdir(Path("tasks"))
    assert here("task", "why", "t-1").code == 0


# -- a run is going on -----------------------------------------------------------------------------------


def test_in_a_run_the_run_itself_says_what_is_in_the_way(here: Cli, site: Project) -> None:
    site.task("t-1", act=WAITS)
    site.task("t-2", write="pages/t-1*")
    run = site.start("run")
    site.wait("up-t-1")
    until(lambda: state(here, "t-2") == "waiting", "the run to write its board")
    until(lambda: state(here, "t-1") == "running", "the board to tell of it")
    assert "flyball tail t-1 -f" in here("task", "why", "t-1").out
    found = here("task", "why", "t-2", "--json").json
    assert (found["state"], found["reason"], found["blocker"]) == ("waiting", "footprint", "t-1")
    site.say("go")
    run.communicate(timeout=60)


# -- the pool --------------------------------------------------------------------------------------------


def test_a_full_pool_is_part_of_the_answer(here: Cli, site: Project) -> None:
    site.configure(agent={"pool": "gpu"})
    site.task("t-1")
    assert here("pool", "set", "gpu", "--cap", "1").code == 0
    with Governor().slot("gpu", project="other", name="x"):
        assert "gpu is full: 1 of 1 slot in use" in here("task", "why", "t-1").out
    assert "gpu" not in here("task", "why", "t-1").out


def test_a_closed_pool_says_until_when_and_why(here: Cli, site: Project) -> None:
    site.configure(agent={"pool": "gpu"})
    site.task("t-1")
    governor = Governor()
    governor.report("gpu", Signal(SignalKind.THROTTLED, retry_after_s=600), project="other", name="x")
    governor.close()
    found = here("task", "why", "t-1", "--json").json
    assert found["pool"].startswith("gpu is closed for 10 min")


def test_why_about_pools_points_at_the_task(here: Cli, site: Project) -> None:
    site.task("t-1")
    result = here("why", "t-1")
    assert result.code == 1
    assert "flyball task why t-1 says how the task stands" in result.out
