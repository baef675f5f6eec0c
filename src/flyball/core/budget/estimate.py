"""What an agent's launch will probably cost and take, from what launches like it did.

Half of them stay below P50, nine in ten below P90. Where too little is known of the very same kind of work,
less similar work is asked, in this order; the answer says which it was:

    type and model -> type -> model -> everything -> a stated default

An estimate is written down with the launch, so that it can be scored against what came of it: the share of
launches that stayed below P90 should be about 0.9, and the median error says how far P50 is off.
"""

from __future__ import annotations

import math
from bisect import insort
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

LEAST: Final = 5
"""So many make a kind of its own; fewer are judged with their relatives."""
KEPT: Final = 200
"""Of each kind the latest: models and prices change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRun:
    """One launch that is over."""

    kind: str
    """The type of its task."""
    model: str
    cost_usd: float | None = None
    duration_s: float | None = None


@dataclass(frozen=True, slots=True)
class Quantiles:
    p50: float
    p90: float


DEFAULT_COST_USD: Final = Quantiles(0.50, 2.00)
DEFAULT_DURATION_S: Final = Quantiles(600.0, 1800.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    cost_usd: Quantiles = DEFAULT_COST_USD
    duration_s: Quantiles = DEFAULT_DURATION_S
    basis: str = "default"
    """What the cost is from: ``type and model``, ``type``, ``model``, ``everything`` or ``default``."""
    samples: int = 0


def quantiles(ordered: Sequence[float]) -> Quantiles:
    """By the nearest rank.

    >>> quantiles([1.0, 2.0, 3.0, 4.0, 10.0])
    Quantiles(p50=3.0, p90=10.0)
    """
    return Quantiles(*(ordered[max(0, math.ceil(part * len(ordered)) - 1)] for part in (0.5, 0.9)))


@dataclass(slots=True)
class _LatestFigures:
    """The latest figures of one kind, in the order in which they came and in that of their size."""

    came: list[float] = field(default_factory=list)
    ordered: list[float] = field(default_factory=list)

    def add(self, value: float) -> None:
        self.came.append(value)
        insort(self.ordered, value)
        if len(self.came) > KEPT:
            self.ordered.remove(self.came.pop(0))


_Key = tuple[str | None, str | None]


class RunHistory:
    """What is known of past launches. Only ever added to."""

    def __init__(self, past: Iterable[PastRun] = ()) -> None:
        self._costs: defaultdict[_Key, _LatestFigures] = defaultdict(_LatestFigures)
        self._durations: defaultdict[_Key, _LatestFigures] = defaultdict(_LatestFigures)
        for each in past:
            self.add(each)

    def add(self, past: PastRun) -> None:
        for kept, value in ((self._costs, past.cost_usd), (self._durations, past.duration_s)):
            if value is not None and 0 <= value < math.inf:
                for key, _ in _rungs(past.kind, past.model):
                    kept[key].add(value)

    def estimate(self, kind: str, model: str) -> Estimate:
        cost, basis, samples = _first(self._costs, kind, model)
        duration, _, _ = _first(self._durations, kind, model)
        return Estimate(
            cost_usd=cost or DEFAULT_COST_USD,
            duration_s=duration or DEFAULT_DURATION_S,
            basis=basis,
            samples=samples,
        )


def _rungs(kind: str, model: str) -> tuple[tuple[_Key, str], ...]:
    return (
        ((kind, model), "type and model"),
        ((kind, None), "type"),
        ((None, model), "model"),
        ((None, None), "everything"),
    )


def _first(
    kept: defaultdict[_Key, _LatestFigures], kind: str, model: str
) -> tuple[Quantiles | None, str, int]:
    for key, basis in _rungs(kind, model):
        found = kept.get(key)
        if found is not None and len(found.ordered) >= LEAST:
            return quantiles(found.ordered), basis, len(found.ordered)
    return None, "default", 0


# -- how good they were -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ForecastOutcome:
    """What was expected of one launch, and what came of it."""

    expected: Quantiles
    actual: float


@dataclass(frozen=True, slots=True)
class EstimateScore:
    count: int
    within_p90: float | None
    """The share that stayed below P90; 0.9 is right, more is timid, less is bold."""
    median_error: float | None
    """Of P50, as a part of what it really was."""


def score(outcomes: Iterable[ForecastOutcome]) -> EstimateScore:
    """
    >>> score([ForecastOutcome(Quantiles(1.0, 2.0), 2.0), ForecastOutcome(Quantiles(1.0, 2.0), 4.0)])
    EstimateScore(count=2, within_p90=0.5, median_error=0.5)
    """
    known = [each for each in outcomes if each.actual >= 0]
    if not known:
        return EstimateScore(0, None, None)
    within = sum(each.actual <= each.expected.p90 for each in known) / len(known)
    errors = sorted(abs(each.actual - each.expected.p50) / max(each.actual, 1e-9) for each in known)
    return EstimateScore(len(known), within, errors[(len(errors) - 1) // 2])
