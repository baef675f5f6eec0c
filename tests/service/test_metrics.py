"""What the server counts of itself, at ``/metrics`` and for OpenTelemetry."""

from __future__ import annotations

from pathlib import Path

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families

from flyball.core.signals import Signal, SignalKind
from flyball.governor.governor import Governor
from flyball.observe.metrics import MetricRegistry
from flyball.observe.otel import Telemetry
from tests.service.kit import Events, Running
from tests.service.leases_kit import Desk
from tests.waiting import until

Series = tuple[tuple[str, str], ...]


def scraped(server: Running) -> dict[str, dict[Series, float]]:
    answer = server.client.get("/metrics")
    assert answer.headers.get_list("content-type") == ["text/plain; version=0.0.4; charset=utf-8"]
    found: dict[str, dict[Series, float]] = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def test_answers_are_counted_by_route_and_status(running: Running) -> None:
    for path in (
        "/v1/pools/nobody",
        "/v1/pools/no%2Fbody",
        "/v1/pools/%ff",
        "/nothing",
        "/",
        "/v1/facts?limit=x",
    ):
        running.client.get(path)
    told = scraped(running)["flyball_http_answers_total"]
    assert told[("endpoint", "GET /v1/pools/{pool}"), ("status", "404")] == 2
    assert told[("endpoint", "GET /v1/facts"), ("status", "400")] == 1
    assert told[("endpoint", "none"), ("status", "400")] == 1
    assert told[("endpoint", "none"), ("status", "404")] == 1
    assert told[("endpoint", "page"), ("status", "200")] == 1


def test_refusals_are_counted_by_their_reason(running: Running) -> None:
    running.client.patch("/v1/pools/p", json={"capp": 1})
    running.client.get("/v1/status", headers={"Authorization": "Bearer wrong"})
    told = scraped(running)["flyball_http_refusals_total"]
    assert (told[(("reason", "unknown-setting"),)], told[(("reason", "wrong-token"),)]) == (1, 1)


def test_grants_and_their_waits_are_counted_once(running: Running) -> None:
    desk = Desk(running, cap=3)
    desk.ask(project="acme", slots=2, key="once")
    desk.ask(project="acme", slots=2, key="once")
    desk.ask(project="acme", slots=2)
    told = scraped(running)
    series = (("pool", desk.pool), ("tenant", "acme"))
    assert told["flyball_http_grants_total"][series] == 2
    waited = (("endpoint", "POST /v1/pools/{pool}/leases"), ("tenant", "acme"))
    assert told["flyball_http_wait_seconds_count"][waited] == 1


def test_every_request_is_timed(running: Running) -> None:
    running.client.get("/v1/whoami")
    told = scraped(running)["flyball_http_decision_seconds_count"]
    assert told[("endpoint", "GET /v1/whoami"), ("tenant", "-")] >= 1


def test_pools_are_told_as_they_are(running: Running) -> None:
    governor = running.service.governor
    governor.set_pool("told", cap=8, controller="koryph")
    running.client.get("/v1/status")
    lease = governor.acquire_nowait("told", project="blog", name="t")
    governor.report("told", Signal(SignalKind.THROTTLED), project="blog", name="t")
    running.client.get("/v1/status")
    told = scraped(running)
    pool: Series = (("pool", "told"),)
    assert [told[f"flyball_pool_{name}"][pool] for name in ("cap", "in_use", "waiting")] == [4, 1, 0]
    assert told["flyball_pool_throttles_total"][pool] == 1
    assert told["flyball_pool_over_admitted_total"][pool] == 0
    assert told["flyball_pool_phase"][("phase", "closed"), ("pool", "told")] == 1
    assert told["flyball_pool_wait_seconds_count"][("pool", "told"), ("tenant", "blog")] == 1
    governor.release(lease)


def test_streams_are_counted_while_they_are_open(running: Running) -> None:
    with Events(running.port):
        assert scraped(running)["flyball_http_streams"][()] == 1
    until(lambda: scraped(running)["flyball_http_streams"][()] == 0, "no watcher is left")


def test_a_request_is_a_span_of_the_trace_that_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OTEL_SERVICE_NAME", raising=False)
    spans, registry = InMemorySpanExporter(), MetricRegistry()
    telemetry = Telemetry(registry, readers=[], processors=[SimpleSpanProcessor(spans)])
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    with Running(Governor("memory:"), tmp_path, registry=registry, tracing=telemetry) as server:
        spans.clear()
        server.client.get("/v1/pools/secret", headers={"traceparent": f"00-{trace}-00f067aa0ba902b7-01"})
        until(spans.get_finished_spans, "a span")
    (span,) = spans.get_finished_spans()
    assert span.name == "GET /v1/pools/{pool}"
    assert span.context is not None
    assert f"{span.context.trace_id:032x}" == trace
    assert span.attributes is not None
    assert span.attributes["http.response.status_code"] == 404
    assert "secret" not in str(dict(span.attributes))
    telemetry.close()
