"""``--only`` and ``--parent`` beside work that an earlier run left unfinished."""

from __future__ import annotations

import pytest

from tests.factory.kit import Project


def left_unfinished(project: Project) -> None:
    """t-1 was under way when its run was killed; t-2 was never begun, and is beneath an epic."""
    project.task("t-1")
    assert project.run(die_at="after:worktree.done").code == -9
    assert project.began() == []
    project.task("t-0", "type: epic")
    project.task("t-2", "parent: t-0")


@pytest.mark.parametrize("words", [("--only", "t-2"), ("--parent", "t-0")])
def test_what_an_earlier_run_left_is_not_gone_on_with_where_the_run_is_for_others(
    project: Project, words: tuple[str, str]
) -> None:
    left_unfinished(project)
    assert list(project.run(*words, "--dry-run", "--json").json["resumes"]) == []
    ran = project.run(*words, "--json")
    assert ran.code == 0, ran.said
    assert ran.json["merged"] == ["t-2"]
    assert project.began("t-1") == []
    assert any("t-1" in note and "left out of this run" in note for note in ran.json["notes"])


def test_what_was_left_out_is_gone_on_with_by_a_run_for_all(project: Project) -> None:
    left_unfinished(project)
    assert project.run("--only", "t-2").code == 0
    ran = project.run()
    assert ran.code == 0, ran.said
    assert project.wrongs(["t-1", "t-2"]) == []


def test_a_run_for_just_what_was_left_goes_on_with_it(project: Project) -> None:
    left_unfinished(project)
    ran = project.run("--only", "t-1", "--json")
    assert ran.code == 0, ran.said
    assert ran.json["merged"] == ["t-1"]
