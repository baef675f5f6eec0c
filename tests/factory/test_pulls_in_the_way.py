"""What keeps work from becoming a pull request: said before a run, and kept apart from why it was blocked."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.factory.fake_hosts import Host
from tests.factory.kit import Project

# -- before anything is run -------------------------------------------------------------------------------


def test_a_dry_run_says_whose_work_could_not_become_a_pull_request(project: Project) -> None:
    project.task("t-1", "labels: [merge:pr]")
    project.task("t-2")
    (note,) = project.run("--dry-run", "--json").json["notes"]
    assert note.startswith("no pull request could be opened for t-1: the project has no remote called origin")
    project.git("remote", "add", "origin", "git@github.com:me/blog.git")
    project.env["PATH"] = str(git_alone(project))
    (note,) = project.run("--dry-run", "--json").json["notes"]
    assert "gh was not found" in note
    assert "gh was not found" in project.run("--dry-run").out


def test_a_dry_run_says_that_there_is_nowhere_to_push_to(project: Project) -> None:
    project.configure(merge={"push": True})
    project.task("t-1")
    (note,) = project.run("--dry-run", "--json").json["notes"]
    assert "no remote called origin to push t-1 to" in note
    project.with_origin()
    assert project.run("--dry-run", "--json").json["notes"] == []


def git_alone(project: Project) -> Path:
    """A folder with git in it, and no program of any host."""
    folder, found = project.place / "git-alone", shutil.which("git")
    assert found is not None
    folder.mkdir()
    (folder / "git").symlink_to(found)
    return folder


# -- work that was blocked --------------------------------------------------------------------------------


def blocked(project: Project) -> Host:
    """A host, and a task that was blocked over what its agent did."""
    host = Host(project)
    project.configure(run={"attempts": 1})
    project.task("t-1", act="commit('pages/t-1.txt', 'half', 'Half a page')\nsys.exit(3)")
    project.git("push", "-q", "origin", "main")
    ran = project.run("--json")
    assert "failed once" in ran.json["blocked"]["t-1"], ran.said
    return host


def test_a_pull_request_that_cannot_be_opened_leaves_the_work_blocked_for_what_it_was(
    project: Project,
) -> None:
    host = blocked(project)
    host.fail()
    for _ in range(2):
        tried = project.flyball("pr", "open", "t-1", "--json")
        assert (tried.code, tried.json["opened"]) == (1, False)
        assert "no-gh: gh pr list failed" in tried.json["why"]
        why = project.flyball("task", "why", "t-1", "--json").json
        assert why["state"] == "blocked"
        assert why["words"].startswith("is blocked: failed once, the last time: ")
    project.git("remote", "remove", "origin")
    assert "no-remote: " in project.flyball("pr", "open", "t-1").out
    assert "is blocked: failed once" in project.flyball("task", "why", "t-1").out


def test_a_pull_request_of_blocked_work_says_what_it_was_blocked_for(project: Project) -> None:
    blocked(project)
    opened = project.flyball("pr", "open", "t-1", "--json")
    assert (opened.code, opened.json["number"]) == (0, 12), opened.said
    board = project.flyball("board", "--json").json
    assert [row["state"] for row in board["rows"]] == ["parked"]
    assert "#12 is open" in board["rows"][0]["why"]
    assert "before, it was blocked: failed once" in board["rows"][0]["why"]


def test_blocked_work_that_a_person_tries_to_land_is_blocked_for_what_is_wrong_with_it_now(
    project: Project,
) -> None:
    blocked(project)
    (project.workspace("t-1") / "pages/t-1.txt").write_text("bad")
    project.git("commit", "-qam", "mended", cwd=project.workspace("t-1"))
    assert project.flyball("merge", "t-1").code == 1
    assert "is blocked: gate-failed" in project.flyball("task", "why", "t-1").out
