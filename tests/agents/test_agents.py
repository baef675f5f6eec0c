"""The real claude, codex, gemini and opencode under ``flyball exec``, on the loopback only."""

from __future__ import annotations

import pytest

from flyball.sim.provider.dialect import ANSWER
from tests.agents.bench import Benches, finished, until
from tests.agents.kit import (
    Agent,
    Claude,
    ClaudeOnSubscription,
    Codex,
    Gemini,
    GeminiChoosing,
    Opencode,
    OpencodeNaming,
)

THROTTLED = "flyball: limited: the provider throttled it (429)"
OVERLOADED = "flyball: limited: the provider is overloaded"
CREDIT = "flyball: limited: the credit is used up"
WINDOW = "flyball: limited: the usage window"

four = pytest.mark.parametrize(
    "agent", [Claude(), Codex(), Gemini(), Opencode()], ids=lambda agent: agent.name
)
outspoken = pytest.mark.parametrize("agent", [Claude(), Codex(), Gemini()], ids=lambda agent: agent.name)


@four
def test_a_plain_run_finishes_and_its_output_comes_through(agent: Agent, bench_of: Benches) -> None:
    bench = bench_of()
    bench.door.set()
    done = bench.run(agent)
    assert done.code == 0, done.stderr
    assert agent.answer(done.stdout) == ANSWER
    assert done.said == []
    pool = bench.pool(agent.pool)
    assert (pool["throttle_count"], pool["in_use"]) == (0, 0)


@pytest.mark.parametrize(
    "agent", [GeminiChoosing(), OpencodeNaming()], ids=lambda agent: type(agent).__name__
)
def test_a_side_call_is_served_beside_the_real_one(agent: Agent, bench_of: Benches) -> None:
    bench = bench_of()
    bench.door.set()
    done = bench.run(agent)
    assert done.code == 0, done.stderr
    assert agent.answer(done.stdout) == ANSWER
    assert sorted(bool(each.get("tools")) for each in bench.heard) == [False, True]


@outspoken
def test_a_throttle_shows_while_the_agent_runs_and_counts_once(agent: Agent, bench_of: Benches) -> None:
    bench = bench_of("429:1")
    process = bench.start(agent, retries=1)
    until(lambda: bench.pool(agent.pool).get("throttle_count"), "the throttle in status", while_runs=process)
    assert process.poll() is None
    assert bench.pool(agent.pool)["in_use"] == 1
    bench.door.set()
    done = finished(process)
    assert done.code == 0, done.stderr
    assert agent.answer(done.stdout) == ANSWER
    assert done.said == []
    assert bench.pool(agent.pool)["throttle_count"] == 1


def test_opencode_waits_out_a_throttle_in_silence_and_flyball_does_not_see_it(bench_of: Benches) -> None:
    """It prints nothing about its own retries. Once it does, it belongs with the outspoken ones above."""
    bench, agent = bench_of("429:1"), Opencode()
    bench.door.set()
    done = bench.run(agent)
    assert done.code == 0, done.stderr
    assert agent.answer(done.stdout) == ANSWER
    assert bench.provider.tally().rejected == 1
    assert bench.pool(agent.pool)["throttle_count"] == 0


@four
def test_a_limited_run_is_75_one_line_and_counted_once(agent: Agent, bench_of: Benches) -> None:
    bench = bench_of("429:1x*")
    done = bench.run(agent)
    assert done.code == 75, done.stderr
    (line,) = done.said
    assert line.startswith(THROTTLED)
    assert bench.pool(agent.pool)["throttle_count"] == 1


@pytest.mark.parametrize(
    ("agent", "script", "words"),
    [
        pytest.param(agent, script, words, id=f"{agent.name}-{script.partition(':')[0].removesuffix('x*')}")
        for agent, script, words in (
            (Claude(), "529:1x*", OVERLOADED),
            (Claude(), "creditx*", CREDIT),
            (ClaudeOnSubscription(), "window:7200x*", f"{WINDOW} (5h) is used up, retry after 2 h"),
            (Codex(), "529:1x*", OVERLOADED),
            (Codex(), "creditx*", CREDIT),
            (Codex(), "window:7200x*", WINDOW),
            (Gemini(), "529:1x*", OVERLOADED),
            (Gemini(), "window:7200x*", WINDOW),
            (Opencode(), "529:1x*", OVERLOADED),
            (Gemini(), "creditx*", CREDIT),
            (Opencode(), "creditx*", CREDIT),
        )
    ],
)
def test_the_line_says_which_limit_it_was(agent: Agent, script: str, words: str, bench_of: Benches) -> None:
    done = bench_of(script).run(agent)
    assert done.code == 75, done.stderr
    *_, line = done.said  # behind what it may say of how full a window is
    assert line.startswith(words)


@four
def test_a_bad_key_is_a_failure_and_no_limit(agent: Agent, bench_of: Benches) -> None:
    bench = bench_of("401x*")
    done = bench.run(agent)
    assert done.code not in (0, 75)
    (line,) = done.said
    assert line.startswith("flyball: failed: ")
    assert bench.pool(agent.pool)["throttle_count"] == 0
