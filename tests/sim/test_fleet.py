"""The adaptive half of a fleet, unpinned: many nodes, one controller, a capacity that they are not told.

Each node runs the shipped share lease in simulated time (fleet.py), against one provider with hidden seats
and log-normal latencies. What they find is compared with what one process finds alone, without any store:
the limiter's gate in the simulator, on the same seeds.
"""

from __future__ import annotations

import os
from functools import cache
from statistics import fmean

import pytest

from flyball.core.pool.settings import PoolChanges
from flyball.core.signals import SignalKind
from flyball.sim.simulator.controllers import Governed
from flyball.sim.simulator.engine import Engine, SimulatedProvider
from flyball.sim.simulator.jobs import Mix, jobs
from flyball.sim.simulator.limits import Outages, Rule, Seats
from tests.cases import every
from tests.sim.fleet import Fleet, Moment

SOAK = bool(os.environ.get("FLYBALL_SOAK"))
SEEDS = (1, 2, 3) if SOAK else (1, 2)
HORIZON_S, WARM_UP_S = (900, 200) if SOAK else (300, 80)
SEATS = 24
CONTROLLERS = ("measured", "article")
NODES = (1, 2, 5, 20)
CLOSE = 0.12
"""How far what a fleet finds may be from what one process finds."""


def calls(controller: str, *, cap: int = 2, ceiling: int = 512) -> PoolChanges:
    return {"profile": "calls", "cap": cap, "cap_ceiling": ceiling, "controller": controller}


def seats(count: int = SEATS) -> list[Rule]:
    return [Seats([(0.0, count)])]


