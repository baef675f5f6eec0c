"""The adaptive cap and the spacing, as seen through a store, and what the default controller measures."""

from __future__ import annotations

from heapq import heappop, heappush
from random import Random

from flyball.core.pool.learned import CapState, MeasuredState
from flyball.core.pool.model import Outcome, Phase
from flyball.core.pool.plan import LearnedState
from flyball.core.pool.rate_window import Source
from flyball.core.pool.verdict import Reason
from flyball.core.signals import Signal, SignalKind
from flyball.testing.store_checks.scenario import POOL, Scene, expect, expect_equal, store_check


@store_check
def a_throttle_lowers_the_cap_and_touches_no_running_work(s: Scene) -> None:
    s.pool(controller="koryph")
    leases = [s.take() for _ in range(8)]
    s.throttle()
    expect_equal((s.snapshot().cap, s.snapshot().in_use), (4, 8), "cap and use")
    for lease in leases[:4]:
        s.release(lease)
    s.expect_refusal(Reason.CAP)
    s.release(leases[4])
    s.take()


@store_check
def a_throttle_during_settle_does_not_lower_the_cap_again(s: Scene) -> None:
    s.pool(controller="koryph")
    s.throttle("a", "t-1")
    s.wait(119)
    s.throttle("a", "t-1")
    expect_equal((s.snapshot().cap, s.snapshot().memory.cap.throttle_count), (4, 2), "cap and count")


@store_check
def a_lease_released_as_throttled_lowers_the_cap(s: Scene) -> None:
    s.pool(controller="koryph")
    s.release(s.take(), Outcome.THROTTLED)
    expect_equal(s.snapshot().cap, 4, "the cap")


@store_check
def the_cap_does_not_grow_while_idle(s: Scene) -> None:
    s.take()
    for _ in range(8 * 12):
        s.wait(300)
        s.release(s.take())
    expect_equal(s.snapshot().cap, 8, "the cap after 8 hours of little work")


def _full_since_a_settle(s: Scene) -> int:
    """A full pool of 8 whose last settle ends now; an ask that waits."""
    s.store.import_pool(POOL, {}, LearnedState(CapState(level=8.0, settle_until=s.world.clock())))
    for _ in range(8):
        s.take()
    return s.park()


@store_check
def a_pool_that_was_just_set_does_not_grow_before_a_quiet_period(s: Scene) -> None:
    s.pool(controller="koryph")
    s.pool(cap=2)
    s.take()
    s.take()
    ask = s.park()
    s.wait(299)
    s.poll(ask)
    expect_equal(s.snapshot().cap, 2, "the cap, less than five minutes after it was set")


@store_check
def the_cap_grows_by_one_per_quiet_period_while_it_is_full(s: Scene) -> None:
    s.pool(controller="koryph")
    ask = _full_since_a_settle(s)
    s.wait(299)
    s.poll(ask)
    expect_equal(s.snapshot().cap, 8, "the cap just before the period is over")
    s.wait(1)
    expect(s.poll(ask).granted, "the new slot goes to the waiting")
    expect_equal(s.snapshot().cap, 9, "the cap")


@store_check
def the_cap_never_grows_beyond_its_ceiling(s: Scene) -> None:
    s.pool(cap=2, cap_ceiling=3)
    asks = [s.store.admit(s.ask(), park=True)[0].claim_id for _ in range(8)]
    for _ in range(50):
        s.wait(600)
        s.poll(asks[-1])
    expect_equal((s.snapshot().cap, s.snapshot().in_use), (3, 3), "cap and use")


@store_check
def after_a_cut_the_cap_returns_quickly_to_just_under_what_failed(s: Scene) -> None:
    s.pool(controller="koryph")
    leases = [s.take() for _ in range(8)]
    s.throttle()
    for lease in leases[4:]:
        s.release(lease)
    ask = s.park()
    for _ in range(5):
        s.park()
    s.wait(120)
    s.poll(ask)
    s.wait(120)
    s.poll(ask)
    expect_equal(s.snapshot().cap, 7, "the cap two settles after the cut from 8")


