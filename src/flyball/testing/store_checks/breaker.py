"""The breaker, as seen through a store: open, one trial, judged soon, never wedged."""

from __future__ import annotations

from flyball.core.pool.breaker import BreakerState
from flyball.core.pool.learned import CapState
from flyball.core.pool.model import Outcome, Phase
from flyball.core.pool.plan import LearnedState
from flyball.core.pool.verdict import Reason
from flyball.testing.store_checks.scenario import POOL, Scene, expect, expect_equal, store_check

BREAK_S = 300.0
CLEAN_S = 120.0
VANISHED_S = 1800.0


def _open_breaker(s: Scene) -> None:
    """A throttle at the floor opens the breaker."""
    s.pool(cap=1, cap_ceiling=4)
    s.throttle()
    expect_equal(s.snapshot().phase, Phase.OPEN, "the breaker after a throttle at the floor")


def _trial(s: Scene) -> int:
    """Open the breaker, let the break pass, and admit the trial."""
    _open_breaker(s)
    s.wait(BREAK_S)
    return s.take("a", name="trial")


@store_check
def an_open_breaker_admits_nobody_and_says_until_when(s: Scene) -> None:
    _open_breaker(s)
    verdict = s.expect_refusal(Reason.BREAKER)
    expect_equal(verdict.retry_after_s, BREAK_S, "when to come back")
    s.expect_refusal(Reason.BREAKER, priority=10)
    s.wait(BREAK_S - 1)
    s.expect_refusal(Reason.BREAKER, "b")


@store_check
def an_open_breaker_leaves_running_work_alone(s: Scene) -> None:
    s.pool(cap=1)
    lease = s.take()
    s.throttle()
    expect(s.is_held(lease), "the lease")
    expect_equal(s.snapshot().in_use, 1, "slots in use")


@store_check
def three_cuts_in_ten_minutes_open_the_breaker(s: Scene) -> None:
    s.pool(controller="koryph")
    s.pool(cap=64)
    for cap in (32, 16):
        s.throttle()
        expect_equal((s.snapshot().phase, s.snapshot().cap), (Phase.CLOSED, cap), "breaker and cap")
        s.wait(121)
    s.throttle()
    expect_equal(s.snapshot().phase, Phase.OPEN, "the breaker")


@store_check
def one_burst_at_a_small_cap_does_not_open_the_breaker(s: Scene) -> None:
    s.pool(cap=2)
    for task in range(10):
        s.throttle("a", f"t-{task}")
    expect_equal(s.snapshot().phase, Phase.CLOSED, "the breaker")


@store_check
def exactly_one_trial_wins(s: Scene) -> None:
    _open_breaker(s)
    s.wait(BREAK_S)
    verdicts = [s.nowait(project) for project in "abcabc"]
    expect_equal([v.granted for v in verdicts].count(True), 1, "trials")
    expect_equal({v.reason for v in verdicts[1:]}, {Reason.TRIAL}, "why the others were refused")


@store_check
def exactly_one_of_the_waiting_becomes_the_trial(s: Scene) -> None:
    _open_breaker(s)
    asks = [s.park(project) for project in "abc"]
    s.wait(BREAK_S)
    expect(s.poll(asks[2]).granted is False and s.is_held(asks[0]), "the first in line is the trial")
    expect_equal([s.is_held(ask) for ask in asks], [True, False, False], "granted")


@store_check
def the_trial_is_named(s: Scene) -> None:
    _trial(s)
    expect_equal((s.snapshot().phase, s.snapshot().trial), (Phase.TRIAL, "a/trial"), "the trial")
    verdict = s.expect_refusal(Reason.TRIAL)
    expect(verdict.blocker is not None and verdict.blocker.name == "trial", "the blocker is the trial")


@store_check
def a_trial_without_a_throttle_for_a_clean_period_closes_the_breaker(s: Scene) -> None:
    s.pool(controller="koryph")
    s.pool(cap=8)
    for _ in range(3):
        s.throttle()
        s.wait(121)
    s.wait(BREAK_S)
    lease = s.take()
    s.wait(CLEAN_S - 1)
    s.expect_refusal(Reason.TRIAL)
    s.wait(1)
    expect_equal((s.snapshot().phase, s.snapshot().cap), (Phase.CLOSED, 1), "breaker and cap: the floor")
    s.expect_refusal(Reason.CAP)
    s.release(lease)
    s.take()


@store_check
def a_trial_that_ends_cleanly_closes_the_breaker_at_once(s: Scene) -> None:
    for outcome in (Outcome.FINISHED, Outcome.FAILED):
        with_outcome = s.twin()
        with_outcome.release(_trial(with_outcome), outcome)
        expect_equal(with_outcome.snapshot().phase, Phase.CLOSED, f"the breaker after {outcome.value}")
        with_outcome.close()


@store_check
def a_throttled_trial_reopens_the_breaker_for_twice_as_long(s: Scene) -> None:
    s.throttle("a", "trial", claim_id=_trial(s))
    expect_equal(s.expect_refusal(Reason.BREAKER).look_again_s, 2 * BREAK_S, "the second break")