def saturated(nodes: int, controller: str = "measured", *, seed: int = 1, count: int = SEATS) -> Fleet:
    """A fleet in which every node has more to do than there is room for."""
    fleet = Fleet(seats(count), calls(controller), seed=seed)
    for _ in range(nodes):
        fleet.join(2 * count // nodes + 4)
    return fleet


@cache
def alone(controller: str, seed: int, count: int = SEATS) -> float:
    """The cap that one process finds by itself, in the mean after it has warmed up."""
    policy = Governed(calls(controller))
    engine = Engine(
        SimulatedProvider(seats(count)), [(policy, jobs(Mix(), seed))], horizon_s=HORIZON_S, moments=HORIZON_S
    )
    return fmean(moment.level for moment in engine.play().moments if moment.t_s >= WARM_UP_S)


# -- convergence ----------------------------------------------------------------------------------------


@every("count", (8, SEATS, 60) if SOAK else (SEATS,))
@every("nodes", NODES)
@every("controller", CONTROLLERS)
def test_a_fleet_finds_the_cap_that_one_process_finds_alone(controller: str, nodes: int, count: int) -> None:
    seeds = SEEDS[: 1 if nodes == 20 and not SOAK else None]
    found = []
    for seed in seeds:
        fleet = saturated(nodes, controller, seed=seed, count=count)
        fleet.play(HORIZON_S)
        found.append(fleet.mean_cap(WARM_UP_S))
    wanted = fmean(alone(controller, seed, count) for seed in seeds)
    assert fmean(found) == pytest.approx(wanted, rel=CLOSE), f"seeds {seeds}: {found}, alone {wanted}"


@every("controller", CONTROLLERS)
@every("nodes", [2, 5, 20])
def test_growth_does_not_stop_where_every_node_sees_only_its_own_part(controller: str, nodes: int) -> None:
    fleet = saturated(nodes, controller)
    fleet.play(100)
    assert max(moment.cap for moment in fleet.moments) > 0.9 * SEATS


def test_every_node_gets_its_part_and_the_seats_are_used() -> None:
    fleet = saturated(5)
    fleet.play(200)
    late = [moment for moment in fleet.moments if moment.t_s > WARM_UP_S]
    assert fmean(moment.in_flight for moment in late) > 0.95 * SEATS
    for node in range(5):
        assert fmean(moment.nodes[node] for moment in late) == pytest.approx(SEATS / 5, abs=1)


def test_a_steady_capacity_costs_little() -> None:
    """A refused call is tried again before its node was answered: twice what one process wastes is right."""
    fleet = saturated(2)
    fleet.play(HORIZON_S)
    assert fleet.refused < 0.05 * fleet.served


# -- what the capacity does --------------------------------------------------------------------------------


def test_a_fleet_follows_a_capacity_that_falls_and_comes_back() -> None:
    fleet = Fleet([Seats([(0, 32), (1_120, 12), (1_240, 32)])], calls("measured"), seed=1)
    for _ in range(5):
        fleet.join(16)
    fleet.play(360)
    assert fleet.mean_cap(80, 119) > 0.9 * 32
    assert fleet.mean_cap(150, 239) == pytest.approx(12, abs=1.5)
    assert fleet.mean_cap(300, 360) > 0.85 * 32


def test_an_outage_closes_all_of_them_and_one_call_tries_for_all() -> None:
    fleet = Fleet([*seats(), Outages([(1_100, 1_160)])], calls("measured"), seed=1)
    for _ in range(5):
        fleet.join(16)
    fleet.play(99)
    before = fleet.refused
    fleet.play(66)
    # Those that were under way when the breaker opened, and a trial now and then; not all nodes all the time.
    assert fleet.refused - before < 60
    fleet.play(60)
    assert fleet.mean_cap(200, 225) > 0.9 * SEATS


def test_a_burst_of_throttles_whatever_the_load_does_not_ruin_the_cap() -> None:
    fleet = Fleet([*seats(), Outages([(1_100, 1_104)], SignalKind.THROTTLED)], calls("measured"), seed=2)
    for _ in range(5):
        fleet.join(16)
    fleet.play(200)
    assert fleet.mean_cap(150, 200) > 0.85 * SEATS


# -- who is there ------------------------------------------------------------------------------------------


def lowest(fleet: Fleet, since_s: float, until_s: float) -> int:
    return min(moment.cap for moment in fleet.moments if since_s <= moment.t_s <= until_s)


def moment_at(fleet: Fleet, t_s: float) -> Moment:
    return next(moment for moment in fleet.moments if moment.t_s >= t_s)


def test_a_cold_joiner_does_not_bring_the_cap_down() -> None:
    fleet = saturated(4)
    fleet.play(100)
    cold = fleet.join(0)
    fleet.play(30)
    assert lowest(fleet, 100, 130) > 0.85 * SEATS
    cold.widen(16)
    fleet.play(60)
    # Its first work meets a full backend: a few refusals, and a level that is back at once.
    assert lowest(fleet, 130, 190) > 0.7 * SEATS
    late = [moment.nodes[-1] for moment in fleet.moments if moment.t_s > 160]
    assert fmean(late) == pytest.approx(SEATS / 5, abs=1)


def test_a_crowd_that_joins_and_leaves_leaves_the_cap_as_it_was() -> None:
    fleet = saturated(2)
    fleet.play(100)
    crowd = [fleet.join(12) for _ in range(8)]
    fleet.play(60)
    for node in crowd:
        node.leave()
    fleet.play(90)
    assert lowest(fleet, 105, 250) > 0.8 * SEATS
    assert moment_at(fleet, 245).held <= SEATS + 2
    assert not any(node.in_flight for node in crowd)


@pytest.mark.parametrize("idle", [4, 19])
def test_idle_nodes_do_not_hold_the_cap_down(idle: int) -> None:
    fleet = saturated(1)
    for _ in range(idle):
        fleet.join(0)
    fleet.play(140)
    # What the idle keep to begin with is beyond the busy one's reach; more than one slot each is not.
    assert fleet.mean_cap(100) > 0.9 * SEATS
    assert fmean(moment.in_flight for moment in fleet.moments if moment.t_s > 100) > 0.9 * SEATS - idle


def test_nodes_with_little_to_do_do_not_hold_it_down_either() -> None:
    fleet = saturated(1)
    for _ in range(4):
        fleet.join(1)
    fleet.play(140)
    assert fleet.mean_cap(100) > 0.9 * SEATS


def test_a_cap_that_is_not_filled_does_not_grow() -> None:
    fleet = Fleet(seats(), calls("measured", cap=12), seed=1)
    for _ in range(4):
        fleet.join(2)
    fleet.play(200)
    assert {moment.cap for moment in fleet.moments} == {12}


def test_one_nodes_refusal_lowers_every_node_within_a_fraction_of_a_beat() -> None:
    fleet = Fleet([Seats([(0, 40), (1_100, 10)])], calls("article", cap=40, ceiling=40), seed=1)
    nodes = [fleet.join(16) for _ in range(4)]
    fleet.play(99.9)
    gates = [node.renewing.holding.gate for node in nodes]
    first = fleet.refused
    while fleet.refused == first:
        fleet.play(0.01)
    fleet.play(0.2)
    assert gates == [10] * 4
    assert [node.renewing.holding.gate for node in nodes] == [5] * 4
    assert fleet.refused - first < 6


def test_the_same_seed_is_the_same_run() -> None:
    first, again = (saturated(3) for _ in range(2))
    for fleet in (first, again):
        fleet.play(40)
    assert first.moments == again.moments
    assert (first.served, first.refused, first.renewals) == (again.served, again.refused, again.renewals)
