"""Counting: bounded labels, gauges that forget, histograms that add up, from any thread."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.errors import InvariantError
from flyball.observe.metrics import (
    HTTP_DECISION,
    HTTP_GRANTS,
    HTTP_REFUSALS,
    METRICS,
    MOST,
    OTHER,
    POOL_CAP,
    POOL_WAIT,
    MetricKind,
    MetricRegistry,
)


def test_a_label_beyond_its_bound_is_other_and_stays_it() -> None:
    registry = MetricRegistry()
    for number in range(MOST["tenant"] + 10):
        registry.add(HTTP_GRANTS, pool="p", tenant=f"t{number}")
    registry.add(HTTP_GRANTS, pool="p", tenant=f"t{MOST['tenant'] + 5}")
    assert registry.number(HTTP_GRANTS, pool="p", tenant=OTHER) == 11
    assert registry.number(HTTP_GRANTS, pool="p", tenant="t3") == 1


def test_gauges_beyond_the_bound_add_up() -> None:
    registry = MetricRegistry()
    registry.set(POOL_CAP, [({"pool": f"p{number}"}, 2.0) for number in range(MOST["pool"] + 3)])
    assert registry.number(POOL_CAP, pool=OTHER) == 6


def test_a_gauge_forgets_what_is_not_named_any_more() -> None:
    registry = MetricRegistry()
    registry.set(POOL_CAP, [({"pool": "a"}, 2.0), ({"pool": "b"}, 3.0)])
    registry.set(POOL_CAP, [({"pool": "b"}, 4.0)])
    (family,) = [family for family in registry.families() if family.metric is POOL_CAP]
    assert family.numbers == {("b",): 4.0}


def test_wrong_labels_are_a_bug() -> None:
    registry = MetricRegistry()
    with pytest.raises(InvariantError):
        registry.add(HTTP_REFUSALS, pool="p")
    with pytest.raises(InvariantError):
        registry.add(HTTP_REFUSALS, -1, reason="x")
    with pytest.raises(InvariantError):
        registry.observe(HTTP_REFUSALS, 1.0, reason="x")


@given(values=st.lists(st.floats(0, 1e6), max_size=30))
def test_a_histogram_counts_every_value_once(values: list[float]) -> None:
    registry = MetricRegistry()
    for value in values:
        registry.observe(POOL_WAIT, value, pool="p", tenant="t")
    (family,) = [family for family in registry.families() if family.metric is POOL_WAIT]
    for found in family.histograms.values():
        assert found.count == len(values)
        for bound, count in zip(POOL_WAIT.buckets, _below(found.counts), strict=False):
            assert count == sum(value <= bound for value in values)


def _below(counts: list[int]) -> list[int]:
    return [sum(counts[: place + 1]) for place in range(len(counts))]


def test_threads_lose_nothing() -> None:
    registry = MetricRegistry()

    def work(_: int) -> None:
        for _ in range(500):
            registry.add(HTTP_REFUSALS, reason="x")
            registry.observe(HTTP_DECISION, 0.1, endpoint="e", tenant="t")

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    assert registry.number(HTTP_REFUSALS, reason="x") == 2000


def test_the_list_is_well_formed() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        assert metric.name.startswith("flyball_")
        assert metric.help.endswith(".")
        assert set(metric.labels) <= set(MOST)
        assert bool(metric.buckets) == (metric.kind is MetricKind.HISTOGRAM)
        assert list(metric.buckets) == sorted(metric.buckets)
        assert metric.name.endswith("_total") == (metric.kind is MetricKind.COUNTER)
