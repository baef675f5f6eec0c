"""Does this ask fit, and what is the first thing in its way?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from flyball.core.pool.admission import Denial, estimate_s, judge, place_in_way, too_large
from flyball.core.pool.model import Candidate, Limits, MachineUse, Meters, Phase, PoolCounts, ProjectUse
from flyball.core.pool.settings import ShareRule
from flyball.core.pool.verdict import Reason
from tests.cases import every
from tests.core.kit import LIMITS, T0

ASK = Candidate(1, "a")
ALONE = ProjectUse("a")
MACHINE = MachineUse()


def why(
    ask: Candidate = ASK,
    limits: Limits = LIMITS,
    *,
    meters: Meters | None = None,
    in_use: int = 0,
    low: int | None = None,
    project: ProjectUse = ALONE,
    machine: MachineUse = MACHINE,
) -> Reason | None:
    counts = PoolCounts(in_use, in_use if low is None else low)
    denial = judge(ask, limits, meters or Meters(), counts, project, machine, T0)
    return denial.reason if denial else None


def test_an_ask_that_fits_is_not_denied() -> None:
    assert why() is None
    assert why(in_use=3) is None


def test_a_full_pool_denies() -> None:
    assert why(in_use=4) is Reason.CAP
    assert why(replace(ASK, slots=2), in_use=3) is Reason.CAP


@pytest.mark.parametrize(("slots", "in_use", "lacks"), [(1, 4, ""), (2, 3, "asks for 2, 1 free")])
def test_an_ask_for_several_says_how_many_it_lacks(slots: int, in_use: int, lacks: str) -> None:
    counts = PoolCounts(in_use, in_use)
    denial = judge(replace(ASK, slots=slots), LIMITS, Meters(), counts, ALONE, MACHINE, T0)
    assert denial == Denial(Reason.CAP, detail=lacks)


def test_a_pool_above_its_cap_has_none_free_and_no_fewer() -> None:
    denial = judge(replace(ASK, slots=2), LIMITS, Meters(), PoolCounts(7, 7), ALONE, MACHINE, T0)
    assert denial == Denial(Reason.CAP, detail="asks for 2, 0 free")


# -- closed -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phase", "reason"), [(Phase.OPEN, Reason.BREAKER), (Phase.CLOSED, Reason.RETRY_AFTER)]
)
def test_a_closed_pool_says_why_and_until_when(phase: Phase, reason: Reason) -> None:
    limits = replace(LIMITS, phase=phase, closed_until=T0 + 9)
    assert judge(ASK, limits, Meters(), PoolCounts(), ALONE, MACHINE, T0) == Denial(reason, T0 + 9)
    assert (
        judge(ASK, replace(limits, phase=Phase.CLOSED), Meters(), PoolCounts(), ALONE, MACHINE, T0 + 9)
        is None
    )


def test_one_trial_at_a_time() -> None:
    half_open = replace(LIMITS, phase=Phase.TRIAL)
    assert why(limits=half_open) is None
    assert why(limits=half_open, meters=Meters(trial_id=7)) is Reason.TRIAL


def test_the_trial_is_exempt_from_spacing_cap_and_share_but_not_from_the_ceiling() -> None:
    half_open = replace(LIMITS, phase=Phase.TRIAL, share=ShareRule.STRICT)
    spaced = Meters(next_grant_at=T0 + 5)
    assert why(limits=half_open, meters=spaced, in_use=7) is None
    assert why(limits=half_open, in_use=8) is Reason.CAP


def test_retry_after_holds_back_the_trial_too() -> None:
    assert why(limits=replace(LIMITS, phase=Phase.TRIAL, closed_until=T0 + 5)) is Reason.RETRY_AFTER


# -- spacing, reserve, share, maximum ---------------------------------------------------------------


def test_spacing_denies_until_its_time() -> None:
    assert why(meters=Meters(next_grant_at=T0 + 0.1)) is Reason.SPACING
    assert why(meters=Meters(next_grant_at=T0)) is None


@every(
    "priority, low, high, reason",
    [
        (0, 2, 0, None),
        (0, 3, 0, Reason.RESERVE),
        (-5, 3, 0, Reason.RESERVE),
        (1, 3, 0, None),
        (1, 3, 1, Reason.CAP),
        (0, 2, 1, None),
        (0, 0, 3, None),
        (0, 3, 1, Reason.CAP),
    ],
)
def test_the_reserve_is_for_priority_above_zero(
    priority: int, low: int, high: int, reason: Reason | None
) -> None:
    limits = replace(LIMITS, reserve=1)
    assert why(replace(ASK, priority=priority), limits, in_use=low + high, low=low) is reason


def test_the_reserve_leaves_the_last_slot_to_every_ask() -> None:
    assert why(limits=replace(LIMITS, cap=1, reserve=3)) is None


def test_a_project_at_its_maximum_is_denied() -> None:
    assert why(project=ProjectUse("a", in_use=2, maximum=2), in_use=2) is Reason.MAXIMUM


def test_strict_sharing_denies_above_the_share_and_says_when_shares_change() -> None:
    limits = replace(LIMITS, share=ShareRule.STRICT)
    denied = judge(ASK, limits, Meters(), PoolCounts(2), ProjectUse("a", in_use=2, share=2), MACHINE, T0)
    assert denied is not None
    assert (denied.reason, denied.until) == (Reason.SHARE, limits.valid_until)
    assert why(limits=limits, project=ProjectUse("a", in_use=1, share=2)) is None


def test_lending_ignores_shares() -> None:
    assert why(project=ProjectUse("a", in_use=3, share=1), in_use=3) is None


# -- the machine ------------------------------------------------------------------------------------


def test_the_machines_ceiling_counts_all_pools() -> None:
    assert why(machine=MachineUse(ceiling=10, in_use=10)) is Reason.MACHINE
    assert why(machine=MachineUse(ceiling=10, in_use=9)) is None


@pytest.mark.parametrize(("free", "reason"), [(2, None), (1, Reason.RESOURCE), (-1, Reason.RESOURCE)])
def test_a_resource_must_be_free(free: int, reason: Reason | None) -> None:
    ask = replace(ASK, resources={"gpu": 2})
    assert why(ask, machine=MachineUse(resource_free={"gpu": free})) is reason


@pytest.mark.parametrize(("free", "reason"), [(99, Reason.MEMORY), (100, None), (None, None)])
def test_below_the_memory_floor_nothing_starts(free: int | None, reason: Reason | None) -> None:
    assert why(machine=MachineUse(memory_floor_bytes=100, memory_free_bytes=free)) is reason


def test_the_first_thing_in_the_way_is_named_in_a_fixed_order() -> None:
    """FACTS 1: ceiling, breaker, spacing, cap, share, resources, memory."""
    limits = replace(LIMITS, closed_until=T0 + 1, reserve=1, share=ShareRule.STRICT)
    meters = Meters(next_grant_at=T0 + 1)
    project = ProjectUse("a", in_use=4, maximum=4, share=4)
    ask = replace(ASK, resources={"gpu": 1})
    machine = MachineUse(1, 1, memory_floor_bytes=2, memory_free_bytes=1, resource_free={"gpu": 0})
    in_use, low, reasons = 4, 4, []
    for _ in range(9):
        reason = why(ask, limits, meters=meters, in_use=in_use, low=low, project=project, machine=machine)
        assert reason is not None
        reasons.append(reason)
        if reason is Reason.MACHINE:
            machine = replace(machine, ceiling=None)
        elif reason is Reason.RETRY_AFTER:
            limits = replace(limits, closed_until=None)
        elif reason is Reason.SPACING:
            meters = Meters()
        elif reason is Reason.CAP:
            in_use = 3
        elif reason is Reason.RESERVE:
            low = 0
        elif reason is Reason.MAXIMUM:
            project = replace(project, maximum=None)
        elif reason is Reason.SHARE:
            project = replace(project, share=9)
        elif reason is Reason.RESOURCE:
            ask = replace(ask, resources={})
    assert reasons == [
        Reason.MACHINE,
        Reason.RETRY_AFTER,
        Reason.SPACING,
        Reason.CAP,
        Reason.RESERVE,
        Reason.MAXIMUM,
        Reason.SHARE,
        Reason.RESOURCE,
        Reason.MEMORY,
    ]


# -- never ------------------------------------------------------------------------------------------


@every(
    "slots, priority, project, machine, hopeless",
    [
        (8, 1, ALONE, MACHINE, False),
        (9, 1, ALONE, MACHINE, True),
        (6, 0, ALONE, MACHINE, False),
        (7, 0, ALONE, MACHINE, True),
        (2, 0, ProjectUse("a", maximum=2), MACHINE, False),
        (3, 0, ProjectUse("a", maximum=2), MACHINE, True),
        (3, 0, ALONE, MachineUse(ceiling=3), False),
        (4, 0, ALONE, MachineUse(ceiling=3), True),
    ],
)
def test_an_ask_that_can_never_fit_is_told_so(
    slots: int, priority: int, project: ProjectUse, machine: MachineUse, hopeless: bool
) -> None:
    ask = Candidate(1, "a", priority=priority, slots=slots)
    assert bool(too_large(ask, replace(LIMITS, reserve=2), project, machine)) is hopeless


# -- when -------------------------------------------------------------------------------------------


def _estimate(
    denial: Denial,
    *,
    hold_s: float = 0.0,
    in_use: int = 4,
    position: int = 1,
    own_in_use: int = 1,
    oldest_s: float | None = None,
) -> float | None:
    meters, own = Meters(hold_mean_s=hold_s), ProjectUse("a", own_in_use)
    return estimate_s(denial, meters, PoolCounts(in_use), own, position=position, oldest_s=oldest_s, now=T0)


def test_at_its_own_maximum_a_project_waits_for_its_own_leases() -> None:
    at_maximum = Denial(Reason.MAXIMUM)
    assert _estimate(at_maximum, hold_s=80.0, in_use=400, own_in_use=2, oldest_s=10.0) == 40.0
    assert _estimate(at_maximum, hold_s=80.0, in_use=400, own_in_use=1, oldest_s=600.0) == 600.0
    assert _estimate(at_maximum, oldest_s=5.0) == 5.0
    assert _estimate(at_maximum, oldest_s=0.0) is None


def test_at_its_own_maximum_a_project_stands_in_its_own_line() -> None:
    use = ProjectUse("a", in_use=1, waiting=2)
    assert place_in_way(Denial(Reason.MAXIMUM), use, position=57, in_line=True) == 2
    assert place_in_way(Denial(Reason.MAXIMUM), use, position=57, in_line=False) == 3
    assert place_in_way(Denial(Reason.CAP), use, position=57, in_line=True) == 57


def test_a_known_time_is_the_estimate() -> None:
    assert _estimate(Denial(Reason.BREAKER, T0 + 30)) == 30.0


def test_without_any_history_nothing_is_promised() -> None:
    assert _estimate(Denial(Reason.CAP)) is None


def test_the_pace_of_before_is_not_an_estimate_once_the_leases_of_now_last_longer() -> None:
    cap = Denial(Reason.CAP)
    assert _estimate(cap, hold_s=9.0, in_use=1, oldest_s=8.0) == 9.0
    assert _estimate(cap, hold_s=9.0, in_use=1, oldest_s=30.0) is None
    assert _estimate(cap, hold_s=8.0, in_use=8, oldest_s=24.0) == 1.0, "of eight the oldest often is so old"
    assert _estimate(cap, hold_s=8.0, in_use=8, oldest_s=75.0) is None


def test_when_memory_comes_back_is_not_estimated() -> None:
    assert _estimate(Denial(Reason.MEMORY, T0 + 5)) is None
    assert _estimate(Denial(Reason.MEMORY, T0 + 5), hold_s=80.0, position=2) is None


def test_the_pools_own_pace_is_the_estimate() -> None:
    assert _estimate(Denial(Reason.CAP), hold_s=80.0) == 20.0
    assert _estimate(Denial(Reason.CAP), hold_s=80.0, position=3) == 60.0


def test_behind_others_a_known_time_is_only_the_start() -> None:
    assert _estimate(Denial(Reason.BREAKER, T0 + 30), hold_s=80.0, position=2) == 70.0


def test_a_time_that_has_passed_is_now() -> None:
    assert _estimate(Denial(Reason.SPACING, T0 - 5)) == 0.0
