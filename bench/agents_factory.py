"""The factory with the real claude under a hidden limit: what is merged in an hour, by what its pool counts.

Agents here use tools most of their time, as real ones do. The tasks, the provider and the machine are the
same; only ``counts`` differs.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from bench.agents_run import TOKENS
from bench.fleet import BenchError
from bench.homes import scratch
from flyball.sim.provider.server import Manner
from tests.agents.bench import Bench
from tests.agents.factory_site import FactorySite
from tests.agents.kit import Claude

COUNTS = ("calls", "agents")
_RETRIES = 10
_LIMIT_S = 400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tasks:
    """``steps``: an agent's tool runs before it writes its file; one call each, and two more."""

    count: int
    steps: int
    tool_s: float
    call_s: float
    capacity: str
    retry_after_s: float


@dataclass(frozen=True, slots=True)
class Merges:
    """A run that is over."""

    wall_s: float
    merged: int
    refused: int
    """As the provider counted."""

    @property
    def per_hour(self) -> float:
        return 3600 * self.merged / self.wall_s


def merge(tasks: Tasks, counts: str) -> Merges:
    manner = Manner(tokens_per_s=TOKENS / tasks.call_s, retry_after_s=tasks.retry_after_s)
    # `calls` is what `auto` makes of an agent with a key, and it stands in no pool of its own.
    named = "auto" if counts == "calls" else counts
    with scratch() as home:
        bench = Bench(home, "", tasks.capacity, counts=named, paced=True, manner=manner)
        with bench.provider:
            try:
                return _run(_site(bench, tasks), tasks, bench)
            finally:
                bench.close()


def _site(bench: Bench, tasks: Tasks) -> FactorySite:
    site = FactorySite(bench, Claude(), retries=_RETRIES, args=("--allowedTools=Bash",), confirm=None)
    site.configure(run={"width": tasks.count})
    for number in range(1, tasks.count + 1):
        name = f"t-{number}"
        steps = [f"run sleep {tasks.tool_s:g} && echo step {step}" for step in range(tasks.steps)]
        errands = [*steps, f"write pages/{name}.txt = {number}"]
        body = "\n".join(["Do this, please.", *(f"errand: {each}" for each in errands)])
        site.task(name, body=body, commit=False)
    site.commit("tasks")
    return site


def _run(site: FactorySite, tasks: Tasks, bench: Bench) -> Merges:
    bench.provider.open()
    begun = time.monotonic()
    ran = site.run("--json", timeout_s=_LIMIT_S)
    wall_s = time.monotonic() - begun
    merged = len(ran.json["merged"])
    if merged != tasks.count:
        raise BenchError(f"{merged} of {tasks.count} tasks were merged: {ran.said[-2000:]}")
    return Merges(wall_s, merged, bench.provider.tally().rejected)
