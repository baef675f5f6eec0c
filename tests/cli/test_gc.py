"""``flyball gc``: what finished work has left behind goes; nothing that could be missed does."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from flyball.core.tasks.task_run import RunPhase, Step
from flyball.factory.git.repository import Repository
from flyball.factory.git.workspace import Workspaces
from flyball.factory.state.ledger import Ledger
from tests.cli.kit import Cli
from tests.factory.kit import Project

DAY_S = 86_400.0


def workspaces(site: Project) -> Workspaces:
    return Workspaces(repository=Repository(site.root), folder=site.workspace("x").parent)


def tree(site: Project, name: str, *, branch: bool = True) -> Path:
    """A workspace, as the factory makes it."""
    if branch:
        return workspaces(site).ensure(name).path
    workspaces(site).make_detached(site.workspace(name), site.git("rev-parse", "main"))
    return site.workspace(name)


def work(site: Project, path: Path, text: str = "page") -> str:
    """A commit in a workspace, taken in where it has a branch."""
    name = f"pages/{path.name}.txt"
    (path / "pages").mkdir(exist_ok=True)
    (path / name).write_text(text)
    site.git("add", "--all", cwd=path)
    site.git("commit", "--quiet", "--message", f"page {path.name}", cwd=path)
    if site.git("branch", "--show-current", cwd=path):
        workspaces(site).take_in(path.name)
    return name


def closed(site: Project, name: str) -> None:
    path = site.task(name, commit=False)
    path.write_text(path.read_text().replace("status: open", "status: closed"))
    site.commit(f"close {name}")


def steps(site: Project, name: str, *noted: tuple[Step, RunPhase]) -> None:
    ledger = Ledger(site.root / ".flyball", run="r-1")
    for step, mark in noted:
        ledger.note(name, step, mark, reason="a reason")
    ledger.close()


LIVE = ((Step.CLAIM, RunPhase.DONE), (Step.WORKTREE, RunPhase.DONE))
BLOCKED = (*LIVE, (Step.BLOCK, RunPhase.DONE))


def old_run(site: Project, task: str, number: int = 1, *, days: float = 40) -> Path:
    folder = site.root / ".flyball" / "runs" / task / str(number)
    (folder / "gate-1").mkdir(parents=True)
    for name in ("stdout", "gate-1/gate.log"):
        (folder / name).write_text("x" * 5000)
    at = time.time() - days * DAY_S
    for path in (folder / "stdout", folder / "gate-1", folder):
        os.utime(path, (at, at))
    return folder


def kept(found: Any) -> dict[str, str]:
    return {each["name"]: each["why"] for each in found["kept"]}


def removed(found: Any) -> list[str]:
    return [each["name"] for each in found["removed"]]


# -- what stays ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", ["", "status.showUntrackedFiles=no", "core.excludesFile=/dev/null"])
@pytest.mark.parametrize("change", ["pages/new.txt", "flyball.toml"])
def test_uncommitted_work_stays_whatever_git_was_told_to_hide(
    here: Cli, site: Project, change: str, setting: str
) -> None:
    closed(site, "t-1")
    path = tree(site, "t-1")
    if setting:
        site.git("config", *setting.split("=", 1))
    (path / change).parent.mkdir(exist_ok=True)
    (path / change).write_text("precious")
    found = here("gc", "--json").json
    assert (path / change).read_text() == "precious"
    assert kept(found)["t-1"] == f"it has uncommitted work: {change}"
    assert "checked out" in kept(found)["agent/t-1"]


def test_a_branch_with_a_commit_of_its_own_stays_and_its_worktree_goes(here: Cli, site: Project) -> None:
    closed(site, "t-1")
    path = tree(site, "t-1")
    work(site, path)
    found = here("gc", "--json").json
    assert not path.exists()
    assert site.branches() == ["agent/t-1"]
    assert kept(found)["agent/t-1"] == "it has a commit that main has not: git log main..agent/t-1"


def test_commits_that_no_branch_has_stay(here: Cli, site: Project) -> None:
    closed(site, "t-1")
    path = tree(site, "t-1", branch=False)
    work(site, path)
    assert "commits that no branch has" in kept(here("gc", "--json").json)["t-1"]
    assert path.exists()


def test_what_a_reviewer_left_goes(here: Cli, site: Project) -> None:
    path = tree(site, ".review-t-1", branch=False)
    work(site, path)
    (path / "more.txt").write_text("thrown away")
    assert removed(here("gc", "--json").json) == [".review-t-1"]
    assert not path.exists()


def test_a_locked_worktree_stays(here: Cli, site: Project) -> None:
    closed(site, "t-1")
    path = site.workspace("t-1")
    path.parent.mkdir(parents=True)
    # As an earlier flyball made them.
    site.git("worktree", "add", "--quiet", "-b", "agent/t-1", str(path), "main")
    site.git("worktree", "lock", str(path))
    assert "it is locked" in kept(here("gc", "--json").json)["t-1"]
    assert path.exists()


def test_a_worktree_that_lost_its_git_stays(here: Cli, site: Project) -> None:
    closed(site, "t-1")
    path = tree(site, "t-1")
    shutil.rmtree(path / ".git")
    assert "its .git is gone" in kept(here("gc", "--json").json)["t-1"]
    assert path.exists()


def test_a_folder_that_is_not_a_worktree_of_ours_stays(here: Cli, site: Project) -> None:
    path = site.workspace("notes")
    path.mkdir(parents=True)
    assert "not a workspace of this repository" in kept(here("gc", "--json").json)["notes"]
    assert path.exists()


@pytest.mark.parametrize(
    ("noted", "words"),
    [
        (LIVE, "its work is not over (ready)"),
        (BLOCKED, "it is blocked and its task is open"),
        ((), "is open"),
    ],
)
def test_what_a_task_still_needs_stays(
    here: Cli, site: Project, noted: tuple[tuple[Step, RunPhase], ...], words: str
) -> None:
    site.task("t-1")
    path = tree(site, "t-1")
    steps(site, "t-1", *noted)
    run = old_run(site, "t-1")
    found = kept(here("gc", "--json").json)
    assert words in found["t-1"]
    assert words in found["agent/t-1"]
    assert words in found["t-1/1"], "what the last agent said explains how it stands"
    assert path.exists()
    assert run.exists()


def test_a_task_that_cannot_be_read_keeps_what_it_has(here: Cli, site: Project) -> None:
    site.task("t-1", "priority: high")
    path = tree(site, "t-1")
    assert "cannot be read; flyball validate" in kept(here("gc", "--json").json)["t-1"]
    assert path.exists()


def test_a_branch_that_is_checked_out_elsewhere_stays(here: Cli, site: Project, tmp_path: Path) -> None:
    closed(site, "t-1")
    site.git("worktree", "add", "--quiet", "-b", "agent/t-1", str(tmp_path / "mine"), "main")
    assert "checked out in" in kept(here("gc", "--json").json)["agent/t-1"]
    assert site.branches() == ["agent/t-1"]


def test_while_a_run_is_going_on_nothing_is_removed(here: Cli, site: Project) -> None:
    site.task("t-1", act="(folder / 'up').touch()\nwait_for(folder / 'go')\nwrite('pages/t-1.txt', 'x')")
    run = site.start("run")
    site.wait("up")
    result = here("gc")
    assert result.code == 2
    assert f"a run of blog is going on (pid {run.pid})" in result.err
    looked = here("gc", "--dry-run", "--json")
    assert (looked.code, removed(looked.json)) == (0, [])
    assert "its work is not over (running)" in kept(looked.json)["t-1"]
    site.say("go")
    run.communicate(timeout=60)


# -- what goes ----------------------------------------------------------------------------------------------


def test_a_finished_project_is_left_clean(here: Cli, site: Project) -> None:
    site.task("t-1")
    assert site.run().code == 0
    found = here("gc", "--older-than", "0", "--json").json
    assert removed(found) == [".landing", "t-1/1"]
    assert found["removed"][1]["size_bytes"] > 0
    assert site.git("worktree", "list").count("\n") == 0
    assert list((site.root / ".flyball" / "runs").iterdir()) == []
    site.task("t-2")
    assert site.run().code == 0, "the next run makes anew what it needs"


def test_a_dry_run_says_all_of_it_and_changes_nothing(here: Cli, site: Project) -> None:
    closed(site, "t-1")
    path, run = tree(site, "t-1"), old_run(site, "t-1")
    result = here("gc", "--dry-run")
    assert "Would remove 1 workspace, 1 branch, 1 run folder" in result.out
    assert "flyball gc removes these" in result.out
    assert path.exists()
    assert run.exists()
    assert site.branches() == ["agent/t-1"]


def test_a_worktree_and_a_branch_of_a_closed_task_go_and_can_be_had_back(here: Cli, site: Project) -> None:
    closed(site, "t-1")
    tree(site, "t-1")
    tip = site.git("rev-parse", "main")
    out = here("gc").out
    assert "Removed 1 workspace, 1 branch" in out
    assert tip[:12] in out
    assert "git branch NAME COMMIT" in out
    assert (site.workspaces(), site.branches()) == ([], [])


@pytest.mark.parametrize("how", ["rebased", "squashed", "merged"])
def test_a_branch_goes_when_its_changes_are_in_the_default_branch_however_they_came_there(
    here: Cli, site: Project, how: str
) -> None:
    closed(site, "t-1")
    path = tree(site, "t-1")
    work(site, path, "one")
    work(site, path, "two")
    site.write("other.txt", "meanwhile")
    site.commit("meanwhile")
    if how == "merged":
        site.git("merge", "--quiet", "--no-edit", "agent/t-1")
    elif how == "squashed":
        site.git("merge", "--quiet", "--squash", "agent/t-1")
        site.commit("squashed")
    else:
        site.git("cherry-pick", "main..agent/t-1")
        site.write("tasks/note.txt", "closed with the work")
        site.git("add", "--all")
        site.git("commit", "--quiet", "--amend", "--no-edit")
    assert "agent/t-1" in removed(here("gc", "--json").json)
    assert site.branches() == []


def test_a_branch_whose_work_was_reverted_stays(here: Cli, site: Project) -> None:
    closed(site, "t-1")
    path = tree(site, "t-1")
    work(site, path)
    site.git("merge", "--quiet", "--squash", "agent/t-1")
    site.commit("squashed")
    site.git("revert", "--no-edit", "HEAD")
    assert "agent/t-1" in kept(here("gc", "--json").json)


def test_a_folder_that_an_agent_deleted_is_forgotten(here: Cli, site: Project) -> None:
    closed(site, "t-1")
    path = tree(site, "t-1")
    path.rename(path.with_name("moved"))
    found = here("gc", "--json").json
    assert {"t-1", "agent/t-1"} <= set(removed(found))
    assert site.branches() == []
    assert path.with_name("moved").exists()


def test_files_that_were_copied_in_keep_nothing_back(here: Cli, site: Project) -> None:
    site.configure(worktree={"copy": [".env", "conf"]})
    closed(site, "t-1")
    path = tree(site, "t-1")
    (path / ".env").write_text("KEY=1")
    (path / "conf").mkdir()
    (path / "conf" / "local").write_text("2")
    assert "t-1" in removed(here("gc", "--json").json)


def test_run_folders_go_by_their_age(here: Cli, site: Project) -> None:
    closed(site, "t-1")
    old, young = old_run(site, "t-1", 1, days=40), old_run(site, "t-1", 2, days=20)
    assert removed(here("gc", "--json").json) == ["t-1/1"]
    assert not old.exists()
    assert young.exists()
    result = here("gc", "--older-than", "7d")
    assert "Removed 1 run folder" in result.out
    assert not young.parent.exists()


def test_of_a_blocked_task_only_the_last_run_is_kept(here: Cli, site: Project) -> None:
    site.task("t-1")
    steps(site, "t-1", *BLOCKED)
    first, last = old_run(site, "t-1", 1), old_run(site, "t-1", 2)
    assert removed(here("gc", "--json").json) == ["t-1/1"]
    assert not first.exists()
    assert last.exists()


def test_a_link_is_not_followed(here: Cli, site: Project, tmp_path: Path) -> None:
    closed(site, "t-1")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "precious").write_text("x")
    os.utime(mine / "precious", (0, 0))
    folder = old_run(site, "t-1", 1)
    (folder / "link").symlink_to(mine)
    os.utime(folder / "link", (0, 0), follow_symlinks=False)
    (folder.parent / "2").symlink_to(mine)
    assert removed(here("gc", "--json").json) == ["t-1/1"]
    assert (mine / "precious").exists()


@pytest.mark.parametrize("age", ["soon", "-1d"])
def test_an_age_that_is_none_is_refused(here: Cli, site: Project, age: str) -> None:
    assert here("gc", f"--older-than={age}").code == 2
