"""The real agents, started plainly, with flyball's hooks in their settings."""

from __future__ import annotations

import time

from flyball.hooks.subagents import SETTLED_S
from flyball.sim.provider.dialect import ANSWER
from tests.agents.bench import FLYBALL, Benches, finished, until
from tests.agents.kit import PROMPT, Agent, Claude
from tests.agents.one_line import PROJECTS, Home
from tests.agents.plainly import KINDS, Plainly, beside, calls_of_subagents, delegate, four, in_the_call


@four
def test_a_session_that_is_started_plainly_is_in_status_and_leaves_it_at_its_end(
    agent: Agent, bench_of: Benches
) -> None:
    bench = bench_of()
    plainly = Plainly(bench, agent)
    process = plainly.start(PROMPT)
    until(lambda: bench.heard, "its first call", while_runs=process)
    assert plainly.names() == [agent.name]
    bench.door.set()
    done = finished(process)
    assert done.code == 0, done.stderr
    assert agent.answer(done.stdout) == ANSWER
    assert plainly.names() == []


@in_the_call
def test_a_subagent_that_its_session_waits_for_needs_no_second_slot(agent: Agent, bench_of: Benches) -> None:
    bench = bench_of()
    bench.flyball("pool", "set", agent.pool, "--cap", "1", "--static")
    bench.closes_after = 1
    bench.door.set()
    plainly = Plainly(bench, agent, wait="5s")
    process = plainly.start(delegate(agent, 1, wait=True))
    until(lambda: calls_of_subagents(bench.heard), "the subagent's call", while_runs=process)
    assert plainly.names() == [agent.name]
    bench.closes_after = None
    bench.door.set()
    done = finished(process)
    assert done.code == 0, done.stderr
    assert agent.answer(done.stdout).endswith(ANSWER)
    assert bench.provider.tally().peak_inside == 1


@beside
def test_subagents_beside_a_session_wait_at_the_cap(agent: Agent, bench_of: Benches) -> None:
    bench = bench_of()
    bench.flyball("pool", "set", agent.pool, "--cap", "2", "--static")
    plainly = Plainly(bench, agent)
    bench.closes_after = 1
    bench.door.set()
    process = plainly.start(delegate(agent, 2))
    kind = KINDS[agent.name]
    until(lambda: f"{agent.name} > subagent {kind}" in plainly.names(), "a subagent", while_runs=process)
    bench.closes_after = None
    bench.door.set()
    done = finished(process)
    assert done.code == 0, done.stderr
    assert plainly.names() == []
    assert bench.provider.tally().peak_inside <= 2


def test_eight_subagents_of_a_claude_make_no_more_calls_at_once_than_the_cap(bench_of: Benches) -> None:
    bench, agent = bench_of(), Claude()
    bench.flyball("pool", "set", agent.pool, "--cap", "3", "--static")
    plainly = Plainly(bench, agent)
    bench.closes_after = 1
    bench.door.set()
    process = plainly.start(f"errand: delegate 8 {KINDS['claude']} = Say that you are done.")
    until(lambda: len(plainly.names("asks")) == 6, "six subagents in line", while_runs=process)
    session, sub = "claude", f"claude > subagent {KINDS['claude']}"
    assert plainly.names() == [session, sub, sub]
    assert plainly.names("asks") == [sub] * 6
    bench.closes_after = None
    bench.door.set()
    done = finished(process)
    assert done.code == 0, done.stderr
    assert len(calls_of_subagents(bench.heard)) >= 8
    assert bench.provider.tally().peak_inside <= 3
    assert plainly.names() == []


def test_a_claude_that_gets_no_slot_for_a_subagent_is_told_why_and_goes_on(bench_of: Benches) -> None:
    bench, agent = bench_of(), Claude()
    bench.flyball("pool", "set", agent.pool, "--cap", "1", "--static")
    bench.door.set()
    plainly = Plainly(bench, agent, wait="1s")
    done = finished(plainly.start(delegate(agent, 1)))
    assert done.code == 0, done.stderr
    assert agent.answer(done.stdout) == ANSWER
    assert calls_of_subagents(bench.heard) == []
    assert "flyball holds this subagent back" in str(bench.heard[-1])
    assert "run_in_background set to false" in str(bench.heard[-1])


def test_the_subagents_of_a_claude_under_exec_add_to_its_slot(bench_of: Benches) -> None:
    bench, agent = bench_of(), Claude()
    plainly = Plainly(bench, agent)
    bench.flyball("pool", "set", agent.pool, "--cap", "4", "--static", "--counts", "agents")
    bench.closes_after = 1
    bench.door.set()
    words = [delegate(agent, 1) if word == PROMPT else word for word in agent.argv()]
    argv = [*FLYBALL, "exec", "--name", "t-1", "--", *words]
    process = bench.spawn(argv, env=plainly.env, folder=plainly.folder)
    until(lambda: len(plainly.names()) == 2, "a subagent", while_runs=process)
    names = sorted(each["name"] for each in bench.pool(agent.pool)["leases"])
    assert names == ["t-1", f"t-1 > subagent {KINDS['claude']}"]
    bench.closes_after = None
    bench.door.set()
    done = finished(process)
    assert done.code == 0, done.stderr
    assert plainly.names() == []


def test_subagents_that_a_person_stops_give_their_slots_back_when_a_turn_is_over(bench_of: Benches) -> None:
    bench = bench_of()
    bench.door.set()
    (terminal,) = Home(bench).open_terminals(projects=PROJECTS[:1])

    def held() -> int:
        return len(bench.pool("anthropic").get("leases", ()))

    long_run = "errand: run python3 -c 'import time; time.sleep(300)'"
    terminal.ask(f"errand: delegate 2 general-purpose = {long_run}", 1)
    time.sleep(SETTLED_S)
    terminal.ask("Say that you are done", 2)
    assert held() == 3
    terminal.stop_subagents()
    terminal.ask("Say that you are done", 3)
    until(lambda: held() == 1, "the session's own slot alone", while_runs=terminal.process)
    terminal.leave()
    assert held() == 0


def test_a_claude_whose_calls_the_gateway_counts_takes_no_slot_of_the_provider(bench_of: Benches) -> None:
    bench, agent = bench_of(), Claude()
    plainly = Plainly(bench, agent, FLYBALL_GATEWAY="1")
    process = plainly.start(PROMPT)
    until(lambda: bench.heard, "its first call", while_runs=process)
    assert plainly.names() == []
    assert len(bench.pool("agents")["leases"]) == 1
    bench.door.set()
    assert finished(process).code == 0


@four
def test_hooks_that_are_removed_again_leave_no_trace(agent: Agent, bench_of: Benches) -> None:
    bench = bench_of()
    plainly = Plainly(bench, agent)
    plainly.flyball("hooks", "remove", agent.name)
    bench.door.set()
    done = finished(plainly.start(PROMPT))
    assert done.code == 0, done.stderr
    assert bench.pool(agent.pool)["hold_mean_s"] is None, "a slot was held"
