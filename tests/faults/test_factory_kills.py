"""``flyball run`` killed at every entry of its ledger, and gone on with.

The places are those that the ledger's own table of transitions has, so a new step is tried by itself; a step
that no story here reaches fails its test. Whatever the place: no task is lost or landed twice, none runs
twice at once, nothing is left running, no slot, worktree or branch leaks, and the default branch only ever
moved forward to green trees.
"""

from __future__ import annotations

import contextlib
import random
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from flyball.core.tasks.task_run import TRANSITIONS, RunPhase, Step
from tests.factory.fake_hosts import Host
from tests.factory.kit import GREEN, SOAK, Project

pytestmark = pytest.mark.faults


@dataclass(frozen=True)
class Story:
    """What is there in the end."""

    landed: tuple[str, ...]
    code: int = 0
    branches: tuple[str, ...] = ()
    pulls: Host | None = None
    """Has one pull request of each branch."""


def plain(project: Project) -> Story:
    return Story(tuple(project.tasks(2)))


def red_then_green(project: Project) -> Story:
    project.task("t-1")
    project.act("t-1", "write('pages/t-1.txt', 'bad')", launch=1)
    return Story(("t-1",))


def limited(project: Project) -> Story:
    project.patient_pool()
    project.task("t-1")
    project.act("t-1", "sys.exit(75)", launch=1)
    return Story(("t-1",))


def protected(project: Project) -> Story:
    project.task("t-1", act="write('secrets/key', 'mine now')")
    project.task("t-2")
    return Story(("t-2",), code=1, branches=("agent/t-1",))


def manual(project: Project) -> Story:
    project.task("t-1", "labels: [merge:manual]")
    project.task("t-2")
    return Story(("t-2",), branches=("agent/t-1",))


def pulled(project: Project) -> Story:
    host = Host(project)
    project.task("t-1")
    project.git("push", "-q", "origin", "main")
    return Story((), branches=("agent/t-1",), pulls=host)


def session(project: Project) -> Story:
    """An agent that says which session it is."""
    project.configure(agent={"runtime": "claude"})
    said = '{"type":"system","subtype":"init","session_id":"s-1","model":"m"}'
    done = '{"type":"result","subtype":"success","is_error":false,"session_id":"s-1","result":"done"}'
    project.task("t-1", act=f"print('{said}')\nwrite('pages/t-1.txt', 'one')\nprint('{done}')")
    return Story(("t-1",))


def checked(project: Project) -> Story:
    """With a stage and a review."""
    project.configure(**{"stages.docs": {}, "review": {"on": True}})
    project.task("t-1", act="write('pages/t-1.txt', f'attempt {attempt}')")
    project.act("t-1@docs", "write('docs/t-1.md', f'attempt {attempt}')")
    return Story(("t-1",))


def conflicting(project: Project) -> Story:
    """Two that declare different pages, and both change a third."""
    for task in ("t-1", "t-2"):
        project.task(task)
        project.act(task, _CLASH, launch=1)
        project.act(task, _CLASH_SOLVED)
    return Story(("t-1", "t-2"))


_CLASH = """
(folder / task).touch()
for other in ("t-1", "t-2"):
    wait_for(folder / other)
commit("pages/shared.txt", f"of {task}", f"Add page {task}")
"""
_CLASH_SOLVED = """
git("reset", "--hard", "main")
commit("pages/shared.txt", f"of both, {task} last", f"Add page {task}")
"""

STORIES: tuple[Callable[[Project], Story], ...] = (
    plain,
    red_then_green,
    limited,
    protected,
    manual,
    pulled,
    session,
    checked,
    conflicting,
)
REACHED_IN = {
    Step.SESSION: session,
    Step.STAGE: checked,
    Step.REVIEW: checked,
    Step.BACK: red_then_green,
    Step.PARK: manual,
    Step.PR: pulled,
    Step.BLOCK: protected,
}
"""Which story reaches a step that an uneventful one does not."""

PLACES = sorted({f"{step.value}.{mark.value}" for _, step, mark in TRANSITIONS})
POINTS = [f"{when}:{place}" for place in PLACES for when in ("before", "after")]
TELLING = [
    point
    for point in POINTS
    if point.startswith("after") == point.endswith("begun")
    or point in ("after:merged.done", "after:park.done", "after:block.done")
]
"""Announced and not done; done and not written down; over. The others are the same as one of these to the
next run: before an announcement nothing has changed since the entry before it."""


