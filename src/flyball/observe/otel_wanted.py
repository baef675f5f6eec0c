"""Does the environment ask for OpenTelemetry? Apart from otel.py, so that asking imports nothing of it."""

from __future__ import annotations

from collections.abc import Mapping

_ASKING = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_METRICS_EXPORTER",
    "OTEL_TRACES_EXPORTER",
)


def is_wanted(environment: Mapping[str, str]) -> bool:
    """
    >>> is_wanted({}), is_wanted({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"})
    (False, True)
    >>> is_wanted({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318", "OTEL_SDK_DISABLED": "true"})
    False
    """
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    return any(environment.get(name, "").strip() for name in _ASKING)
