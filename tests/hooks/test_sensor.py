"""Sessions that flyball did not start are counted, and their subagents wait for slots. Real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flyball.cli.main import main
from flyball.errors import RefusedError
from flyball.governor.governor import Governor
from flyball.governor.inherited_lease import variable_value
from flyball.governor.status import PoolStatus
from tests.hooks.agent import LONGEST_S, StandInAgent, denial, hear
from tests.waiting import until

POOL = "anthropic"


@pytest.fixture
def governor(person: Path) -> Iterator[Governor]:
    governor = Governor()
    yield governor
    governor.close()


@pytest.fixture
def agents(person: Path) -> Iterator[Callable[..., StandInAgent]]:
    started: list[StandInAgent] = []

    def start(*args: Any, **options: Any) -> StandInAgent:
        started.append(StandInAgent(*args, **options))
        return started[-1]

    yield start
    for agent in started:
        agent.close()


Agents = Callable[..., StandInAgent]


def pool(governor: Governor, name: str = POOL) -> PoolStatus:
    return next(each for each in governor.status().pools if each.name == name)


def names(governor: Governor, name: str = POOL) -> list[str]:
    return sorted(lease.name for lease in pool(governor, name).leases)


def test_a_session_is_counted_under_its_own_process_and_project(
    governor: Governor, agents: Agents, tmp_path: Path
) -> None:
    agent = agents()
    (tmp_path / "blog").mkdir()
    assert agent.tell("SessionStart", source="startup", cwd=str(tmp_path / "blog")) == ""
    (lease,) = pool(governor).leases
    assert (lease.project, lease.name, lease.pid) == ("blog", f"claude-{agent.pid}", agent.pid)


def test_a_session_that_talks_to_a_person_uses_the_reserve_and_leaves_the_rest_to_others(
    governor: Governor, agents: Agents
) -> None:
    governor.set_pool(POOL, cap=3, adaptive=False, reserve=2)
    for agent in (agents(), agents()):
        agent.tell("SessionStart", source="startup", cwd="/")
    assert [lease.priority for lease in pool(governor).leases] == [1, 1]
    with governor.acquire_nowait(POOL, name="a script's call"):
        assert pool(governor).in_use == 3


def test_a_session_that_runs_one_prompt_to_its_end_uses_no_reserve(
    governor: Governor, agents: Agents
) -> None:
    governor.set_pool(POOL, cap=3, adaptive=False, reserve=2)
    agents("claude", "-p").tell("SessionStart", source="startup", cwd="/")
    assert [lease.priority for lease in pool(governor).leases] == [0]
    with pytest.raises(RefusedError):
        governor.acquire_nowait(POOL, name="a script's call")


def test_a_session_that_begins_again_in_the_same_process_is_counted_once(
    governor: Governor, agents: Agents
) -> None:
    agent = agents()
    for source in ("startup", "clear", "compact"):
        agent.tell("SessionStart", source=source, cwd="/")
    assert names(governor) == [f"claude-{agent.pid}"]


def test_a_session_counts_beyond_a_full_cap_since_it_runs_already(governor: Governor, agents: Agents) -> None:
    governor.set_pool(POOL, cap=1, adaptive=False)
    with governor.slot(POOL):
        agents().tell("SessionStart", source="startup", cwd="/")
        assert pool(governor).in_use == 2


def test_the_end_of_a_session_gives_everything_back(governor: Governor, agents: Agents) -> None:
    agent = agents()
    agent.tell("SessionStart", source="startup", cwd="/")
    hear(agent.want("t1"))
    assert pool(governor).in_use == 2
    agent.tell("SessionEnd", reason="clear")
    assert pool(governor).in_use == 2
    agent.tell("SessionEnd", reason="prompt_input_exit")
    assert pool(governor).in_use == 0


def test_a_killed_session_leaves_nothing_behind(governor: Governor, agents: Agents) -> None:
    governor.set_pool(POOL, cap=2, adaptive=False)
    agent = agents()
    agent.tell("SessionStart", source="startup", cwd="/")
    hear(agent.want("t1"))
    agent.kill()
    with governor.slot(POOL, slots=2, timeout=LONGEST_S):
        assert pool(governor).in_use == 2


def test_a_subagent_waits_at_the_cap_and_begins_when_another_ends(governor: Governor, agents: Agents) -> None:
    governor.set_pool(POOL, cap=2, adaptive=False)
    agent = agents()
    agent.tell("SessionStart", source="startup", cwd="/")
    assert hear(agent.want("t1")) == ""
    agent.tell("SubagentStart", agent_id="a1", agent_type="Explore")
    second = agent.want("t2", "Plan")
    until(lambda: pool(governor).asks)
    assert [ask.name for ask in pool(governor).asks] == [f"claude-{agent.pid} > subagent Plan"]
    assert not second.done()
    agent.tell("SubagentStop", agent_id="a1", agent_type="Explore")
    assert hear(second) == ""
    assert names(governor) == [f"claude-{agent.pid}", f"claude-{agent.pid} > subagent Plan"]
    assert {lease.pid for lease in pool(governor).leases} == {agent.pid}


def test_a_subagent_for_which_no_slot_comes_is_denied_in_words_for_the_model(
    governor: Governor, agents: Agents
) -> None:
    governor.set_pool(POOL, cap=1, adaptive=False)
    agent = agents(wait="1s")
    agent.tell("SessionStart", source="startup", cwd="/")
    why = denial(hear(agent.want("t1")))
    assert "No slot came free within 1 s" in why
    assert "run_in_background set to false" in why
    assert pool(governor).waiting == 0


def test_a_subagent_that_a_full_usage_window_holds_back_is_not_told_of_full_slots(
    governor: Governor, agents: Agents
) -> None:
    governor.set_pool(POOL, usage_drain=0.8)
    windows = {"five_hour": {"used_percentage": 86, "resets_at": time.time() + 4200}}
    said = json.dumps({"rate_limits": windows, "workspace": {"current_dir": "/"}})
    line = [sys.executable, "-m", "flyball", "statusline"]
    subprocess.run(line, input=said, capture_output=True, text=True, timeout=LONGEST_S, check=True)
    until(lambda: any(each.usage_windows for each in governor.status().pools))
    agent = agents()
    agent.tell("SessionStart", source="startup", cwd="/")
    why = denial(hear(agent.want("t1")))
    assert "a usage window of the account" in why
    assert "every slot" not in why


def test_a_session_that_waits_for_its_one_subagent_lends_it_its_own_slot(
    governor: Governor, agents: Agents
) -> None:
    governor.set_pool(POOL, cap=1, adaptive=False)
    agent = agents(wait="1s")
    agent.tell("SessionStart", source="startup", cwd="/")
    assert hear(agent.want("t1", wait=True)) == ""
    agent.tell("SubagentStart", agent_id="a1", agent_type="Explore")
    assert pool(governor).in_use == 1
    denial(hear(agent.want("t2", wait=True)))
    agent.tell("SubagentStop", agent_id="a1", agent_type="Explore")
    assert hear(agent.want("t3", wait=True)) == ""


def test_a_subagent_of_a_subagent_does_not_ride_on_the_session(governor: Governor, agents: Agents) -> None:
    governor.set_pool(POOL, cap=1, adaptive=False)
    agent = agents(wait="1s")
    agent.tell("SessionStart", source="startup", cwd="/")
    given = {"prompt": "Look.", "run_in_background": False}
    nested = agent.tell("PreToolUse", tool_name="Agent", tool_use_id="t1", tool_input=given, agent_id="a0")
    denial(nested)


def test_a_call_that_comes_to_nothing_gives_its_slot_back(governor: Governor, agents: Agents) -> None:
    agent = agents()
    agent.tell("SessionStart", source="startup", cwd="/")
    hear(agent.want("t1"))
    agent.tell("PostToolUseFailure", tool_name="Agent", tool_use_id="t1")
    assert names(governor) == [f"claude-{agent.pid}"]


def change_record(tmp_path: Path, **changes: object) -> None:
    """What is kept of the one subagent, as another time or a killed hook would have left it."""
    (path,) = (tmp_path / "flyball" / "hooks" / "sessions").glob("*.json")
    record = json.loads(path.read_text())
    record["subagents"][0].update(changes)
    path.write_text(json.dumps(record))


def test_a_subagent_whose_end_was_not_told_gives_its_slot_back_when_the_turn_is_over(
    governor: Governor, agents: Agents, tmp_path: Path
) -> None:
    agent = agents()
    agent.tell("SessionStart", source="startup", cwd="/")
    hear(agent.want("t1"))
    agent.tell("SubagentStart", agent_id="a1", agent_type="Explore")
    change_record(tmp_path, at=0.0)
    agent.tell("Stop", background_tasks=[{"id": "a1", "type": "subagent"}])
    assert len(names(governor)) == 2
    agent.tell("Stop")
    assert len(names(governor)) == 2
    agent.tell("Stop", background_tasks=[])
    assert names(governor) == [f"claude-{agent.pid}"]


def test_the_end_of_a_turn_leaves_those_that_may_have_begun_since(governor: Governor, agents: Agents) -> None:
    agent = agents()
    agent.tell("SessionStart", source="startup", cwd="/")
    for call in ("t1", "t2"):
        hear(agent.want(call))
    agent.tell("SubagentStart", agent_id="a1", agent_type="Explore")
    agent.tell("Stop", background_tasks=[])
    assert len(names(governor)) == 3


def test_the_end_of_a_subagent_whose_begin_was_not_heard_gives_its_slot_back(
    governor: Governor, agents: Agents
) -> None:
    agent = agents()
    agent.tell("SessionStart", source="startup", cwd="/")
    hear(agent.want("t1"))
    agent.tell("SubagentStop", agent_id="a1", agent_type="Explore")
    assert names(governor) == [f"claude-{agent.pid}"]


def test_a_subagent_whose_slot_was_not_handed_over_has_one_all_the_same(
    governor: Governor, agents: Agents, tmp_path: Path
) -> None:
    governor.set_pool(POOL, cap=2, adaptive=False)
    agent = agents()
    agent.tell("SessionStart", source="startup", cwd="/")
    hear(agent.want("t1"))
    change_record(tmp_path, handed_over=False)
    agent.tell("SubagentStart", agent_id="a1", agent_type="Explore")
    assert names(governor) == [f"claude-{agent.pid}", f"claude-{agent.pid} > subagent Explore"]
    agent.tell("SubagentStop", agent_id="a1", agent_type="Explore")
    assert names(governor) == [f"claude-{agent.pid}"]


@pytest.mark.parametrize("after_s", [0.02 * step for step in range(1, 11)])
@pytest.mark.parametrize("killed", ["PreToolUse", "SubagentStart", "SubagentStop"])
def test_a_hook_that_is_killed_loses_no_slot(
    killed: str, after_s: float, governor: Governor, agents: Agents, tmp_path: Path
) -> None:
    governor.set_pool(POOL, cap=2, adaptive=False)
    agent = agents(wait="5s")
    agent.tell("SessionStart", source="startup", cwd="/")
    one = {"agent_id": "a1", "agent_type": "Explore"}
    call = {"tool_name": "Agent", "tool_use_id": "t1", "tool_input": {"subagent_type": "Explore"}}
    for event, payload in (("PreToolUse", call), ("SubagentStart", one), ("SubagentStop", one)):
        argv = [sys.executable, "-P", "-m", "flyball.hooks", "claude", event, "5"]
        hook = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        assert hook.stdin is not None
        hook.stdin.write(json.dumps({**payload, "flyball_pid": agent.pid}).encode())
        hook.stdin.close()
        try:
            hook.wait(after_s if event == killed else LONGEST_S)
        except subprocess.TimeoutExpired:
            hook.kill()
            hook.wait()
        if event == "SubagentStart":
            governor.reap()
            assert len(names(governor)) == 2 or event == killed
    if len(names(governor)) > 1:
        change_record(tmp_path, at=0.0)
        agent.tell("Stop", background_tasks=[])
    assert names(governor) == [f"claude-{agent.pid}"]


def test_a_subagent_that_no_call_wanted_is_counted_when_it_begins(governor: Governor, agents: Agents) -> None:
    governor.set_pool(POOL, cap=1, adaptive=False)
    agent = agents(wait="1s")
    agent.tell("SessionStart", source="startup", cwd="/")
    agent.tell("SubagentStart", agent_id="a1", agent_type="fork")
    assert pool(governor).in_use == 2
    agent.tell("SubagentStop", agent_id="a1", agent_type="fork")
    assert pool(governor).in_use == 1


def test_hooks_installed_while_a_session_runs_count_it_with_its_first_subagent(
    governor: Governor, agents: Agents
) -> None:
    agent = agents()
    hear(agent.want("t1"))
    assert names(governor) == [f"claude-{agent.pid}", f"claude-{agent.pid} > subagent Explore"]


def test_a_session_under_exec_is_not_counted_twice_and_its_subagents_add_to_it(
    governor: Governor, agents: Agents
) -> None:
    lease = governor.acquire(POOL, project="blog", name="t-14")
    agent = agents(env={"FLYBALL_LEASE": variable_value(governor.address, POOL, lease.id)})
    agent.tell("SessionStart", source="startup", cwd="/")
    assert names(governor) == ["t-14"]
    hear(agent.want("t1"))
    assert names(governor) == ["t-14", "t-14 > subagent Explore"]
    assert {each.project for each in pool(governor).leases} == {"blog"}
    agent.tell("SessionEnd", reason="other")
    assert names(governor) == ["t-14"]
    lease.release()


def test_where_the_gateway_counts_the_calls_no_slot_of_the_provider_is_taken(
    governor: Governor, agents: Agents
) -> None:
    agent = agents(env={"FLYBALL_GATEWAY": "1"})
    agent.tell("SessionStart", source="startup", cwd="/")
    assert hear(agent.want("t1")) == ""
    agent.tell("SubagentStart", agent_id="a1", agent_type="Explore")
    assert [each.name for each in governor.status().pools if each.in_use] == ["agents"]
    assert names(governor, "agents") == [f"claude-{agent.pid}"]


def test_a_session_is_not_evidence_for_a_higher_cap(governor: Governor, agents: Agents) -> None:
    governor.set_pool(POOL, cap=1)
    for _ in range(3):
        agent = agents()
        agent.tell("SessionStart", source="startup", cwd="/")
        agent.tell("SessionEnd", reason="other")
    assert pool(governor).cap == 1


def test_a_state_that_cannot_be_used_lets_the_agent_go_on_and_is_logged(
    governor: Governor, agents: Agents, tmp_path: Path
) -> None:
    agent = agents(env={"FLYBALL_URL": "nonsense://"})
    assert agent.tell("SessionStart", source="startup", cwd="/") == ""
    assert hear(agent.want("t1")) == ""
    lines = (tmp_path / "flyball" / "hooks" / "log").read_text().splitlines()
    assert len(lines) == 2
    assert "claude SessionStart: UsageError: cannot use" in lines[0]


@pytest.mark.parametrize("payload", ["", "[]", "{", "null", '{"cwd": 1, "tool_input": []}'])
@pytest.mark.parametrize("event", ["SessionStart", "PreToolUse", "SubagentStop", "Nonsense"])
def test_an_odd_payload_never_breaks_an_agent(event: str, payload: str, person: Path) -> None:
    argv = [sys.executable, "-P", "-m", "flyball.hooks", "claude", event, "1"]
    done = subprocess.run(argv, input=payload, capture_output=True, text=True, timeout=LONGEST_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_flyball_that_is_gone_is_not_an_error_of_the_agents(person: Path, agents: Agents) -> None:
    agent = agents()
    (group,) = agent.settings["SessionStart"]
    group["hooks"][0]["command"] = group["hooks"][0]["command"].replace(sys.executable, "/nowhere/python")
    assert agent.tell("SessionStart", source="startup") == ""


def test_records_of_dead_sessions_are_swept_up(governor: Governor, agents: Agents, tmp_path: Path) -> None:
    records = tmp_path / "flyball" / "hooks" / "sessions"
    first = agents()
    first.tell("SessionStart", source="startup", cwd="/")
    first.kill()
    second = agents()
    second.tell("SessionStart", source="startup", cwd="/")
    assert [path.name.split(".")[2] for path in records.glob("*.json")] == [str(second.pid)]


def test_off_switches_the_hooks_off(governor: Governor, agents: Agents) -> None:
    agents(env={"FLYBALL_HOOKS": "off"}).tell("SessionStart", source="startup", cwd="/")
    assert not os.path.exists(str(governor.place).removeprefix("sqlite://"))


def test_status_and_why_show_subagents_under_their_session(
    governor: Governor, agents: Agents, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    governor.set_pool(POOL, cap=3, adaptive=False)
    other = governor.acquire(POOL, project="zoo", name="t-1")
    agent = agents()
    (tmp_path / "blog").mkdir()
    agent.tell("SessionStart", source="startup", cwd=str(tmp_path / "blog"))
    hear(agent.want("t1"))
    waiting = agent.want("t2", "Plan")
    until(lambda: pool(governor).asks)
    session = f"claude-{agent.pid}"
    capsys.readouterr()
    main(["status"])
    lines = capsys.readouterr().out.splitlines()
    place = next(number for number, line in enumerate(lines) if line.strip().startswith(f"blog/{session} "))
    assert lines[place + 1].strip().startswith("> subagent Explore ")
    assert any(f"blog/{session} > subagent Plan" in line for line in lines)
    main(["status", "--json"])
    (said,) = [each for each in json.loads(capsys.readouterr().out)["pools"] if each["name"] == POOL]
    parents = {each["name"]: each["parent"] for each in (*said["leases"], *said["asks"])}
    assert parents == {
        "t-1": None,
        session: None,
        f"{session} > subagent Explore": session,
        f"{session} > subagent Plan": session,
    }
    main(["why", session])
    told = capsys.readouterr().out
    assert f"blog/{session} runs" in told
    assert f"blog/{session} > subagent Explore runs" in told
    assert f"blog/{session} > subagent Plan waits" in told
    other.release()
    assert hear(waiting) == ""


def test_a_subagent_begins_without_a_look_at_the_state_where_its_call_has_waited(
    governor: Governor, agents: Agents
) -> None:
    agent = agents()
    agent.tell("SessionStart", source="startup", cwd="/")
    hear(agent.want("t1"))
    payload = {"agent_id": "a1", "agent_type": "Explore", "flyball_pid": agent.pid}
    argv = [sys.executable, "-X", "importtime", "-P", "-m", "flyball.hooks", "claude", "SubagentStart", "5"]
    done = subprocess.run(
        argv, input=json.dumps(payload), capture_output=True, text=True, timeout=LONGEST_S, check=True
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "flyball.hooks.sensor" in imported
    assert not {"sqlite3", "asyncio", "flyball.governor.governor", "argparse", "ast"} & imported
    agent.tell("SubagentStop", agent_id="a1", agent_type="Explore")
    assert names(governor) == [f"claude-{agent.pid}"]
