"""What only claude is asked for: to go on with its session, and to share a narrow provider with itself."""

from __future__ import annotations

import json

from flyball.sim.provider.dialect import ANSWER
from tests.agents.bench import Benches, finished, until
from tests.agents.kit import PROMPT, Claude, ClaudeOnSubscription, events


def test_a_limited_run_waits_for_the_reset_and_goes_on_with_its_session(bench_of: Benches) -> None:
    bench = bench_of("window:3")
    bench.door.set()
    done = bench.run(ClaudeOnSubscription(), "--retry-limited", "1")
    assert done.code == 0, done.stderr
    (again,) = (line for line in done.said if "trying again in" in line)
    assert "(1 of 1)" in again
    started = [each["session_id"] for each in events(done.stdout) if each.get("subtype") == "init"]
    assert len(started) == 2
    assert len(set(started)) == 1
    resumed = json.dumps(bench.heard[-1]["messages"])
    assert PROMPT in resumed
    assert "Continue." in resumed


def test_four_at_once_on_a_provider_for_two_all_finish_and_the_cap_adapts(bench_of: Benches) -> None:
    bench = bench_of(capacity="2")
    bench.flyball("pool", "set", "anthropic", "--cap", "4")
    running = [bench.start(Claude(), retries=8) for _ in range(4)]
    until(lambda: bench.provider.tally().rejected >= 2, "two are refused", while_runs=running[0])
    bench.door.set()
    for process in running:
        done = finished(process)
        assert done.code == 0, done.stderr
        assert Claude().answer(done.stdout) == ANSWER
    tally, pool = bench.provider.tally(), bench.pool("anthropic")
    assert (tally.accepted, tally.peak_inside) == (4, 2)
    assert pool["throttle_count"] >= 1
    assert 1 <= pool["cap"] < 4
    assert pool["in_use"] == 0