@store_check
def asks_that_wait_for_something_else_do_not_grow_the_cap(s: Scene) -> None:
    """Growth by success counts successes at a full cap; a project at its maximum fills nothing."""
    s.pool(profile="calls", controller="article", cap=8, cap_ceiling=16, maxima={"a": 1})
    lease = s.take("a")
    for _ in range(20):
        ask = s.park("a")
        s.wait(1)
        s.release(lease, oks=5)
        lease = ask
    expect_equal(s.snapshot().cap, 8, "the cap, of which one slot was ever used")


@store_check
def calls_grow_by_half_a_slot_per_success_while_full(s: Scene) -> None:
    s.pool(profile="calls", controller="article")
    for cap in (2, 3):
        # The first of the two ends while the pool is full, the second does not.
        for lease in [s.take(), s.take()]:
            s.release(lease, oks=1)
        s.wait(8)
        s.release(s.take())
        expect_equal(s.snapshot().cap, cap, "the cap, half a slot higher")


@store_check
def a_near_limit_warning_stops_growth_and_cuts_nothing(s: Scene) -> None:
    s.pool(controller="koryph")
    ask = _full_since_a_settle(s)
    s.wait(250)
    s.store.report(POOL, Signal(SignalKind.NEAR_LIMIT), project="a", name="", claim_id=None)
    s.wait(119)
    s.poll(ask)
    expect_equal(s.snapshot().cap, 8, "the cap")


@store_check
def spacing_keeps_grants_apart(s: Scene) -> None:
    s.pool(profile="agents")
    s.take()
    verdict = s.expect_refusal(Reason.SPACING)
    expect(1.5 <= (verdict.look_again_s or 0) <= 4.5, "3 s, give or take half")
    s.wait(4.5)
    s.take()


@store_check
def a_denial_for_spacing_does_not_move_the_clock(s: Scene) -> None:
    s.pool(profile="agents")
    s.take()
    due = s.snapshot().next_grant_at
    while s.world.clock() + 0.1 < due:
        s.expect_refusal(Reason.SPACING)
        s.wait(0.1)
    s.wait(0.1)
    s.take()


@store_check
def a_static_pool_ignores_throttles_and_spacing(s: Scene) -> None:
    s.static(2, spacing_s=5.0)
    for _ in range(10):
        s.throttle("a", "t-1")
        s.throttle("b", "t-2")
        s.throttle("c", "t-3")
    s.take()
    s.take()
    seen = s.snapshot()
    expect_equal((seen.cap, seen.phase, seen.memory.cap.throttle_count), (2, Phase.CLOSED, 30), "the pool")


@store_check
def a_throttle_after_the_ceiling_was_lowered_still_lowers_the_cap(s: Scene) -> None:
    s.pool(controller="koryph")
    s.pool(cap=4, cap_ceiling=8)
    asks = [s.store.admit(s.ask(), park=True)[0].claim_id for _ in range(9)]
    for _ in range(20):
        s.wait(600)
        s.poll(asks[-1])
    expect_equal(s.snapshot().cap, 8, "the cap after growing")
    s.pool(cap_ceiling=4)
    s.throttle()
    expect_equal(s.snapshot().cap, 2, "the cap after a throttle at 4")


@store_check
def retry_after_closes_static_and_adaptive_pools_until_then(s: Scene) -> None:
    s.static(8, "fixed")
    for pool in ("fixed", "adaptive"):
        s.throttle(pool=pool, retry_after_s=60)
        verdict = s.expect_refusal(Reason.RETRY_AFTER, pool=pool)
        expect_equal(verdict.retry_after_s, 60.0, "when to come back")
        s.wait(60)
        s.take(pool=pool)


@store_check
def a_repeated_retry_after_does_not_extend_the_wait(s: Scene) -> None:
    s.pool(controller="koryph")
    s.throttle(retry_after_s=60)
    s.wait(30)
    s.throttle(retry_after_s=60)
    s.wait(30)
    s.take()


@store_check
def retry_after_is_believed_up_to_a_limit(s: Scene) -> None:
    s.pool(retry_after_max_s=100.0)
    s.throttle(retry_after_s=86400)
    s.expect_refusal(Reason.RETRY_AFTER)
    s.wait(100)
    s.take()


@store_check
def who_waits_for_retry_after_is_served_when_it_is_over(s: Scene) -> None:
    s.throttle(retry_after_s=60)
    ask = s.park()
    expect_equal(s.poll(ask).look_again_s, 60.0, "when to look again")
    s.wait(60)
    expect(s.poll(ask).granted, "granted")


