"""The real agents are here after ``make agents``; without them these tests are skipped, and say so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.agents.bench import Bench, Benches
from tests.agents.kit import BIN


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    absent = pytest.mark.skip(reason="the real agents are not installed: run `make agents`")
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.agents)
            if not BIN.is_dir():
                item.add_marker(absent)


@pytest.fixture
def bench_of(tmp_path: Path) -> Iterator[Benches]:
    """Makes the bench of a test, by the provider's script and capacity."""
    with ExitStack() as stack:

        def make(script: str = "", *, capacity: str = "8") -> Bench:
            bench = Bench(tmp_path, script, capacity)
            stack.enter_context(bench.provider)
            stack.callback(bench.close)
            return bench

        yield make
