"""The counter: which requests are let in while the capacity moves, and what is counted."""

from __future__ import annotations

import pytest

from flyball.errors import UsageError
from flyball.sim.provider.capacity import Capacity, CapacityCounter
from tests.cases import every


def test_a_capacity_holds_from_its_step_until_the_next() -> None:
    capacity = Capacity.parse("6,5:3,10:6")
    assert [capacity.at(t_s) for t_s in (-1, 0, 4.9, 5, 9.9, 10, 1000)] == [6, 6, 6, 3, 3, 6, 6]


@every("text", ["", "six", "5:3", "6,5:3,5:4", "6,5:3,2:4", "-1"])
def test_a_capacity_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        Capacity.parse(text)


def test_as_many_as_the_capacity_are_let_in() -> None:
    counter = CapacityCounter(Capacity.parse("2"))
    assert [counter.enter(0.0) for _ in range(4)] == [True, True, False, False]


def test_a_seat_that_is_left_can_be_taken_again() -> None:
    counter = CapacityCounter(Capacity.parse("1"))
    counter.enter(0.0)
    counter.leave(accepted=True)
    assert counter.enter(0.1)


def test_a_refused_request_holds_no_seat() -> None:
    counter = CapacityCounter(Capacity.parse("1"))
    counter.enter(0.0)
    counter.enter(0.0)
    counter.leave(accepted=False)
    assert not counter.enter(0.1)


def test_a_falling_capacity_ends_no_call_and_lets_no_call_in_until_enough_have_left() -> None:
    counter = CapacityCounter(Capacity.parse("3,5:1"))
    for _ in range(3):
        assert counter.enter(0.0)
    assert not counter.enter(5.0)
    assert counter.tally.inside == 3
    counter.leave(accepted=True)
    counter.leave(accepted=True)
    assert not counter.enter(5.1)
    counter.leave(accepted=True)
    assert counter.enter(5.2)


def test_the_tally_counts_by_second() -> None:
    counter = CapacityCounter(Capacity.parse("1,1:2"))
    for t_s in (0.1, 0.2, 1.5):
        counter.enter(t_s)
    assert counter.tally.as_json()["seconds"] == [
        {"second": 0, "capacity": 1, "accepted": 1, "rejected": 1, "peak_inside": 1, "peak_open": 2},
        {"second": 1, "capacity": 2, "accepted": 1, "rejected": 0, "peak_inside": 2, "peak_open": 3},
    ]


def test_the_peak_at_the_door_counts_the_refused_too() -> None:
    counter = CapacityCounter(Capacity.parse("2"))
    for _ in range(5):
        counter.enter(0.0)
    assert (counter.tally.peak_open, counter.tally.peak_inside) == (5, 2)
