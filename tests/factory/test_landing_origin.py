"""Landing where there is an origin: fetched from, pushed to, out of reach, or gone its own way."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.factory.kit import GREEN, Project


def clone_of(project: Project, origin: Path) -> Path:
    """A colleague's clone."""
    other = project.place / "colleague"
    project.git("clone", "-q", str(origin), str(other))
    return other


def push_from(project: Project, clone: Path, path: str, text: str = "theirs") -> str:
    project.git("pull", "-q", "--rebase", cwd=clone)
    (clone / path).parent.mkdir(parents=True, exist_ok=True)
    (clone / path).write_text(text)
    project.git("add", "-A", cwd=clone)
    project.git("commit", "-qm", "from a colleague", cwd=clone)
    project.git("push", "-q", cwd=clone)
    return project.git("rev-parse", "HEAD", cwd=clone)


def in_origin(project: Project, origin: Path) -> str:
    return project.git("rev-parse", "main", cwd=origin)


def test_work_goes_on_top_of_what_origin_has_beyond_the_local_branch(project: Project) -> None:
    project.task("t-1")
    origin = project.with_origin()
    theirs = push_from(project, clone_of(project, origin), "lib/x")
    assert project.run().code == 0
    assert project.git("merge-base", theirs, "main") == theirs
    assert project.wrongs(["t-1"]) == []
    assert (project.root / "lib/x").exists()
    assert in_origin(project, origin) == theirs, "nothing is pushed unless that was asked for"


def test_a_landing_is_pushed_where_that_was_asked_for(project: Project) -> None:
    project.configure(merge={"push": True})
    names = project.tasks(2)
    origin = project.with_origin()
    assert project.run().code == 0
    assert project.wrongs(names) == []
    assert in_origin(project, origin) == project.git("rev-parse", "main")


def test_a_push_that_origin_rejects_is_tried_again_on_top_of_what_came_in(project: Project) -> None:
    """A colleague pushes while the gate runs."""
    once, colleague = project.place / "once", project.place / "colleague"
    push = "git commit -q --allow-empty -m 'from a colleague' && git push -q"
    gate = f"test -e {once} || {{ touch {once}; cd {colleague} && git pull -q && {push}; }}"
    project.configure(merge={"push": True}, gate={"commands": [gate, GREEN]})
    project.task("t-1")
    origin = project.with_origin()
    clone_of(project, origin)
    ran = project.run()
    assert ran.code == 0, ran.said
    assert project.wrongs(["t-1"]) == []
    assert in_origin(project, origin) == project.git("rev-parse", "main")
    assert "from a colleague" in project.git("log", "--format=%s", "main")


def test_a_rule_of_origin_against_the_push_is_said_at_once(project: Project) -> None:
    project.configure(merge={"push": True}, gate={"commands": [f"echo . >> {project.place}/gates", GREEN]})
    project.task("t-1")
    origin = project.with_origin()
    hook = origin / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\necho 'not like this'\nexit 1\n")
    hook.chmod(0o755)
    before = project.git("rev-parse", "main")
    ran = project.run("--json")
    assert ran.code == 0, ran.said
    why = ran.json["waiting_for_you"]["t-1"]
    assert why.startswith("no-remote: could not push to origin")
    assert "rejected" in why or "declined" in why
    assert why.endswith("once that is mended, flyball run lands it without an agent")
    assert project.git("rev-parse", "main") == before
    assert (project.place / "gates").read_text() == ".\n"
    told = project.flyball("task", "why", "t-1", "--json").json
    assert told["words"].startswith("is finished and could not be landed: no-remote: could not push")
    assert told["next"][0] == "flyball run lands it again"


