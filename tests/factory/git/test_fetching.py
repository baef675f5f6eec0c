"""Fetching beside worktrees that are not made yet: git fails over a HEAD that is not written."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from flyball.errors import GitError
from flyball.factory.git.repository import Repository
from tests.factory.kit import Project

ZEROS = "0" * 40 + "\n"


@pytest.fixture
def half_made(project: Project, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What `git worktree add` has written when it comes to HEAD, in git's own folder."""
    monkeypatch.setenv("HOME", project.env["HOME"])
    project.with_origin()
    project.git("worktree", "add", "-q", "--detach", str(project.place / "half"))
    state = project.root / ".git/worktrees/half"
    (state / "HEAD").write_text(ZEROS)
    (state / "locked").write_text("initializing\n")
    return state


def test_a_worktree_that_is_being_added_is_waited_for(
    project: Project, half_made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused: list[float] = []

    def head_is_written(pause_s: float) -> None:
        paused.append(pause_s)
        if len(paused) == 3:
            (half_made / "HEAD").write_text(project.git("rev-parse", "HEAD") + "\n")

    # Its own pauses only: code that waits for a process sleeps too.
    monkeypatch.setattr(
        "flyball.factory.git.repository.time", SimpleNamespace(sleep=head_is_written, time=time.time)
    )
    Repository(project.root).fetch()
    assert len(paused) == 3
    assert half_made.exists()


def test_one_that_git_was_killed_over_is_removed(project: Project, half_made: Path) -> None:
    os.utime(half_made, (0, 0))
    Repository(project.root).fetch()
    assert not half_made.exists()
    assert not (project.place / "half").exists()


@pytest.mark.parametrize("reason", ["mine", ""])
def test_one_that_may_hold_work_is_kept_and_named(project: Project, half_made: Path, reason: str) -> None:
    (half_made / "locked").write_text(reason)
    os.utime(half_made, (0, 0))
    with pytest.raises(GitError, match="git fetch") as failed:
        Repository(project.root).fetch()
    assert "worktrees/half/HEAD" in failed.value.output
    assert (project.place / "half").exists()
