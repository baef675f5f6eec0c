"""The adaptive cap: cut, settle, undo, return quickly, probe slowly."""

from __future__ import annotations

import pytest

from flyball.core.pool.control.aimd import freeze, grow, next_move_at, resume_at_floor
from flyball.core.pool.control.port import HISTORY_LIMIT, cap_for
from flyball.core.pool.learned import CapEvent, CooldownState
from tests.cases import every
from tests.core.kit import PROBE_S, SETTLE_S, T0, at, cut, pool, probed, throttle

MIXED = pool()
IDLE = float("-inf")


@every("before, after", [(16, 8), (8, 4), (7, 3), (4, 2), (3, 1), (2, 1)])
def test_a_throttle_halves_the_cap(before: int, after: int) -> None:
    state, event = throttle(at(before), MIXED, T0 + 1)
    assert (cap_for(state, MIXED), event) == (after, CapEvent.CUT)


def test_a_cut_stops_at_the_floor() -> None:
    s = pool(cap_floor=3)
    state, _ = throttle(at(4), s, T0 + 1)
    assert cap_for(state, s) == 3


def test_a_throttle_at_the_floor_changes_nothing_and_says_so() -> None:
    before = at(1)
    after, event = throttle(before, MIXED, T0 + 1)
    assert event is CapEvent.AT_FLOOR
    assert (after.level, after.settle_until) == (before.level, before.settle_until)


def test_a_throttle_during_settle_does_not_lower_the_cap_again() -> None:
    state, event = throttle(cut(4, failed=8), MIXED, T0 + SETTLE_S - 1)
    assert (state.level, event) == (4, CapEvent.COUNTED)


def test_a_throttle_after_settle_lowers_the_cap_again() -> None:
    state, event = throttle(cut(4, failed=8), MIXED, T0 + SETTLE_S)
    assert (state.level, event) == (2, CapEvent.CUT)


def test_every_throttle_is_counted_whatever_else_it_does() -> None:
    state = at(8)
    for n in range(5):
        state, _ = throttle(state, MIXED, T0 + n)
    assert (state.throttle_count, state.last_throttle_at) == (5, T0 + 4)


def test_a_settle_after_a_cut_freezes_growth_too() -> None:
    state = cut(4, failed=8)
    assert grow(state, MIXED, bound_at=T0 + 119, bound_oks=9, now=T0 + 119) is state


# -- bursts -----------------------------------------------------------------------------------------


def test_three_distinct_tasks_within_the_window_cut_by_four() -> None:
    state = cut(16, failed=32)
    for n, ago in enumerate((20, 10)):
        state, _ = throttle(state, MIXED, T0 + SETTLE_S - ago, name=f"t-{n}")
    state, event = throttle(state, MIXED, T0 + SETTLE_S, name="t-3")
    assert (state.level, event) == (4, CapEvent.CUT)


@pytest.mark.parametrize(
    ("projects", "names", "distinct"),
    [("aaa", "111", False), ("aaa", "112", False), ("aaa", "123", True), ("abc", "111", True)],
)
def test_a_burst_counts_distinct_tasks_not_throttles(projects: str, names: str, distinct: bool) -> None:
    state = at(16)
    for project, name in zip(projects, names, strict=True):
        state, _ = throttle(state, MIXED, T0 + 1, project=project, name=name)
    assert state.level == (4 if distinct else 8)


def test_throttles_outside_the_window_are_not_a_burst() -> None:
    state = at(16)
    for n in range(3):
        state, _ = throttle(state, MIXED, T0 + n * 31, name=f"t-{n}")
    assert state.level == 8


def test_a_burst_deepens_the_cut_it_began_with_once_and_as_one_cut() -> None:
    state, _ = throttle(at(32), pool(cap=32), T0 + 1, name="t-0")
    events = []
    for n in range(1, 8):
        state, event = throttle(state, pool(cap=32), T0 + 1 + n, name=f"t-{n}")
        events.append(event)
    assert events.count(CapEvent.DEEPENED) == 1
    assert (state.level, len(state.cuts)) == (8, 1)


def test_a_burst_long_after_the_cut_deepens_nothing() -> None:
    state = cut(8, failed=16)
    for n in range(3):
        state, event = throttle(state, MIXED, T0 + 60, name=f"new-{n}")
        assert event is CapEvent.COUNTED
    assert state.level == 8


def test_the_history_is_bounded() -> None:
    state = at(8)
    for n in range(1000):
        state, _ = throttle(state, MIXED, T0 + n / 1000, name=f"t-{n}")
    assert len(state.throttles) <= HISTORY_LIMIT


# -- after a probe ----------------------------------------------------------------------------------


def test_a_throttle_right_after_a_probe_undoes_it_at_once() -> None:
    state, event = throttle(probed(9), MIXED, T0 + 1)
    assert (state.level, event, state.settling) == (8, CapEvent.UNDONE, CooldownState.CUT)


