"""The measured controller on the way down: what refusals, falls and overloads do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flyball.core.pool.control.default_measured import BLIPS_MOST, DEEPER, OVERLOADS_TO_TRIP, PAUSE
from flyball.core.pool.learned import CapEvent, CapState
from flyball.core.pool.local_pool import LocalPool
from flyball.core.pool.setting_table import resolve_pool
from flyball.core.signals import SignalKind
from tests.core.kit import T0
from tests.core.measuring import (
    CONFIRM_S,
    CONTROL,
    HOLD_S,
    REJECT_S,
    S,
    calm,
    confirmed,
    looked,
    mentioned,
    own,
    probing,
    refused,
)

# -- what a refusal measures ------------------------------------------------------------------------


def test_a_refusal_sets_the_level_to_what_was_served_beside_it() -> None:
    state, event = refused(calm(20), in_flight=15)
    assert (state.level, event) == (14.0, CapEvent.CUT)


def test_what_is_in_flight_when_the_refusal_arrives_does_not_matter() -> None:
    levels = {refused(calm(20), in_flight=15, in_use=in_use)[0].level for in_use in (15, 20, 64)}
    assert levels == {14.0}


def test_a_first_fall_with_little_in_flight_goes_to_half_and_no_lower() -> None:
    assert refused(calm(20), in_flight=2, in_use=2)[0].level == 10.0


def test_a_first_fall_of_a_pool_that_is_nearly_idle_goes_to_half_and_no_lower() -> None:
    """Few in flight bound what is made up for after a pause, not what a first refusal may take away."""
    assert refused(calm(20), in_flight=2, in_use=1, hold_s=HOLD_S)[0].level == 10.0


def test_a_refusal_of_a_call_sent_before_the_cut_is_old_news() -> None:
    cut, _ = refused(calm(20), at=T0 + 10, in_flight=15)
    later, event = refused(cut, at=T0 + 10.1, sent=T0 + 9.99, in_flight=18)
    assert (later.level, event, later.throttle_count) == (14.0, CapEvent.COUNTED, 2)


def test_a_refusal_of_a_call_sent_after_the_cut_is_news() -> None:
    cut, _ = refused(calm(20), at=T0 + 10, in_flight=15)
    assert refused(cut, at=T0 + 11, sent=T0 + 10.5, in_flight=14)[1] is CapEvent.CUT


def test_a_report_without_its_call_is_old_news_until_silence_would_have_meant_yes() -> None:
    cut, _ = refused(calm(20), at=T0 + 10, in_flight=15)
    soon = T0 + 10 + CONFIRM_S
    assert mentioned(cut, at=soon - 0.01, in_use=14)[1] is CapEvent.COUNTED
    assert mentioned(cut, at=soon + 0.01, in_use=14)[1] is CapEvent.CUT


def test_a_report_without_its_call_measures_what_is_in_use() -> None:
    assert mentioned(calm(20), in_use=15)[0].level == 14.0


def test_a_report_when_nothing_runs_halves() -> None:
    assert mentioned(calm(20), in_use=0)[0].level == 10.0


def test_of_calls_refused_together_the_one_with_the_fewest_beside_it_measures_best() -> None:
    state, _ = refused(calm(20), at=T0 + 10, in_flight=20)
    for number, in_flight in enumerate((18, 13, 19, 16)):
        state, _ = refused(state, at=T0 + 10.1, sent=T0 + 9 + number / 10, in_flight=in_flight)
    assert (state.level, own(state).firm) == (12.0, 12.0)


def test_a_call_from_before_the_last_level_refines_nothing() -> None:
    state, _ = refused(calm(20), at=T0 + 10, in_flight=15)
    assert refused(state, at=T0 + 10.1, sent=T0 - 1, in_flight=11)[0].level == 14.0


def test_nothing_is_refined_once_the_level_has_moved_on() -> None:
    state, _ = refused(calm(20), at=T0 + 10, in_flight=15)
    grown = confirmed(state, at=T0 + 11)
    assert grown.level > 14.0
    assert refused(grown, at=T0 + 60, sent=T0 + 9, in_flight=11)[0].level == grown.level


def test_how_long_a_rejection_takes_is_learned_from_short_ones_only() -> None:
    quick, _ = refused(calm(20, reject_s=0.0), sent=T0 + 9.5, in_flight=15, hold_s=HOLD_S)
    assert own(quick).reject_s == 0.5
    midway, _ = refused(calm(20), at=T0 + 1000, sent=T0 + 1, in_flight=15, hold_s=HOLD_S)
    assert own(midway).reject_s == REJECT_S


# -- falls ----------------------------------------------------------------------------------------


def test_falls_that_follow_each_other_go_deeper_than_measured() -> None:
    state, _ = refused(calm(60), at=T0 + 10, in_flight=41)
    for number, kept in enumerate((*DEEPER, DEEPER[-1]), start=1):
        served = int(state.level) - 1
        state, event = refused(state, at=T0 + 10 + number, in_flight=served + 1)
        assert (state.level, event) == (int(served * kept), CapEvent.CUT)


def test_firm_ground_between_two_falls_makes_each_a_first_one() -> None:
    state, _ = refused(calm(60, blips=-1), at=T0 + 10, in_flight=41)
    state = confirmed(state, at=T0 + 11)
    assert refused(state, at=T0 + 60, in_flight=41)[0].level == 39.0, "one at least, not a quarter"


def test_after_a_first_fall_starts_wait_as_long_as_silence_needs() -> None:
    state, _ = refused(calm(20), at=T0 + 10, in_flight=15)
    assert state.hold_until == pytest.approx(T0 + 10 + CONFIRM_S)


def test_after_further_falls_starts_pause_for_longer_and_longer_up_to_a_usual_hold() -> None:
    state, _ = refused(calm(60), at=T0 + 10, in_flight=41, hold_s=HOLD_S)
    pauses = []
    for number in range(1, 6):
        at = T0 + 10 + 10 * number
        state, _ = refused(state, at=at, in_flight=int(state.level), hold_s=HOLD_S)
        pauses.append((state.hold_until - at) / HOLD_S)
    assert pauses == pytest.approx([PAUSE, 2 * PAUSE, 1.0, 1.0, 1.0])


def test_after_a_pause_it_does_not_make_up_at_once_for_all_that_ended_meanwhile() -> None:
    state, _ = refused(calm(60), at=T0 + 10, in_flight=41, hold_s=HOLD_S)
    state, _ = refused(state, at=T0 + 11, in_flight=40, in_use=5, hold_s=HOLD_S)
    assert state.level <= 6.0


def test_after_a_single_fall_the_old_level_is_tried_again_at_once() -> None:
    state, _ = refused(calm(20), at=T0 + 10, in_flight=15)
    at, levels = T0 + 11, []
    for _ in range(12):
        state, at = confirmed(state, at=at), at + 100
        levels.append(state.level)
    assert 20.0 in levels, "without a single success to wait for"


def test_once_back_at_the_old_level_it_goes_on_at_the_usual_pace() -> None:
    state, _ = refused(calm(20), at=T0 + 10, in_flight=19)
    at = T0 + 11
    for _ in range(5):
        state, at = confirmed(state, at=at), at + 100
    assert (state.level, own(state).climbing) == (20.0, False)


def _fell_and_stayed(state: CapState, at: float) -> CapState:
    """A fall whose test shows that it was real."""
    state, _ = refused(state, at=at, in_flight=int(state.level))
    state = confirmed(state, at=at + 1)
    if state.level > own(state).firm:
        state, _ = refused(state, at=at + 60, in_flight=int(state.level))
    return state


def test_falls_that_turn_out_to_be_real_are_soon_taken_as_they_are() -> None:
    state, tried = calm(30), []
    for number in range(4):
        at = T0 + 10 + 100 * number
        fallen, _ = refused(state, at=at, in_flight=int(state.level))
        tried.append(own(fallen).testing > 0)
        state = _fell_and_stayed(state, at)
    assert tried[0]
    assert not tried[1]


def test_now_and_then_it_is_asked_again_whether_falls_have_become_blips() -> None:
    state, tried = calm(60), 0
    for number in range(3 * (BLIPS_MOST + 1)):
        at = T0 + 10 + 100 * number
        fallen, _ = refused(state, at=at, in_flight=int(state.level))
        tried += own(fallen).testing > 0
        state = _fell_and_stayed(state, at)
    assert 2 <= tried <= 6


# -- overload and timeouts -------------------------------------------------------------------------


def _overloads(count: int, *, every_s: float, in_use: int = 10) -> tuple[CapState, list[CapEvent]]:
    state, events = calm(20), []
    for number in range(count):
        at = T0 + 10 + every_s * number
        state, event = refused(
            state, at=at, in_flight=12, in_use=in_use, hold_s=HOLD_S, kind=SignalKind.OVERLOADED
        )
        events.append(event)
    return state, events


def test_overload_never_moves_the_level() -> None:
    state, _ = _overloads(50, every_s=0.01)
    assert (state.level, own(state).firm, state.throttle_count) == (20.0, 20.0, 50)


def test_the_breaker_opens_when_overloads_come_as_fast_as_answers_usually_do() -> None:
    # Ten calls of 6 s: an answer every 0.6 s.
    _, events = _overloads(OVERLOADS_TO_TRIP, every_s=0.5)
    assert events == [CapEvent.COUNTED] * (OVERLOADS_TO_TRIP - 1) + [CapEvent.OVERLOADED]


def test_overloads_among_many_more_answers_open_nothing() -> None:
    _, events = _overloads(50, every_s=1.0)
    assert set(events) == {CapEvent.COUNTED}


def test_the_breaker_opens_for_overload_and_for_a_throttle_at_the_floor_only() -> None:
    words = {event: CONTROL.trip_reason(calm(20), S, event) for event in CapEvent}
    assert {event for event, why in words.items() if why} == {CapEvent.AT_FLOOR, CapEvent.OVERLOADED}


@pytest.mark.parametrize("in_use", [1, 40])
def test_a_timeout_takes_a_quarter_once_per_cut(in_use: int) -> None:
    state, event = refused(
        calm(20), at=T0 + 60, sent=T0 + 1, in_use=in_use, hold_s=HOLD_S, kind=SignalKind.TIMEOUT
    )
    assert (state.level, event) == (15.0, CapEvent.CUT)
    again, event = refused(
        state, at=T0 + 61, sent=T0 + 2, in_use=in_use, hold_s=HOLD_S, kind=SignalKind.TIMEOUT
    )
    assert (again.level, event) == (15.0, CapEvent.COUNTED)


def test_a_timeout_says_nothing_about_how_long_a_rejection_takes() -> None:
    state, _ = refused(calm(20, reject_s=0.0), at=T0 + 60, sent=T0 + 1, in_flight=9, kind=SignalKind.TIMEOUT)
    assert own(state).reject_s == 0.0


# -- one by one after a fall ------------------------------------------------------------------------


def test_after_a_fall_calls_start_a_confirmation_apart() -> None:
    assert calm(20).spaced_s == 0.0
    assert refused(calm(20), in_flight=15)[0].spaced_s == pytest.approx(CONFIRM_S)


def test_a_refused_probe_spaces_nothing() -> None:
    assert refused(probing(21, firm=20), in_flight=21)[0].spaced_s == 0.0


def test_every_silent_step_up_after_a_fall_halves_the_gap_between_starts() -> None:
    cut, _ = refused(calm(20), at=T0 + 10, in_flight=15, hold_s=HOLD_S)
    step = looked(looked(cut, at=T0 + 11, bound_at=T0 + 11), at=T0 + 11 + 2 * CONFIRM_S)
    assert step.level > cut.level
    assert step.spaced_s == pytest.approx(cut.spaced_s / 2)


def test_where_nothing_fills_the_level_silence_alone_ends_the_spacing() -> None:
    cut, _ = refused(calm(20), at=T0 + 10, in_flight=15, hold_s=HOLD_S)
    ends_at = CONTROL.next_move_at(cut, S, T0 + 10)
    assert ends_at is not None
    assert looked(cut, at=ends_at - 0.01, full=False).spaced_s > 0
    quiet = looked(cut, at=ends_at, full=False)
    assert (quiet.spaced_s, quiet.level) == (0.0, cut.level)


def test_what_follows_a_quota_or_an_outage_is_not_spaced() -> None:
    cut, _ = refused(calm(20), in_flight=15)
    assert CONTROL.undo_refusals(cut, S, T0 + 11).spaced_s == 0.0
    assert CONTROL.resume(cut, S, T0 + 11).spaced_s == 0.0


def test_the_plan_keeps_starts_apart_while_the_controller_asks_for_it() -> None:
    gate = LocalPool(resolve_pool({"cap": 20, "cap_ceiling": 64}), T0)
    cut, _ = refused(calm(20), in_flight=15)
    gate.memory = replace(gate.memory, cap=cut)
    opens_at = cut.hold_until
    gate.change(gate.settings, opens_at, reseed=False)
    assert gate.earliest_start(opens_at) == opens_at
    gate.start(opens_at)
    assert gate.earliest_start(opens_at) == pytest.approx(opens_at + CONFIRM_S)