@store_check
def a_trial_released_as_throttled_reopens_the_breaker(s: Scene) -> None:
    s.release(_trial(s), Outcome.THROTTLED)
    expect_equal(s.expect_refusal(Reason.BREAKER).look_again_s, 2 * BREAK_S, "the second break")


@store_check
def the_break_doubles_up_to_its_limit_and_no_further(s: Scene) -> None:
    s.pool(controller="koryph")
    lease = _trial(s)
    breaks = []
    for _ in range(6):
        s.release(lease, Outcome.THROTTLED)
        breaks.append(s.expect_refusal(Reason.BREAKER).look_again_s)
        s.wait(breaks[-1] or 0)
        lease = s.take()
    expect_equal(breaks, [600.0, 1200.0, 2400.0, 3600.0, 3600.0, 3600.0], "the breaks")


@store_check
def a_clean_trial_forgets_the_doubling(s: Scene) -> None:
    s.release(_trial(s), Outcome.THROTTLED)
    s.wait(2 * BREAK_S)
    s.release(s.take())
    s.wait(121)
    s.throttle()
    expect_equal(s.expect_refusal(Reason.BREAKER).look_again_s, BREAK_S, "the next break")


@store_check
def a_throttle_from_the_trials_project_without_a_name_fails_the_trial(s: Scene) -> None:
    _trial(s)
    s.throttle("a")
    expect_equal(s.snapshot().phase, Phase.OPEN, "the breaker")


@store_check
def a_throttle_of_other_work_does_not_fail_the_trial(s: Scene) -> None:
    _trial(s)
    s.throttle("b")
    s.throttle("a", "another task")
    expect_equal(s.snapshot().phase, Phase.TRIAL, "the breaker")


@store_check
def a_trial_whose_process_vanished_reopens_the_breaker(s: Scene) -> None:
    trial = _trial(s)
    s.wait(10)
    s.reclaim(trial)
    s.expect_refusal(Reason.TRIAL)
    s.wait(VANISHED_S - 11)
    s.expect_refusal(Reason.TRIAL)
    s.wait(1)
    expect_equal(s.expect_refusal(Reason.BREAKER).look_again_s, 2 * BREAK_S, "the second break")


@store_check
def an_abandoned_trial_makes_room_for_the_next(s: Scene) -> None:
    trial = _trial(s)
    ask = s.park("b")
    s.store.withdraw(trial)
    expect(s.is_held(ask), "the next in line is the trial now")
    expect_equal(s.snapshot().phase, Phase.TRIAL, "the breaker")


@store_check
def a_trial_that_works_for_hours_does_not_keep_the_pool_shut(s: Scene) -> None:
    trial = _trial(s)
    ask = s.park("b")
    s.wait(VANISHED_S + 1)
    s.poll(ask)
    expect_equal(
        (s.snapshot().phase, s.is_held(trial)), (Phase.CLOSED, True), "breaker closed, trial still running"
    )


@store_check
def the_trial_waits_for_no_spacing(s: Scene) -> None:
    s.pool(controller="koryph")
    s.pool(cap=1, spacing_s=1000.0)
    s.take()
    s.throttle()
    s.wait(BREAK_S)
    s.take()


@store_check
def work_from_before_does_not_keep_the_trial_out(s: Scene) -> None:
    for _ in range(6):
        s.take()
    opened = BreakerState(Phase.OPEN, open_until=s.world.clock() + BREAK_S)
    s.store.import_pool(POOL, {}, LearnedState(CapState(level=1.0), opened))
    s.wait(BREAK_S)
    s.take()


@store_check
def the_trial_stays_within_the_ceiling(s: Scene) -> None:
    _open_breaker(s)
    for _ in range(4):
        s.store.record_running(s.ask())
    s.wait(BREAK_S)
    s.expect_refusal(Reason.CAP)


@store_check
def a_throttle_while_open_only_counts(s: Scene) -> None:
    _open_breaker(s)
    until = s.snapshot().closed_until
    s.wait(100)
    s.throttle("b")
    expect_equal(s.snapshot().closed_until, until, "the end of the break")
    expect_equal(s.snapshot().memory.cap.throttle_count, 2, "throttles")


@store_check
def a_late_throttle_right_after_a_clean_trial_does_not_open_the_breaker_again(s: Scene) -> None:
    """A floor throttle counts only outside settle, and a change of the cap is followed by one."""
    s.release(_trial(s))
    s.wait(5)
    s.throttle("b", "old work")
    expect_equal(s.snapshot().phase, Phase.CLOSED, "the breaker")


@store_check
def throttled_work_that_asks_again_stands_before_the_same_gate(s: Scene) -> None:
    s.pool(controller="koryph")
    s.pool(cap=1)
    s.release(s.take(), Outcome.THROTTLED)
    s.expect_refusal(Reason.BREAKER)
