"""The real agents with a key: each of their calls has a slot, and none of them sees a refusal."""

from __future__ import annotations

import json
import os
import signal

import pytest

from flyball.sim.provider.dialect import ANSWER
from tests.agents.bench import Benches, finished, until
from tests.agents.kit import Agent, Claude, ClaudeOnSubscription, Codex, Gemini, Opencode

four = pytest.mark.parametrize(
    "agent", [Claude(), Codex(), Gemini(), Opencode()], ids=lambda agent: agent.name
)


class ClaudeWithSubagents(Claude):
    """Its model answers with so many subagents at once."""

    def __init__(self, count: int) -> None:
        self.count = count

    def argv(self) -> list[str]:
        prompt = f"errand: delegate {self.count} general-purpose = Say hello."
        return ["claude", "-p", prompt, *super().argv()[3:], "--permission-mode", "acceptEdits"]


@four
def test_its_call_holds_a_slot_of_the_provider_and_the_agent_one_of_the_machines(
    agent: Agent, bench_of: Benches
) -> None:
    bench = bench_of(counts="auto")
    process = bench.start(agent, "--project", "blog", "--name", "t-1")
    until(lambda: bench.pool(agent.pool).get("in_use"), "its call has a slot", while_runs=process)
    (call,) = bench.pool(agent.pool)["leases"]
    (whole,) = bench.pool("agents")["leases"]
    assert (call["project"], call["name"]) == (whole["project"], whole["name"]) == ("blog", "t-1")
    bench.door.set()
    done = finished(process)
    assert done.code == 0, done.stderr
    assert agent.answer(done.stdout) == ANSWER
    assert done.said == []
    assert bench.pool(agent.pool)["in_use"] == 0
    assert bench.pool("agents")["in_use"] == 0


@four
def test_a_refusal_is_waited_out_at_the_gateway_and_the_agent_does_not_see_it(
    agent: Agent, bench_of: Benches
) -> None:
    bench = bench_of("429:1", counts="auto")
    bench.door.set()
    done = bench.run(agent, retries=0)
    assert done.code == 0, done.stderr
    assert agent.answer(done.stdout) == ANSWER
    assert done.said == []
    assert bench.provider.tally().rejected == 1
    assert bench.pool(agent.pool)["throttle_count"] == 1


def test_the_calls_of_one_claude_and_its_subagents_are_never_more_than_the_cap(bench_of: Benches) -> None:
    bench, agent = bench_of(capacity="64", counts="auto", paced=True), ClaudeWithSubagents(24)
    bench.flyball("pool", "set", "anthropic", "--cap", "2", "--static")
    done = bench.run(agent)
    assert done.code == 0, done.stderr
    tally = bench.provider.tally()
    assert tally.accepted > 20  # it runs 20 at once by itself, and says no to the others
    assert tally.peak_inside == 2


def test_a_login_is_left_alone_and_holds_a_slot_as_long_as_it_lives(bench_of: Benches) -> None:
    bench, agent = bench_of(counts="auto"), ClaudeOnSubscription()
    process = bench.start(agent)
    until(lambda: bench.heard, "it has asked", while_runs=process)
    assert bench.pool("anthropic")["in_use"] == 1
    assert bench.pool("agents") == {}
    bench.door.set()
    assert finished(process).code == 0


@four
def test_a_killed_gateway_costs_the_agent_no_more_than_one_try(agent: Agent, bench_of: Benches) -> None:
    bench = bench_of(counts="auto")
    process = bench.start(agent, retries=5)
    until(lambda: bench.provider.tally().inside, "its call is under way", while_runs=process)
    os.kill(json.loads(bench.flyball("gateway", "status", "--json"))["pid"], signal.SIGKILL)
    bench.door.set()
    done = finished(process)
    assert done.code == 0, done.stderr
    assert agent.answer(done.stdout) == ANSWER
    assert bench.pool(agent.pool)["in_use"] == 0
