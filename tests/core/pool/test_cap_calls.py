"""The cap under the ``calls`` profile: half a slot per success, halve, a short cooldown."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flyball.core.pool.control.aimd import freeze, grow, resume_at_floor
from flyball.core.pool.control.port import cap_for, count_throttle
from flyball.core.pool.learned import CapEvent, CapState
from flyball.core.pool.settings import PoolSettings
from tests.core.kit import T0, at, pool, throttle

CALLS = pool(profile="calls")


def _succeed(state: CapState, oks: int, now: float = T0 + 100) -> CapState:
    return grow(state, CALLS, bound_at=now, bound_oks=oks, now=now)


def test_the_cap_starts_at_two_and_grows_by_one_per_two_successes() -> None:
    assert [cap_for(_succeed(at(2.0), oks), CALLS) for oks in range(5)] == [2, 2, 3, 3, 4]


def test_the_cap_stops_at_twelve() -> None:
    assert _succeed(at(2.0), 1000).level == 12.0


def test_a_throttle_halves_the_level_not_the_rounded_cap() -> None:
    state, event = throttle(at(7.0), CALLS, T0 + 1)
    assert (state.level, cap_for(state, CALLS), event) == (3.5, 3, CapEvent.CUT)


def test_no_growth_during_the_cooldown_after_a_cut() -> None:
    state, _ = throttle(at(8.0), CALLS, T0 + 1)
    assert _succeed(state, 5, T0 + 8.9) is state
    calm = _succeed(state, 5, T0 + 9)
    assert calm.level == 4.0, "what succeeded before the end of the cooldown counts for nothing"
    assert _succeed(calm, 1, T0 + 9.1).level == 4.5


def test_beyond_just_under_what_failed_it_grows_by_half_a_slot_per_round() -> None:
    state = at(6.0, failed_level=7.0)
    assert _succeed(state, 6).level == 6.0 + sum(0.5 / x for x in _rounds(6.0, 6))


def _rounds(level: float, count: int) -> list[float]:
    levels = []
    for _ in range(count):
        levels.append(level)
        level += 0.5 / level
    return levels


def test_without_successes_at_a_full_cap_nothing_grows() -> None:
    state = at(2.0)
    assert grow(state, CALLS, bound_at=float("-inf"), bound_oks=0, now=T0 + 100) is state


def test_the_floor_is_one() -> None:
    state = at(8.0)
    for n in range(10):
        state, _ = throttle(state, CALLS, T0 + 10 * n)
    assert cap_for(state, CALLS) == 1


# -- whatever happens -------------------------------------------------------------------------------


@st.composite
def _pools(draw: st.DrawFn) -> PoolSettings:
    cap = draw(st.integers(1, 40))
    return pool(
        profile=draw(st.sampled_from(["mixed", "agents", "calls"])),
        cap=cap,
        cap_floor=draw(st.integers(1, cap)),
        cap_ceiling=draw(st.integers(cap, 80)),
    )


_moves = st.lists(
    st.tuples(
        st.sampled_from(["throttle", "count", "grow", "freeze", "resume"]),
        st.integers(0, 400),
        st.integers(0, 5),
        st.booleans(),
    ),
    max_size=60,
)


@given(_pools(), _moves)
def test_the_cap_stays_between_floor_and_ceiling_whatever_happens(
    s: PoolSettings, moves: list[tuple[str, int, int, bool]]
) -> None:
    state, now = CapState(level=float(s.cap)), T0
    for what, wait_s, number, full in moves:
        now += wait_s
        state = _moved(state, s, what, number, now if full else now - 1000, now)
        assert s.cap_floor <= cap_for(state, s) <= s.cap_ceiling
        assert s.cap_floor <= state.level <= s.cap_ceiling


def _moved(state: CapState, s: PoolSettings, what: str, number: int, bound_at: float, now: float) -> CapState:
    name = f"t-{number}"
    if what == "throttle":
        before = cap_for(state, s)
        state, event = throttle(state, s, now, name=name)
        if event in (CapEvent.CUT, CapEvent.DEEPENED):
            assert cap_for(state, s) < before, "a cut that cuts nothing"
        return state
    if what == "count":
        return count_throttle(state, s, project="a", name=name, now=now)
    if what == "grow":
        return grow(state, s, bound_at=bound_at, bound_oks=number, now=now)
    return freeze(state, s, now) if what == "freeze" else resume_at_floor(state, s, now)


@given(_pools(), st.integers(1, 200), st.floats(0, 10_000))
def test_a_cut_always_lowers_a_cap_above_the_floor(s: PoolSettings, level: int, wait_s: float) -> None:
    """Also where the learned level lies outside the bounds, because they were changed since."""
    before = at(float(level))
    after, event = throttle(before, s, T0 + wait_s)
    if cap_for(before, s) > s.cap_floor:
        assert (event, cap_for(after, s) < cap_for(before, s)) == (CapEvent.CUT, True)


@given(_pools(), st.integers(1, 40), st.integers(0, 100_000))
def test_an_idle_cap_never_grows(s: PoolSettings, level: int, wait_s: int) -> None:
    state = at(float(level))
    later = grow(state, s, bound_at=float("-inf"), bound_oks=0, now=T0 + wait_s)
    assert cap_for(later, s) == cap_for(state, s)
