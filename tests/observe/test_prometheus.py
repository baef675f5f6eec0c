"""The text that Prometheus reads, read by its own parser."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from flyball.observe.metrics import HTTP_REFUSALS, METRICS, POOL_CAP, POOL_WAIT, MetricRegistry
from flyball.observe.prometheus import text


def parsed(registry: MetricRegistry) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    return {
        sample.name: {
            tuple(sorted(each.labels.items())): each.value
            for each in family.samples
            if each.name == sample.name
        }
        for family in text_string_to_metric_families(text(registry))
        for sample in family.samples
    }


def test_every_metric_is_declared_even_before_anything_was_counted() -> None:
    said = text(MetricRegistry())
    for metric in METRICS:
        assert f"# TYPE {metric.name} {metric.kind.value}\n" in said
        assert f"# HELP {metric.name} {metric.help}\n" in said
    assert {family.name for family in text_string_to_metric_families(said)} == {
        metric.name.removesuffix("_total") for metric in METRICS
    }


@given(name=st.text(max_size=20), value=st.floats(0, 1e12))
def test_any_name_survives(name: str, value: float) -> None:
    registry = MetricRegistry()
    registry.set(POOL_CAP, [({"pool": name}, value)])
    assert parsed(registry)["flyball_pool_cap"] == {(("pool", name),): value}


def test_a_histogram_is_cumulative_and_ends_in_infinity() -> None:
    registry = MetricRegistry()
    for waited_s in (0.001, 0.3, 0.3, 9_999.0):
        registry.observe(POOL_WAIT, waited_s, pool="p", tenant="t")
    found = parsed(registry)
    buckets = {
        dict(labels)["le"]: count for labels, count in found["flyball_pool_wait_seconds_bucket"].items()
    }
    assert (buckets["0.01"], buckets["1.0" if "1.0" in buckets else "1"], buckets["+Inf"]) == (1, 3, 4)
    assert sum(found["flyball_pool_wait_seconds_count"].values()) == 4
    assert abs(sum(found["flyball_pool_wait_seconds_sum"].values()) - 9_999.601) < 1e-6


def test_counters_are_told_as_they_are() -> None:
    registry = MetricRegistry()
    registry.add(HTTP_REFUSALS, 3, reason="no-token")
    assert parsed(registry)["flyball_http_refusals_total"] == {(("reason", "no-token"),): 3.0}
