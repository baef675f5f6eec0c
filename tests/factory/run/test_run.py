"""A run from its beginning to its end: who may run, how it is stopped, and what its exit status says."""

from __future__ import annotations

import os
import signal

import pytest

from tests.factory.kit import Project
from tests.waiting import until

WAITS = "wait_for(folder / f'go-{task}')\nwrite(f'pages/{task}.txt', 'x')"


# -- one at a time ----------------------------------------------------------------------------------------


def test_a_second_run_of_a_project_is_refused_and_names_the_first(project: Project) -> None:
    project.task("t-1", act=WAITS)
    first = project.start("run")
    until(lambda: project.began(), "the first run to begin")
    second = project.run()
    assert second.code == 2
    assert f"pid {first.pid}" in second.err
    project.say("go-t-1")
    assert first.wait(30) == 0
    assert project.wrongs(["t-1"]) == []


def test_a_run_that_was_killed_leaves_the_project_free(project: Project) -> None:
    project.task("t-1", act=WAITS)
    first = project.start("run")
    until(lambda: project.began(), "the first run to begin")
    first.kill()
    first.wait()
    project.say("go-t-1")
    assert project.run().code == 0
    assert project.wrongs(["t-1"]) == []


def test_two_projects_run_side_by_side(project: Project) -> None:
    other = Project(project.place / "second", name="shop")
    other.home = project.home
    other.env["FLYBALL_HOME"] = str(project.home)
    for each in (project, other):
        each.task("t-1", act=WAITS)
    runs = [each.start("run") for each in (project, other)]
    until(lambda: project.began() and other.began(), "both to begin")
    for each in (project, other):
        each.say("go-t-1")
    assert [run.wait(30) for run in runs] == [0, 0]
    assert project.wrongs(["t-1"]) == []
    assert other.wrongs(["t-1"]) == []
    other.end()


