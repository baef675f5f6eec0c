"""Windows, levels, width, preflight: a table, and what must hold whatever the figures are."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.core.budget.limits import (
    Asked,
    BudgetAction,
    Level,
    Thresholds,
    allowed_width,
    api_spend_refusal,
    budget_action,
    preflight,
    worst,
    worst_level,
)
from flyball.core.budget.usage_windows import (
    BUILT_IN,
    Figure,
    Spend,
    UsageCertainty,
    UsageItem,
    UsageReport,
    WindowTerms,
    WindowUsage,
    measure_window,
)
from tests.cases import every

HOUR = 3600.0
NOW = 1_000_000 * 18_000.0 + HOUR
"""An hour into a window of five."""
FIVE, SEVEN = (replace(terms, ceiling_usd=100.0) for terms in BUILT_IN)
TERMS = Thresholds()


def spent(usd: float, *, ago_s: float = 60.0, whole: bool = True) -> Spend:
    return Spend("test", [UsageItem(NOW - ago_s, NOW - ago_s, usd)], whole=whole)


def full(
    fraction: float, name: str = "5h", *, ends_s: float = 4 * HOUR, ceiling: float = 100.0
) -> WindowUsage:
    return WindowUsage(
        name=name,
        start=NOW - HOUR,
        end=NOW + ends_s,
        ceiling=Figure(ceiling, UsageCertainty.MEASURED),
        spent=Figure(fraction * ceiling, UsageCertainty.MEASURED),
        fraction=Figure(fraction, UsageCertainty.MEASURED),
    )


# -- levels -----------------------------------------------------------------------------------------------


@every(
    "five, seven, level, width",
    [
        (0.00, 0.00, Level.OK, 10),
        (0.79, 0.10, Level.OK, 10),
        (0.80, 0.10, Level.WARN, 10),
        (0.85, 0.10, Level.WARN, 5),
        (0.10, 0.85, Level.WARN, 5),
        (0.82, 0.88, Level.WARN, 2),
        (0.899, 0.0, Level.WARN, 1),
        (0.90, 0.00, Level.DRAIN, 0),
        (0.00, 0.94, Level.DRAIN, 0),
        (0.95, 0.00, Level.STOP, 0),
        (0.10, 7.00, Level.STOP, 0),
    ],
)
def test_the_worse_of_two_windows_decides(five: float, seven: float, level: Level, width: int) -> None:
    standings = [full(five), full(seven, "7d")]
    assert worst_level(standings, TERMS) is level
    assert allowed_width(10, standings, TERMS) == width


def test_without_an_enforced_window_nothing_is_narrowed() -> None:
    advisory = measure_window(BUILT_IN[0], None, spent(1e6), NOW)
    assert not advisory.enforced
    assert (worst_level([advisory], TERMS), allowed_width(3, [advisory], TERMS)) == (Level.OK, 3)
    assert preflight([advisory], Asked(cost_usd=1e6), TERMS, NOW) is None


def test_a_calibrated_window_that_cannot_be_measured_counts_as_full() -> None:
    standing = measure_window(FIVE, None, None, NOW)
    assert standing.unmeasured
    assert worst_level([standing], TERMS) is Level.STOP
    assert "cannot be measured" in standing.words()


def test_a_ceiling_measured_with_the_whole_accounts_spending_is_not_compared_with_ours_alone() -> None:
    whole = replace(FIVE, whole=True)
    assert measure_window(whole, None, spent(1.0, whole=False), NOW).unmeasured
    assert not measure_window(whole, None, spent(1.0), NOW).unmeasured
    assert not measure_window(FIVE, None, spent(1.0, whole=False), NOW).unmeasured


def test_calibrating_one_window_leaves_the_other_advisory() -> None:
    standings = [
        measure_window(FIVE, None, spent(10.0), NOW),
        measure_window(BUILT_IN[1], None, spent(10.0), NOW),
    ]
    assert [each.enforced for each in standings] == [True, False]
    assert worst_level(standings, TERMS) is Level.OK


dollars = st.floats(0, 500, allow_nan=False)
parts = st.floats(0, 1.5, allow_nan=False)


@given(ceiling=st.one_of(st.none(), st.floats(1, 500)), other=st.floats(1, 500), usd=dollars)
def test_one_window_s_calibration_never_changes_another_s_level(
    ceiling: float | None, other: float, usd: float
) -> None:
    seven = measure_window(replace(BUILT_IN[1], ceiling_usd=other), None, spent(usd), NOW)
    five = measure_window(replace(BUILT_IN[0], ceiling_usd=ceiling), None, spent(usd), NOW)
    assert measure_window(replace(BUILT_IN[1], ceiling_usd=other), None, spent(usd), NOW) == seven
    if ceiling is None:
        assert worst_level([five, seven], TERMS) is worst_level([seven], TERMS)
    assert worst_level([five, seven], TERMS) >= worst_level([seven], TERMS)


@given(less=dollars, more=dollars, width=st.integers(1, 50))
def test_more_spending_never_means_more_width_or_a_lower_level(less: float, more: float, width: int) -> None:
    less, more = min(less, more), max(less, more)
    before, after = (measure_window(FIVE, None, spent(usd), NOW) for usd in (less, more))
    assert worst_level([after], TERMS) >= worst_level([before], TERMS)
    assert allowed_width(width, [after], TERMS) <= allowed_width(width, [before], TERMS)


@given(part=parts, width=st.integers(1, 50), marks=st.tuples(parts, parts, parts).map(sorted))
def test_at_least_one_runs_until_drain_and_none_from_there(
    part: float, width: int, marks: list[float]
) -> None:
    thresholds = Thresholds(warn=marks[0], drain=marks[1], stop=marks[2])
    found = thresholds.width(width, part)
    assert (found == 0) is (part >= thresholds.drain or part >= thresholds.stop)
    assert 0 <= found <= width


# -- preflight --------------------------------------------------------------------------------------------


def test_what_would_not_fit_is_refused_and_the_window_is_named() -> None:
    standings = [full(0.5), full(0.85, "7d", ends_s=100 * HOUR)]
    refused = preflight(standings, Asked(cost_usd=6.0), TERMS, NOW)
    assert refused is not None
    assert refused.window == "7d"
    assert refused.until == NOW + 100 * HOUR
    assert "expected to cost up to $6.00" in refused.words
    assert preflight(standings, Asked(cost_usd=4.0), TERMS, NOW) is None


def test_what_runs_already_is_counted() -> None:
    assert preflight([full(0.5)], Asked(cost_usd=10.0, reserved_usd=25.0), TERMS, NOW) is None
    assert preflight([full(0.5)], Asked(cost_usd=10.0, reserved_usd=35.0), TERMS, NOW) is not None


def test_what_fits_no_window_at_all_starts_in_an_empty_one() -> None:
    assert preflight([full(0.0)], Asked(cost_usd=5000.0), TERMS, NOW) is None
    assert preflight([full(0.1)], Asked(cost_usd=5000.0), TERMS, NOW) is not None


def test_a_window_of_one_model_is_only_for_that_model() -> None:
    opus = replace(full(0.97, "7d opus"), model="opus")
    standings = [full(0.1), opus]
    assert worst_level(standings, TERMS) is Level.OK
    assert preflight(standings, Asked(model="sonnet"), TERMS, NOW) is None
    assert preflight(standings, Asked(model="claude-opus-4"), TERMS, NOW) is not None
    found = worst(standings, "opus")
    assert found is not None
    assert found.name == "7d opus"


# -- the provider's own word --------------------------------------------------------------------------------


def test_a_report_is_believed_before_a_calibration_until_its_window_ends() -> None:
    report = UsageReport(name="5h", fraction=0.93, at=NOW - 60, resets_at=NOW + 600)
    standing = measure_window(FIVE, report, spent(1.0, ago_s=120), NOW)
    assert standing.fraction == Figure(0.93, UsageCertainty.REPORTED)
    assert (standing.start, standing.end) == (NOW + 600 - 5 * HOUR, NOW + 600)
    later = measure_window(FIVE, report, spent(1.0, ago_s=-650), NOW + 700)
    assert later.fraction == Figure(0.01, UsageCertainty.MEASURED)
    assert later.start == NOW + 600, "and the grid goes through the reset that it told"


def test_a_reported_window_needs_no_calibration_and_no_source() -> None:
    report = UsageReport(name="5h", fraction=0.96, at=NOW - 60, resets_at=NOW + 600)
    assert worst_level([measure_window(BUILT_IN[0], report, None, NOW)], TERMS) is Level.STOP


def test_a_report_without_a_reset_is_over_with_its_window() -> None:
    report = UsageReport(name="5h", fraction=0.96, at=NOW - 60)
    assert measure_window(BUILT_IN[0], report, None, NOW).enforced
    assert not measure_window(BUILT_IN[0], report, None, NOW + 5 * HOUR).enforced


def test_what_was_spent_since_a_report_is_added_to_it() -> None:
    report = UsageReport(name="5h", fraction=0.5, at=NOW - 600, resets_at=NOW + HOUR)
    pieces = [UsageItem(NOW - 1200, NOW - 1200, 10.0), UsageItem(NOW - 60, NOW - 60, 4.0)]
    standing = measure_window(BUILT_IN[0], report, Spend("test", pieces), NOW)
    assert standing.ceiling == Figure(20.0, UsageCertainty.ESTIMATED), "10 dollars were half of it"
    assert standing.fraction == Figure(0.7, UsageCertainty.ESTIMATED)


def test_a_small_part_says_nothing_about_the_ceiling() -> None:
    report = UsageReport(name="5h", fraction=0.01, at=NOW - 600, resets_at=NOW + HOUR)
    assert measure_window(BUILT_IN[0], report, spent(10.0, ago_s=1200), NOW).ceiling is None


# -- spending -----------------------------------------------------------------------------------------------


def test_a_piece_across_the_edge_counts_in_part_and_is_an_estimate() -> None:
    spend = Spend("blocks", [UsageItem(0.0, 100.0, 10.0), UsageItem(100.0, 200.0, 5.0)])
    assert spend.within(0.0, 200.0) == Figure(15.0, UsageCertainty.MEASURED)
    assert spend.within(50.0, 200.0) == Figure(10.0, UsageCertainty.ESTIMATED)


def test_what_is_known_for_certain_is_the_floor() -> None:
    floor = Spend("ledger", [UsageItem(1.0, 1.0, 9.0)], UsageCertainty.ESTIMATED)
    assert Spend("low", [UsageItem(1.0, 1.0, 2.0)], floor=floor).within(0, 2) == Figure(
        9.0, UsageCertainty.ESTIMATED
    )
    assert Spend("high", [UsageItem(1.0, 1.0, 12.0)], floor=floor).within(0, 2) == Figure(
        12.0, UsageCertainty.MEASURED
    )


def test_a_window_goes_through_the_moment_at_which_one_began() -> None:
    day = WindowTerms(name="day", length_s=86400.0, anchor=86400.0)
    standing = measure_window(day, None, None, 86400.0 * 3 + 5)
    assert (standing.start, standing.end) == (86400.0 * 3, 86400.0 * 4)


def test_a_window_of_which_nothing_was_heard_has_no_end() -> None:
    standing = measure_window(BUILT_IN[0], None, spent(1.0, ago_s=120), NOW)
    assert (standing.end, standing.fraction) == (None, None)


def test_without_a_known_beginning_the_last_whole_length_counts() -> None:
    five = WindowTerms(name="5h", length_s=5 * HOUR, ceiling_usd=10.0)
    pieces = [UsageItem(NOW - ago_s, NOW - ago_s, 4.0) for ago_s in (4.9 * HOUR, 60.0)]
    standing = measure_window(five, None, Spend("test", pieces), NOW)
    assert standing.fraction == Figure(0.8, UsageCertainty.MEASURED)
    refused = preflight([standing], Asked(cost_usd=3.0, duration_s=60.0), TERMS, NOW)
    assert refused is not None
    assert (refused.until, "when it ends is not known" in refused.words) == (None, True)


def test_after_its_reset_a_reported_window_is_not_made_up_again() -> None:
    report = UsageReport(name="5h", fraction=0.93, at=NOW - 60, resets_at=NOW + 600)
    assert measure_window(BUILT_IN[0], report, None, NOW).end == NOW + 600
    assert measure_window(BUILT_IN[0], report, None, NOW + 700).end is None


# -- switches -----------------------------------------------------------------------------------------------


def test_the_run_s_word_the_project_s_the_baseline() -> None:
    assert budget_action("off", "enforce") is BudgetAction.OFF
    assert budget_action(None, "advisory") is BudgetAction.ADVISORY
    assert budget_action(None, None) is BudgetAction.ENFORCE


@every("flag", [True, False])
@every("setting", ["explicit", "never"])
@every("env, there", [("WORK_KEY", True), ("WORK_KEY", False), ("", False)])
def test_an_api_key_needs_all_three(flag: bool, setting: str, env: str, there: bool) -> None:
    refused = api_spend_refusal(flag=flag, setting=setting, key_env=env, key_there=there)
    assert (refused == "") is (flag and setting == "explicit" and there)


def test_what_a_person_saw_spent_counts_until_that_window_is_over() -> None:
    terms = WindowTerms(
        name="5h", length_s=18_000.0, ceiling_usd=10.0, seen_usd=9.6, seen_at=18_100.0, anchor=0.0
    )
    ours = Spend(
        "ledger", [UsageItem(18_050.0, 18_050.0, 1.0), UsageItem(18_200.0, 18_200.0, 0.2)], whole=False
    )
    now = measure_window(terms, None, ours, 18_300.0)
    assert now.full == pytest.approx(0.98), "seen, and what was spent since"
    assert now.fraction is not None
    assert now.fraction.tag is UsageCertainty.ESTIMATED
    assert measure_window(terms, None, ours, 36_001.0).full == 0.0
    much = Spend("ledger", [UsageItem(18_050.0, 18_050.0, 12.0)], whole=False)
    assert measure_window(terms, None, much, 18_300.0).full == pytest.approx(1.2), (
        "what is measured may be more"
    )
