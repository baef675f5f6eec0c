"""A run, ``--dry-run`` and ``task why`` ask one chooser: they give the same reason for a task that waits."""

from __future__ import annotations

from typing import Any

from tests.factory.kit import Project
from tests.waiting import until

WAITS = "wait_for(folder / f'go-{task}')\nwrite(f'pages/{task}.txt', 'x')"
DOCKER = "labels: ['res:docker']"


def one_docker(project: Project) -> None:
    assert project.flyball("machine", "set", "--resource", "docker=1").code == 0


def dry_wait(project: Project, task: str) -> tuple[str, str | None]:
    plan = project.run("--dry-run", "--json").json
    return next((each["reason"], each["blocker"]) for each in plan["waits"] if each["task"] == task)


def why(project: Project, task: str) -> tuple[str, str | None]:
    found: dict[str, Any] = project.flyball("task", "why", task, "--json").json
    return found["reason"], found["blocker"]


def test_a_resource_that_another_task_takes_is_the_reason_everywhere(project: Project) -> None:
    one_docker(project)
    project.task("t-1", DOCKER, act=WAITS)
    project.task("t-2", DOCKER)
    foretold = [dry_wait(project, "t-2"), why(project, "t-2")]
    run = project.start("run")
    until(lambda: project.began("t-1"), "t-1 to begin")
    until(lambda: why(project, "t-2") == ("resource", "t-1"), "the run to say what t-2 waits for")
    assert foretold == [("resource", "t-1")] * 2
    project.say("go-t-1")
    assert run.wait(60) == 0
    assert project.wrongs(["t-1", "t-2"]) == []


def test_a_resource_that_the_machine_has_too_little_of_is_the_reason_everywhere(project: Project) -> None:
    one_docker(project)
    project.task("t-1", "labels: ['res:docker=2']")
    words = project.run("--dry-run", "--json").json["waits"][0]["words"]
    assert why(project, "t-1")[0] == "resource"
    ran = project.run("--json")
    assert ran.json["cannot_start"] == {"t-1": words}


def test_work_that_a_new_run_goes_on_with_keeps_its_resource(project: Project) -> None:
    one_docker(project)
    project.task("t-1", DOCKER, act=WAITS)
    project.task("t-2", DOCKER)
    run = project.start("run")
    until(lambda: project.began("t-1"), "t-1 to begin")
    run.kill()
    run.wait()
    assert dry_wait(project, "t-2") == why(project, "t-2") == ("resource", "t-1")
    project.say("go-t-1")
    assert project.run().code == 0
    assert project.wrongs(["t-1", "t-2"]) == []


def test_a_task_blocked_in_a_run_that_is_gone_on_with_is_not_said_to_start(project: Project) -> None:
    project.configure(run={"attempts": 1})
    project.task("t-1", act="sys.exit(1)")
    project.task("t-2", act=WAITS)
    run = project.start("run")
    until(lambda: project.began("t-2"), "t-2 to begin")
    until(lambda: project.flyball("task", "why", "t-1", "--json").json["state"] == "blocked", "t-1 to block")
    run.kill()
    run.wait()
    plan = project.run("--dry-run", "--json").json
    project.say("go-t-2")
    ran = project.run("--json").json
    assert list(ran["blocked"]) == ["t-1"]
    assert (list(plan["resumes"]), plan["starts"]) == (["t-2"], [])