def test_finished_work_whose_push_was_refused_lands_with_the_next_run_and_no_agent_is_paid_again(
    project: Project,
) -> None:
    project.configure(merge={"push": True})
    project.task("t-1")
    origin = project.with_origin()
    hook = origin / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    for _ in range(2):
        assert project.run().code == 0
    project.task("t-2", write="pages/t-1*")
    assert "t-1" in project.run("--dry-run", "--json").json["resumes"]
    hook.unlink()
    project.git("push", "-q", "origin", "main")
    ran = project.run()
    assert ran.code == 0, ran.said
    assert in_origin(project, origin) == project.git("rev-parse", "main")
    assert project.wrongs(["t-1", "t-2"]) == []
    assert len(project.began("t-1")) == 1


def test_finished_work_whose_push_was_refused_may_be_left_out_of_a_run(project: Project) -> None:
    project.configure(merge={"push": True})
    for name in ("t-1", "t-2"):
        project.task(name)
    project.git("remote", "add", "origin", str(project.place / "nowhere.git"))
    assert project.run("--only", "t-1").code == 0
    project.git("remote", "remove", "origin")
    project.with_origin()
    ran = project.run("--only", "t-2", "--json")
    assert ran.json["merged"] == ["t-2"]
    assert list(ran.json["waiting_for_you"]) == ["t-1"]


def test_an_origin_that_cannot_be_reached_is_said_and_work_lands_here(project: Project) -> None:
    project.task("t-1")
    project.git("remote", "add", "origin", str(project.place / "nowhere.git"))
    ran = project.run()
    assert ran.code == 0, ran.said
    assert "could not fetch from origin" in ran.out
    assert project.wrongs(["t-1"]) == []


def test_an_origin_that_cannot_be_reached_keeps_work_that_must_be_pushed(project: Project) -> None:
    project.configure(merge={"push": True})
    project.task("t-1")
    project.git("remote", "add", "origin", str(project.place / "nowhere.git"))
    ran = project.run()
    assert ran.code == 0
    assert "no-remote" in ran.out
    assert project.landed() == []
    assert project.branches() == ["agent/t-1"]


def test_an_empty_origin_takes_the_first_push(project: Project) -> None:
    project.configure(merge={"push": True})
    project.task("t-1")
    origin = project.place / "origin.git"
    project.git("init", "-q", "--bare", str(origin))
    project.git("remote", "add", "origin", str(origin))
    ran = project.run()
    assert ran.code == 0, ran.said
    assert in_origin(project, origin) == project.git("rev-parse", "main")


@pytest.mark.parametrize("point", ["after:advance.begun", "before:advance.done", "after:advance.done"])
def test_a_push_cut_short_is_finished_and_lands_once(project: Project, point: str) -> None:
    project.configure(merge={"push": True})
    project.task("t-1")
    origin = project.with_origin()
    assert project.run(die_at=point).code == -9
    ran = project.run()
    assert ran.code == 0, ran.said
    assert project.wrongs(["t-1"]) == []
    assert in_origin(project, origin) == project.git("rev-parse", "main")
    subjects = project.git("log", "--format=%s", "main").splitlines()
    assert subjects.count("Add page t-1") == 1


def test_a_push_that_went_out_without_us_knowing_lands_once(project: Project) -> None:
    """Killed between the push and the move of the branch here."""
    project.configure(merge={"push": True})
    project.task("t-1")
    origin = project.with_origin()
    hook = origin / "hooks" / "post-receive"
    hook.write_text(
        f"#!/bin/sh\ntest -e {project.place}/once && exit 0\ntouch {project.place}/once\n"
        f"kill -9 $(cat {project.place}/pid)\n"
    )
    hook.chmod(0o755)
    process = project.start("run")
    (project.place / "pid").write_text(str(process.pid))
    process.communicate(timeout=60)
    assert process.returncode == -9
    ran = project.run()
    assert ran.code == 0, ran.said
    assert in_origin(project, origin) == project.git("rev-parse", "main")
    assert project.git("log", "--format=%s", "main").splitlines().count("Add page t-1") == 1
    assert project.status_of("t-1") == "closed"
    assert project.branches() == []
    assert project.workspaces() == []
