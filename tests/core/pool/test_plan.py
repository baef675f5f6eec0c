"""Signals, time and settings become limits; the plan says when it expects to change."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flyball.core.pool.breaker import BreakerState
from flyball.core.pool.control.port import SignalContext, cap_for
from flyball.core.pool.model import Meters, Outcome, Phase, PoolCounts, ProjectUse
from flyball.core.pool.plan import (
    FOREVER_S,
    LearnedState,
    Plan,
    apply_signal,
    apply_trial_end,
    first_memory,
    replan,
    restart_from,
)
from flyball.core.pool.settings import PoolSettings
from flyball.core.signals import Signal, SignalKind
from tests.cases import every
from tests.core.kit import PROBE_S, SETTLE_S, T0, at, cut, pool

MIXED = pool()
STATIC = pool(adaptive=False)
THROTTLED = Signal(SignalKind.THROTTLED)


def told(
    memory: LearnedState,
    signal: Signal = THROTTLED,
    s: PoolSettings = MIXED,
    *,
    now: float = T0,
    name: str = "t-0",
    project: str = "a",
    meters: Meters | None = None,
    claim_id: int | None = None,
) -> tuple[LearnedState, list[str]]:
    """The memory after one signal, and the kinds of facts it left."""
    context = SignalContext(
        signal=signal,
        now=now,
        in_use=cap_for(memory.cap, s),
        pool="p",
        project=project,
        name=name,
        claim_id=claim_id,
    )
    memory, facts = apply_signal(memory, meters or Meters(), s, context)
    return memory, [fact.kind for fact in facts]


def planned(
    memory: LearnedState,
    s: PoolSettings = MIXED,
    *,
    now: float = T0,
    meters: Meters | None = None,
    in_use: int = 0,
    projects: tuple[ProjectUse, ...] = (),
    announced: tuple[str, ...] = (),
    expiry: float | None = None,
    trial_live: bool = False,
) -> Plan:
    return replan(
        memory,
        meters or Meters(),
        s,
        pool="p",
        version=7,
        counts=PoolCounts(in_use),
        projects=projects,
        announced=announced,
        next_demand_expiry=expiry,
        trial_live=trial_live,
        now=now,
    )


CALM = LearnedState(at(8))
OPEN = LearnedState(at(1), BreakerState(Phase.OPEN, T0 + 300, since=T0))
HALF_OPEN = LearnedState(at(1), BreakerState(Phase.TRIAL, T0, since=T0))
TRIAL = Meters(trial_id=5, trial_at=T0, trial_project="a", trial_name="trial")


# -- signals ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [SignalKind.THROTTLED, SignalKind.OVERLOADED, SignalKind.TIMEOUT])
def test_congestion_cuts(kind: SignalKind) -> None:
    memory, facts = told(CALM, Signal(kind))
    assert (memory.cap.level, facts) == (4, ["cut"])


@pytest.mark.parametrize(
    "kind",
    [SignalKind.OK, SignalKind.CLIENT_ERROR, SignalKind.SERVER_ERROR, SignalKind.UNKNOWN],
)
def test_what_is_not_about_load_changes_nothing(kind: SignalKind) -> None:
    assert told(CALM, Signal(kind)) == (CALM, [])


@pytest.mark.parametrize("kind", [SignalKind.NEAR_LIMIT, SignalKind.SLOW])
def test_near_the_limit_or_slow_growth_stops_without_a_cut(kind: SignalKind) -> None:
    memory, _ = told(CALM, Signal(kind))
    assert (memory.cap.level, memory.cap.settle_until) == (8, T0 + SETTLE_S)


def test_a_used_up_window_closes_the_pool_until_its_reset_and_cuts_nothing() -> None:
    memory, facts = told(CALM, Signal(SignalKind.WINDOW_USED_UP, 1800.0, scope="5h"))
    assert (memory.retry_until, memory.cap.level, facts) == (T0 + 1800, 8, ["closed"])


def test_a_used_up_window_is_asked_about_again_after_an_hour() -> None:
    memory, _ = told(CALM, Signal(SignalKind.WINDOW_USED_UP, 5 * 86400.0, scope="7d"))
    assert memory.retry_until == T0 + 3600


@pytest.mark.parametrize("kind", [SignalKind.CREDIT_GONE, SignalKind.AUTH])
def test_what_only_a_person_can_change_is_told_and_changes_nothing(kind: SignalKind) -> None:
    assert told(CALM, Signal(kind)) == (CALM, ["person"])


def test_a_throttle_at_the_floor_opens_the_breaker() -> None:
    memory, facts = told(LearnedState(at(1)))
    assert (memory.breaker.phase, memory.breaker.open_until, facts) == (Phase.OPEN, T0 + 300, ["open"])


def test_the_third_cut_in_ten_minutes_opens_the_breaker() -> None:
    memory = LearnedState(replace(at(8), cuts=(T0 - 590, T0 - 300)))
    assert told(memory)[0].breaker.phase is Phase.OPEN


def test_cuts_longer_ago_do_not_count() -> None:
    memory = LearnedState(replace(at(8), cuts=(T0 - 601, T0 - 300)))
    assert told(memory)[0].breaker.phase is Phase.CLOSED


def test_a_throttle_at_the_floor_during_settle_after_a_cut_does_not_open_the_breaker() -> None:
    memory = LearnedState(cut(1, failed=2))
    assert told(memory, now=T0 + 1)[0].breaker.phase is Phase.CLOSED


def test_a_throttle_at_the_floor_during_the_settle_after_a_trial_does_not_open_the_breaker() -> None:
    """A floor throttle counts only outside settle (SEMANTICS, Breaker)."""
    closed, _ = apply_trial_end(HALF_OPEN, TRIAL, MIXED, Outcome.FINISHED, pool="p", now=T0)
    assert closed.cap.settle_until == T0 + SETTLE_S
    assert told(closed, now=T0 + 1)[0].breaker.phase is Phase.CLOSED


def test_throttles_while_open_only_count() -> None:
    memory, facts = told(OPEN, now=T0 + 10)
    assert (memory.breaker, memory.cap.level, memory.cap.throttle_count, facts) == (OPEN.breaker, 1, 1, [])


def test_a_static_pool_only_counts() -> None:
    memory, facts = told(CALM, s=STATIC)
    assert (memory.cap.level, memory.breaker.phase, memory.cap.throttle_count) == (8, Phase.CLOSED, 1)
    assert facts == []


# -- retry-after ------------------------------------------------------------------------------------


@pytest.mark.parametrize("s", [MIXED, STATIC])
def test_retry_after_closes_the_pool(s: PoolSettings) -> None:
    memory, facts = told(CALM, Signal(SignalKind.THROTTLED, 7.0), s)
    assert memory.retry_until == T0 + 7
    assert "closed" in facts
    assert planned(memory, s).limits.closed_until == T0 + 7
    assert planned(memory, s).limits.valid_until <= T0 + 7
    assert planned(memory, s, now=T0 + 7).limits.closed_until is None


def test_repeats_of_retry_after_do_not_extend_it() -> None:
    memory, _ = told(CALM, Signal(SignalKind.THROTTLED, 7.0))
    memory, _ = told(memory, Signal(SignalKind.THROTTLED, 100.0), now=T0 + 5)
    assert memory.retry_until == T0 + 7


def test_the_next_episode_closes_again() -> None:
    memory, _ = told(CALM, Signal(SignalKind.THROTTLED, 7.0))
    memory, _ = told(memory, Signal(SignalKind.THROTTLED, 9.0), now=T0 + 7)
    assert memory.retry_until == T0 + 16


def test_retry_after_is_believed_up_to_its_limit() -> None:
    memory, _ = told(CALM, Signal(SignalKind.THROTTLED, 1e6))
    assert memory.retry_until == T0 + MIXED.retry_after_max_s


# -- breaker and trial ------------------------------------------------------------------------------


def test_an_open_pool_is_closed_until_the_break_is_over_and_then_half_open() -> None:
    limits = planned(OPEN).limits
    assert (limits.phase, limits.closed_until, limits.valid_until) == (Phase.OPEN, T0 + 300, T0 + 300)
    later = planned(OPEN, now=T0 + 300)
    assert (later.limits.phase, later.limits.closed_until) == (Phase.TRIAL, None)
    assert [fact.kind for fact in later.facts] == ["trial"]


def test_the_longer_of_break_and_retry_after_closes_the_pool() -> None:
    assert planned(replace(OPEN, retry_until=T0 + 400)).limits.closed_until == T0 + 400
    assert planned(replace(OPEN, retry_until=T0 + 100)).limits.closed_until == T0 + 300


def test_a_trial_is_judged_at_the_time_the_plan_announced() -> None:
    plan = planned(HALF_OPEN, meters=TRIAL, trial_live=True)
    assert plan.limits.valid_until == T0 + MIXED.trial_clean_s
    judged = planned(HALF_OPEN, meters=TRIAL, trial_live=True, now=plan.limits.valid_until)
    assert (judged.limits.phase, judged.limits.cap, judged.meters.trial_id) == (Phase.CLOSED, 1, None)
    assert judged.memory.breaker.reopens == 0


def test_a_trial_that_is_gone_is_waited_for_and_then_reopens() -> None:
    assert planned(HALF_OPEN, meters=TRIAL, now=T0 + 1799).limits.phase is Phase.TRIAL
    reopened = planned(HALF_OPEN, meters=TRIAL, now=T0 + 1800)
    assert reopened.limits.phase is Phase.OPEN
    assert reopened.memory.breaker.open_until == T0 + 1800 + 600


@pytest.mark.parametrize(
    ("outcome", "phase"),
    [
        (Outcome.FINISHED, Phase.CLOSED),
        (Outcome.FAILED, Phase.CLOSED),
        (Outcome.ABANDONED, Phase.TRIAL),
        (Outcome.THROTTLED, Phase.TRIAL),
    ],
)
def test_the_end_of_a_trial(outcome: Outcome, phase: Phase) -> None:
    """Throttled is judged as a signal, abandoned says nothing."""
    memory, _ = apply_trial_end(HALF_OPEN, TRIAL, MIXED, outcome, pool="p", now=T0)
    assert memory.breaker.phase is phase


@every(
    "project, name, claim_id, fails",
    [
        ("a", "trial", None, True),
        ("a", "", None, True),
        ("a", "other", None, False),
        ("b", "", None, False),
        ("a", "trial", 5, True),
        ("b", "x", 5, True),
        ("a", "trial", 6, False),
    ],
)
def test_which_throttle_fails_the_trial(project: str, name: str, claim_id: int | None, fails: bool) -> None:
    memory, _ = told(HALF_OPEN, project=project, name=name, claim_id=claim_id, meters=TRIAL)
    assert (memory.breaker.phase is Phase.OPEN) is fails
    assert memory.cap.throttle_count == 1


# -- growing and settings ---------------------------------------------------------------------------


def test_a_full_pool_grows_when_its_quiet_period_is_over_and_tells() -> None:
    due = T0 + PROBE_S
    assert planned(CALM, in_use=8).limits.valid_until == due
    filled = Meters(bound_at=T0)
    plan = planned(CALM, meters=filled, now=due, in_use=8)
    assert (plan.limits.cap, [fact.kind for fact in plan.facts]) == (9, ["probe"])
    assert planned(CALM, now=due, in_use=7).limits.cap == 8
    assert planned(CALM, now=due, in_use=8).limits.cap == 8, "nothing that is read has filled it"


def test_successes_are_folded_once() -> None:
    calls = pool(profile="calls")
    plan = planned(LearnedState(at(2)), calls, meters=Meters(bound_oks=4))
    assert (plan.limits.cap, plan.meters.bound_oks) == (4, 0)


def test_the_version_moves_with_every_plan() -> None:
    assert planned(CALM).limits.version == 8


@every("memory", [CALM, OPEN, HALF_OPEN, LearnedState(cut(4, failed=8))])
@every("s", [MIXED, STATIC, pool(profile="calls"), pool(settle_s=0.0)])
@every("later_s", [0, 119, 120, 300, 5000])
def test_a_plan_is_good_for_a_while_but_not_for_ever(
    memory: LearnedState, s: PoolSettings, later_s: int
) -> None:
    now = T0 + later_s
    valid_until = planned(memory, s, now=now).limits.valid_until
    assert now < valid_until <= now + FOREVER_S


@pytest.mark.parametrize("settle_s", [0.0, 1.0, 120.0])
def test_a_plan_does_not_outlive_the_next_chance_to_grow(settle_s: float) -> None:
    """Long idle, then full: the cap must not wait longer than one quiet period for its probe."""
    s, now = pool(settle_s=settle_s), T0 + 5000
    assert planned(CALM, s, now=now).limits.valid_until <= now + PROBE_S


def test_a_static_pool_has_no_breaker_no_spacing_and_its_own_cap_as_ceiling() -> None:
    limits = planned(OPEN, pool(adaptive=False, cap=3, spacing_s=5.0)).limits
    assert (limits.phase, limits.cap, limits.ceiling, limits.spacing_s) == (Phase.CLOSED, 3, 3, 0.0)


def test_a_person_who_sets_the_cap_starts_it_anew() -> None:
    memory = restart_from(LearnedState(cut(2, failed=8)), pool(cap=6), T0)
    assert (memory.cap.level, memory.cap.failed_level) == (6, None)


def test_a_pool_begins_at_the_cap_people_set() -> None:
    assert first_memory(pool(cap=5), T0).cap.level == 5.0


# -- strict shares ----------------------------------------------------------------------------------

STRICT = pool(share="strict", adaptive=False)


def test_strict_shares_are_planned_for_projects_with_demand() -> None:
    projects = (ProjectUse("a", in_use=1), ProjectUse("b", waiting=1), ProjectUse("c"), ProjectUse("idle"))
    plan = planned(CALM, STRICT, projects=projects, announced=("c",))
    assert plan.shares.keys() == {"a", "b", "c"}
    assert sum(plan.shares.values()) == plan.limits.cap


def test_strict_shares_change_with_the_rotation_and_when_a_demand_ends() -> None:
    projects = (ProjectUse("a", in_use=1), ProjectUse("b"))
    plan = planned(CALM, STRICT, now=960.0, projects=projects, announced=("b",), expiry=2000.0)
    assert plan.limits.valid_until == 1020.0
    plan = planned(CALM, STRICT, now=960.0, projects=projects, announced=("b",), expiry=970.0)
    assert plan.limits.valid_until == 970.0


def test_lending_plans_no_shares() -> None:
    assert planned(CALM, projects=(ProjectUse("a", in_use=1),)).shares == {}
