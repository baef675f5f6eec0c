"""The real agents are here after ``make agents``; without them these tests are skipped, and say so.

``make test-agents`` runs them. ``make test`` leaves them out, installed or not. With ``FLYBALL_WRITE_TABLE``
set, what they saw goes into the docs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import cast

import pytest

from tests.agents.bench import Bench, Benches
from tests.agents.kit import BIN
from tests.agents.table import PAGE, PROPERTY, Seen, installed, page

seen: list[Seen] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    absent = pytest.mark.skip(reason="the real agents are not installed: run `make test-agents`")
    is_here = BIN.is_dir()
    for item in items:
        if item.nodeid.startswith("tests/agents/"):
            item.add_marker(pytest.mark.agents)
            if not is_here:
                item.add_marker(absent)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    for name, told in report.user_properties if report.when == "call" else ():
        if name == PROPERTY:
            scenario, agent, words = cast("Sequence[str]", told)
            seen.append(Seen(scenario, agent, words, line=report.location[1] or 0))


def pytest_sessionfinish(exitstatus: int) -> None:
    """A run that failed anywhere tells nothing worth keeping, and a worker of it saw a part only."""
    whole = exitstatus == 0 and "PYTEST_XDIST_WORKER" not in os.environ
    if seen and whole and os.environ.get("FLYBALL_WRITE_TABLE"):
        PAGE.write_text(page(seen, installed()), encoding="utf-8")


@pytest.fixture
def bench_of(tmp_path: Path) -> Iterator[Benches]:
    """Makes the bench of a test, by the provider's script and capacity."""
    with ExitStack() as stack:

        def make(
            script: str = "", *, capacity: str = "8", counts: str = "agents", paced: bool = False
        ) -> Bench:
            bench = Bench(tmp_path, script, capacity, counts=counts, paced=paced)
            stack.enter_context(bench.provider)
            stack.callback(bench.close)
            return bench

        yield make
