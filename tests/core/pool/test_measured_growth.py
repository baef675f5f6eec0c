"""The measured controller on the way up, its bounds, and whatever else may happen to it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.core.pool.control.default_measured import (
    FALLS_TO_TRIP,
    INTERVAL_MOST,
    OVERDUE_S,
    PAUSE,
    ROUNDS_REJECT_S,
    ROUNDS_SLOWER,
    round_look,
)
from flyball.core.pool.control.port import SignalContext, UsageSample, cap_for
from flyball.core.pool.learned import FIRST_LOOK, INTERVAL_LEAST, CapEvent, CapState
from flyball.core.pool.plan import LearnedState
from flyball.core.pool.setting_table import resolve_pool
from flyball.core.pool.settings import PoolSettings
from flyball.core.signals import Signal, SignalKind
from flyball.stores.codec import dump, load_memory
from tests.core.kit import T0
from tests.core.measuring import (
    CONFIRM_S,
    CONTROL,
    HOLD_S,
    MANY,
    S,
    calm,
    confirmed,
    looked,
    own,
    probing,
    refused,
)

# -- upwards ----------------------------------------------------------------------------------------


def test_a_level_is_firm_once_it_was_filled_and_no_call_was_refused_since() -> None:
    state = looked(probing(22, firm=20), at=T0 + 1, bound_at=T0 + 1)
    early = looked(state, at=T0 + 1 + CONFIRM_S - 0.01, full=False)
    assert own(early).firm == 20.0
    assert own(looked(state, at=T0 + 1 + CONFIRM_S, full=False)).firm == 22.0


def test_a_level_that_was_never_filled_is_never_firm() -> None:
    assert own(looked(probing(22, firm=20), at=T0 + 9000, full=False)).firm == 20.0


def test_an_admission_that_filled_the_level_before_it_changed_does_not_count() -> None:
    assert own(looked(probing(22, firm=20), at=T0 + 9000, full=False, bound_at=T0 - 1)).firm == 20.0


@pytest.mark.parametrize(
    ("hold_s", "silence_s"), [(0.0, S.confirm_s), (900.0, S.confirm_s), (6.0, 6.0), (0.1, 1.0)]
)
def test_before_a_rejection_was_timed_silence_lasts_a_hold_or_as_long_as_the_settings_say(
    hold_s: float, silence_s: float
) -> None:
    state = looked(probing(22, firm=20, reject_s=0.0), at=T0 + 1, bound_at=T0 + 1, hold_s=hold_s)
    assert own(looked(state, at=T0 + silence_s, full=False, hold_s=hold_s)).firm == 20.0
    assert own(looked(state, at=T0 + 1 + silence_s, full=False, hold_s=hold_s)).firm == 22.0


def test_while_probes_succeed_it_climbs_with_growing_strides() -> None:
    refused_before = replace(calm(20, climbing=True, reject_s=0.0), last_cut_at=T0 - 900)
    state, at, levels = refused_before, T0 + 1, [20.0]
    for _ in range(3):
        state, at = confirmed(state, at=at), at + 100
        levels.append(state.level)
    strides = [after - before for before, after in pairwise(levels)]
    assert strides[0] == 1.0
    assert strides == sorted(strides)
    assert strides[-1] > 1.0


def test_before_the_first_refusal_three_confirmations_double_the_level() -> None:
    state, at, levels = calm(8, climbing=True, reject_s=0.0), T0 + 1, list[float]()
    for _ in range(3):
        state, at = confirmed(state, at=at), at + 100
        levels.append(state.level)
    assert levels == [9.0, 13.5, 20.25]


def test_it_does_not_climb_while_the_cap_is_not_what_limits_work() -> None:
    state = looked(calm(20, climbing=True), at=T0 + 1, bound_at=T0 + 1)
    assert looked(state, at=T0 + 100, full=False, in_use=3).level == 20.0


def test_from_firm_ground_one_step_is_tried_after_so_many_successes() -> None:
    state = confirmed(calm(20, interval=INTERVAL_MOST), oks=int(INTERVAL_MOST) - 1)
    assert state.level == 20.0
    assert looked(state, at=T0 + 100, oks=1).level == 21.0


def test_where_successes_are_rare_a_step_is_tried_after_a_long_time() -> None:
    state = confirmed(calm(20, interval=INTERVAL_MOST))
    assert looked(state, at=T0 + OVERDUE_S / 2).level == 20.0
    assert looked(state, at=T0 + OVERDUE_S + 1).level == 21.0


def test_the_dearer_a_failed_probe_the_longer_it_waits_without_successes() -> None:
    state = confirmed(calm(20, interval=INTERVAL_MOST, reject_s=60.0), at=T0 + 1)
    assert looked(state, at=T0 + OVERDUE_S + 60).level == 20.0


def test_a_refused_probe_goes_back_to_what_was_measured() -> None:
    state, event = refused(probing(21, firm=20), in_flight=21)
    assert (state.level, own(state).firm, event) == (20.0, 20.0, CapEvent.UNDONE)


def test_a_probe_that_finds_nothing_doubles_the_interval_up_to_a_most() -> None:
    intervals = []
    state = probing(21, firm=20, interval=INTERVAL_LEAST)
    for number in range(6):
        state, _ = refused(state, at=T0 + 10 + number, in_flight=21)
        intervals.append(own(state).interval)
        state = replace(probing(21, firm=20), measured=replace(own(state), climbed_from=20.0))
    assert intervals[0] == min(2 * INTERVAL_LEAST, INTERVAL_MOST)
    assert intervals == sorted(intervals)
    assert intervals[-1] == INTERVAL_MOST


def test_a_probe_that_finds_much_shortens_the_interval() -> None:
    found = probing(40, firm=38, interval=INTERVAL_MOST)
    found = replace(found, measured=replace(own(found), climbed_from=20.0))
    state, _ = refused(found, in_flight=40)
    assert state.level == 39.0
    assert own(state).interval < INTERVAL_MOST


def test_far_below_what_was_served_lately_a_probe_comes_sooner_and_near_it_no_sooner() -> None:
    for best, oks, probed in ((80.0, 90, True), (42.0, 90, False), (42.0, 360, True)):
        state = confirmed(calm(40, interval=360.0, best=best), oks=oks)
        assert (state.level > 40) is probed


def test_a_first_look_that_found_nothing_makes_the_next_one_come_later() -> None:
    look = probing(21, firm=20, early=True)
    assert own(refused(look, in_flight=21)[0]).look == 2 * FIRST_LOOK


def test_a_first_look_that_found_something_makes_the_next_one_come_sooner() -> None:
    look = probing(24, firm=23, early=True, look=4 * FIRST_LOOK)
    look = replace(look, measured=replace(own(look), climbed_from=20.0))
    assert own(refused(look, in_flight=24)[0]).look == 2 * FIRST_LOOK


def test_what_first_looks_found_before_an_outage_is_forgotten_after_it() -> None:
    assert own(CONTROL.resume(calm(20, look=8 * FIRST_LOOK), S, T0 + 60)).look == FIRST_LOOK


@pytest.mark.parametrize(
    ("level", "lost", "successes"),
    [(3, 6, 3), (8, 16, 8), (7, 8, 7 * 3), (8, 0, FIRST_LOOK), (12, 24, FIRST_LOOK)],
)
def test_a_small_level_is_probed_after_one_round_of_it_far_below_a_lost_one_and_else_after_three(
    level: float, lost: float, successes: float
) -> None:
    state = calm(level, interval=INTERVAL_MOST, early=True, best=lost, lost=lost)
    state = confirmed(state, oks=int(successes) - 1)
    assert state.level == level
    assert looked(state, at=T0 + 100, oks=1).level == level + 1


def test_rounds_that_find_nothing_come_later_and_later_until_the_usual_pace() -> None:
    waits = list[float]()
    state = calm(3, lost=6.0, look=4 * FIRST_LOOK, interval=INTERVAL_MOST, early=True)
    while (successes := round_look(own(state), 3)) is not None and len(waits) < 200:
        waits.append(successes)
        state = replace(state, level=4.0, measured=replace(own(state), climbed_from=3.0))
        state, _ = refused(state, at=T0 + 10 * len(waits), in_flight=4)
    assert waits[:8] == [3.0] * 8
    assert waits == sorted(waits)
    assert INTERVAL_LEAST / ROUNDS_SLOWER - 1 <= waits[-1] < INTERVAL_LEAST
    assert not own(state).early, "what comes next is not soon after the fall"
    assert own(state).lost == 0, "it is given up"


def test_where_a_rejection_takes_long_fewer_rounds_follow_a_fall() -> None:
    cheap, dear = (own(calm(3, lost=6.0, rounds=8, reject_s=reject_s)) for reject_s in (0.1, ROUNDS_REJECT_S))
    assert round_look(cheap, 3) == 3
    assert round_look(dear, 3) is None


def test_at_a_small_level_a_first_look_that_found_nothing_is_followed_by_another() -> None:
    state, _ = refused(probing(4, firm=3, early=True), in_flight=4)
    assert (own(state).early, own(state).look) == (True, 2 * FIRST_LOOK)
    state = replace(state, level=4.0, measured=replace(own(state), climbed_from=3.0))
    assert not own(refused(state, at=T0 + 20, in_flight=4)[0]).early


def test_a_deep_fall_begins_with_a_round_again() -> None:
    state, event = refused(calm(8, best=7.9, rounds=30), in_flight=4)
    assert event is CapEvent.CUT
    assert (own(state).lost, round_look(own(state), 4)) == (8, 4)


@pytest.mark.parametrize("best", [0.0, 24.0])
def test_a_shallow_fall_and_one_from_a_level_that_was_never_served_lose_nothing(best: float) -> None:
    state, event = refused(calm(8, best=best), in_flight=8 if best else 4)
    assert event is CapEvent.CUT
    assert own(state).lost == 0


def test_a_small_level_climbs_back_to_the_lost_one_and_stops_there() -> None:
    state, levels = calm(4, early=True, best=7.9, lost=8.0), list[float]()
    for step in range(4):
        at = T0 + 100 * (step + 1)
        state = looked(looked(state, at=at, bound_at=at), at=at + CONFIRM_S, oks=8 if step == 0 else 0)
        levels.append(state.level)
    assert levels == [5.0, 7.0, 8.0, 8.0]
    assert (own(state).climbing, own(state).lost) == (False, 0.0)


def test_the_best_level_is_known_from_what_was_served_alone() -> None:
    assert own(confirmed(calm(8))).best == 8.0


def test_a_refused_probe_does_not_pause_the_pool() -> None:
    state, _ = refused(probing(21, firm=20), in_flight=21)
    assert state.hold_until <= T0


def test_a_refusal_of_a_call_within_firm_ground_is_a_fall_even_while_probing() -> None:
    state, event = refused(probing(22, firm=20), in_flight=15)
    assert (state.level, event) == (14.0, CapEvent.CUT)


def test_an_ask_larger_than_the_whole_level_still_makes_it_grow() -> None:
    """No admission ever fills the level: the one in line does not fit into it."""
    state = looked(calm(2, climbing=True), at=T0 + 1, in_use=0)
    assert looked(state, at=T0 + 1 + CONFIRM_S, in_use=0).level == 3.0


def test_time_alone_changes_the_level_next_when_the_silence_has_lasted() -> None:
    state = looked(calm(20), at=T0 + 1, bound_at=T0 + 1)
    assert CONTROL.next_move_at(state, S, T0 + 1) == pytest.approx(T0 + 1 + CONFIRM_S)


@pytest.mark.parametrize("level", [20.0, 64.0])
def test_time_alone_changes_nothing_before_it_is_filled_nor_at_the_ceiling(level: float) -> None:
    state = calm(level) if level < 64 else looked(calm(level), at=T0 + 1, bound_at=T0 + 1)
    assert CONTROL.next_move_at(state, S, T0 + 1) is None


# -- bounds -----------------------------------------------------------------------------------------


def test_a_throttle_at_the_floor_lowers_nothing_and_says_so() -> None:
    state, event = refused(calm(1), in_flight=1)
    assert (state.level, event) == (1.0, CapEvent.AT_FLOOR)


def test_a_refusal_at_a_floor_it_has_only_just_come_down_to_pauses_before_it_counts_as_one() -> None:
    state, _ = refused(calm(2), at=T0 + 10, in_flight=1, hold_s=HOLD_S)
    events, pauses = [], []
    for number in range(1, FALLS_TO_TRIP + 1):
        at = T0 + 10 + 10 * number
        state, event = refused(state, at=at, in_flight=1, hold_s=HOLD_S)
        events.append(event)
        pauses.append(state.hold_until - at)
    assert events == [CapEvent.COUNTED] * (FALLS_TO_TRIP - 1) + [CapEvent.AT_FLOOR]
    assert pauses[:2] == pytest.approx([PAUSE * HOLD_S, 2 * PAUSE * HOLD_S])


def test_a_fall_ends_at_the_floor() -> None:
    s = resolve_pool({"cap": 20, "cap_floor": 12})
    assert refused(calm(20), in_flight=2, s=s)[0].level == 12.0


def test_a_climb_ends_at_the_ceiling() -> None:
    state, at = calm(20, climbing=True), T0 + 1
    for _ in range(60):
        state, at = confirmed(state, at=at, oks=MANY), at + 100
    assert state.level == 64.0


def test_a_refusal_after_the_ceiling_was_lowered_lowers_the_cap() -> None:
    s = resolve_pool({"cap": 4, "cap_ceiling": 4})
    assert refused(calm(64), in_flight=4, s=s)[0].level == 3.0


def test_after_the_floor_was_raised_it_climbs_from_the_floor() -> None:
    s = resolve_pool({"cap": 8, "cap_floor": 8, "cap_ceiling": 64})
    assert confirmed(calm(2, climbing=True), s=s).level == 9.0


# -- the rest of the port ----------------------------------------------------------------------------


def test_it_resumes_at_half_of_what_was_firm() -> None:
    state = CONTROL.resume(probing(24, firm=20, overloads=(1.0, 2.0), falls=3), S, T0 + 60)
    assert (state.level, own(state).falls, own(state).overloads) == (10.0, 0, ())


def test_it_resumes_no_lower_than_the_floor() -> None:
    assert CONTROL.resume(calm(1), S, T0 + 60).level == 1.0


def test_after_resuming_it_climbs_at_once() -> None:
    assert confirmed(CONTROL.resume(calm(20), S, T0 + 60), at=T0 + 61).level > 10.0


def test_what_was_sent_before_it_resumed_is_old_news() -> None:
    state = CONTROL.resume(calm(20), S, T0 + 60)
    assert refused(state, at=T0 + 61, sent=T0 + 59, in_flight=20)[0].level == 10.0


def test_the_breaker_is_open_for_a_part_of_a_usual_hold_and_at_most_for_two() -> None:
    times, longer = (CONTROL.breaker_times(calm(20), S, hold_s) for hold_s in (HOLD_S, 2 * HOLD_S))
    assert 0 < times.break_s <= HOLD_S
    assert times.break_s <= times.break_max_s <= 2 * HOLD_S
    assert (longer.break_s, longer.break_max_s) == (2 * times.break_s, 2 * times.break_max_s)


def test_the_breaker_keeps_within_what_the_settings_allow() -> None:
    s = resolve_pool({"break_s": 10.0, "break_max_s": 15.0, "trial_clean_s": 0.1})
    times = CONTROL.breaker_times(calm(20), s, 780.0)
    assert (times.break_s, times.break_max_s, times.trial_clean_s) == (10.0, 15.0, 0.1)


def test_the_breaker_is_open_for_a_second_at_least() -> None:
    assert CONTROL.breaker_times(calm(20), S, 0.01).break_s == 1.0


def test_a_trial_is_clean_after_the_silence_that_means_yes() -> None:
    assert CONTROL.breaker_times(calm(20), S, HOLD_S).trial_clean_s == pytest.approx(CONFIRM_S)


def test_a_warning_stops_growth_until_an_answer_says_otherwise_and_cuts_nothing() -> None:
    state = looked(calm(20, climbing=True), at=T0 + 1, bound_at=T0 + 1)
    state = CONTROL.freeze(state, S, T0 + 9)
    state = looked(state, at=T0 + 9000)
    assert state.level == 20.0, "silence is not an answer"
    assert looked(state, at=T0 + 9001, oks=1).level == 21.0


def test_a_quota_is_blamed_for_refusals_on_firm_ground_only() -> None:
    def blames(state: CapState, kind: SignalKind = SignalKind.THROTTLED, sent: float = T0 + 9) -> bool:
        heard = SignalContext(signal=Signal(kind), now=T0 + 10, in_use=20, sent_at=sent, in_flight=20)
        return CONTROL.blames_quota(state, S, heard)

    assert blames(calm(20))
    assert not blames(probing(20, firm=19)), "a probe was refused"
    assert not blames(calm(20, epoch_at=T0 + 9.5)), "it was sent before the last cut"
    assert not blames(calm(20), SignalKind.OVERLOADED)


def test_forgiving_takes_a_fall_back() -> None:
    state, _ = refused(calm(20), in_flight=15)
    assert CONTROL.undo_refusals(state, S, T0 + 11).level == 20.0


def test_before_anything_happened_the_level_a_person_set_counts_as_firm() -> None:
    state, event = refused(CapState(level=20.0, settle_until=T0), in_flight=20)
    assert (state.level, event) == (19.0, CapEvent.CUT)


# -- whatever happens -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Move:
    what: str
    wait_s: float
    sent_ago_s: float | None
    in_flight: int | None
    in_use: int
    oks: int
    full: bool
    hold_s: float


_kinds = [kind.value for kind in (SignalKind.THROTTLED, SignalKind.OVERLOADED, SignalKind.TIMEOUT)]
_moves = st.lists(
    st.builds(
        Move,
        st.sampled_from([*_kinds, _kinds[0], "see", "see", "see", "freeze", "resume", "forgive"]),
        st.sampled_from([0.0, 0.01, 0.3, 1.0, 7.0, 60.0, 700.0, 1e5]),
        st.none() | st.sampled_from([0.0, 0.1, 0.5, 20.0, 1e6]),
        st.none() | st.integers(1, 100),
        st.integers(0, 100),
        st.sampled_from([0, 1, 50, 1000]),
        st.booleans(),
        st.sampled_from([0.0, 0.1, 6.0, 780.0]),
    ),
    max_size=60,
)


@st.composite
def _pools(draw: st.DrawFn) -> PoolSettings:
    cap = draw(st.integers(1, 40))
    return resolve_pool(
        {
            "profile": draw(st.sampled_from(["mixed", "agents", "calls"])),
            "cap": cap,
            "cap_floor": draw(st.integers(1, cap)),
            "cap_ceiling": draw(st.integers(cap, 80)),
        }
    )


def _moved(state: CapState, s: PoolSettings, move: Move, now: float) -> CapState:
    if move.what == "see":
        bound_at = now if move.full else -math.inf
        seen = UsageSample(
            now=now,
            in_use=move.in_use,
            bound_now=move.full,
            bound_at=bound_at,
            bound_oks=move.oks,
            hold_mean_s=move.hold_s,
        )
        return CONTROL.on_usage(state, s, seen)
    if move.what in _kinds:
        heard = SignalContext(
            signal=Signal(SignalKind(move.what)),
            now=now,
            in_use=move.in_use,
            sent_at=None if move.sent_ago_s is None else now - move.sent_ago_s,
            in_flight=move.in_flight,
            hold_mean_s=move.hold_s,
        )
        return CONTROL.on_signal(state, s, heard)[0]
    step = {"freeze": CONTROL.freeze, "resume": CONTROL.resume, "forgive": CONTROL.undo_refusals}[move.what]
    return step(state, s, now)


@given(_pools(), _moves)
def test_whatever_happens_the_level_is_a_number_within_its_bounds(s: PoolSettings, moves: list[Move]) -> None:
    state, now = CapState(level=float(s.cap), settle_until=T0), T0
    for move in moves:
        now += move.wait_s
        state = _moved(state, s, move, now)
        assert s.cap_floor <= state.level <= s.cap_ceiling
        assert s.cap_floor <= cap_for(state, s) <= s.cap_ceiling


@given(_pools(), _moves)
def test_whatever_happens_epochs_only_move_forward(s: PoolSettings, moves: list[Move]) -> None:
    state, now = CapState(level=float(s.cap), settle_until=T0), T0
    for move in moves:
        now += move.wait_s
        before, state = state, _moved(state, s, move, now)
        if before.measured is not None:
            assert own(before).epoch_at <= own(state).epoch_at <= now
            assert own(before).changed_at <= max(own(state).changed_at, T0)


@given(_pools(), _moves)
def test_whatever_happens_what_was_learned_survives_being_stored(s: PoolSettings, moves: list[Move]) -> None:
    state, now = CapState(level=float(s.cap), settle_until=T0), T0
    for move in moves:
        now += move.wait_s
        state = _moved(state, s, move, now)
    assert load_memory(dump(LearnedState(state))) == LearnedState(state)


@given(_pools(), _moves)
def test_whatever_happens_time_alone_never_announces_a_move_in_the_past(
    s: PoolSettings, moves: list[Move]
) -> None:
    state, now = CapState(level=float(s.cap), settle_until=T0), T0
    for move in moves:
        now += move.wait_s
        state = _moved(state, s, move, now)
        due = CONTROL.next_move_at(state, s, now)
        assert due is None or now < due < math.inf


@given(_pools(), _moves, st.integers(1, 80))
def test_a_refusal_of_a_fresh_call_always_lowers_a_cap_above_the_floor(
    s: PoolSettings, moves: list[Move], in_flight: int
) -> None:
    state, now = CapState(level=float(s.cap), settle_until=T0), T0
    for move in moves:
        now += move.wait_s
        state = _moved(state, s, move, now)
    after, event = refused(state, at=now + 1, sent=now + 0.9, in_flight=in_flight, s=s)
    if cap_for(state, s) > s.cap_floor:
        assert (event in (CapEvent.CUT, CapEvent.UNDONE), cap_for(after, s) < cap_for(state, s)) == (
            True,
            True,
        )
    else:
        assert event in (CapEvent.AT_FLOOR, CapEvent.UNDONE, CapEvent.COUNTED)