@store_check
def nothing_in_one_pool_touches_another(s: Scene) -> None:
    s.pool(controller="koryph")
    s.take(pool="q")
    before = s.snapshot("q")
    s.pool(cap=1, spacing_s=5.0)
    s.take()
    for _ in range(3):
        s.throttle(retry_after_s=600)
        s.wait(200)
    expect_equal(s.snapshot().phase, Phase.TRIAL, "the troubled pool")
    expect_equal(s.snapshot("q"), before, "the other pool")
    for _ in range(7):
        s.take(pool="q")


def _measured_state(s: Scene) -> MeasuredState:
    learned = s.snapshot().memory.cap.measured
    if learned is None:
        raise AssertionError("nothing was learned")
    return learned


@store_check
def a_refused_first_call_measures_the_level(s: Scene) -> None:
    leases = [s.take() for _ in range(8)]
    s.wait(0.2)
    s.refuse(leases[6])
    expect_equal((s.snapshot().cap, s.snapshot().in_use), (6, 8), "cap and use")


@store_check
def what_is_in_use_when_the_refusal_arrives_does_not_matter(s: Scene) -> None:
    leases = [s.take() for _ in range(8)]
    for lease in leases[:5]:
        s.release(lease)
    s.wait(0.2)
    s.refuse(leases[6])
    expect_equal(s.snapshot().cap, 6, "the cap")


@store_check
def calls_refused_together_count_once_and_the_smallest_measures_best(s: Scene) -> None:
    leases = [s.take() for _ in range(8)]
    s.wait(0.2)
    for lease in (leases[7], leases[5], leases[6]):
        s.refuse(lease)
    expect_equal((s.snapshot().cap, s.snapshot().memory.cap.throttle_count), (5, 3), "cap and count")


@store_check
def a_report_without_its_call_measures_what_is_in_use(s: Scene) -> None:
    for _ in range(6):
        s.take()
    s.throttle()
    expect_equal(s.snapshot().cap, 5, "the cap")


@store_check
def reports_without_their_calls_lower_the_cap_once_until_silence_would_mean_yes(s: Scene) -> None:
    for _ in range(8):
        s.take()
    for number in range(10):
        s.throttle("a", f"t-{number}")
        s.wait(2)
    expect_equal((s.snapshot().cap, s.snapshot().memory.cap.throttle_count), (7, 10), "cap and count")


@store_check
def a_later_report_of_the_same_lease_is_no_measurement(s: Scene) -> None:
    """Only the first answer belongs to the call the lease was taken for."""
    lease = s.take()
    for _ in range(7):
        s.take()
    s.wait(0.2)
    s.throttle("a", claim_id=lease)
    expect_equal(s.snapshot().cap, 7, "what was in use, not what was when the lease began")


@store_check
def after_a_cut_nothing_starts_until_the_pause_is_over(s: Scene) -> None:
    lease = s.take()
    s.wait(2)
    s.refuse(lease)
    s.release(lease)
    verdict = s.expect_refusal(Reason.RETRY_AFTER)
    expect_equal(verdict.look_again_s, 3.0, "one and a half times as long as the rejection took")
    s.wait(3)
    s.take()


@store_check
def a_refused_probe_is_undone_and_pauses_nobody(s: Scene) -> None:
    _probe(s)
    refused = s.take()
    s.wait(0.2)
    s.refuse(refused)
    s.release(refused)
    expect_equal((s.snapshot().cap, s.snapshot().closed_until), (8, None), "cap and closing")


def _probe(s: Scene) -> None:
    """Fill the pool and wait until it probes."""
    for _ in range(8):
        s.take()
    waiting = s.park()
    while s.snapshot().cap == 8:
        s.wait(10)
        s.poll(waiting)
    s.store.withdraw(waiting)


@store_check
def a_full_pool_grows_in_silence_before_anybody_has_finished(s: Scene) -> None:
    _probe(s)
    expect(s.snapshot().cap > 8, "the cap")


