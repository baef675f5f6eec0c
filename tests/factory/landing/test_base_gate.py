"""The gate on the base, before the first agent of a run."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.factory.kit import GREEN, Project
from tests.waiting import until


@pytest.fixture
def project(project: Project) -> Project:
    """As every project is by default."""
    del project.sections["gate"]["check_base"]
    project.configure()
    project.commit("the gate is tried on the base")
    return project


@pytest.fixture
def counted(project: Project) -> Path:
    """A gate that is green and writes down every time it runs."""
    count = project.place / "gates"
    project.configure(gate={"commands": [f"echo . >> {count}", GREEN]})
    return count


def runs_of(count: Path) -> int:
    return len(count.read_text().splitlines()) if count.exists() else 0


def redden(project: Project) -> None:
    project.write("pages/old.txt", "bad")
    project.commit("main is red")


# -- red --------------------------------------------------------------------------------------------------


def test_no_agent_is_started_where_the_gate_is_red_on_the_base(project: Project) -> None:
    project.tasks(5)
    redden(project)
    ran = project.run()
    assert ran.code == 1, ran.said
    assert project.began() == []
    assert project.leases() == []


def test_a_red_base_is_told_with_the_command_the_log_and_the_ways_out(project: Project) -> None:
    project.task("t-1")
    redden(project)
    said = project.run().out
    assert GREEN in said
    assert "/.flyball/base-gate/gate-1/gate.log" in said
    assert "mend main, or gate.commands in flyball.toml" in said
    assert "flyball run --skip-base-gate --only TASK" in said


def test_a_red_base_has_fields_in_json(project: Project) -> None:
    project.task("t-1")
    redden(project)
    ran = project.run("--json")
    found = ran.json["red_base"]
    assert (found["command"], found["unrunnable"]) == (GREEN, False)
    assert found["commit"] == project.git("rev-parse", "main")
    assert Path(found["log"]).is_file()
    assert ran.json["not_started"] == ["t-1"]
    assert ran.json["exit"] == 1


def test_a_gate_that_cannot_be_run_starts_no_agent_either(project: Project) -> None:
    project.configure(gate={"commands": ["no-such-tool --all"]})
    project.tasks(3)
    ran = project.run("--json")
    assert ran.code == 1, ran.said
    assert project.began() == []
    assert ran.json["red_base"]["unrunnable"] is True


def test_a_base_that_was_mended_is_tried_again(project: Project) -> None:
    project.task("t-1")
    redden(project)
    assert project.run().code == 1
    project.git("rm", "--quiet", "pages/old.txt")
    project.commit("mended")
    ran = project.run()
    assert ran.code == 0, ran.said
    assert project.wrongs(["t-1"]) == ["main was red at " + project.git("rev-parse", "main~2")]


def test_what_was_cut_short_is_not_launched_again_on_a_red_base(project: Project) -> None:
    project.task("t-1", act="(folder / 'on').touch()\nwait_for(folder / 'never')")
    process = project.start("run")
    project.wait("on")
    process.kill()
    process.wait()
    for pid in project.processes():
        os.kill(pid, signal.SIGKILL)
    redden(project)
    ran = project.run()
    assert ran.code == 1, ran.said
    assert len(project.began()) == 1
    assert "the gate is red on main itself" in ran.out


# -- the ways out -----------------------------------------------------------------------------------------

MEND = "(Path.cwd() / 'pages/old.txt').unlink()"


def test_a_task_that_mends_the_base_is_started_with_the_flag(project: Project) -> None:
    project.task("t-1", act=MEND)
    redden(project)
    ran = project.run("--skip-base-gate", "--only", "t-1")
    assert ran.code == 0, ran.said
    assert project.landed() == ["t-1"]


def test_a_project_may_do_without(project: Project) -> None:
    project.task("t-1", act=MEND)
    redden(project)
    project.configure(gate={"check_base": False})
    assert project.run().code == 0
    assert project.landed() == ["t-1"]


# -- what it costs ----------------------------------------------------------------------------------------


def test_it_runs_once_however_many_are_started(project: Project, counted: Path) -> None:
    for name in project.tasks(3):
        project.act(name, "sys.exit(1)")
    project.configure(run={"attempts": 2, "width": 3})
    assert project.run().code == 1
    assert len(project.began()) == 6
    assert runs_of(counted) == 1


def test_a_rerun_on_the_same_base_does_not_run_it_again(project: Project, counted: Path) -> None:
    project.task("t-1", act="sys.exit(1)")
    project.configure(run={"attempts": 1})
    assert project.run().code == 1
    assert project.run().code == 1
    assert (len(project.began()), runs_of(counted)) == (2, 1)


def test_other_commands_are_tried_on_the_same_base(project: Project, counted: Path) -> None:
    project.task("t-1", act="sys.exit(1)")
    project.configure(run={"attempts": 1})
    project.run()
    project.configure(gate={"commands": [f"echo . >> {counted}", GREEN, "true"]})
    project.run()
    assert runs_of(counted) == 2


def test_a_base_that_a_landing_saw_green_is_not_tried_again(project: Project, counted: Path) -> None:
    project.tasks(2)
    assert project.run("--only", "t-1").code == 0
    assert runs_of(counted) == 2
    assert project.run("--only", "t-2").code == 0
    assert runs_of(counted) == 3


def test_it_does_not_run_where_nothing_is_to_be_started(project: Project, counted: Path) -> None:
    assert project.run().code == 0
    assert runs_of(counted) == 0
    project.task("t-1")
    assert project.run().code == 0
    assert runs_of(counted) == 2, "on the base, and for the landing"


def test_a_dry_run_does_not_run_it(project: Project, counted: Path) -> None:
    project.task("t-1")
    assert project.run("--dry-run").code == 0
    assert runs_of(counted) == 0
    assert project.run().code == 0
    assert runs_of(counted) == 2, "on the base, and for the landing"


# -- being interrupted ------------------------------------------------------------------------------------


@pytest.fixture
def slow(project: Project) -> Project:
    """A gate that says that it runs, and waits to be let go."""
    wait = f"touch {project.folder}/gate; while ! test -e {project.folder}/go; do sleep 0.05; done"
    project.configure(gate={"commands": [wait, GREEN]})
    project.task("t-1")
    return project


def test_a_run_that_is_stopped_while_it_runs_ends_it(slow: Project) -> None:
    process = slow.start("run")
    slow.wait("gate")
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 128 + signal.SIGINT
    assert (slow.began(), slow.processes()) == ([], [])


def test_one_that_outlived_its_engine_is_ended_by_the_next_run(slow: Project) -> None:
    process = slow.start("run")
    slow.wait("gate")
    process.kill()
    process.wait()
    assert slow.began() == [], "it is the base's"
    [*left] = slow.processes()
    assert left
    (slow.folder / "gate").unlink()
    process = slow.start("run")
    slow.wait("gate")
    until(lambda: not set(left) & set(slow.processes()), "the gate of the dead engine to end")
    slow.say("go")
    assert process.wait(60) == 0
    assert slow.wrongs(["t-1"]) == []