def test_an_undone_probe_is_undone_once() -> None:
    state, _ = throttle(probed(9), MIXED, T0 + 1)
    state, event = throttle(state, MIXED, T0 + 2)
    assert (state.level, event) == (8, CapEvent.COUNTED)


def test_an_undone_probe_is_not_a_cut() -> None:
    state, _ = throttle(probed(9), MIXED, T0 + 1)
    assert state.cuts == ()


def test_a_throttle_long_after_a_probe_is_a_cut() -> None:
    state, event = throttle(probed(9), MIXED, T0 + SETTLE_S)
    assert (state.level, event) == (4, CapEvent.CUT)


# -- growing ----------------------------------------------------------------------------------------


def test_the_cap_grows_one_step_per_quiet_period_counted_from_the_end_of_settle() -> None:
    state = at(8)
    early, due = T0 + PROBE_S - 1, T0 + PROBE_S
    assert grow(state, MIXED, bound_at=early, bound_oks=0, now=early) is state
    grown = grow(state, MIXED, bound_at=due, bound_oks=0, now=due)
    assert (grown.level, grown.settle_until, grown.settling) == (9, due + SETTLE_S, CooldownState.PROBE)
    assert next_move_at(grown, MIXED, due) == due + SETTLE_S + PROBE_S


def test_a_pool_that_is_not_full_never_grows() -> None:
    state = at(8)
    assert grow(state, MIXED, bound_at=IDLE, bound_oks=0, now=T0 + 8 * 3600) is state


def test_a_pool_that_was_full_long_ago_does_not_grow() -> None:
    state = at(8)
    assert grow(state, MIXED, bound_at=T0 + 1, bound_oks=0, now=T0 + 3600) is state


def test_the_cap_climbs_past_its_start_up_to_the_ceiling_and_no_further() -> None:
    state, now = at(8), T0
    for _ in range(100):
        now += SETTLE_S + PROBE_S
        state = grow(state, MIXED, bound_at=now, bound_oks=0, now=now)
    assert cap_for(state, MIXED) == 16
    assert next_move_at(state, MIXED, now) is None


def test_after_a_cut_the_cap_halves_the_distance_once_per_settle_to_just_under_what_failed() -> None:
    state, now, levels = cut(8, failed=16), T0, []
    for _ in range(4):
        now += SETTLE_S
        state = grow(state, MIXED, bound_at=now, bound_oks=0, now=now)
        levels.append(state.level)
    assert levels == [12, 14, 15, 15]


def test_beyond_the_level_that_failed_the_cap_probes_slowly() -> None:
    state = at(15, failed_level=16.0)
    assert grow(state, MIXED, bound_at=T0 + 299, bound_oks=0, now=T0 + 299) is state
    grown = grow(state, MIXED, bound_at=T0 + 300, bound_oks=0, now=T0 + 300)
    assert (grown.level, grown.failed_level) == (16, 16.0)


def test_a_level_that_has_been_passed_is_no_longer_remembered_as_failed() -> None:
    grown = grow(at(10, failed_level=10.0), MIXED, bound_at=T0 + 300, bound_oks=0, now=T0 + 300)
    assert (grown.level, grown.failed_level) == (11, None)


# -- near the limit, and after a trial --------------------------------------------------------------


def test_near_the_limit_the_cap_stands_still_for_one_settle() -> None:
    state = freeze(at(8), MIXED, T0 + 250)
    assert state.level == 8
    assert grow(state, MIXED, bound_at=T0 + 369, bound_oks=0, now=T0 + 369) is state


def test_a_warning_during_settle_does_not_prolong_it() -> None:
    state = cut(4, failed=8)
    assert freeze(state, MIXED, T0 + 60) is state


def test_a_throttle_after_a_warning_still_cuts() -> None:
    state, event = throttle(freeze(at(8), MIXED, T0 + 1), MIXED, T0 + 2)
    assert (state.level, event) == (4, CapEvent.CUT)


def test_after_a_clean_trial_the_cap_starts_at_the_floor_and_knows_where_to_return_to() -> None:
    state = resume_at_floor(cut(4, failed=8), MIXED, T0 + 500)
    assert (state.level, state.failed_level, state.cuts) == (1, 8, ())
    assert state.settle_until == T0 + 500 + SETTLE_S


def test_an_outage_is_remembered_by_the_level_before_its_first_cut() -> None:
    state, now = at(16), T0 + 1
    for _ in range(3):
        state, _ = throttle(state, MIXED, now)
        now += SETTLE_S
    assert (state.level, resume_at_floor(state, MIXED, now).failed_level) == (2, 16)


# -- a static pool ----------------------------------------------------------------------------------


def test_a_static_pool_has_the_cap_it_was_given() -> None:
    s = pool(cap=5, adaptive=False)
    assert cap_for(at(2), s) == 5
    assert next_move_at(at(2), s, T0) is None