# -- being stopped ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_drains_and_the_next_run_does_the_rest(project: Project, number: int) -> None:
    project.configure(run={"width": 1})
    project.task("t-1", "priority: 0", act=WAITS)
    project.task("t-2")
    process = project.start("run")
    until(lambda: project.began(), "the first agent to begin")
    os.kill(process.pid, number)
    project.read_until(process, "finishes what runs")
    project.say("go-t-1")
    out, err = process.communicate(timeout=30)
    assert process.returncode == 128 + number, out + err
    assert project.landed() == ["t-1"]
    assert [line.task for line in project.began()] == ["t-1"]
    assert project.leases() == []
    assert project.run().code == 0
    assert project.wrongs(["t-1", "t-2"]) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_second_signal_stops_and_says_what_is_left(project: Project, number: int) -> None:
    project.task("t-1", act="write('pages/half.txt', 'half')\n" + WAITS)
    process = project.start("run")
    until(lambda: project.began(), "the agent to begin")
    os.kill(process.pid, number)
    project.read_until(process, "again to stop it")
    os.kill(process.pid, number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 128 + number, out + err
    assert "left" in out
    assert "t-1" in out
    assert project.processes() == []
    assert project.leases() == []
    assert (project.workspace("t-1") / "pages" / "half.txt").exists()
    project.say("go-t-1")
    assert project.run().code == 0
    assert [line.attempt for line in project.began("t-1")] == [1, 1]
    assert project.wrongs(["t-1"]) == []


def test_a_signal_before_anything_has_begun_ends_the_run(project: Project) -> None:
    project.task("t-1", act=WAITS)
    project.flyball("pool", "set", "anthropic", "--cap", "1", "--static")
    blocker = project.start("exec", "--", "sleep", "600")
    until(lambda: project.leases(), "the slot to be taken")
    process = project.start("run")
    project.read_until(process, "1 of 1 in use")
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 143, out
    assert project.began() == []
    blocker.kill()


def test_many_impatient_signals_lose_nothing(project: Project) -> None:
    for name in ("t-1", "t-2"):
        project.task(name, act="import signal\nsignal.signal(15, signal.SIG_IGN)\n" + WAITS)
    process = project.start("run")
    until(lambda: len(project.began()) == 2, "both agents to begin")
    project.read_until(process, "t-2 running")
    for words in ("again to stop it", "twice", ""):
        process.send_signal(signal.SIGINT)
        project.read_until(process, words)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, out + err
    assert "Traceback" not in err
    assert project.processes() == []
    assert project.leases() == []
    for name in ("t-1", "t-2"):
        project.say(f"go-{name}")
    assert project.run().code == 0
    assert project.wrongs(["t-1", "t-2"]) == []


# -- what it does -----------------------------------------------------------------------------------------


def test_a_task_added_while_the_run_goes_on_is_picked_up(project: Project) -> None:
    project.task("t-1", act=WAITS)
    process = project.start("run")
    until(lambda: project.began("t-1"), "the first to begin")
    project.task("t-2", commit=False)
    until(lambda: project.began("t-2"), "the second to begin")
    project.say("go-t-1")
    assert process.wait(30) == 0
    assert project.wrongs(["t-1", "t-2"]) == []


def test_a_task_added_to_a_project_without_tasks_is_picked_up_by_the_next_run(project: Project) -> None:
    assert project.run().code == 0
    project.task("t-1", commit=False)
    assert project.run().code == 0
    assert project.landed() == ["t-1"]


def test_needs_are_met_within_one_run(project: Project) -> None:
    project.task(
        "t-3", "needs: [t-2]", act="assert Path('pages/t-2.txt').exists()\nwrite('pages/t-3.txt', 'x')"
    )
    project.task(
        "t-2", "needs: [t-1]", act="assert Path('pages/t-1.txt').exists()\nwrite('pages/t-2.txt', 'x')"
    )
    project.task("t-1")
    assert project.run().code == 0
    assert project.landed() == ["t-1", "t-2", "t-3"]


def test_waves_start_together_and_end_before_the_next(project: Project) -> None:
    project.configure(run={"width": 2, "mode": "wave"})
    names = project.tasks(4)
    assert project.run().code == 0
    assert project.wrongs(names) == []


def test_one_batch_only_starts_no_second(project: Project) -> None:
    project.configure(run={"width": 2})
    project.tasks(3)
    ran = project.run("--once")
    assert ran.code == 0, ran.said
    assert sorted(project.landed()) == ["t-1", "t-2"]


def test_only_named_tasks_run(project: Project) -> None:
    project.tasks(3)
    assert project.run("--only", "t-2").code == 0
    assert project.landed() == ["t-2"]


def test_a_name_that_no_task_has_is_said(project: Project) -> None:
    project.tasks(1)
    ran = project.run("--only", "t-9")
    assert ran.code != 0, ran.said
    assert "t-9" in ran.said


def test_a_rolling_plan_speaks_of_no_waves(project: Project) -> None:
    for name in ("t-1", "t-2"):
        project.task(name, write="pages/same.txt")
    plan = project.run("--dry-run")
    assert "which t-1 (starts first) writes" in plan.out
    assert "wave" not in plan.out


def test_a_dry_run_changes_nothing(project: Project) -> None:
    project.tasks(2)
    before = project.git("for-each-ref")
    ran = project.run("--dry-run", "--json")
    assert ran.code == 0
    assert [start["task"] for start in ran.json["starts"]] == ["t-1", "t-2"]
    assert project.git("for-each-ref") == before
    assert not (project.root / ".flyball").exists()
    assert project.began() == []


def test_the_result_as_json_is_all_that_is_printed(project: Project) -> None:
    project.task("t-1")
    project.task("t-2", act="sys.exit(1)")
    project.configure(run={"attempts": 1})
    ran = project.run("--json")
    assert ran.code == ran.json["exit"] == 1
    assert ran.json["merged"] == ["t-1"]
    assert list(ran.json["blocked"]) == ["t-2"]


def test_work_for_a_person_waits_and_is_not_a_failure(project: Project) -> None:
    project.configure(merge={"policy": "manual"})
    project.task("t-1")
    ran = project.run()
    assert ran.code == 0
    assert "flyball merge t-1" in ran.out
    assert project.landed() == []
    again = project.run()
    assert again.code == 0
    assert "flyball merge t-1" in again.out
    assert len(project.began()) == 1


def test_work_for_a_person_lands_when_they_say_so(project: Project) -> None:
    project.configure(merge={"policy": "manual"})
    project.task("t-1")
    assert project.run().code == 0
    ran = project.flyball("merge", "t-1")
    assert ran.code == 0, ran.said
    assert project.wrongs(["t-1"]) == []
    assert project.git("status", "--porcelain") == ""


def test_a_red_gate_at_the_word_of_a_person_starts_no_agent(project: Project) -> None:
    project.configure(merge={"policy": "manual"})
    project.task("t-1", act="write('pages/t-1.txt', 'bad')")
    assert project.run().code == 0
    ran = project.flyball("merge", "t-1")
    assert ran.code == 1, ran.said
    assert len(project.began()) == 1
    assert project.landed() == []


def test_going_on_may_be_asked_for_and_says_if_there_is_nothing(project: Project) -> None:
    project.task("t-1")
    assert project.run(die_at="after:launch.begun").code == -9
    assert project.run("--resume").code == 0
    assert project.wrongs(["t-1"]) == []
    ran = project.run("--resume")
    assert ran.code == 0
    assert "nothing was cut short" in ran.out


def test_a_pool_without_room_is_waited_for_and_said(project: Project) -> None:
    project.task("t-1")
    project.flyball("pool", "set", "anthropic", "--cap", "1", "--static")
    blocker = project.start("exec", "--", "sleep", "600")
    until(lambda: project.leases(), "the slot to be taken")
    process = project.start("run")
    project.read_until(process, "1 of 1 in use")
    assert project.began() == []
    os.kill(project.leases()[0].pid, signal.SIGKILL)
    blocker.wait(10)
    assert process.wait(30) == 0
    assert project.wrongs(["t-1"]) == []


def test_a_width_beyond_the_fair_share_is_said_once(project: Project) -> None:
    project.flyball("pool", "set", "anthropic", "--cap", "2")
    names = project.tasks(4)
    ran = project.run("--width", "4")
    assert ran.code == 0
    assert ran.out.count("fair share") in (1, 2), "once while it runs, once at the end"
    assert project.wrongs(names) == []


def test_demand_ends_with_the_run(project: Project) -> None:
    project.task("t-1")
    assert project.run().code == 0
    pools = project.flyball("status", "--json").json["pools"]
    assert [pool["demand"] for pool in pools] == [[]]


def test_a_run_goes_on_when_its_output_is_not_read(project: Project) -> None:
    names = project.tasks(2)
    process = project.start("run")
    assert process.stdout is not None
    process.stdout.close()
    process.wait(60)
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()
    assert project.wrongs(names) == []


# -- numbers --------------------------------------------------------------------------------------------


def test_a_number_that_left_something_behind_is_not_given_to_a_new_task(project: Project) -> None:
    project.task("t-1").rename(project.root / "tasks/x.md")

    def added() -> str:
        """Its number, which is free again as far as the task files know."""
        name = str(project.flyball("task", "add", "Another page", "--json").json["id"])
        (project.root / "tasks" / f"{name}.md").unlink()
        return name

    assert project.run(die_at="after:claim.done").code == -9
    (project.root / "tasks/x.md").unlink()
    assert added() == "t-2", "the ledger has t-1"
    project.git("branch", "agent/t-5", "main")
    assert added() == "t-6"
    project.workspace("t-7").mkdir(parents=True)
    assert added() == "t-8"
