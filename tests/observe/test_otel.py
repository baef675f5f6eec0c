"""OpenTelemetry: the same numbers and a span per request, told to the SDK's own exporters in memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from flyball.errors import UsageError
from flyball.observe.metrics import HTTP_DECISION, HTTP_REFUSALS, METRICS, POOL_CAP, MetricRegistry
from flyball.observe.otel import Telemetry, from_environment, otel_name
from flyball.observe.otel_wanted import is_wanted


class Ears:
    """A telemetry that tells what it would have exported."""

    def __init__(self) -> None:
        self.registry, self._reader, self._spans = (
            MetricRegistry(),
            InMemoryMetricReader(),
            InMemorySpanExporter(),
        )
        self.telemetry = Telemetry(
            self.registry, readers=[self._reader], processors=[SimpleSpanProcessor(self._spans)]
        )

    def points(self, name: str) -> list[Any]:
        data = self._reader.get_metrics_data()
        found = [
            metric
            for resource in (data.resource_metrics if data else [])
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
        ]
        return [point for metric in found for point in metric.data.data_points]

    def spans(self) -> list[Any]:
        return list(self._spans.get_finished_spans())


@pytest.fixture
def ears() -> Iterator[Ears]:
    found = Ears()
    yield found
    found.telemetry.close()


def test_counters_and_gauges_are_read_from_the_registry(ears: Ears) -> None:
    ears.registry.add(HTTP_REFUSALS, 3, reason="no-token")
    ears.registry.set(POOL_CAP, [({"pool": "anthropic"}, 8.0)])
    (refusals,) = ears.points("flyball.http.refusals")
    (cap,) = ears.points("flyball.pool.cap")
    assert (refusals.value, dict(refusals.attributes)) == (3, {"reason": "no-token"})
    assert (cap.value, dict(cap.attributes)) == (8, {"pool": "anthropic"})


def test_histograms_have_the_buckets_of_the_list(ears: Ears) -> None:
    ears.registry.observe(HTTP_DECISION, 0.002, endpoint="GET /v1/status", tenant="-")
    (point,) = ears.points("flyball.http.decision")
    assert tuple(point.explicit_bounds) == HTTP_DECISION.buckets
    assert (point.count, point.sum) == (1, 0.002)


def test_every_name_is_its_own() -> None:
    names = [otel_name(metric) for metric in METRICS]
    assert len(set(names)) == len(names)


def test_a_request_is_a_span_and_belongs_to_the_trace_it_names(ears: Ears) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    span = ears.telemetry.begin("GET", {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"})
    span.end("/v1/pools/{pool}", 200)
    (told,) = ears.spans()
    assert told.name == "GET /v1/pools/{pool}"
    assert told.kind is SpanKind.SERVER
    assert f"{told.context.trace_id:032x}" == trace
    assert told.attributes["http.response.status_code"] == 200
    assert told.resource.attributes["service.name"] == "flyball"


def test_a_failure_of_ours_is_an_error_and_a_refusal_is_none(ears: Ears) -> None:
    for status in (403, 503):
        ears.telemetry.begin("GET", {}).end("/v1/status", status)
    assert [span.status.status_code for span in ears.spans()] == [
        StatusCode.UNSET,
        StatusCode.ERROR,
    ]


def test_nothing_is_told_after_it_was_closed() -> None:
    ears = Ears()
    ears.telemetry.close()
    ears.registry.observe(HTTP_DECISION, 0.002, endpoint="e", tenant="-")
    assert ears.registry.mirrors == []


def test_an_unknown_exporter_is_refused() -> None:
    with pytest.raises(UsageError, match="OTEL_TRACES_EXPORTER"):
        from_environment(
            MetricRegistry(), {"OTEL_TRACES_EXPORTER": "zipkin", "OTEL_METRICS_EXPORTER": "none"}
        )


def test_none_exports_nothing() -> None:
    telemetry = from_environment(
        MetricRegistry(), {"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"}
    )
    telemetry.begin("GET", {}).end("/", 200)
    telemetry.close()


def test_nothing_is_imported_where_telemetry_is_not_wanted() -> None:
    assert not is_wanted({"PATH": "/bin", "OTEL_SERVICE_NAME": "x"})
    code = (
        "import sys, flyball.service.app, flyball.service.server, flyball.cli.commands.service.serve; "
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == "[]"
