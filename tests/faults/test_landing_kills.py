"""Landings of several branches, and of pull requests, killed at every step of the ledger and gone on with.

Whatever the place: nothing is lost or landed twice, nothing red or rewritten is on the default branch, no
pull request is opened twice, and no worktree or branch leaks.
"""

from __future__ import annotations

from functools import partial

import pytest

from tests.factory.fake_hosts import Host
from tests.factory.kit import SOAK, Project
from tests.waiting import until

pytestmark = pytest.mark.faults


def together(project: Project, count: int, die_at: str) -> int:
    """A run in which so many land together, killed there."""
    with project.landings_held(count):
        process = project.start("run", die_at=die_at)
    process.communicate(timeout=60)
    return process.returncode


BEFORE = [
    f"after:{place}#{turn}"
    for place in ("rebase.begun", "rebase.done", "close.begun", "close.done", "gate.begun", "gate.done")
    for turn in (1, 2)
]
BEFORE += ["after:advance.begun#1", "after:advance.begun#2"]
"""Places in a batch of two before the branch moves; the second of them is the other one's."""


def test_a_batch_killed_anywhere_before_the_branch_moves_starts_over(project: Project) -> None:
    names = project.tasks(2)
    before = project.git("rev-parse", "main")
    for point in BEFORE if SOAK else BEFORE[3::5]:
        assert together(project, 2, point) == -9, point
        assert project.git("rev-parse", "main") == before, point
    ran = project.run()
    assert ran.code == 0, ran.said
    assert project.wrongs(names) == []
    assert [len(project.began(name)) for name in names] == [1, 1]
    assert project.git("status", "--porcelain") == ""


AFTER = ["before:advance.done#1", "after:advance.done#1", "after:checkout.begun#2", "after:checkout.done#1"]
AFTER += ["after:tell.begun#2", "after:tell.done#1", "after:clean.begun#2", "after:clean.done#1"]


def test_a_batch_killed_anywhere_after_the_branch_moved_is_finished_and_lands_once(project: Project) -> None:
    names: list[str] = []
    for number, point in enumerate(AFTER if SOAK else AFTER[::4]):
        fresh = [f"t-{number}{letter}" for letter in "ab"]
        names += fresh
        for name in fresh:
            project.task(name)
        assert together(project, 2, point) == -9, point
        assert set(fresh) <= set(project.landed()), point
        ran = project.run()
        assert ran.code == 0, ran.said
        assert project.wrongs(names) == [], point
        assert project.git("status", "--porcelain") == "", point
    assert len(project.began()) == len(names)


# -- pull requests ----------------------------------------------------------------------------------------


def test_landing_a_pull_request_killed_anywhere_is_gone_on_with(project: Project) -> None:
    host = Host(project)
    project.task("t-1")
    project.git("push", "-q", "origin", "main")
    assert project.run().code == 0
    host.change(12, approved=True)
    for point in ("after:land.begun", "after:advance.begun") if SOAK else ("after:advance.begun",):
        assert project.flyball("land", "t-1", die_at=point).code == -9, point
        ran = project.run()
        assert ran.code == 0, ran.said
        assert "#12 is open" in ran.out
        assert project.landed() == []
    assert project.flyball("land", "t-1", die_at="before:advance.done").code == -9
    assert project.landed() == ["t-1"]
    ran = project.run()
    assert ran.code == 0, ran.said
    assert project.wrongs(["t-1"]) == []
    assert len(host.pulls) == 1
    assert len(project.began()) == 1


def test_an_origin_that_refuses_the_landing_leaves_the_pull_request_as_it_was(project: Project) -> None:
    host = Host(project)
    project.task("t-1")
    project.git("push", "-q", "origin", "main")
    assert project.run().code == 0
    hook = host.origin / "hooks" / "update"
    hook.write_text('#!/bin/sh\ntest "$1" != refs/heads/main\n')
    hook.chmod(0o755)
    host.change(12, approved=True)
    before = project.git("rev-parse", "main")
    ran = project.flyball("land", "t-1")
    assert ran.code == 1
    assert "could not push to origin" in ran.out
    assert project.git("rev-parse", "main") == before
    assert project.branches() == ["agent/t-1"]
    assert [pull["state"] for pull in host.pulls] == ["open"]
    hook.unlink()
    assert project.flyball("land", "t-1").code == 0
    assert len(project.began()) == 1


def test_gates_that_outlived_their_engines_are_asked_to_end_all_at_once(project: Project) -> None:
    """Each goes when both have been asked to: asked one after the other, the first is killed instead."""
    mark = f"{project.folder}/$$"
    both_asked = f'[ "$(ls {project.folder} | grep -c asked)" = 2 ]'
    waits = f"trap 'touch {mark}.asked' TERM; touch {mark}.up; until {both_asked}; do sleep 0.05; done"
    gate = f"test -e {project.folder}/go || {{ {waits}; touch {mark}.went; exit 1; }}"
    project.configure(gate={"commands": [gate]}, merge={"policy": "manual"})
    names = project.tasks(2)
    assert project.run().code == 0

    def marks(kind: str) -> int:
        return len(list(project.folder.glob(f"*.{kind}")))

    for number, name in enumerate(names, 1):
        process = project.start("merge", name)
        until(partial(lambda many: marks("up") == many, number), f"the gate of {name}")
        process.kill()
        process.wait()
    assert (marks("asked"), len(project.branches())) == (0, 2)
    project.say("go")
    ran = project.run()
    assert ran.code == 0, ran.said
    assert (marks("asked"), marks("went")) == (2, 2)
    assert project.wrongs(project.landed()) == []
