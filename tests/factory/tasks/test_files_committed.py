"""What a commit says about a task, whatever the checkout has."""

from __future__ import annotations

from pathlib import Path

import pytest

from flyball.factory.git.git import Git
from tests.factory.tasks.kit import Project

OPEN = "---\nid: t-1\ntitle: T\nstatus: open\n---\n"
CLOSED = OPEN.replace("open", "closed")


@pytest.fixture
def git(project: Project) -> Git:
    git = Git(project.root)
    git("init", "--quiet", "--initial-branch=main")
    return git


def commit(git: Git) -> None:
    git("add", "--all")
    git("commit", "--quiet", "--allow-empty", "--message", "x")


def test_a_task_that_the_checkout_has_open_may_be_closed_in_a_commit(project: Project, git: Git) -> None:
    project.write("t-1.md", OPEN)
    commit(git)
    assert not project.source.closed_at("t-1", git, "main")
    project.write("t-1.md", CLOSED)
    commit(git)
    project.write("t-1.md", OPEN)
    assert project.source.closed_at("t-1", git, "main")
    assert not project.source.closed_at("t-1", git, "main~1")


@pytest.mark.parametrize("there", ["t-1.md", "done/first one.md", "grün.md"])
def test_it_is_found_wherever_the_commit_has_it(project: Project, git: Git, there: str) -> None:
    project.write(there, CLOSED)
    project.write("notes.txt", CLOSED)
    commit(git)
    (project.folder / there).unlink()
    project.write("elsewhere.md", OPEN)
    assert project.source.closed_at("t-1", git, "main")


def test_a_longer_id_or_a_mention_is_not_the_task(project: Project, git: Git) -> None:
    project.write("t-10.md", CLOSED.replace("t-1", "t-10"))
    project.write("t-2.md", CLOSED.replace("t-1", "t-2") + "after t-1")
    project.write("README.md", CLOSED)
    commit(git)
    assert not project.source.closed_at("t-1", git, "main")


def test_no_such_revision_or_folder_says_nothing(project: Project, git: Git, tmp_path: Path) -> None:
    commit(git)
    assert not project.source.closed_at("t-1", git, "main")
    assert not project.source.closed_at("t-1", git, "nowhere")
