"""Who may have how much: strict parts that rotate, and weighted max-min."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flyball.core.pool.fairness import competing_weights, fair_shares, need, strict_shares
from flyball.core.pool.model import ProjectUse

names = st.text("abcdefgh-_ü", min_size=1, max_size=4)
weights = st.sampled_from([0.1, 0.5, 1.0, 1.0, 1.0, 2.0, 3.0, 10.0])
caps = st.integers(1, 200)


@given(caps, st.dictionaries(names, weights, min_size=1, max_size=12), st.integers(0, 10**9))
def test_strict_shares_sum_to_the_cap(cap: int, projects: dict[str, float], epoch: int) -> None:
    shares = strict_shares(cap, projects, epoch)
    assert shares.keys() == projects.keys()
    assert sum(shares.values()) == cap
    assert all(share >= 0 for share in shares.values())


@given(caps, st.dictionaries(names, weights, min_size=1, max_size=12), st.integers(0, 10**9))
def test_strict_shares_are_within_one_of_the_exact_part(
    cap: int, projects: dict[str, float], epoch: int
) -> None:
    total = sum(projects.values())
    for name, share in strict_shares(cap, projects, epoch).items():
        assert abs(share - cap * projects[name] / total) < 1 + 1e-6


@given(caps, st.sets(names, min_size=1, max_size=12), st.integers(0, 10**9))
def test_strict_shares_of_equals_follow_the_formula_of_the_seed(
    cap: int, projects: set[str], epoch: int
) -> None:
    shares = strict_shares(cap, dict.fromkeys(projects, 1.0), epoch)
    base, extra = divmod(cap, len(projects))
    for index, name in enumerate(sorted(projects)):
        assert shares[name] == base + ((index + epoch) % len(projects) < extra)


@given(caps, st.dictionaries(names, weights, min_size=1, max_size=12), st.integers(0, 10**9))
def test_rotation_gives_every_project_a_turn(cap: int, projects: dict[str, float], epoch: int) -> None:
    turns = [strict_shares(cap, projects, epoch + n) for n in range(len(projects))]
    for name in projects:
        assert any(shares[name] >= 1 for shares in turns)


@given(caps, st.sets(names, min_size=1, max_size=12), st.integers(0, 10**9))
def test_over_a_full_rotation_equals_get_the_same(cap: int, projects: set[str], epoch: int) -> None:
    turns = [strict_shares(cap, dict.fromkeys(projects, 1.0), epoch + n) for n in range(len(projects))]
    assert len({sum(shares[name] for shares in turns) for name in projects}) == 1


def test_without_demand_no_project_owns_a_slot() -> None:
    assert strict_shares(8, {}, 0) == {}
    assert fair_shares(8, {}) == {}


wants = st.dictionaries(names, st.tuples(st.integers(0, 50), weights), max_size=10)


@given(caps, wants)
def test_fair_shares_give_no_project_more_than_it_wants(
    cap: int, wanted: dict[str, tuple[int, float]]
) -> None:
    got = fair_shares(cap, wanted)
    assert all(0 <= got[name] <= wanted[name][0] for name in wanted)


@given(caps, wants)
def test_fair_shares_leave_nothing_idle_that_a_project_wants(
    cap: int, wanted: dict[str, tuple[int, float]]
) -> None:
    total = sum(want for want, _ in wanted.values())
    assert sum(fair_shares(cap, wanted).values()) == min(cap, total)


@given(caps, wants)
def test_fair_shares_leave_no_hungry_project_a_slot_behind_its_weight(
    cap: int, wanted: dict[str, tuple[int, float]]
) -> None:
    """A slot is whole, so each may be one off its exact part; no project is further off."""
    got = fair_shares(cap, wanted)
    hungry = [name for name in wanted if got[name] < wanted[name][0]]
    for poor in hungry:
        for rich in wanted:
            poor_level = (got[poor] + 1) / wanted[poor][1]
            rich_level = (got[rich] - 1) / wanted[rich][1]
            assert rich_level <= poor_level + 1e-9, f"{rich} has {got[rich]}, {poor} has {got[poor]}"


@given(caps, st.dictionaries(names, st.integers(0, 50), max_size=10))
def test_fair_shares_of_equals_differ_by_at_most_one_where_a_project_is_hungry(
    cap: int, wanted: dict[str, int]
) -> None:
    got = fair_shares(cap, {name: (want, 1.0) for name, want in wanted.items()})
    for poor in (name for name in wanted if got[name] < wanted[name]):
        assert max(got.values()) <= got[poor] + 1


def test_the_neediest_has_least_for_its_weight() -> None:
    light, heavy = ProjectUse("light", in_use=2, weight=1), ProjectUse("heavy", in_use=3, weight=2)
    assert need(heavy, 0.0) < need(light, 0.0)


def test_among_equals_it_is_the_turn_of_the_project_served_less() -> None:
    served, not_served = ProjectUse("a", turn=3.0), ProjectUse("b", turn=2.0)
    assert need(not_served, 1.0) < need(served, 1.0)


def test_a_project_that_was_away_gets_no_turns_back() -> None:
    away, present = ProjectUse("away", turn=1.0), ProjectUse("present", turn=7.0)
    assert need(away, 7.0) == need(present, 7.0)


def test_a_project_demands_while_it_waits_holds_or_announces() -> None:
    projects = [
        ProjectUse("waits", waiting=1),
        ProjectUse("holds", in_use=1, weight=2.0),
        ProjectUse("announces"),
        ProjectUse("idle"),
    ]
    assert competing_weights(projects, ["announces", "unknown"]) == {
        "waits": 1.0,
        "holds": 2.0,
        "announces": 1.0,
    }
