"""The breaker is its table: every pair of phase and event is either listed or a bug."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.core.pool.breaker import TRANSITIONS, BreakerEvent, BreakerState, step
from flyball.core.pool.model import Phase
from flyball.core.pool.settings import PoolSettings
from flyball.errors import InvariantError
from tests.cases import every
from tests.core.kit import T0, pool

S = pool()


def stepped(
    state: BreakerState, event: BreakerEvent, s: PoolSettings, *, now: float, why: str = ""
) -> BreakerState:
    return step(state, event, now=now, break_s=s.break_s, break_max_s=s.break_max_s, why=why)


OPEN, TRIAL = BreakerState(Phase.OPEN, T0 + 300, since=T0), BreakerState(Phase.TRIAL, T0, since=T0)


@every("phase", Phase)
@every("event", BreakerEvent)
def test_every_phase_and_event_is_listed_or_refused(phase: Phase, event: BreakerEvent) -> None:
    state = BreakerState(phase)
    if (phase, event) in TRANSITIONS:
        assert stepped(state, event, S, now=T0).phase is TRANSITIONS[phase, event]
    else:
        with pytest.raises(InvariantError, match=phase.value):
            stepped(state, event, S, now=T0)


def test_the_table_is_the_one_in_the_design() -> None:
    words = {(phase.value, event.value): to.value for (phase, event), to in TRANSITIONS.items()}
    assert words == {
        ("closed", "trip"): "open",
        ("open", "elapsed"): "trial",
        ("trial", "clean"): "closed",
        ("trial", "throttled"): "open",
        ("trial", "vanished"): "open",
    }


def test_the_first_break_is_five_minutes_and_says_why() -> None:
    opened = stepped(BreakerState(), BreakerEvent.TRIP, S, now=T0, why="three cuts")
    assert (opened.open_until, opened.since, opened.why, opened.reopens) == (T0 + 300, T0, "three cuts", 0)


@pytest.mark.parametrize("event", [BreakerEvent.THROTTLED, BreakerEvent.VANISHED])
def test_each_failed_trial_doubles_the_break_up_to_an_hour(event: BreakerEvent) -> None:
    state, breaks = stepped(BreakerState(), BreakerEvent.TRIP, S, now=T0), []
    for _ in range(6):
        state = stepped(stepped(state, BreakerEvent.ELAPSED, S, now=T0), event, S, now=T0)
        breaks.append(state.open_until - T0)
    assert breaks == [600, 1200, 2400, 3600, 3600, 3600]


def test_a_clean_trial_resets_the_doubling() -> None:
    closed = stepped(BreakerState(Phase.TRIAL, reopens=5), BreakerEvent.CLEAN, S, now=T0)
    assert closed == BreakerState(since=T0)
    assert stepped(closed, BreakerEvent.TRIP, S, now=T0).open_until == T0 + 300


def test_the_trial_keeps_how_often_the_breaker_restepped() -> None:
    assert stepped(BreakerState(Phase.OPEN, reopens=2), BreakerEvent.ELAPSED, S, now=T0).reopens == 2


@given(st.integers(0, 10**6), st.floats(1, 1e6), st.floats(1, 1e6))
def test_a_break_is_never_longer_than_its_limit(reopens: int, break_s: float, break_max_s: float) -> None:
    s = pool(break_s=break_s, break_max_s=break_max_s)
    opened = stepped(BreakerState(Phase.TRIAL, reopens=reopens), BreakerEvent.THROTTLED, s, now=T0)
    assert T0 < opened.open_until <= T0 + break_max_s
