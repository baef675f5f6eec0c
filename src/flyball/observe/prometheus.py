"""The registry as Prometheus reads it: the text format, version 0.0.4.

prometheus_client would bring a registry of its own beside ours; writing the format is less than joining the
two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flyball.observe.metrics import Histogram, Metric, MetricFamily, MetricKind, MetricRegistry, Values

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def text(registry: MetricRegistry) -> str:
    """Every metric of the list, also those that nothing was counted for yet."""
    return "".join(f"{line}\n" for family in registry.families() for line in _family(family))


def _family(family: MetricFamily) -> Iterator[str]:
    metric = family.metric
    words = metric.help.replace("\\", "\\\\").replace("\n", "\\n")
    yield f"# HELP {metric.name} {words}"
    yield f"# TYPE {metric.name} {metric.kind.value}"
    if metric.kind is MetricKind.HISTOGRAM:
        for values, histogram in sorted(family.histograms.items()):
            yield from _histogram(metric, values, histogram)
        return
    numbers = family.numbers if family.numbers or metric.labels else {(): 0.0}
    for values, number in sorted(numbers.items()):
        yield f"{metric.name}{_labels(metric.labels, values)} {_number(number)}"


def _histogram(metric: Metric, values: Values, histogram: Histogram) -> Iterator[str]:
    below = 0
    bounds = [*map(_number, metric.buckets), "+Inf"]
    for bound, count in zip(bounds, histogram.counts, strict=True):
        below += count
        labels = _labels((*metric.labels, "le"), (*values, bound))
        yield f"{metric.name}_bucket{labels} {below}"
    plain = _labels(metric.labels, values)
    yield f"{metric.name}_sum{plain} {_number(histogram.total)}"
    yield f"{metric.name}_count{plain} {below}"


def _labels(names: Sequence[str], values: Values) -> str:
    pairs = ",".join(f'{name}="{_value(value)}"' for name, value in zip(names, values, strict=True))
    return f"{{{pairs}}}" if pairs else ""


def _value(text: str) -> str:
    """
    >>> _value('a "b" \\\\ c')
    'a \\\\"b\\\\" \\\\\\\\ c'
    """
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
