"""Landing while others push to the same origin, and while the user has commits that only the user has."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.factory.fake_hosts import Host
from tests.factory.kit import Project
from tests.waiting import until


def teammate(project: Project) -> Path:
    """A clone of origin that belongs to another person."""
    clone = project.place / "teammate"
    project.git("clone", "-q", str(project.place / "origin.git"), str(clone))
    return clone


def push_from(project: Project, clone: Path, path: str, text: str = "theirs") -> str:
    project.git("pull", "-q", "--rebase", cwd=clone)
    (clone / path).parent.mkdir(parents=True, exist_ok=True)
    (clone / path).write_text(text)
    project.git("add", "-A", cwd=clone)
    project.git("commit", "-qm", f"teammate: {path}", cwd=clone)
    project.git("push", "-q", cwd=clone)
    return project.git("rev-parse", "HEAD", cwd=clone)


def landed_at_least(project: Project, count: int) -> bool:
    return len(project.landed()) >= count


def subjects(project: Project, revisions: str) -> list[str]:
    return project.git("log", "--reverse", "--format=%s", revisions).splitlines()


@pytest.mark.parametrize("push", [False, True])
def test_all_tasks_land_though_a_teammate_pushes_twice_in_the_middle_of_the_run(
    project: Project, push: bool
) -> None:
    project.configure(merge={"push": push}, run={"width": 2})
    names = project.tasks(6)
    for name in ("t-3", "t-5"):
        project.act(name, f"wait_for(folder / 'go-{name}')\nwrite('pages/{name}.txt', 'x')")
    project.with_origin()
    clone = teammate(project)
    process = project.start("run", "--json")
    for before, held in ((2, "t-3"), (3, "t-5")):
        until(partial(landed_at_least, project, before), f"{before} landings")
        push_from(project, clone, f"lib/{held}")
        project.say(f"go-{held}")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, out + err
    assert project.wrongs(names) == []
    assert {"lib/t-3", "lib/t-5"} <= set(project.files())
    assert len(project.began()) == 6, "no agent is paid twice"
    pushed = project.git("rev-parse", "origin/main") == project.git("rev-parse", "main")
    assert pushed == push


def test_a_pull_request_has_the_tasks_commits_and_nothing_of_the_users(project: Project) -> None:
    Host(project)
    project.task("t-1")
    project.git("push", "-q", "origin", "main")
    project.write("notes/private.txt", "mine")
    project.commit("WIP private")
    mine = project.git("rev-parse", "main")
    ran = project.run()
    assert ran.code == 0, ran.said
    project.git("fetch", "-q", "origin")
    assert subjects(project, "origin/main..origin/agent/t-1") == ["Add page t-1"]
    assert "notes/private.txt" not in project.files("origin/agent/t-1")
    assert project.git("rev-parse", "main") == mine
    assert "WIP private" in ran.out, "it is said what was left out"


def test_an_own_commit_of_the_user_stays_theirs_and_comes_along_when_a_teammate_pushed(
    project: Project,
) -> None:
    project.task("t-1")
    origin = project.with_origin()
    theirs = push_from(project, teammate(project), "lib/x")
    project.write("lib/y", "mine")
    project.commit("mine")
    mine = project.git("rev-parse", "main")
    ran = project.run()
    assert ran.code == 0, ran.said
    assert project.wrongs(["t-1"]) == []
    assert {"lib/x", "lib/y", "pages/t-1.txt"} <= set(project.files())
    assert project.git("rev-list", "--count", f"{mine}..main") == "3", "theirs, the merge, the work"
    assert project.git("rev-parse", "main", cwd=origin) == theirs
    assert project.git("status", "--porcelain") == ""


def test_a_push_takes_the_users_own_commits_along_and_says_so_before(project: Project) -> None:
    project.configure(merge={"push": True})
    project.task("t-1")
    origin = project.with_origin()
    project.write("lib/y", "mine")
    project.commit("mine, not pushed")
    ran = project.run("--json")
    assert ran.code == 0, ran.said
    assert project.git("rev-parse", "main", cwd=origin) == project.git("rev-parse", "main")
    said = [note for note in ran.json["notes"] if "mine, not pushed" in note]
    assert any("merge.push is on" in note for note in said)


def clashing(project: Project) -> None:
    """The user and a teammate have changed one line, each in their own way."""
    push_from(project, teammate(project), "lib/x", "theirs")
    project.write("lib/x", "mine")
    project.commit("mine")


def test_where_origin_clashes_with_the_branch_here_work_lands_here_and_that_is_said(
    project: Project,
) -> None:
    names = project.tasks(2)
    project.with_origin()
    clashing(project)
    ran = project.run("--json")
    assert ran.code == 0, ran.said
    assert project.wrongs(names) == []
    assert (project.root / "lib/x").read_text() == "mine"
    (said,) = [note for note in ran.json["notes"] if "clash" in note]
    assert "lib/x" in said
    assert "git pull --rebase" in said


def test_where_origin_clashes_and_landings_are_pushed_work_waits_and_lands_later_without_an_agent(
    project: Project,
) -> None:
    project.configure(merge={"push": True})
    project.task("t-1")
    origin = project.with_origin()
    clashing(project)
    before = project.git("rev-parse", "main")
    ran = project.run("--json")
    assert ran.code == 0, ran.said
    assert ran.json["waiting_for_you"]["t-1"].startswith("diverged: main and origin/main clash in lib/x")
    assert project.git("rev-parse", "main") == before
    project.git("reset", "-q", "--hard", "origin/main")
    project.task("t-1")
    ran = project.run()
    assert ran.code == 0, ran.said
    assert len(project.began()) == 1
    assert project.landed() == ["t-1"]
    assert project.git("rev-parse", "main", cwd=origin) == project.git("rev-parse", "main")


def test_work_that_waited_lands_after_the_user_rebased_the_landing_below_it(project: Project) -> None:
    """``git pull --rebase`` gives the landing below it another name, and its closed task with it."""
    project.task("t-0")
    project.task("t-1", "labels: [merge:manual]", "needs: [t-0]")
    project.with_origin()
    assert project.run().code == 0
    assert project.landed() == ["t-0"]
    push_from(project, teammate(project), "lib/x")
    project.git("pull", "-q", "--rebase", "origin", "main")
    merged = project.flyball("merge", "t-1")
    assert merged.code == 0, merged.said
    assert subjects(project, "origin/main..main") == ["Add page t-0", "Add page t-1"]
    assert project.status_of("t-1") == "closed"


def test_a_retry_after_the_user_rebased_the_landing_below_it_lands(project: Project) -> None:
    project.configure(run={"attempts": 1})
    project.task("t-0")
    project.task("t-1", "needs: [t-0]", act="commit('pages/t-1.txt', 'half')\nsys.exit(1)")
    project.with_origin()
    assert project.run().code == 1
    push_from(project, teammate(project), "lib/x")
    project.git("pull", "-q", "--rebase", "origin", "main")
    project.act("t-1", "write('pages/t-1.txt', 'all')")
    ran = project.run()
    assert ran.code == 0, ran.said
    assert subjects(project, "origin/main..main") == ["Add page t-0", "a step", "Add page t-1"]


# -- pull requests --------------------------------------------------------------------------------------


def test_a_pull_request_has_no_landing_of_another_task_that_was_not_pushed(project: Project) -> None:
    Host(project)
    project.task("t-1", "labels: [merge:auto]")
    project.task("t-2", "needs: [t-1]")
    project.git("push", "-q", "origin", "main")
    ran = project.run()
    assert ran.code == 0, ran.said
    assert project.landed() == ["t-1"]
    project.git("fetch", "-q", "origin")
    assert subjects(project, "origin/main..origin/agent/t-2") == ["Add page t-2"]


def test_work_that_began_on_the_users_own_commit_leaves_it_out_of_its_pull_request(
    project: Project,
) -> None:
    Host(project)
    project.task("t-1", "labels: [merge:manual]")
    project.git("push", "-q", "origin", "main")
    project.write("notes/private.txt", "mine")
    project.commit("WIP private")
    assert project.run().code == 0
    opened = project.flyball("pr", "open", "t-1")
    assert opened.code == 0, opened.said
    project.git("fetch", "-q", "origin")
    assert subjects(project, "origin/main..origin/agent/t-1") == ["Add page t-1"]
    assert "notes/private.txt" not in project.files("origin/agent/t-1")


def test_a_pull_request_that_lands_pushes_nothing_of_the_users(project: Project) -> None:
    host = Host(project)
    project.task("t-1")
    project.git("push", "-q", "origin", "main")
    project.write("notes/private.txt", "mine")
    project.commit("WIP private")
    assert project.run().code == 0
    (pull,) = host.pulls
    host.change(pull["number"], approved=True)
    ran = project.flyball("land", "t-1")
    assert ran.code == 0, ran.said
    project.git("fetch", "-q", "origin")
    assert "notes/private.txt" not in project.files("origin/main")
    assert {"notes/private.txt", "pages/t-1.txt"} <= set(project.files("main"))
    assert project.status_of("t-1") == "closed"
    assert project.wrongs(["t-1"]) == []
    assert project.git("status", "--porcelain") == ""


def test_a_task_that_only_the_user_has_committed_is_settled_when_its_pull_request_is_merged(
    project: Project,
) -> None:
    """Open here, closed in what was merged there: that is not a clash."""
    host = Host(project)
    project.task("t-1")
    assert project.run().code == 0
    project.git("--git-dir", str(host.origin), "update-ref", "refs/heads/main", "refs/heads/agent/t-1")
    synced = project.flyball("pr", "sync")
    assert synced.code == 0, synced.said
    assert project.status_of("t-1") == "closed"
    assert "pages/t-1.txt" in project.files()
    assert project.git("status", "--porcelain") == ""
    assert project.run().code == 0
    assert len(project.began()) == 1
