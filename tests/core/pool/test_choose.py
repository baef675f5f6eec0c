"""Who of the waiting is next: aged priority, then the neediest project, then arrival."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from flyball.core.pool.admission import choose, judge
from flyball.core.pool.fairness import need, rank_asks
from flyball.core.pool.model import Candidate, Limits, MachineUse, Meters, Phase, PoolCounts, ProjectUse
from flyball.core.pool.settings import ShareRule
from tests.core.kit import LIMITS, T0

AGEING_S = 60.0
NO_MACHINE = MachineUse()
Line = tuple[list[Candidate], dict[str, ProjectUse]]


@st.composite
def lines(draw: st.DrawFn) -> Line:
    """The oldest ask of each (project, priority), as a store would show them."""
    projects = draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True))
    uses = {
        name: ProjectUse(name, in_use=draw(st.integers(0, 6)), weight=draw(st.sampled_from([1.0, 2.0, 0.5])))
        for name in projects
    }
    pairs = draw(
        st.lists(
            st.tuples(st.sampled_from(projects), st.integers(-2, 3)), min_size=1, max_size=8, unique=True
        )
    )
    waits = sorted((draw(st.integers(0, 1000)) for _ in pairs), reverse=True)
    asks = [
        Candidate(n, project, priority, draw(st.integers(1, 4)), {}, T0 - waited)
        for n, ((project, priority), waited) in enumerate(zip(pairs, waits, strict=True), start=1)
    ]
    return draw(st.permutations(asks)), uses


limits_ = st.builds(
    lambda cap, extra, reserve, share, phase: replace(
        LIMITS, cap=cap, ceiling=cap + extra, reserve=reserve, share=share, phase=phase
    ),
    st.integers(1, 10),
    st.integers(0, 10),
    st.integers(0, 3),
    st.sampled_from(ShareRule),
    st.sampled_from([Phase.CLOSED, Phase.TRIAL]),
)


def _choose(
    asks: Sequence[Candidate], uses: dict[str, ProjectUse], limits: Limits = LIMITS, *, in_use: int = 0
) -> Candidate | None:
    return choose(asks, limits, Meters(), PoolCounts(in_use, in_use), uses, NO_MACHINE, T0)


@given(lines(), limits_, st.integers(0, 12))
def test_nothing_is_granted_above_the_cap_nor_the_trial_above_the_ceiling(
    line: Line, limits: Limits, in_use: int
) -> None:
    winner = _choose(*line, limits, in_use=in_use)
    if winner is not None:
        assert in_use + winner.slots <= (limits.ceiling if limits.phase is Phase.TRIAL else limits.cap)


@given(lines(), st.integers(0, 4))
def test_the_choice_does_not_depend_on_how_the_asks_were_listed(line: Line, in_use: int) -> None:
    asks, uses = line
    assert _choose(asks, uses, in_use=in_use) == _choose(asks[::-1], uses, in_use=in_use)


@given(lines(), st.integers(0, 4))
def test_no_admissible_ask_of_the_same_rank_is_passed_over_for_a_less_needy_project(
    line: Line, in_use: int
) -> None:
    asks, uses = line
    winner = _choose(asks, uses, in_use=in_use)
    assume(winner is not None)
    assert winner is not None
    top = max(ask.priority for ask in asks)
    for ask in asks:
        fits = judge(ask, LIMITS, Meters(), PoolCounts(in_use, in_use), uses[ask.project], NO_MACHINE, T0)
        if fits is None and _aged(ask, top) == _aged(winner, top):
            assert _has(uses[winner.project]) <= _has(uses[ask.project])


def _in_order(asks: Sequence[Candidate], uses: dict[str, ProjectUse]) -> list[Candidate]:
    return rank_asks(asks, uses, turn=0.0, ageing_s=AGEING_S, now=T0)


def _has(use: ProjectUse) -> float:
    """What a project has for its weight."""
    return need(use, 0.0)[0]


def _aged(ask: Candidate, top: int) -> int:
    return min(top, ask.priority + int((T0 - ask.asked_at) // AGEING_S))


@given(lines())
def test_ageing_never_puts_an_ask_before_a_needier_one_of_the_highest_priority(
    line: Line,
) -> None:
    asks, uses = line
    order = [ask.id for ask in rank_asks(asks, uses, turn=0.0, ageing_s=AGEING_S, now=T0)]
    top = max(ask.priority for ask in asks)
    for high in (ask for ask in asks if ask.priority == top):
        for low in asks:
            if _has(uses[low.project]) > _has(uses[high.project]):
                assert order.index(high.id) < order.index(low.id)


@given(lines())
def test_an_ask_that_waited_long_enough_ranks_with_the_highest(
    line: Line,
) -> None:
    """Then fairness decides, and among equals arrival: no ask waits for ever behind new high asks."""
    asks, uses = line
    equal = {name: replace(use, in_use=1, weight=1.0) for name, use in uses.items()}
    old = replace(asks[0], id=0, priority=-2, asked_at=T0 - 100 * AGEING_S)
    assert (
        rank_asks(
            [*asks, old], {**equal, old.project: equal[old.project]}, turn=0.0, ageing_s=AGEING_S, now=T0
        )[0].id
        == 0
    )


def test_equals_are_served_by_arrival() -> None:
    uses = {name: ProjectUse(name) for name in "abc"}
    asks = [Candidate(n, project, asked_at=T0) for n, project in ((3, "a"), (1, "c"), (2, "b"))]
    assert [ask.id for ask in rank_asks(asks, uses, turn=0.0, ageing_s=AGEING_S, now=T0)] == [1, 2, 3]


def test_a_clock_that_went_back_ages_no_ask_backwards() -> None:
    uses = {name: ProjectUse(name) for name in "ab"}
    future = Candidate(1, "a", asked_at=T0 + 1000)
    assert (
        rank_asks([future, Candidate(2, "b", asked_at=T0)], uses, turn=0.0, ageing_s=AGEING_S, now=T0)[0].id
        == 1
    )


# -- large asks -------------------------------------------------------------------------------------

_TWO = {"large": ProjectUse("large"), "small": ProjectUse("small", in_use=3)}


def test_a_young_large_ask_is_overtaken() -> None:
    asks = [Candidate(1, "large", slots=3, asked_at=T0 - 59), Candidate(2, "small", asked_at=T0)]
    assert _choose(asks, _TWO, in_use=3) == asks[1]


def test_an_old_large_ask_is_not() -> None:
    asks = [Candidate(1, "large", slots=3, asked_at=T0 - 60), Candidate(2, "small", asked_at=T0)]
    assert _choose(asks, _TWO, in_use=3) is None


@given(st.integers(2, 4), st.integers(1, 4), st.integers(60, 10_000))
def test_slots_collect_for_an_old_large_ask_until_it_is_served(slots: int, in_use: int, waited: int) -> None:
    large = Candidate(1, "large", slots=slots, asked_at=T0 - waited)
    smalls = [Candidate(n, "small", asked_at=T0) for n in range(2, 6)]
    for left in range(in_use, -1, -1):
        winner = _choose([large, smalls[0]], _TWO, in_use=left)
        assert winner in (None, large)
    assert winner == large


def test_an_old_large_ask_under_the_machines_ceiling_is_not_overtaken_either() -> None:
    asks = [Candidate(1, "large", slots=3, asked_at=T0 - 60), Candidate(2, "small", asked_at=T0)]
    machine = MachineUse(ceiling=4, in_use=3)
    assert choose(asks, LIMITS, Meters(), PoolCounts(), _TWO, machine, T0) is None


def test_an_ask_that_waits_for_something_else_blocks_no_other() -> None:
    uses = {"full": ProjectUse("full", in_use=1, maximum=1), "b": ProjectUse("b", in_use=2)}
    asks = [Candidate(1, "full", asked_at=T0 - 9999), Candidate(2, "b", asked_at=T0)]
    assert _choose(asks, uses, in_use=3) == asks[1]


def test_an_empty_line_has_no_next() -> None:
    assert _choose([], {}) is None
