"""The numbers behind the list: counted in this process, read by exporters.

Safe to use from any thread. Label values are bounded when they are first counted; what was ``other`` once
stays ``other``, so a series never changes its meaning. A gauge with a label is set for all of them at once:
what is no longer named is gone.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from flyball.errors import invariant
from flyball.observe.metrics import METRICS, MOST, OTHER, Metric, MetricKind

Values = tuple[str, ...]
"""The values of a metric's labels, in their order."""
Mirror = Callable[[Metric, float, Values], None]
"""Is told every observation of a histogram: some exporters make their own buckets."""


@dataclass(slots=True)
class Histogram:
    counts: list[int]
    """One for each bucket and one for what is beyond the last; not cumulative."""
    total: float = 0.0

    @property
    def count(self) -> int:
        return sum(self.counts)


@dataclass(frozen=True, slots=True)
class Family:
    """One metric with all its series."""

    metric: Metric
    numbers: Mapping[Values, float] = field(default_factory=dict)
    histograms: Mapping[Values, Histogram] = field(default_factory=dict)


class Registry:
    """
    >>> from flyball.observe.metrics import HTTP_REFUSALS
    >>> registry = Registry()
    >>> registry.add(HTTP_REFUSALS, reason="no-token")
    >>> registry.number(HTTP_REFUSALS, reason="no-token")
    1.0
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: dict[str, dict[Values, float]] = {metric.name: {} for metric in METRICS}
        self._histograms: dict[str, dict[Values, Histogram]] = {metric.name: {} for metric in METRICS}
        self._known: dict[str, set[str]] = {label: set() for label in MOST}
        self.mirrors: list[Mirror] = []

    def add(self, metric: Metric, amount: float = 1.0, **labels: str) -> None:
        """Count. Adding 0 makes a series known before anything happened."""
        invariant(metric.kind is MetricKind.COUNTER and amount >= 0, f"{metric.name} counts upwards")
        with self._lock:
            values = self._values(metric, labels)
            series = self._numbers[metric.name]
            series[values] = series.get(values, 0.0) + amount

    def observe(self, metric: Metric, value: float, **labels: str) -> None:
        """One more value of a histogram."""
        invariant(metric.kind is MetricKind.HISTOGRAM, f"{metric.name} is a histogram")
        with self._lock:
            values = self._values(metric, labels)
            found = self._histograms[metric.name].get(values)
            if found is None:
                found = Histogram([0] * (len(metric.buckets) + 1))
                self._histograms[metric.name][values] = found
            found.counts[bisect_left(metric.buckets, value)] += 1
            found.total += value
        for mirror in self.mirrors:
            mirror(metric, value, values)

    def set(self, metric: Metric, series: Iterable[tuple[Mapping[str, str], float]]) -> None:
        """All series of a gauge; those beyond the bound add up under ``other``."""
        invariant(metric.kind is MetricKind.GAUGE, f"{metric.name} is a gauge")
        with self._lock:
            numbers: dict[Values, float] = {}
            for labels, value in series:
                values = self._values(metric, labels)
                numbers[values] = numbers.get(values, 0.0) + value
            self._numbers[metric.name] = numbers

    def number(self, metric: Metric, **labels: str) -> float:
        """What a counter or a gauge says now; 0 for a series that nobody has seen."""
        with self._lock:
            return self._numbers[metric.name].get(tuple(labels[name] for name in metric.labels), 0.0)

    def families(self) -> Sequence[Family]:
        """A copy of everything, in the order of the list."""
        with self._lock:
            return [
                Family(
                    metric,
                    dict(self._numbers[metric.name]),
                    {
                        values: Histogram(list(found.counts), found.total)
                        for values, found in self._histograms[metric.name].items()
                    },
                )
                for metric in METRICS
            ]

    def _values(self, metric: Metric, labels: Mapping[str, str]) -> Values:
        invariant(set(labels) == set(metric.labels), f"{metric.name} has the labels {metric.labels}")
        return tuple(self._bounded(name, labels[name]) for name in metric.labels)

    def _bounded(self, label: str, value: str) -> str:
        known = self._known[label]
        if value in known:
            return value
        if len(known) >= MOST[label]:
            return OTHER
        known.add(value)
        return value
