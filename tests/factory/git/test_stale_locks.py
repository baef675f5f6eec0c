"""Locks that a killed git left in the project's repository, and those of a git that lives."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flyball.factory.git.stale_locks import clear, lock_files
from tests.factory.kit import Project

OLD_S = 60.0


def left(path: Path, *, age_s: float = OLD_S) -> Path:
    """As a git that was killed some time ago leaves it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    then = time.time() - age_s
    os.utime(path, (then, then))
    return path


@contextmanager
def process(program: str, *words: str, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """One that lives, and has said that it does."""
    running = subprocess.Popen([program, *words], cwd=cwd, stdout=subprocess.PIPE, text=True)
    try:
        assert running.stdout is not None
        running.stdout.readline()
        yield running
    finally:
        running.kill()
        running.communicate()


@pytest.mark.parametrize(
    "name",
    ["HEAD", "index", "packed-refs", "config", "shallow", "refs/heads/main", "refs/heads/agent/t-1"],
)
def test_a_lock_that_a_killed_git_left_keeps_nothing_from_landing(project: Project, name: str) -> None:
    project.task("t-1")
    lock = left(project.root / ".git" / f"{name}.lock")
    ran = project.run("--json")
    assert ran.code == 0, ran.said
    assert project.wrongs(["t-1"]) == []
    assert any(str(lock) in note for note in ran.json["notes"])


@pytest.mark.parametrize("name", ["HEAD", "index", "ORIG_HEAD"])
def test_a_lock_in_the_landings_own_worktree_keeps_nothing_from_landing(project: Project, name: str) -> None:
    project.task("t-1")
    assert project.run().code == 0
    left(project.root / ".git" / "worktrees" / ".landing" / f"{name}.lock")
    landing = next((project.root / ".git" / "worktrees").glob("*landing"))
    left(landing / f"{name}.lock")
    project.task("t-2")
    ran = project.run()
    assert ran.code == 0, ran.said
    assert project.wrongs(["t-1", "t-2"]) == []


def test_an_agent_that_was_killed_inside_git_is_gone_on_with(project: Project) -> None:
    """It leaves locks of its branch and of its worktree, and the work of the next attempt lands."""
    project.task("t-1")
    project.act(
        "t-1",
        "state = git('rev-parse', '--git-dir')\n"
        "common = git('rev-parse', '--path-format=absolute', '--git-common-dir')\n"
        "for name in (f'{state}/HEAD.lock', f'{state}/index.lock', f'{common}/refs/heads/agent/t-1.lock'):\n"
        "    open(name, 'x').close()\n"
        "os.kill(os.getpid(), 9)\n",
        launch=1,
    )
    ran = project.run()
    assert ran.code == 0, ran.said
    assert project.wrongs(["t-1"]) == []
    assert len(project.began()) == 2


def test_the_doctor_names_locks_that_were_left_and_removes_them_where_asked(project: Project) -> None:
    locks = [left(project.root / ".git" / name) for name in ("HEAD.lock", "refs/heads/main.lock")]
    found = project.flyball("doctor", "--json").json["findings"]
    (finding,) = [each for each in found if each["kind"] == "git-lock"]
    assert all(str(lock) in finding["words"] for lock in locks)
    assert all(lock.exists() for lock in locks), "looking changes nothing"
    fixed = project.flyball("doctor", "--fix", "--json").json["findings"]
    assert [each["fixed"] for each in fixed if each["kind"] == "git-lock"] == [True]
    assert not any(lock.exists() for lock in locks)


def test_a_lock_that_a_living_process_has_open_stays(project: Project) -> None:
    lock = left(project.root / ".git" / "index.lock")
    holds = "import sys, time; file = open(sys.argv[1]); print('up', flush=True); time.sleep(600)"
    with process(sys.executable, "-c", holds, str(lock), cwd=project.place) as holder:
        (found,) = lock_files(project.root / ".git")
        assert (found.holders, found.left) == ((holder.pid,), False)
        assert clear(project.root / ".git") == []
    assert clear(project.root / ".git") == [lock]


def test_a_lock_stays_while_a_git_that_was_there_before_it_works_in_the_repository(project: Project) -> None:
    """git closes the lock of a branch and keeps it while its hooks run."""
    git = project.place / "bin" / "git"
    git.parent.mkdir()
    git.symlink_to(sys.executable)
    waits = "import time; print('up', flush=True); time.sleep(600)"
    with process(str(git), "-c", waits, cwd=project.root) as holder:
        lock = project.root / ".git" / "refs" / "heads" / "main.lock"
        lock.touch()
        (found,) = lock_files(project.root / ".git")
        assert (found.holders, found.left) == ((holder.pid,), False)
        left(lock, age_s=3600.0)
        (found,) = lock_files(project.root / ".git")
        assert (found.holders, found.left) == ((), True), "it was written before that one was started"


def test_a_young_lock_is_waited_for_and_what_it_guards_is_named_where_git_meets_it(project: Project) -> None:
    lock = project.root / ".git" / "HEAD.lock"
    lock.touch()
    assert [(found.left, found.holders) for found in lock_files(project.root / ".git")] == [(False, ())]
    assert clear(project.root / ".git") == [lock]
