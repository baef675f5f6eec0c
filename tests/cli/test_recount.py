"""The doctor's recount, over any store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from flyball.core.pool.model import PoolCounts, ProjectUse
from flyball.governor.governor import Governor
from flyball.governor.internals import internals
from flyball.stores.operations import StoreOperations
from flyball.stores.recount import CountMismatch


@pytest.fixture(params=["memory", "sqlite"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Governor]:
    governor = Governor("memory:" if request.param == "memory" else f"sqlite://{tmp_path}/state.db")
    yield governor
    governor.close()


def test_counts_are_right_by_themselves(either: Governor) -> None:
    either.hold(os.getpid(), "anthropic", project="blog", name="t-1", slots=3)
    assert internals(either).store.miscounts() == []
    assert internals(either).recount() == []


def test_wrong_counts_are_named_and_set_right(either: Governor) -> None:
    either.hold(os.getpid(), "anthropic", project="blog", name="t-1", slots=3)
    store = internals(either).store
    assert isinstance(store, StoreOperations)
    with store._write() as rows:
        rows.put_counts("anthropic", PoolCounts(9, 3, 0), [ProjectUse("blog", in_use=3, waiting=4)])
    wrong = [
        CountMismatch("anthropic", "", "in_use", 9, 3),
        CountMismatch("anthropic", "blog", "waiting", 4, 0),
    ]
    assert internals(either).store.miscounts() == wrong
    assert internals(either).recount() == wrong
    assert internals(either).store.miscounts() == []
    assert either.status().pools[0].in_use == 3
