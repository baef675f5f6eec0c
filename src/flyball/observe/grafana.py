"""A board for Grafana, made from the list of metrics: one panel each, importable as it is.

flyball serve --grafana > board.json
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from flyball.observe.metrics import METRICS, Metric, MetricKind

_WIDTH, _HEIGHT, _COLUMNS = 8, 8, 3
_SOURCE = {"type": "prometheus", "uid": "${source}"}


def board() -> str:
    """The board as JSON, as Grafana's import takes it."""
    return json.dumps(_board(), indent=2) + "\n"


def _board() -> dict[str, Any]:
    source = {"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"}
    return {
        "title": "flyball",
        "uid": "flyball",
        "schemaVersion": 39,
        "editable": True,
        "refresh": "5s",
        "time": {"from": "now-15m", "to": "now"},
        "tags": ["flyball"],
        "templating": {"list": [source, _pools()]},
        "panels": [_panel(number, metric) for number, metric in enumerate(METRICS)],
    }


def _pools() -> dict[str, Any]:
    query = "label_values(flyball_pool_cap, pool)"
    return {
        "name": "pool",
        "type": "query",
        "datasource": _SOURCE,
        "query": query,
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panel(number: int, metric: Metric) -> dict[str, Any]:
    row, column = divmod(number, _COLUMNS)
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": _title(metric),
        "description": metric.help,
        "datasource": _SOURCE,
        "gridPos": {"x": column * _WIDTH, "y": row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": _defaults(metric), "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}},
        "targets": [
            {"refId": chr(ord("A") + place), "expr": query, "legendFormat": legend}
            for place, (query, legend) in enumerate(_queries(metric))
        ],
    }


def _title(metric: Metric) -> str:
    words = metric.name.removeprefix("flyball_").removesuffix("_total").removesuffix("_seconds")
    return words.replace("http_", "HTTP: ").replace("pool_", "pool: ").replace("_", " ")


def _defaults(metric: Metric) -> dict[str, Any]:
    defaults: dict[str, Any] = {"min": 0}
    if metric.kind is MetricKind.HISTOGRAM:
        defaults["unit"] = "s"
    if metric.must_be_zero:
        steps = [{"color": "green", "value": None}, {"color": "red", "value": 0.001}]
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
    return defaults


def _queries(metric: Metric) -> Iterator[tuple[str, str]]:
    """Each query with what its lines are called."""
    picked = '{pool=~"$pool"}' if "pool" in metric.labels else ""
    legend = " ".join(f"{{{{{label}}}}}" for label in metric.labels) or _title(metric)
    by = ", ".join(metric.labels)
    if metric.kind is MetricKind.HISTOGRAM:
        for share in (0.5, 0.95, 0.99):
            groups = ", ".join(("le", *metric.labels))
            rates = f"sum by ({groups}) (rate({metric.name}_bucket{picked}[$__rate_interval]))"
            yield f"histogram_quantile({share}, {rates})", f"p{share * 100:g} {legend}".strip()
    elif metric.must_be_zero:
        yield f"sum by ({by}) ({metric.name}{picked})", legend
    elif metric.kind is MetricKind.COUNTER:
        yield f"sum by ({by}) (rate({metric.name}{picked}[$__rate_interval]))", legend
    else:
        yield f"{metric.name}{picked}", legend
