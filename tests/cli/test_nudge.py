"""``flyball nudge``: a message reaches the agent, and it is said when."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest

from flyball.cli.commands.factory.nudge import delivery
from flyball.cli.shared.run_requests import LONGEST_CHARS
from flyball.core.tasks.task import Task
from flyball.core.tasks.task_run import State, TaskRecord
from flyball.factory.project_view import TaskLookup
from tests.cli.kit import Cli
from tests.factory.kit import Project

WAITS = "(folder / f'up-{launch}').touch()\nwait_for(folder / 'go')\nwrite(f'pages/{task}.txt', 'page')"


# -- what is refused --------------------------------------------------------------------------------------


def test_an_unknown_task_is_asked_about(here: Cli, site: Project) -> None:
    site.task("t-1")
    result = here("nudge", "t1", "hello")
    assert result.code == 2
    assert "there is no task 't1'; did you mean 't-1'?" in result.err


@pytest.mark.parametrize("message", ["", "  \n"])
def test_a_message_of_nothing_is_refused(here: Cli, site: Project, message: str) -> None:
    site.task("t-1")
    result = here("nudge", "t-1", message)
    assert result.code == 2
    assert "the message is empty" in result.err


def test_a_message_too_long_for_a_prompt_is_refused(here: Cli, site: Project) -> None:
    site.task("t-1")
    assert "put it into a file" in here("nudge", "t-1", "x" * (LONGEST_CHARS + 1)).err


def test_a_message_that_is_not_text_is_refused(
    here: Cli, site: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.task("t-1")
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"caf\xe9")))
    result = here("nudge", "t-1", "-")
    assert result.code == 2
    assert "not UTF-8 (byte 3); nothing was sent" in result.err


def test_a_closed_task_takes_no_message(here: Cli, site: Project) -> None:
    site.task("t-1")
    assert site.run().code == 0
    result = here("nudge", "t-1", "hello")
    assert result.code == 2
    assert "t-1 is closed: no agent will read a message" in result.err


# -- what arrives -----------------------------------------------------------------------------------------


def test_without_a_run_it_is_kept_for_the_next_one(
    here: Cli, site: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.task("t-1")
    result = here("nudge", "t-1", "use the old endpoint")
    assert result.code == 0
    assert "the next flyball run hands it over when its agent starts" in result.out
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO("und ünïcödé 日本語\n".encode())))
    assert here("nudge", "t-1", "-").code == 0
    assert site.run().code == 0
    [prompt] = site.prompts("t-1")
    assert "use the old endpoint" in prompt
    assert "und ünïcödé 日本語" in prompt


def test_now_interrupts_the_agent_and_it_goes_on_with_the_message(here: Cli, site: Project) -> None:
    site.task("t-1", act=WAITS)
    run = site.start("run")
    site.wait("up-1")
    result = here("nudge", "t-1", "--now", "stop that", "--json")
    assert (result.code, result.json["interrupts"]) == (0, True)
    site.wait("up-2")
    first, second = site.prompts("t-1")
    assert "stop that" not in first
    assert "stop that" in second
    site.say("go")
    run.communicate(timeout=60)
    assert [line.attempt for line in site.began("t-1")] == [1, 1], "a message burns no attempt"
    assert site.wrongs(["t-1"]) == []


def test_an_agent_at_work_is_left_alone_without_now(here: Cli, site: Project) -> None:
    site.task("t-1", act=WAITS)
    run = site.start("run")
    site.wait("up-1")
    result = here("nudge", "t-1", "when you can")
    assert "gets it when it is started again" in result.out
    site.say("go")
    run.communicate(timeout=60)
    assert len(site.began("t-1")) == 1


# -- when, in words -----------------------------------------------------------------------------------------


def known(state: State | None) -> TaskLookup:
    record = TaskRecord(task="t-1", state=state) if state is not None else None
    return TaskLookup(id="t-1", task=Task(id="t-1", title="T"), record=record)


@pytest.mark.parametrize(
    ("state", "going_on", "words"),
    [
        (None, True, "it goes out with the prompt when its agent starts"),
        (State.READY, True, "it goes out with the prompt when its agent starts"),
        (State.LANDING, True, "only if it is sent back"),
        (State.BLOCKED, True, "if a later run starts it again"),
        (State.PARKED, False, "flyball merge t-1"),
        (State.BLOCKED, False, "the next flyball run hands it over"),
    ],
)
def test_it_is_said_when_a_message_goes_out(state: State | None, going_on: bool, words: str) -> None:
    assert words in delivery(known(state), going_on=going_on, runs=False, now=False)
    told = delivery(known(state), going_on=going_on, runs=False, now=True)
    assert told.endswith("; no agent runs that --now could interrupt")