@store_check
def what_is_not_read_never_raises_the_cap(s: Scene) -> None:
    """Eight at once and one in line, round after round: nothing is heard, because nothing is read."""
    for _ in range(6):
        leases = [s.take(unread=True) for _ in range(8)]
        waiting = s.park(unread=True)
        s.wait(60)
        s.poll(waiting)
        for lease in (*leases, waiting):
            s.release(lease, oks=0)
    expect_equal(s.snapshot().cap, 8, "the cap")


@store_check
def with_a_reserve_what_is_not_read_never_raises_the_cap(s: Scene) -> None:
    s.pool(cap=8, cap_ceiling=16, reserve=1)
    for _ in range(7):
        s.take(unread=True)
    _expect_no_growth(s, s.park(unread=True), cap=8)


@store_check
def an_unread_ask_that_waits_for_two_slots_while_one_is_free_does_not_raise_the_cap(s: Scene) -> None:
    for _ in range(7):
        s.take(unread=True)
    _expect_no_growth(s, s.park(unread=True, slots=2), cap=8)


@store_check
def after_a_cut_what_is_not_read_does_not_raise_the_cap(s: Scene) -> None:
    for controller in ("measured", "koryph", "article"):
        s.pool(cap=8, cap_ceiling=16, controller=controller)
        leases = [s.take() for _ in range(8)]
        s.wait(1)
        s.refuse(leases[0])
        cap = s.snapshot().cap
        for lease in leases:
            s.release(lease, oks=0)
        s.wait(300)
        unread = [s.take(unread=True) for _ in range(cap)]
        waiting = s.park(unread=True)
        _expect_no_growth(s, waiting, cap=cap)
        s.store.withdraw(waiting)
        for lease in unread:
            s.release(lease, oks=0)


def _expect_no_growth(s: Scene, waiting: int, *, cap: int) -> None:
    for _ in range(20):
        s.wait(60)
        s.poll(waiting)
    expect_equal(s.snapshot().cap, cap, "the cap after twenty minutes without a word")


@store_check
def a_pool_that_was_never_refused_is_at_its_ceiling_after_three_holds(s: Scene) -> None:
    """Runs of five seconds, as many as may: eight at first, sixteen at most."""
    began = s.world.clock()
    ends = [(began + 5.0, s.take()) for _ in range(8)]
    while s.snapshot().cap < 16:
        s.wait(0.25)
        now = s.world.clock()
        for at, lease in [each for each in ends if each[0] <= now]:
            ends.remove((at, lease))
            s.release(lease, oks=1)
        while (verdict := s.nowait()).granted:
            ends.append((now + 5.0, verdict.claim_id))
        expect(now < began + 60, "sixteen at once within a minute")
    expect(s.world.clock() - began <= 16.0, "within three holds of five seconds, and a moment")


@store_check
def with_a_reserve_what_is_read_raises_the_cap(s: Scene) -> None:
    """Ordinary asks fill the pool without its reserve, and an answer among them ends a warning."""
    s.pool(cap=8, cap_ceiling=16, reserve=1)
    leases = [s.take() for _ in range(7)]
    s.refuse(leases[0], SignalKind.NEAR_LIMIT)
    _expect_no_growth(s, s.park(), cap=8)
    s.release(leases[1], oks=1)
    waiting = s.park()
    for _ in range(3):
        s.wait(60)
        s.poll(waiting)
    expect(s.snapshot().cap > 8, "the cap after an answer")


@store_check
def a_run_that_is_read_at_its_end_is_evidence_then(s: Scene) -> None:
    leases = [s.take(unread=True) for _ in range(8)]
    waiting = s.park(unread=True)
    s.wait(600)
    s.poll(waiting)
    expect_equal(s.snapshot().cap, 8, "the cap while nothing is known")
    s.release(leases[7], oks=1)
    s.wait(1)
    s.poll(waiting)
    s.wait(60)
    s.take()
    expect_equal(s.snapshot().cap, 9, "the cap after one that filled it was served")


