"""The same metrics, and a span per request, for OpenTelemetry: extra ``[otel]``.

Only where the environment asks for it, in OpenTelemetry's own words (``OTEL_EXPORTER_OTLP_ENDPOINT``,
``OTEL_METRICS_EXPORTER``, ``OTEL_TRACES_EXPORTER``); nothing of it is imported otherwise. Counters and gauges
are read from the registry when an exporter asks; histograms are told each value, since they make their own
buckets. The process's global providers are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from opentelemetry.metrics import CallbackOptions, Histogram, Meter, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    ConsoleMetricExporter,
    MetricReader,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from flyball.errors import UsageError
from flyball.host.background_thread import start_thread
from flyball.observe.metrics import METRICS, Metric, MetricKind, MetricRegistry, Values

CLOSING_S = 3.0
"""What was not exported by then is given up: an endpoint that is gone must not keep a server from ending."""


class Telemetry:
    """Metrics and traces of one server. ``close`` sends what is left."""

    def __init__(
        self,
        registry: MetricRegistry,
        *,
        readers: Sequence[MetricReader],
        processors: Sequence[SpanProcessor],
    ) -> None:
        # As OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES say, where they do.
        resource = Resource.create()
        if str(resource.attributes.get(SERVICE_NAME)).startswith("unknown_service"):
            resource = resource.merge(Resource({SERVICE_NAME: "flyball"}))
        self._meters = MeterProvider(readers, resource=resource, shutdown_on_exit=False)
        self._traces = TracerProvider(resource=resource, shutdown_on_exit=False)
        for processor in processors:
            self._traces.add_span_processor(processor)
        self._tracer = self._traces.get_tracer("flyball")
        self._told = _Instruments(registry, self._meters.get_meter("flyball"))
        self._registry = registry
        registry.mirrors.append(self._told.observe)

    def begin(self, method: str, headers: Mapping[str, str]) -> _TracedRequest:
        """A request has come; ``headers`` may name the trace that it belongs to."""
        context = TraceContextTextMapPropagator().extract(headers)
        return _TracedRequest(self._tracer.start_span(method, context=context, kind=SpanKind.SERVER), method)

    def close(self) -> None:
        self._registry.mirrors.remove(self._told.observe)
        start_thread(self._shut_down, name="flyball-otel-close").join(CLOSING_S)

    def _shut_down(self) -> None:
        self._traces.shutdown()
        self._meters.shutdown(timeout_millis=CLOSING_S * 1000)


class _TracedRequest:
    def __init__(self, span: Span, method: str) -> None:
        self._span, self._method = span, method

    def end(self, route: str, status: int) -> None:
        span = self._span
        span.update_name(f"{self._method} {route}")
        span.set_attributes(
            {"http.request.method": self._method, "http.route": route, "http.response.status_code": status}
        )
        if status >= 500:
            span.set_status(Status(StatusCode.ERROR))
        span.end()


class _Instruments:
    """The list as OpenTelemetry's instruments."""

    def __init__(self, registry: MetricRegistry, meter: Meter) -> None:
        self._registry = registry
        self._histograms: dict[str, Histogram] = {}
        for metric in METRICS:
            self._make(meter, metric)

    def _make(self, meter: Meter, metric: Metric) -> None:
        name = otel_name(metric)
        if metric.kind is MetricKind.HISTOGRAM:
            self._histograms[metric.name] = meter.create_histogram(
                name, "s", metric.help, explicit_bucket_boundaries_advisory=list(metric.buckets)
            )
        elif metric.kind is MetricKind.COUNTER:
            meter.create_observable_counter(name, [self._reading(metric)], "1", metric.help)
        else:
            meter.create_observable_gauge(name, [self._reading(metric)], "1", metric.help)

    def observe(self, metric: Metric, value: float, values: Values) -> None:
        self._histograms[metric.name].record(value, _attributes(metric, values))

    def _reading(self, metric: Metric) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def read(_: CallbackOptions) -> Iterable[Observation]:
            numbers = next(family.numbers for family in self._registry.families() if family.metric is metric)
            return [Observation(number, _attributes(metric, values)) for values, number in numbers.items()]

        return read


def otel_name(metric: Metric) -> str:
    """A metric's name as OpenTelemetry writes names.

    >>> from flyball.observe.metrics import HTTP_DECISION
    >>> otel_name(HTTP_DECISION)
    'flyball.http.decision'
    """
    return metric.name.removesuffix("_total").removesuffix("_seconds").replace("_", ".")


def _attributes(metric: Metric, values: Values) -> dict[str, str]:
    return dict(zip(metric.labels, values, strict=True))


# -- what the environment asks for --------------------------------------------------------------------


def from_environment(registry: MetricRegistry, environment: Mapping[str, str]) -> Telemetry:
    """Exporters as the variables name them; ``otlp`` where they name none."""
    readers = [_reader(name) for name in _exporters(environment, "OTEL_METRICS_EXPORTER")]
    processors = [_processor(name) for name in _exporters(environment, "OTEL_TRACES_EXPORTER")]
    return Telemetry(registry, readers=readers, processors=processors)


def _exporters(environment: Mapping[str, str], variable: str) -> list[str]:
    names = [name.strip() for name in (environment.get(variable) or "otlp").split(",")]
    for name in names:
        if name not in ("otlp", "console", "none"):
            raise UsageError(f"{variable} may be otlp, console or none, not {name!r}")
    return [name for name in names if name != "none"]


def _reader(name: str) -> MetricReader:
    if name == "console":
        return PeriodicExportingMetricReader(ConsoleMetricExporter())
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

    return PeriodicExportingMetricReader(OTLPMetricExporter())


def _processor(name: str) -> SpanProcessor:
    if name == "console":
        return BatchSpanProcessor(ConsoleSpanExporter())
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return BatchSpanProcessor(OTLPSpanExporter())
