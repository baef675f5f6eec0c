"""The list of metrics: name, kind, help, labels. Exporters, the board and the reference are made from it.

Two families, told apart by who knows:

    flyball_http_...   what this server was asked and what it answered; exact
    flyball_pool_...   what the watch sees of the store once a second, whoever caused it: this server,
                       ``exec``, ``slot()``, another one. What begins and ends between two looks is not seen

Labels are bounded: a tenant, pool or reason that comes after the first ``MOST`` of its label is ``other``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

OTHER = "other"
NOBODY = "-"
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