@store_check
def one_stray_refusal_costs_a_pool_of_short_runs_a_few_holds(s: Scene) -> None:
    """Runs of three seconds, eight at a time; one of the first eight meets a refusal and goes on."""
    waiting, ends, done, refused = 22, [(s.world.clock() + 3.0, s.take()) for _ in range(8)], 0, False
    began = s.world.clock()
    while done < 30:
        s.wait(0.1)
        now = s.world.clock()
        if not refused and now >= began + 1.0:
            refused = True
            s.throttle("a", claim_id=ends[0][1])
        for at, lease in [each for each in ends if each[0] <= now]:
            ends.remove((at, lease))
            s.release(lease, oks=1)
            done += 1
        while waiting and (verdict := s.nowait()).granted:
            waiting -= 1
            ends.append((now + 3.0, verdict.claim_id))
        expect(now < began + 60, f"{done} of 30 runs were done after a minute")
    expect(s.world.clock() - began <= 18.0, "thirty runs within one and a half times the ideal 12 s")


@store_check
def the_retry_after_of_a_refused_probe_binds_its_own_call_alone(s: Scene) -> None:
    _probe(s)
    refused = s.take()
    s.wait(0.2)
    s.refuse(refused, retry_after_s=30.0)
    s.release(refused)
    expect_equal((s.snapshot().cap, s.snapshot().closed_until), (8, None), "cap and closing")


@store_check
def an_answer_near_the_limit_holds_the_cap_until_another_says_otherwise(s: Scene) -> None:
    _a_warning_holds_the_cap(s, SignalKind.NEAR_LIMIT)


@store_check
def a_slow_answer_holds_the_cap_until_another_says_otherwise(s: Scene) -> None:
    _a_warning_holds_the_cap(s, SignalKind.SLOW)


def _a_warning_holds_the_cap(s: Scene, warning: SignalKind) -> None:
    leases = [s.take() for _ in range(8)]
    waiting = s.park()
    s.refuse(leases[0], warning)
    for _ in range(20):
        s.wait(60)
        s.poll(waiting)
    expect_equal(s.snapshot().cap, 8, "the cap after a warning and silence")
    s.release(leases[1], oks=1)
    again = s.park()
    for _ in range(3):
        s.wait(60)
        s.poll(again)
    expect(s.snapshot().cap > 8, "the cap after an answer that says otherwise")


@store_check
def an_ask_larger_than_the_cap_makes_it_grow(s: Scene) -> None:
    s.pool(cap=1, cap_ceiling=4)
    ask = s.park(slots=3)
    for _ in range(20):
        s.wait(60)
        s.poll(ask)
    expect(s.is_held(ask), "granted")


@store_check
def a_throttle_after_the_ceiling_was_lowered_lowers_a_measured_cap_too(s: Scene) -> None:
    s.pool(cap=8, cap_ceiling=64)
    asks = [s.store.admit(s.ask(), park=True)[0].claim_id for _ in range(60)]
    for _ in range(40):
        s.wait(60)
        s.poll(asks[-1])
    expect(s.snapshot().cap > 20, "the cap after growing")
    s.pool(cap_floor=1, cap_ceiling=8)
    for ask in asks[4:]:
        s.store.withdraw(ask)
    s.throttle()
    expect_equal(s.snapshot().cap, 4, "the cap after a throttle at 8 with 4 in use: half at least")


@store_check
def overload_leaves_the_cap_alone_and_opens_the_breaker_when_it_comes_thick(s: Scene) -> None:
    leases = [s.take() for _ in range(8)]
    for lease in leases[:4]:
        s.refuse(lease, SignalKind.OVERLOADED)
    expect_equal((s.snapshot().cap, s.snapshot().phase), (8, Phase.CLOSED), "cap and breaker after four")
    s.refuse(leases[4], SignalKind.OVERLOADED)
    expect_equal((s.snapshot().cap, s.snapshot().phase), (8, Phase.OPEN), "cap and breaker after five")


@store_check
def a_lease_that_reported_its_refusal_and_is_released_as_throttled_counts_once(s: Scene) -> None:
    leases = [s.take() for _ in range(8)]
    s.wait(0.2)
    s.refuse(leases[6])
    s.release(leases[6], Outcome.THROTTLED)
    expect_equal(s.snapshot().cap, 6, "the cap")


@store_check
def a_refused_call_says_nothing_about_how_long_calls_take(s: Scene) -> None:
    lease = s.take()
    s.wait(100)
    s.release(lease, oks=1)
    lease = s.take()
    s.wait(1)
    s.finish_call(lease, SignalKind.THROTTLED)
    expect_equal(s.snapshot().hold_mean_s, 100.0, "the usual hold")


