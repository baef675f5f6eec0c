"""What a run answers to what a person asks of it: the outcome is a value, whatever the words are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flyball.factory.run.options import RunVerb
from flyball.factory.run.session import ask
from flyball.factory.state.ledger import Ledger, RequestOutcome
from tests.factory.kit import Project

WAITS = "(folder / 'up').touch()\nwait_for(folder / 'go')\nwrite(f'pages/{task}.txt', 'page')"


@pytest.fixture
def going_on(project: Project) -> Iterator[Project]:
    """A run with one task under way and one that waits for it."""
    project.task("t-1", act=WAITS)
    project.task("t-2", "needs: [t-1]")
    run = project.start("run")
    project.wait("up")
    yield project
    project.say("go")
    run.communicate(timeout=60)


@pytest.mark.parametrize(
    ("verb", "task", "outcome"),
    [
        ("reject", "t-1", RequestOutcome.REFUSED),
        ("reject", "t-2", RequestOutcome.REFUSED),
        ("merge", "t-2", RequestOutcome.REFUSED),
        ("merge", "t-1", RequestOutcome.UNCHANGED),
        ("close", "t-2", RequestOutcome.UNCHANGED),
        ("stop", "t-2", RequestOutcome.UNCHANGED),
        ("stop", "t-1", RequestOutcome.DONE),
        ("close", "t-1", RequestOutcome.DONE),
        ("drain", "", RequestOutcome.DONE),
    ],
)
def test_every_answer_has_an_outcome(
    going_on: Project, verb: str, task: str, outcome: RequestOutcome
) -> None:
    answer = ask(going_on.root, RunVerb(verb), task, wait_s=60)
    assert answer is not None
    assert answer.outcome is outcome, answer.words
    assert answer.accepted is (outcome is not RequestOutcome.REFUSED)


def test_a_request_that_the_run_it_was_meant_for_left_is_told_to_have_come_late(project: Project) -> None:
    project.task("t-1")
    assert project.run().code == 0
    ledger = Ledger(project.root / ".flyball")
    number = ledger.ask("drain")
    project.task("t-2")
    assert project.run().code == 0
    answer = ledger.answer_to(number)
    ledger.close()
    assert answer is not None
    assert (answer.outcome, answer.accepted) == (RequestOutcome.LATE, False)
    assert project.landed() == ["t-1", "t-2"], "the run was not drained"
