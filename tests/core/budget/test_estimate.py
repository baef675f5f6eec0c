"""What past launches say about the next, and how right they were."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from flyball.core.budget.estimate import (
    DEFAULT_COST_USD,
    DEFAULT_DURATION_S,
    KEPT,
    LEAST,
    ForecastOutcome,
    PastRun,
    Quantiles,
    RunHistory,
    quantiles,
    score,
)
from tests.cases import every


def past(
    kind: str, model: str, cost: float | None, count: int = LEAST, s: float | None = 60.0
) -> list[PastRun]:
    return [PastRun(kind=kind, model=model, cost_usd=cost, duration_s=s)] * count


def test_without_any_history_the_estimate_is_the_default() -> None:
    found = RunHistory().estimate("bug", "opus")
    assert (found.cost_usd, found.duration_s) == (DEFAULT_COST_USD, DEFAULT_DURATION_S)
    assert (found.basis, found.samples) == ("default", 0)


@every(
    "kind, model, cost, basis",
    [
        ("bug", "opus", 9.0, "type and model"),
        ("bug", "haiku", 9.0, "type"),
        ("new", "opus", 9.0, "model"),
        ("chore", "sonnet", 3.0, "type and model"),
        ("new", "new", 3.0, "everything"),
    ],
)
def test_the_nearest_relatives_are_asked(kind: str, model: str, cost: float, basis: str) -> None:
    known = RunHistory([*past("bug", "opus", 9.0), *past("chore", "sonnet", 3.0, 2 * LEAST)])
    found = known.estimate(kind, model)
    assert (found.cost_usd.p50, found.basis) == (cost, basis)


def test_too_few_of_a_kind_are_judged_with_their_relatives() -> None:
    known = RunHistory([*past("bug", "opus", 9.0, LEAST - 1), *past("bug", "haiku", 1.0, 20)])
    assert known.estimate("bug", "opus").basis == "type"


def test_a_runtime_that_tells_no_cost_still_teaches_how_long_it_takes() -> None:
    found = RunHistory(past("bug", "gpt", None, s=90.0)).estimate("bug", "gpt")
    assert (found.cost_usd, found.duration_s) == (DEFAULT_COST_USD, Quantiles(90.0, 90.0))


def test_figures_that_cannot_be_are_not_learned_from() -> None:
    found = RunHistory([*past("bug", "x", -1.0), *past("bug", "x", math.nan), *past("bug", "x", math.inf)])
    assert found.estimate("bug", "x").cost_usd == DEFAULT_COST_USD


def test_the_latest_count() -> None:
    known = RunHistory([*past("bug", "x", 100.0, 50), *past("bug", "x", 1.0, KEPT)])
    assert known.estimate("bug", "x").cost_usd == Quantiles(1.0, 1.0)


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_quantiles_are_among_the_figures_and_in_order(values: list[float]) -> None:
    found = quantiles(sorted(values))
    assert found.p50 <= found.p90
    assert {found.p50, found.p90} <= set(values)
    assert sum(value <= found.p90 for value in values) >= 0.9 * len(values)


def test_the_score_of_nothing_is_nothing() -> None:
    assert (score([]).count, score([]).within_p90) == (0, None)


def test_a_score_says_how_many_stayed_below_and_how_far_the_middle_was_off() -> None:
    outcomes = [ForecastOutcome(Quantiles(1.0, 2.0), actual) for actual in (1.0, 1.0, 2.0, 4.0)]
    found = score(outcomes)
    assert (found.within_p90, found.median_error) == (0.75, 0.0)