@store_check
def a_pool_that_changes_its_controller_keeps_its_level(s: Scene) -> None:
    leases = [s.take() for _ in range(8)]
    s.wait(0.2)
    s.refuse(leases[6])
    for controller in ("koryph", "measured", "article", "fixed", "gradient2", "measured"):
        s.pool(controller=controller)
        cap = 8 if controller == "fixed" else 6
        expect_equal(
            (s.snapshot().cap, s.snapshot().closed_until), (cap, None), f"the cap under {controller}"
        )


@store_check
def a_controller_that_comes_back_has_forgotten_what_it_knew(s: Scene) -> None:
    """Meanwhile another one moved the level: what was firm then says nothing about it."""
    leases = [s.take() for _ in range(8)]
    s.wait(0.2)
    s.refuse(leases[6])
    s.pool(controller="koryph")
    s.throttle()
    expect_equal(s.snapshot().cap, 3, "the cap after koryph's cut")
    s.pool(controller="measured")
    s.wait(1)
    s.throttle()
    expect_equal((s.snapshot().cap, _measured_state(s).firm), (2, 2.0), "cap and firm ground after a fall")


@store_check
def a_reset_forgets_what_was_measured(s: Scene) -> None:
    leases = [s.take() for _ in range(8)]
    s.wait(0.2)
    s.refuse(leases[6])
    s.store.reset_pool(POOL)
    seen = s.snapshot()
    expect_equal((seen.cap, seen.closed_until, seen.hold_mean_s), (8, None, 0.0), "cap, closing, hold")
    expect_equal(seen.memory.cap.throttle_count, 0, "throttles counted")


# -- a quota that is not declared ---------------------------------------------------------------------


class _Quota:
    """Calls of very different lengths against a bucket of requests that says nothing but no."""

    PER_S, MOST = 2.0, 120.0

    def __init__(self, s: Scene) -> None:
        self.s, self.bucket, self.chance = s, self.MOST, Random(s.world.seed)
        self.running: list[tuple[float, int]] = []
        self.served = self.refused = 0

    def play(self, minutes: int) -> None:
        self.served = self.refused = 0
        for _ in range(minutes * 60 * 4):
            self._end()
            self._start()
            self.s.wait(0.25)
            self.bucket = min(self.MOST, self.bucket + self.PER_S * 0.25)

    def _end(self) -> None:
        while self.running and self.running[0][0] <= self.s.world.clock():
            self.s.finish_call(heappop(self.running)[1])
            self.served += 1

    def _start(self) -> None:
        while len(self.running) < 64 and (verdict := self.s.nowait()).granted:
            if self.bucket < 1:
                self.s.wait(0.125)
                self.s.finish_call(verdict.claim_id, SignalKind.THROTTLED)
                self.refused += 1
                return
            self.bucket -= 1
            hold_s = self.chance.lognormvariate(1.5, 0.8)
            heappush(self.running, (self.s.world.clock() + hold_s, verdict.claim_id))


@store_check
def a_quota_is_found_out_from_its_refusals_and_work_is_paced_by_it(s: Scene) -> None:
    s.pool(profile="calls", cap=4, cap_ceiling=64)
    quota = _Quota(s)
    quota.play(minutes=3)
    believed, windows = s.snapshot().memory.quota, s.snapshot().windows
    expect(believed.believed, "the quota is believed")
    expect(abs(believed.per_s - quota.PER_S) < 0.2, f"2 requests a second, not {believed.per_s}")
    expect_equal([w.source for w in windows], [Source.ESTIMATED], "where the window comes from")
    quota.play(minutes=4)
    expect(quota.served > 0.95 * quota.PER_S * 240, f"nearly all of the quota is used: {quota.served}")
    expect(quota.refused < 0.05 * quota.served, f"and little is refused: {quota.refused}")


@store_check
def a_reset_forgets_a_quota_that_was_found_out(s: Scene) -> None:
    s.pool(profile="calls", cap=4, cap_ceiling=64)
    _Quota(s).play(minutes=3)
    expect(s.snapshot().windows, "a window to pace by")
    s.store.reset_pool(POOL)
    expect_equal((s.snapshot().memory.quota.believed, s.snapshot().windows), (False, ()), "quota and windows")