def test_every_step_of_the_ledger_is_a_place_to_be_killed_at() -> None:
    steps = {step for _, step, _ in TRANSITIONS}
    assert steps == set(Step)
    assert {mark for _, _, mark in TRANSITIONS} == set(RunPhase)


@pytest.mark.parametrize("point", POINTS if SOAK else TELLING)
def test_a_run_killed_here_is_gone_on_with(project: Project, point: str) -> None:
    step = Step(point.partition(":")[2].partition(".")[0])
    story = REACHED_IN.get(step, plain)(project)
    killed = project.run(die_at=point)
    assert killed.code == -9, f"{point} was not reached: {killed.said}"
    went_on = project.run()
    assert _wrongs(project, story, went_on.code) == [], went_on.said


@pytest.mark.parametrize(
    "point", ["after:end.done", "after:gate.begun", "after:advance.done", "after:clean.done"]
)
def test_going_on_can_be_asked_for(project: Project, point: str) -> None:
    story = plain(project)
    assert project.run(die_at=point).code == -9
    went_on = project.run("--resume")
    assert _wrongs(project, story, went_on.code) == [], went_on.said


@pytest.mark.parametrize(
    "first", ["before:launch.done", "before:end.done", "after:gate.begun", "after:advance.begun"]
)
def test_a_run_that_is_killed_while_it_goes_on_is_gone_on_with_again(project: Project, first: str) -> None:
    story = plain(project)
    assert project.run(die_at=first).code == -9
    for point in ("after:worktree.begun", "after:rebase.done", "before:advance.done", "after:checkout.begun"):
        project.run(die_at=point)
    went_on = project.run()
    assert _wrongs(project, story, went_on.code) == [], went_on.said


if SOAK:

    @pytest.mark.parametrize("turn", [1, 2, 3])
    @pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
    @pytest.mark.parametrize("point", POINTS)
    def test_every_story_killed_everywhere(
        project: Project, point: str, story: Callable[[Project], Story], turn: int
    ) -> None:
        told = story(project)
        killed = project.run(die_at=f"{point}#{turn}")
        if killed.code != -9:
            assert _wrongs(project, told, killed.code) == [], killed.said
            pytest.skip("this story does not come by here so often")
        went_on = project.run()
        assert _wrongs(project, told, went_on.code) == [], went_on.said


# -- at any moment ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(30) if SOAK else (1,))
def test_a_run_killed_again_and_again_at_any_moment_ends_as_if_it_never_was(
    project: Project, seed: int
) -> None:
    """Not only where the ledger changes: in the middle of git, of a gate, of starting up."""
    chance = random.Random(seed)
    project.patient_pool()
    project.configure(gate={"commands": ["sleep 0.05", GREEN]})
    conflicting(project)
    for name in ("t-3", "t-4", "t-5"):
        project.task(name)
    project.act("t-4", "write('pages/t-4.txt', 'bad')", launch=1)
    project.act("t-5", "commit('pages/half.txt', '1')\nsys.exit(75)", launch=1)
    project.task("t-6", commit=False)
    for _ in range(25 if SOAK else 4):
        process = project.start("run")
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.45 + chance.random())
        process.kill()
        process.wait()
    went_on = project.run()
    story = Story(tuple(f"t-{number}" for number in range(1, 7)))
    assert _wrongs(project, story, went_on.code) == [], went_on.said


def _wrongs(project: Project, story: Story, code: int) -> list[str]:
    wrong = project.wrongs(story.landed)
    if code != story.code:
        wrong.append(f"exit status {code}, should be {story.code}")
    if tuple(project.branches()) != story.branches:
        wrong.append(f"branches: {project.branches()}, should be {story.branches}")
    pulls = tuple(pull["branch"] for pull in story.pulls.pulls) if story.pulls is not None else ()
    if story.pulls is not None and pulls != story.branches:
        wrong.append(f"pull requests of {pulls}, should be of {story.branches}")
    if project.git("status", "--porcelain"):
        wrong.append(f"the checkout did not follow: {project.git('status', '--porcelain')}")
    return wrong
