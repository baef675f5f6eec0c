"""Who should get how much: even and by demand, with weights, with leavers, with more nodes than slots."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from flyball.core.share_lease.allotment import Allotment, AllotRule, allot
from flyball.core.share_lease.renewal import ShareLease
from flyball.core.share_lease.timing import ShareTiming

TERMS = ShareTiming()
NOW = 1000.0


def node(
    name: str,
    slots: int = 0,
    *,
    wants: int = 0,
    weight: float = 1.0,
    since: float = NOW,
    draining: bool = False,
) -> ShareLease:
    return ShareLease(
        node=name,
        incarnation="",
        seq=1,
        slots=slots,
        wants=wants,
        weight=weight,
        since=since,
        draining=draining,
        expires_at=NOW + TERMS.lease_s,
    )


def silent(lease: ShareLease) -> ShareLease:
    return replace(lease, expires_at=NOW + 1.9)


def allotted(*leases: ShareLease, cap: int, rule: AllotRule = AllotRule.EVEN, now: float = NOW) -> Allotment:
    return allot(leases, cap=cap, rule=rule, terms=TERMS, now=now)


def targets(*leases: ShareLease, cap: int, rule: AllotRule = AllotRule.EVEN, now: float = NOW) -> list[int]:
    plan = allotted(*leases, cap=cap, rule=rule, now=now)
    return [plan.targets[lease.name] for lease in leases]


# --- even ---


def test_without_nodes_nothing_is_allotted() -> None:
    assert allotted(cap=8) == Allotment({}, float("inf"))


def test_a_founder_gets_the_whole_cap() -> None:
    assert targets(node("a"), cap=8) == [8]
    assert targets(node("a"), cap=8, rule=AllotRule.DEMAND) == [8]


def test_even_remainders_go_to_the_lowest_names() -> None:
    assert targets(node("c"), node("a"), node("b"), cap=8) == [2, 3, 3]


def test_even_follows_weights_and_leaves_no_node_without_a_slot() -> None:
    assert targets(node("a", weight=3), node("b"), cap=8) == [6, 2]
    assert targets(node("a", weight=10), node("b"), node("c"), cap=4) == [2, 1, 1]


def test_two_processes_under_one_name_are_two_nodes() -> None:
    twin = replace(node("a"), incarnation="2")
    assert targets(node("a"), twin, cap=8) == [4, 4]


def test_what_drains_cannot_be_asked_for_and_the_others_divide_the_rest() -> None:
    assert targets(node("a", 4, draining=True), node("b", 4), node("c"), cap=8) == [0, 2, 2]


def test_a_silent_holder_keeps_what_it_has_and_is_promised_no_more() -> None:
    assert targets(silent(node("a", 2)), node("b"), node("c"), cap=8) == [2, 3, 3]
    assert targets(silent(node("a", 0)), node("b"), cap=8) == [0, 8]


def test_a_cap_below_what_drains_leaves_nothing_to_divide() -> None:
    assert targets(node("a", 9, draining=True), node("b", 3), cap=4) == [0, 0]


def test_a_cap_of_zero_asks_for_everything() -> None:
    assert targets(node("a", 3), node("b", 3), cap=0) == [0, 0]


# --- demand ---


def test_demand_gives_the_hot_node_what_the_others_do_not_want() -> None:
    hot, idle = node("a", 6, wants=99), node("b", 6, wants=0)
    assert targets(hot, idle, cap=12, rule=AllotRule.DEMAND) == [12, 0]
    others = [node(name, 1, wants=0) for name in "bcdefgh"]
    assert targets(hot, *others, cap=12, rule=AllotRule.DEMAND) == [12] + [0] * 7


def test_demand_is_max_min_among_the_hungry() -> None:
    rule = AllotRule.DEMAND
    assert targets(node("a", wants=1), node("b", wants=99), node("c", wants=99), cap=9, rule=rule) == [
        1,
        4,
        4,
    ]
    assert targets(node("a", wants=99, weight=2), node("b", wants=99), cap=9, rule=rule) == [6, 3]


def test_where_there_is_room_an_idle_node_keeps_one_slot_to_begin_with() -> None:
    hot, idle = node("a", 8, wants=6), node("b", 0, wants=0)
    assert targets(hot, idle, cap=8, rule=AllotRule.DEMAND) == [7, 1]


def test_while_no_node_is_hungry_nothing_moves() -> None:
    rule = AllotRule.DEMAND
    for used in range(6):
        assert targets(node("a", 5, wants=used), node("b", 3, wants=2), cap=8, rule=rule) == [5, 3]


# --- fewer slots than nodes ---


def test_with_fewer_slots_than_nodes_the_longest_waiting_are_served() -> None:
    waiting = [node("a", since=NOW - 1), node("b", since=NOW - 3), node("c", since=NOW - 2)]
    assert targets(*waiting, cap=2) == [0, 1, 1]


def test_a_turn_that_runs_is_not_cut_short_and_one_that_is_over_yields() -> None:
    holder, waiter = node("a", 1, since=NOW), node("b", since=NOW - 50)
    assert targets(holder, waiter, cap=1) == [1, 0]
    assert allotted(holder, waiter, cap=1).until == NOW + TERMS.turn_s
    assert targets(holder, waiter, cap=1, now=NOW + TERMS.turn_s) == [0, 1]


def test_the_next_node_keeps_its_place_however_long_the_others_work_takes() -> None:
    holder, first, second = node("a", 1, since=NOW - 90), node("b", since=NOW - 60), node("c", since=NOW - 30)
    assert targets(holder, first, second, cap=1) == [0, 1, 0]


def test_with_fewer_slots_than_hungry_nodes_the_idle_do_not_stand_in_line() -> None:
    idle, hungry = node("a", since=NOW - 99), [node("b", wants=1), node("c", wants=1)]
    assert targets(idle, *hungry, cap=2, rule=AllotRule.DEMAND) == [0, 1, 1]


def test_every_node_is_served_in_turn() -> None:
    """A fleet in which every node renews every beat, with three nodes and one slot."""
    fleet = [replace(node(name), expires_at=float("inf")) for name in "abc"]
    served = []
    for beat in range(12):
        now = NOW + beat
        asked = targets(*fleet, cap=1, now=now)
        freed = [
            replace(one, slots=0, since=now) if one.slots > aim else one
            for one, aim in zip(fleet, asked, strict=True)
        ]
        room = 1 - sum(one.slots for one in freed)
        fleet = [
            replace(one, slots=1, since=now) if aim > one.slots and room else one
            for one, aim in zip(freed, asked, strict=True)
        ]
        served.append("".join(one.node for one in fleet if one.slots))
    assert served == ["a", "a", "b", "b", "c", "c", "a", "a", "b", "b", "c", "c"]


# --- any fleet ---


@st.composite
def fleets(draw: st.DrawFn) -> list[ShareLease]:
    def one(index: int) -> ShareLease:
        lease = node(
            f"n{index:02}",
            draw(st.integers(0, 6)),
            wants=draw(st.integers(0, 20)),
            weight=draw(st.sampled_from([0.1, 0.5, 1.0, 1.0, 1.0, 2.0, 7.0])),
            since=NOW - draw(st.integers(0, 9)),
            draining=draw(st.integers(0, 9)) == 0,
        )
        return silent(lease) if draw(st.integers(0, 9)) == 0 else lease

    return [one(index) for index in range(draw(st.integers(1, 12)))]


@given(fleets(), st.integers(0, 40), st.sampled_from(AllotRule))
def test_everything_that_can_be_asked_for_is_allotted_and_no_more(
    fleet: list[ShareLease], cap: int, rule: AllotRule
) -> None:
    plan = allotted(*fleet, cap=cap, rule=rule)
    apart = [one for one in fleet if one.draining or one.expires_at < NOW + TERMS.lease_s]
    asked = [one for one in fleet if one not in apart]
    room = max(0, cap - sum(one.slots for one in apart))
    assert set(plan.targets) == {one.name for one in fleet}
    assert sum(plan.targets[one.name] for one in asked) == (room if asked else 0)
    assert all(target >= 0 for target in plan.targets.values())


@given(fleets(), st.integers(0, 40))
def test_by_demand_no_node_gets_more_than_it_wants_while_another_wants_more(
    fleet: list[ShareLease], cap: int
) -> None:
    plan = allotted(*fleet, cap=cap, rule=AllotRule.DEMAND)
    asked = [one for one in fleet if not one.draining and one.expires_at >= NOW + TERMS.lease_s]
    if any(plan.targets[one.name] < one.wants for one in asked):
        assert all(plan.targets[one.name] <= one.wants for one in asked)


@given(fleets(), st.integers(0, 40), st.sampled_from(AllotRule))
def test_a_node_that_wants_a_slot_gets_one_where_there_are_enough(
    fleet: list[ShareLease], cap: int, rule: AllotRule
) -> None:
    asked = [one for one in fleet if not one.draining and one.expires_at >= NOW + TERMS.lease_s]
    room = cap - sum(one.slots for one in fleet if one not in asked)
    wanting = [one for one in asked if rule is AllotRule.EVEN or one.wants]
    plan = allotted(*fleet, cap=cap, rule=rule)
    if room >= len(wanting):
        assert all(plan.targets[one.name] >= 1 for one in wanting)
    else:
        assert sum(plan.targets[one.name] for one in wanting) == max(0, room)


@given(st.integers(1, 12), st.integers(0, 60))
def test_equals_get_the_same_within_one(nodes: int, cap: int) -> None:
    parts = targets(*(node(f"n{index:02}") for index in range(nodes)), cap=cap)
    assert max(parts) - min(parts) <= 1
    if cap >= nodes:
        assert parts == sorted(parts, reverse=True)
