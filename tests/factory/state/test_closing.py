"""Tasks that live outside the repository: what landed is closed there in the end, and never done twice."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from flyball.core.tasks.task_run import State
from flyball.factory.state.ledger import Ledger
from tests.factory.kit import Project

STAND_INS = Path(__file__).parents[1] / "tasks"


class Tracker:
    """A project whose only task is kept by ``gh`` or ``bd``, which can be made to refuse to close it."""

    def __init__(self, project: Project, source: str) -> None:
        self.project, self.source = project, source
        self.state, self._refuses = project.place / "tracker.json", project.place / "refuses"
        name, self.task = {"github": ("gh", "gh-1"), "beads": ("bd", "bd-1")}[source]
        project.configure(tasks={"source": source})
        project.commit("tasks elsewhere")
        self._put(name)
        self.write("OPEN" if source == "github" else "open")

    def _put(self, name: str) -> None:
        words = [sys.executable, "-IS", str(STAND_INS / f"stand_in_{name}.py"), str(self.state)]
        program = self.project.place / "bin" / name
        program.parent.mkdir()
        program.write_text(
            '#!/bin/sh\ncase "$1 $2" in "issue close"|"close "*)\n'
            f"if [ -e {shlex.quote(str(self._refuses))} ]; then echo 'Bad Gateway' >&2; exit 1; fi;; esac\n"
            f'exec {shlex.join(words)} "$@"\n'
        )
        program.chmod(0o755)
        self.project.env["PATH"] = f"{program.parent}:{self.project.env['PATH']}"

    def write(self, status: str) -> None:
        """As a person would do it."""
        if self.source == "beads":
            self.state.write_text(json.dumps([{"id": "bd-1", "title": "Add a page", "status": status}]))
            return
        issue: dict[str, Any] = {"number": 1, "title": "Add a page", "body": "", "state": status}
        issue |= {"labels": ["flyball"], "createdAt": "2026-11-01T10:00:01Z", "url": "https://x/issues/1"}
        labels = ["flyball", "flyball:in-progress"]
        self.state.write_text(json.dumps({"labels": labels, "issues": [issue]}))

    def reopen(self) -> None:
        self.write("OPEN" if self.source == "github" else "open")

    def close_by_hand(self) -> None:
        self.write("CLOSED" if self.source == "github" else "closed")

    def refuse(self) -> None:
        self._refuses.touch()

    def recover(self) -> None:
        self._refuses.unlink()

    @property
    def closed(self) -> bool:
        found = json.loads(self.state.read_text())
        if self.source == "beads":
            return bool(found[0]["status"] == "closed")
        return bool(found["issues"][0]["state"] == "CLOSED")

    def slot_state(self) -> State:
        ledger = Ledger(self.project.root / ".flyball", read_only=True)
        record = ledger.load_task(self.task)
        ledger.close()
        assert record is not None
        return record.state


@pytest.fixture(params=["github", "beads"])
def tracker(project: Project, request: pytest.FixtureRequest) -> Tracker:
    return Tracker(project, request.param)


def test_a_task_that_could_not_be_closed_is_closed_by_the_next_run_and_not_done_again(
    tracker: Tracker,
) -> None:
    project = tracker.project
    tracker.refuse()
    first = project.run()
    assert first.code == 0, first.said
    assert f"{tracker.task} has landed, and could not be closed" in first.out
    assert "Bad Gateway" in first.out
    tracker.recover()
    second = project.run()
    assert second.code == 0, second.said
    assert f"{tracker.task} had landed, and is closed now" in second.out
    assert tracker.closed
    third = project.run()
    assert tracker.task not in third.out
    assert project.landed() == [tracker.task]
    assert len(project.began()) == 1


def test_one_that_still_cannot_be_closed_is_said_once_and_not_started(tracker: Tracker) -> None:
    project = tracker.project
    tracker.refuse()
    assert project.run().code == 0
    tracker.reopen()  # as where the source could not be told that it was begun either
    for _ in range(2):
        ran = project.run("--json")
        assert ran.code == 0, ran.said
        [note] = ran.json["notes"]
        assert f"{tracker.task} has landed, and could not be closed" in note
        assert ran.json["merged"] == []
    assert not tracker.closed
    assert project.landed() == [tracker.task]
    assert len(project.began()) == 1


def test_no_command_says_that_it_would_start(tracker: Tracker) -> None:
    tracker.refuse()
    assert tracker.project.run().code == 0
    plan = tracker.project.flyball("run", "--dry-run", "--json").json
    assert (plan["starts"], plan["resumes"]) == ([], {})
    why = tracker.project.flyball("task", "why", tracker.task)
    assert "is merged" in why.out


def test_a_task_that_a_person_opens_again_is_done_again(tracker: Tracker) -> None:
    project = tracker.project
    assert project.run().code == 0
    assert tracker.closed
    tracker.reopen()
    project.act(tracker.task, "write('pages/more.txt', 'more')")
    ran = project.run()
    assert ran.code == 0, ran.said
    assert project.landed() == [tracker.task] * 2
    assert tracker.closed


def test_one_that_a_person_closed_in_our_place_can_be_opened_again(tracker: Tracker) -> None:
    project = tracker.project
    tracker.refuse()
    assert project.run().code == 0
    tracker.close_by_hand()
    seen = project.run()
    assert seen.code == 0
    assert tracker.task not in seen.out
    tracker.recover()
    tracker.reopen()
    project.act(tracker.task, "write('pages/more.txt', 'more')")
    assert project.run().code == 0
    assert project.landed() == [tracker.task] * 2


@pytest.mark.faults
@pytest.mark.parametrize("point", ["after:tell.begun", "before:tell.done"])
def test_a_run_killed_while_it_tells_the_source_leaves_nothing_to_be_done_twice(
    tracker: Tracker, point: str
) -> None:
    project = tracker.project
    tracker.refuse()
    assert project.run().code == 0
    tracker.recover()
    assert project.run(die_at=point).code == -9
    assert tracker.slot_state() is State.MERGED
    assert project.run().code == 0
    assert tracker.closed
    assert project.landed() == [tracker.task]
    assert len(project.began()) == 1


@pytest.mark.faults
@pytest.mark.parametrize("point", ["after:tell.begun", "before:tell.done"])
def test_a_landing_killed_while_it_tells_the_source_is_finished_and_closes_it(
    tracker: Tracker, point: str
) -> None:
    project = tracker.project
    assert project.run(die_at=point).code == -9
    assert tracker.slot_state() is State.LANDING
    went_on = project.run()
    assert went_on.code == 0, went_on.said
    assert tracker.closed
    assert project.landed() == [tracker.task]
    assert len(project.began()) == 1


def test_one_that_is_gone_from_the_source_is_let_go(tracker: Tracker) -> None:
    tracker.refuse()
    assert tracker.project.run().code == 0
    tracker.state.unlink()
    ran = tracker.project.run()
    assert ran.code == 0, ran.said
    assert tracker.task not in ran.out
