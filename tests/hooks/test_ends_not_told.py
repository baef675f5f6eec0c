"""Subagents whose end a runtime does not tell give their slots back: by what each tells in its place.

The payloads are those of codex 0.166.0 and gemini 0.61.0, as far as they are read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flyball.governor.governor import Governor
from tests.hooks.agent import StandInAgent, hear

POOLS = {"codex": "openai", "gemini": "google"}
_START = '{"timestamp":"2026-11-20T00:15:03.958Z","type":"event_msg","payload":{"type":"task_started"}}\n'
_TALK = '{"timestamp":"2026-11-20T00:15:04.032Z","type":"response_item","payload":{"type":"message"}}\n'
_FAILED = '{"type":"event_msg","payload":{"type":"task_complete","error":{"message":"status 401"}}}\n'
_CLOSED = '{"type":"event_msg","payload":{"type":"turn_aborted","reason":"interrupted"}}\n'
Agents = Callable[[str], StandInAgent]


@pytest.fixture
def governor(person: Path) -> Iterator[Governor]:
    governor = Governor()
    yield governor
    governor.close()


@pytest.fixture
def agents(person: Path) -> Iterator[Agents]:
    started: list[StandInAgent] = []

    def start(name: str) -> StandInAgent:
        started.append(StandInAgent(name))
        started[-1].tell("SessionStart", cwd="/", source="startup")
        return started[-1]

    yield start
    for agent in started:
        agent.close()


class Codex:
    """A session of codex with one subagent, which writes down its turns."""

    def __init__(self, governor: Governor, agents: Agents, folder: Path) -> None:
        self.governor, self.agent = governor, agents("codex")
        self.rollout = folder / "rollout-1.jsonl"
        self.rollout.write_text("")

    def want(self, call: str = "c1", **more: str) -> str:
        given = {"message": "Look.", "agent_type": "explorer"}
        tool = {"tool_name": "spawn_agent", "tool_use_id": call, "tool_input": given}
        return self.agent.tell("PreToolUse", cwd="/", **tool, **more)

    def answer(self, call: str = "c1", agent: str = "a1") -> None:
        said = json.dumps({"agent_id": agent, "nickname": "Peirce"})
        tool = {"tool_name": "spawn_agent", "tool_use_id": call, "tool_response": said}
        self.agent.tell("PostToolUse", cwd="/", **tool)

    def begin(self, event: str = "SubagentStart", agent: str = "a1") -> None:
        self.write(_START + _TALK)
        who = {"agent_id": agent, "agent_type": "explorer", "transcript_path": str(self.rollout)}
        self.agent.tell(event, cwd="/", **who)

    def write(self, lines: str) -> None:
        with self.rollout.open("a") as file:
            file.write(lines)

    def end_turn(self) -> None:
        self.agent.tell("Stop", cwd="/")

    @property
    def subagents(self) -> int:
        return in_use(self.governor, "codex") - 1


def in_use(governor: Governor, runtime: str) -> int:
    return next(each.in_use for each in governor.status().pools if each.name == POOLS[runtime])


@pytest.fixture
def codex(governor: Governor, agents: Agents, tmp_path: Path) -> Codex:
    return Codex(governor, agents, tmp_path)


@pytest.mark.parametrize("end", [_FAILED, _CLOSED], ids=["failed", "closed"])
@pytest.mark.parametrize("event", ["Stop", "UserPromptSubmit"])
def test_a_subagent_of_codex_that_fails_or_is_closed_gives_its_slot_back_between_two_turns(
    event: str, end: str, codex: Codex
) -> None:
    codex.want()
    codex.answer()
    codex.begin()
    codex.agent.tell(event, cwd="/")
    assert codex.subagents == 1
    codex.write(end)
    codex.agent.tell(event, cwd="/")
    assert codex.subagents == 0


def test_a_subagent_of_codex_that_failed_makes_room_for_the_next_of_the_same_turn(
    codex: Codex, governor: Governor
) -> None:
    governor.set_pool("openai", cap=2, adaptive=False)
    codex.want()
    codex.answer()
    codex.begin()
    codex.write(_FAILED)
    assert codex.want("c2") == ""
    assert codex.subagents == 1


def test_a_call_of_codex_that_no_subagent_came_of_gives_its_slot_back_at_the_end_of_the_turn(
    codex: Codex,
) -> None:
    codex.want()
    codex.want("c2")
    codex.answer("c2", "a2")
    codex.end_turn()
    assert codex.subagents == 1


def test_a_call_of_a_subagent_of_codex_may_outlive_the_turn_of_the_session(codex: Codex) -> None:
    codex.want(agent_id="a0")
    codex.end_turn()
    assert codex.subagents == 1


def test_a_subagent_of_codex_that_is_given_more_to_do_takes_a_slot_again(codex: Codex) -> None:
    codex.want()
    codex.answer()
    codex.begin()
    codex.agent.tell("SubagentStop", agent_id="a1", agent_type="explorer")
    codex.write(_FAILED)
    assert codex.subagents == 0
    codex.begin("UserPromptSubmit")
    codex.end_turn()
    assert codex.subagents == 1
    codex.agent.tell("SubagentStop", agent_id="a1", agent_type="explorer")
    assert codex.subagents == 0


def test_an_end_that_was_written_before_a_subagent_began_again_is_not_its_end(codex: Codex) -> None:
    codex.want()
    codex.answer()
    codex.write(_START + _FAILED)
    who = {"agent_id": "a1", "agent_type": "explorer", "transcript_path": str(codex.rollout)}
    codex.agent.tell("UserPromptSubmit", cwd="/", **who)
    codex.end_turn()
    assert codex.subagents == 1


def test_the_answer_to_a_call_names_its_subagent_also_where_another_began_in_its_place(codex: Codex) -> None:
    codex.want("c1")
    codex.want("c2")
    codex.begin(agent="a2")
    codex.answer("c1", "a1")
    codex.answer("c2", "a2")
    codex.end_turn()
    assert codex.subagents == 2
    codex.agent.tell("SubagentStop", agent_id="a2", agent_type="explorer")
    codex.agent.tell("SubagentStop", agent_id="a1", agent_type="explorer")
    assert codex.subagents == 0


def test_a_rollout_that_cannot_be_understood_leaves_a_subagent_counted(codex: Codex) -> None:
    codex.want()
    codex.answer()
    codex.begin()
    codex.write('{"type": "event_msg"}\n[]\nturn_aborted\n{"payload": "task_complete"}\n')
    codex.end_turn()
    assert codex.subagents == 1


@pytest.mark.parametrize("event", ["BeforeAgent", "AfterAgent"])
def test_subagents_of_gemini_that_were_interrupted_have_ended_with_the_turn(
    event: str, governor: Governor, agents: Agents
) -> None:
    governor.set_pool("google", cap=2, adaptive=False)
    gemini = agents("gemini")
    for prompt in ("Look.", "Read."):
        asked = {"agent_name": "generalist", "prompt": prompt}
        said = gemini.tell("BeforeTool", cwd="/", tool_name="invoke_agent", tool_input=asked)
        assert said == ""
    assert in_use(governor, "gemini") == 2
    gemini.tell(event, cwd="/")
    assert in_use(governor, "gemini") == 1
    asked = {"agent_name": "generalist", "prompt": "Look again."}
    assert hear(gemini.start("BeforeTool", cwd="/", tool_name="invoke_agent", tool_input=asked)) == ""
    assert in_use(governor, "gemini") == 1
