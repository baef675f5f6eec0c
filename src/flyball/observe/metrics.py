"""The list of metrics: name, kind, help, labels. Exporters, the board and the reference are made from it.

Two families, told apart by who knows:

    flyball_http_...   what this server was asked and what it answered; exact
    flyball_pool_...   what the watch sees of the store once a second, whatever caused it: this server,
                       ``exec``, ``slot()``, another one. What begins and ends between two looks is not seen

Labels are bounded: a tenant, pool or reason that comes after the first ``MOST`` of its label is ``other``.

The numbers behind the list: counted in this process, read by exporters.

Safe to use from any thread. Label values are bounded when they are first counted; what was ``other`` once
stays ``other``, so a series never changes its meaning. A gauge with a label is set for all of them at once:
what is no longer named is gone.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from flyball.errors import invariant

OTHER = "other"
UNKNOWN_TENANT = "-"
"""The tenant of a request that is about none."""
MOST = {"pool": 100, "tenant": 50, "endpoint": 60, "reason": 40, "status": 60, "phase": 3}
"""How many values of a label are told apart."""


class MetricKind(Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    """Of a histogram: upper bounds in seconds, without the last, which is infinite."""
    must_be_zero: bool = False
    """Anything else is a fault of flyball."""


_QUICK = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_LONG = (0.01, 0.05, 0.25, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0)

HTTP_DECISION = Metric(
    "flyball_http_decision_seconds",
    MetricKind.HISTOGRAM,
    "From a request's last header to the first byte of its answer, less the time it was left waiting.",
    ("endpoint", "tenant"),
    _QUICK,
)
HTTP_WAIT = Metric(
    "flyball_http_wait_seconds",
    MetricKind.HISTOGRAM,
    "How long a request that was granted a slot had waited for it.",
    ("endpoint", "tenant"),
    _LONG,
)
HTTP_ANSWERS = Metric(
    "flyball_http_answers_total", MetricKind.COUNTER, "Answers by status code.", ("endpoint", "status")
)
HTTP_GRANTS = Metric(
    "flyball_http_grants_total", MetricKind.COUNTER, "Slots that requests were granted.", ("pool", "tenant")
)
HTTP_REFUSALS = Metric(
    "flyball_http_refusals_total",
    MetricKind.COUNTER,
    "Requests that were refused, by the last word of the problem's type.",
    ("reason",),
)
STREAMS = Metric("flyball_http_streams", MetricKind.GAUGE, "Event streams that are open now.")
POOL_CAP = Metric("flyball_pool_cap", MetricKind.GAUGE, "Slots usable now.", ("pool",))
POOL_IN_USE = Metric("flyball_pool_in_use", MetricKind.GAUGE, "Slots in use.", ("pool",))
POOL_WAITING = Metric("flyball_pool_waiting", MetricKind.GAUGE, "Asks in line.", ("pool",))
POOL_PHASE = Metric(
    "flyball_pool_phase",
    MetricKind.GAUGE,
    "The breaker: 1 for the phase it is in (closed, open, trial), 0 for the others.",
    ("pool", "phase"),
)
POOL_THROTTLES = Metric(
    "flyball_pool_throttles_total", MetricKind.COUNTER, "Throttles that were reported.", ("pool",)
)
POOL_WAIT = Metric(
    "flyball_pool_wait_seconds",
    MetricKind.HISTOGRAM,
    "How long leases had waited in line, each told once, when it is first seen.",
    ("pool", "tenant"),
    _LONG,
)
POOL_EXPIRIES = Metric(
    "flyball_pool_expiries_total",
    MetricKind.COUNTER,
    "Slots and places in line taken back because their holder was gone or did not renew.",
    ("pool",),
)
POOL_WAKES_MISSED = Metric(
    "flyball_pool_wakes_missed_total",
    MetricKind.COUNTER,
    "Slots handed to a waiter that never took them and went to the next in line.",
    ("pool",),
)
POOL_OVER_ADMITTED = Metric(
    "flyball_pool_over_admitted_total",
    MetricKind.COUNTER,
    "Slots that began to be used although the cap was full, by the highest cap since the look before. "
    "A lowered cap, work recorded as already running and the breaker's trial do not count.",
    ("pool",),
    must_be_zero=True,
)
LOOKS = Metric(
    "flyball_looks_total", MetricKind.COUNTER, "Looks at the store, by whether it answered.", ("status",)
)
LOOK_SECONDS = Metric(
    "flyball_look_seconds", MetricKind.HISTOGRAM, "How long a look at the store takes.", (), _QUICK
)

METRICS = (
    HTTP_DECISION,
    HTTP_WAIT,
    HTTP_ANSWERS,
    HTTP_GRANTS,
    HTTP_REFUSALS,
    STREAMS,
    POOL_CAP,
    POOL_IN_USE,
    POOL_WAITING,
    POOL_PHASE,
    POOL_THROTTLES,
    POOL_WAIT,
    POOL_EXPIRIES,
    POOL_WAKES_MISSED,
    POOL_OVER_ADMITTED,
    LOOKS,
    LOOK_SECONDS,
)


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
class MetricFamily:
    """One metric with all its series."""

    metric: Metric
    numbers: Mapping[Values, float] = field(default_factory=dict)
    histograms: Mapping[Values, Histogram] = field(default_factory=dict)


class MetricRegistry:
    """
    >>> from flyball.observe.metrics import HTTP_REFUSALS
    >>> registry = MetricRegistry()
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
        with self._lock:
            values = self._values(metric, MetricKind.COUNTER, labels, at_least_0=amount)
            series = self._numbers[metric.name]
            series[values] = series.get(values, 0.0) + amount

    def observe(self, metric: Metric, value: float, **labels: str) -> None:
        """One more value of a histogram."""
        with self._lock:
            values = self._values(metric, MetricKind.HISTOGRAM, labels)
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
        with self._lock:
            numbers: dict[Values, float] = {}
            for labels, value in series:
                values = self._values(metric, MetricKind.GAUGE, labels)
                numbers[values] = numbers.get(values, 0.0) + value
            self._numbers[metric.name] = numbers

    def number(self, metric: Metric, **labels: str) -> float:
        """What a counter or a gauge says now; 0 for a series that was never seen."""
        with self._lock:
            return self._numbers[metric.name].get(tuple(labels[name] for name in metric.labels), 0.0)

    def families(self) -> Sequence[MetricFamily]:
        """A copy of everything, in the order of the list."""
        with self._lock:
            return [
                MetricFamily(
                    metric,
                    dict(self._numbers[metric.name]),
                    {
                        values: Histogram(list(found.counts), found.total)
                        for values, found in self._histograms[metric.name].items()
                    },
                )
                for metric in METRICS
            ]

    def _values(
        self, metric: Metric, kind: MetricKind, labels: Mapping[str, str], *, at_least_0: float = 0.0
    ) -> Values:
        fits = metric.kind is kind and at_least_0 >= 0 and labels.keys() == set(metric.labels)
        invariant(fits, f"{metric.name} is a {metric.kind.value} with the labels {metric.labels}")
        return tuple(self._label_value(name, labels[name]) for name in metric.labels)

    def _label_value(self, label: str, value: str) -> str:
        known = self._known[label]
        if value in known:
            return value
        if len(known) >= MOST[label]:
            return OTHER
        known.add(value)
        return value
