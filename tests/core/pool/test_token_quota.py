"""A quota found out from its refusals alone: when it is believed, how it paces, and when it is given up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.core.pool import token_quota as quotas
from flyball.core.pool.learned import CapState
from flyball.core.pool.plan import LearnedState
from flyball.core.pool.rate_window import Source, Window
from flyball.core.pool.token_quota import (
    CUSHION_S,
    FULL_REFUTES,
    GIVEN_UP_S,
    INVERSIONS,
    LEAST_EMPTIES,
    REFUTING,
    SAVING,
    Quota,
)
from flyball.stores.codec import dump, load_memory
from tests.core.kit import T0

HOLD_S = 6.0
GAP_S = 10.0
PER_S = 2.0
"""Requests accepted per second; each has 100 tokens unless said otherwise."""
LATER = T0 + 10 * GAP_S


def work(at: float, *, tokens_each: float = 100.0, per_s: float = PER_S) -> dict[str, float]:
    requests = per_s * (at - T0)
    return {"requests": requests, "tokens": requests * tokens_each}


def refused(
    quota: Quota,
    at: float,
    *,
    in_flight: float = 8.0,
    named: bool = False,
    done: dict[str, float] | None = None,
    level: float = 100.0,
) -> Quota:
    return quotas.on_refusal(
        quota,
        work=work(at) if done is None else done,
        in_flight=in_flight,
        named=named,
        hold_s=HOLD_S,
        now=at,
        level=level,
    )


def served(quota: Quota, at: float, *, high: float = 8.0) -> Quota:
    return quotas.on_success(quota, high=high, hold_s=HOLD_S, now=at)


def emptied(
    count: int = LEAST_EMPTIES + 1,
    *,
    inverted: bool = True,
    named: bool = False,
    done: Sequence[dict[str, float]] = (),
    levels: tuple[float, float] = (8.0, 4.0),
) -> Quota:
    """So many refusals, one every GAP_S, with more in flight or less; after each as much is served again as
    was refused, or not."""
    quota = Quota()
    for number in range(1, count + 1):
        at, in_flight = T0 + number * GAP_S, levels[number % 2]
        quota = refused(quota, at, in_flight=in_flight, named=named, done=done[number - 1] if done else None)
        if inverted:
            quota = served(quota, at + 1)
    return quota


BELIEVED = emptied()


# -- inversions -------------------------------------------------------------------------------------


def test_as_much_served_soon_after_a_refusal_as_was_refused_is_an_inversion() -> None:
    assert served(refused(Quota(), T0 + 1), T0 + 2).inversions == (T0 + 2,)


def test_less_in_flight_than_was_refused_inverts_nothing() -> None:
    assert served(refused(Quota(), T0 + 1), T0 + 2, high=7.0).inversions == ()


def test_as_much_served_long_after_a_refusal_inverts_nothing() -> None:
    """Seats come back too, in time."""
    assert served(refused(Quota(), T0 + 1), T0 + 1 + 10 * HOLD_S).inversions == ()


def test_too_late_for_as_much_a_refusal_is_still_inverted_by_twice_as_much() -> None:
    """It is not forgotten on the way up."""
    late = served(refused(Quota(), T0, in_flight=8.0), T0 + 5 * HOLD_S)
    assert not late.inversions
    assert len(served(late, T0 + 6 * HOLD_S, high=16.0).inversions) == 1


def test_one_refusal_is_inverted_once() -> None:
    quota = served(refused(Quota(), T0 + 1), T0 + 2)
    assert served(quota, T0 + 3).inversions == (T0 + 2,)


def test_of_refusals_close_together_the_one_with_the_fewest_in_flight_is_compared_with() -> None:
    quota = refused(refused(Quota(), T0 + 1, in_flight=9.0), T0 + 1.5, in_flight=5.0)
    assert served(quota, T0 + 2, high=5.0).inversions == (T0 + 2,)


# -- belief -----------------------------------------------------------------------------------------


def test_a_quota_is_believed_after_inversions_and_a_straight_line_of_empty_moments() -> None:
    assert (BELIEVED.believed, BELIEVED.unit in ("requests", "tokens")) == (True, True)


def test_without_inversions_a_straight_line_proves_nothing() -> None:
    assert not emptied(inverted=False).believed


def test_a_single_inversion_proves_nothing() -> None:
    quota = served(refused(Quota(), T0 + 1), T0 + 2)
    for number in range(1, LEAST_EMPTIES + 2):
        quota = refused(quota, T0 + number * GAP_S)
    assert INVERSIONS > 1
    assert not quota.believed


def test_inversions_without_a_straight_line_prove_nothing() -> None:
    crooked = [
        {"requests": n * 20.0 + (9.0 if n % 2 else -9.0), "tokens": n * 999.0 + (n % 3) * 5e3}
        for n in range(1, 9)
    ]
    assert not emptied(8, done=crooked).believed


def test_too_few_empty_moments_prove_nothing() -> None:
    assert not emptied(LEAST_EMPTIES - 1).believed


def test_too_few_calls_prove_nothing() -> None:
    few = [work(T0 + n * GAP_S, per_s=0.1) for n in range(1, 9)]
    assert not emptied(8, done=few).believed


def test_refusals_of_one_moment_are_one_empty_moment() -> None:
    quota = Quota()
    for number in range(50):
        quota = refused(quota, T0 + 1 + number / 100)
    assert len(quota.empties) == 1


def test_refusals_with_about_as_many_in_flight_each_time_are_what_seats_do() -> None:
    assert not emptied(levels=(8.0, 7.0)).believed


def test_calls_so_short_that_nothing_is_recent_prove_nothing() -> None:
    quota = Quota()
    for number in range(40):
        at = T0 + number * 0.2
        quota = quotas.on_refusal(
            quota, work=work(at), in_flight=4.0, named=False, hold_s=0.1, now=at, level=100.0
        )
        quota = quotas.on_success(quota, high=8.0, hold_s=0.1, now=at + 0.1)
    assert not quota.believed


def test_a_provider_that_names_the_quota_needs_no_inversions() -> None:
    assert emptied(inverted=False, named=True).believed


def test_a_provider_that_names_the_quota_still_needs_a_line_to_read_the_refill_from() -> None:
    assert not emptied(LEAST_EMPTIES - 1, inverted=False, named=True).believed


def test_the_refill_is_what_was_accepted_between_empty_moments() -> None:
    quota = emptied(done=[{"requests": n * 20.0, "tokens": 0.0} for n in range(1, 9)])
    assert quota.unit == "requests"
    assert quota.per_s == pytest.approx(PER_S)


def test_the_unit_is_the_one_that_was_accepted_in_the_straightest_line() -> None:
    tokens = [{"requests": n * 20.0 + (n % 2) * 3, "tokens": n * 500.0} for n in range(1, 9)]
    requests = [{"requests": n * 20.0, "tokens": n * 500.0 + (n % 2) * 60} for n in range(1, 9)]
    assert (emptied(done=tokens).unit, emptied(done=requests).unit) == ("tokens", "requests")


@given(st.floats(1, 50), st.floats(10, 5_000), st.integers(LEAST_EMPTIES + 1, 8))
def test_any_steady_refill_is_found(per_s: float, tokens_each: float, count: int) -> None:
    done = [work(T0 + n * GAP_S, per_s=per_s, tokens_each=tokens_each) for n in range(1, count + 1)]
    quota = emptied(count, done=done)
    each = {"requests": 1.0, "tokens": tokens_each}
    assert quota.per_s == pytest.approx(per_s * each[quota.unit])


# -- being wrong ------------------------------------------------------------------------------------


def _refuted(quota: Quota, *, every_s: float) -> Quota:
    for number in range(1, REFUTING + 2):
        quota = refused(quota, LATER + every_s * number)
    return quota


def test_refusals_that_go_on_in_spite_of_the_pacing_refute_it() -> None:
    quota = _refuted(BELIEVED, every_s=5.0)
    assert (quota.believed, quota.unit) == (False, "")


def test_a_refusal_now_and_then_is_what_pacing_expects() -> None:
    assert _refuted(BELIEVED, every_s=120.0).believed


def test_refusals_of_calls_that_found_the_level_full_refute_it_sooner() -> None:
    """So many in flight, and not one more: that is what seats do."""
    quota = BELIEVED
    for number in range(1, FULL_REFUTES + 1):
        quota = refused(quota, LATER + 100.0 * number, in_flight=10.0, level=10.0)
    assert not quota.believed


def _emptied_again(quota: Quota, since: float) -> Quota:
    for number in range(1, 9):
        at = since + number * GAP_S
        quota = served(refused(quota, at, in_flight=4.0 if number % 2 else 8.0), at + 1)
    return quota


def test_what_was_refuted_is_not_believed_again_for_a_while() -> None:
    quota = _refuted(BELIEVED, every_s=5.0)
    given_up = LATER + 5.0 * (REFUTING + 1)
    quota = _emptied_again(quota, given_up)
    assert not quota.believed
    assert _emptied_again(quota, given_up + GIVEN_UP_S).believed


def test_a_quota_that_changed_is_estimated_anew() -> None:
    """It was halved: every 120 s, a refusal, and half the work between them."""
    quota, at = emptied(done=[{"requests": n * 20.0, "tokens": 0.0} for n in range(1, 7)]), T0 + 60
    requests = 120.0
    for _ in range(8):
        at, requests = at + 120.0, requests + 120.0
        quota = refused(quota, at, done={"requests": requests, "tokens": 0.0})
    assert quota.per_s == pytest.approx(PER_S / 2, rel=0.01)


# -- the pace ---------------------------------------------------------------------------------------


def _pace(since_s: float) -> float:
    """The refill after so long without a refusal, as a part of the estimate."""
    quota = replace(BELIEVED, anchor_at=T0)
    window = quotas.estimated_window(quota, T0)
    return quotas.with_refill_at(window, quota, T0 + since_s).refill_per_s / quota.per_s


def test_right_after_an_empty_moment_the_window_is_empty_and_saves() -> None:
    window = quotas.estimated_window(BELIEVED, LATER)
    assert (window.level_at(LATER), window.source) == (0.0, Source.ESTIMATED)
    assert window.refill_per_s == pytest.approx(BELIEVED.per_s * (1 - SAVING))


def test_it_saves_until_the_cushion_is_there_and_then_overdraws() -> None:
    saved_s = CUSHION_S / SAVING
    assert _pace(saved_s - 1) == pytest.approx(1 - SAVING)
    assert 1.0 < _pace(saved_s + 1) < 1.05


def test_the_overdraft_grows_while_nothing_is_refused() -> None:
    paces = [_pace(60.0 * minutes) for minutes in range(1, 30)]
    assert paces == sorted(paces)


def test_long_without_a_refusal_the_pacing_fades() -> None:
    assert _pace(3600.0) > 2.0


def test_idle_time_earns_a_few_seconds_worth_and_no_more() -> None:
    quota = replace(BELIEVED, anchor_at=T0)
    window = quotas.with_refill_at(quotas.estimated_window(quota, T0), quota, T0 + 3600)
    assert window.level == pytest.approx(quota.per_s * CUSHION_S)


# -- among other windows ------------------------------------------------------------------------------


def _others() -> tuple[Window, ...]:
    return (Window("requests", 60.0, 1.0, 60.0, T0), Window("tokens", 6e4, 1e3, 5.0, T0, Source.REPORTED))


def test_without_belief_the_windows_stay_as_they_are() -> None:
    assert quotas.with_estimated_window(_others(), Quota(), T0) == _others()


def test_a_belief_adds_its_window_and_leaves_the_others() -> None:
    windows = quotas.with_estimated_window(_others(), BELIEVED, LATER)
    assert windows[:2] == _others()
    assert [window.source for window in windows[2:]] == [Source.ESTIMATED]


def test_a_belief_given_up_takes_its_window_away() -> None:
    windows = quotas.with_estimated_window(_others(), BELIEVED, LATER)
    assert quotas.with_estimated_window(windows, Quota(given_up_until=LATER + 900), LATER + 1) == _others()


def test_another_refusal_empties_the_window_again() -> None:
    windows = quotas.with_estimated_window((), BELIEVED, LATER)
    again = refused(BELIEVED, LATER + 100)
    (window,) = quotas.with_estimated_window(windows, again, LATER + 100)
    assert window.level_at(LATER + 100) == 0.0


def test_looking_again_does_not_empty_it() -> None:
    quota = replace(BELIEVED, anchor_at=LATER)
    windows = quotas.with_estimated_window((), quota, LATER)
    for wait_s in (1.0, 2.0, 3.0):
        windows = quotas.with_estimated_window(windows, quota, LATER + wait_s)
    assert windows[0].level_at(LATER + 3) == pytest.approx(3 * BELIEVED.per_s * (1 - SAVING))


def test_what_was_refused_before_the_empty_moment_gives_nothing_back_to_it() -> None:
    (window,) = quotas.with_estimated_window((), BELIEVED, LATER)
    assert not window.owes(LATER - 0.1, {BELIEVED.unit: 0.0})


@pytest.mark.parametrize("quota", [Quota(), emptied(3), BELIEVED, _refuted(BELIEVED, every_s=5.0)])
def test_what_was_found_out_survives_being_stored(quota: Quota) -> None:
    memory = LearnedState(CapState(8.0), quota=quota)
    assert load_memory(dump(memory)) == memory


_events = st.lists(
    st.tuples(
        st.booleans(),
        st.sampled_from([0.0, 0.1, 1.0, 5.0, 30.0, 1000.0]),
        st.integers(1, 20),
        st.sampled_from([0, 1, 10, 100]),
        st.booleans(),
    ),
    max_size=60,
)


@given(_events, st.sampled_from([0.0, 0.1, 6.0, 780.0]))
def test_whatever_is_refused_and_served_the_window_to_pace_by_makes_sense(
    events: list[tuple[bool, float, int, int, bool]], hold_s: float
) -> None:
    quota, now, done = Quota(), T0, 0
    windows: tuple[Window, ...] = ()
    for is_refusal, wait_s, level, accepted, named in events:
        now, done = now + wait_s, done + accepted
        if is_refusal:
            quota = quotas.on_refusal(
                quota,
                work={"requests": float(done), "tokens": done * 7.0},
                in_flight=float(level),
                named=named,
                hold_s=hold_s,
                now=now,
            )
        else:
            quota = quotas.on_success(quota, high=float(level), hold_s=hold_s, now=now)
        windows = quotas.with_estimated_window(windows, quota, now)
        assert len(windows) == quota.believed
        assert all(window.refill_per_s > 0 and window.limit > 0 for window in windows)
