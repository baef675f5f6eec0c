"""The adaptive cap and the spacing, as seen through a store."""

from __future__ import annotations

from flyball.core.learned import CapState
from flyball.core.model import Outcome, Phase
from flyball.core.plan import Memory
from flyball.core.signals import Signal, SignalKind
from flyball.core.verdict import Reason
from flyball.testing.store_checks.scene import POOL, Scene, expect, expect_equal, store_check


@store_check
def a_throttle_lowers_the_cap_and_touches_no_running_work(s: Scene) -> None:
    s.pool(controller="koryph")
    leases = [s.take() for _ in range(8)]
    s.throttle()
    expect_equal((s.seen().cap, s.seen().in_use), (4, 8), "cap and use")
    for lease in leases[:4]:
        s.release(lease)
    s.refused(Reason.CAP)
    s.release(leases[4])
    s.take()


@store_check
def a_throttle_during_settle_does_not_lower_the_cap_again(s: Scene) -> None:
    s.pool(controller="koryph")
    s.throttle("a", "t-1")
    s.wait(119)
    s.throttle("a", "t-1")
    expect_equal((s.seen().cap, s.seen().memory.cap.throttle_count), (4, 2), "cap and count")


@store_check
def a_lease_released_as_throttled_lowers_the_cap(s: Scene) -> None:
    s.pool(controller="koryph")
    s.release(s.take(), Outcome.THROTTLED)
    expect_equal(s.seen().cap, 4, "the cap")


@store_check
def the_cap_does_not_grow_while_idle(s: Scene) -> None:
    s.take()
    for _ in range(8 * 12):
        s.wait(300)
        s.release(s.take())
    expect_equal(s.seen().cap, 8, "the cap after 8 hours of little work")


def _full_since_a_settle(s: Scene) -> int:
    """A full pool of 8 whose last settle ends now; an ask that waits."""
    s.store.import_pool(POOL, {}, Memory(CapState(level=8.0, settle_until=s.world.clock())))
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
    s.look(ask)
    expect_equal(s.seen().cap, 2, "the cap, less than five minutes after somebody set it")


@store_check
def the_cap_grows_by_one_per_quiet_period_while_it_is_full(s: Scene) -> None:
    s.pool(controller="koryph")
    ask = _full_since_a_settle(s)
    s.wait(299)
    s.look(ask)
    expect_equal(s.seen().cap, 8, "the cap just before the period is over")
    s.wait(1)
    expect(s.look(ask).granted, "the new slot goes to the waiting")
    expect_equal(s.seen().cap, 9, "the cap")


@store_check
def the_cap_never_grows_beyond_its_ceiling(s: Scene) -> None:
    s.pool(cap=2, cap_ceiling=3)
    asks = [s.store.admit(s.ask(), park=True)[0].claim_id for _ in range(8)]
    for _ in range(50):
        s.wait(600)
        s.look(asks[-1])
    expect_equal((s.seen().cap, s.seen().in_use), (3, 3), "cap and use")


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
    s.look(ask)
    s.wait(120)
    s.look(ask)
    expect_equal(s.seen().cap, 7, "the cap two settles after the cut from 8")


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
    expect_equal(s.seen().cap, 8, "the cap, of which one slot was ever used")


@store_check
def calls_grow_by_half_a_slot_per_success_while_full(s: Scene) -> None:
    s.pool(profile="calls", controller="article")
    for cap in (2, 3):
        # The first of the two ends while the pool is full, the second does not.
        for lease in [s.take(), s.take()]:
            s.release(lease, oks=1)
        s.wait(8)
        s.release(s.take())
        expect_equal(s.seen().cap, cap, "the cap, half a slot higher")


@store_check
def a_near_limit_warning_stops_growth_and_cuts_nothing(s: Scene) -> None:
    s.pool(controller="koryph")
    ask = _full_since_a_settle(s)
    s.wait(250)
    s.store.report(POOL, Signal(SignalKind.NEAR_LIMIT), project="a", name="", claim_id=None)
    s.wait(119)
    s.look(ask)
    expect_equal(s.seen().cap, 8, "the cap")


@store_check
def spacing_keeps_grants_apart(s: Scene) -> None:
    s.pool(profile="agents")
    s.take()
    verdict = s.refused(Reason.SPACING)
    expect(1.5 <= (verdict.look_again_s or 0) <= 4.5, "3 s, give or take half")
    s.wait(4.5)
    s.take()


@store_check
def a_denial_for_spacing_does_not_move_the_clock(s: Scene) -> None:
    s.pool(profile="agents")
    s.take()
    due = s.seen().next_grant_at
    while s.world.clock() + 0.1 < due:
        s.refused(Reason.SPACING)
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
    seen = s.seen()
    expect_equal((seen.cap, seen.phase, seen.memory.cap.throttle_count), (2, Phase.CLOSED, 30), "the pool")


@store_check
def a_throttle_after_the_ceiling_was_lowered_still_lowers_the_cap(s: Scene) -> None:
    s.pool(controller="koryph")
    s.pool(cap=4, cap_ceiling=8)
    asks = [s.store.admit(s.ask(), park=True)[0].claim_id for _ in range(9)]
    for _ in range(20):
        s.wait(600)
        s.look(asks[-1])
    expect_equal(s.seen().cap, 8, "the cap after growing")
    s.pool(cap_ceiling=4)
    s.throttle()
    expect_equal(s.seen().cap, 2, "the cap after a throttle at 4")


@store_check
def retry_after_closes_static_and_adaptive_pools_until_then(s: Scene) -> None:
    s.static(8, "fixed")
    for pool in ("fixed", "adaptive"):
        s.throttle(pool=pool, retry_after_s=60)
        verdict = s.refused(Reason.RETRY_AFTER, pool=pool)
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
    s.refused(Reason.RETRY_AFTER)
    s.wait(100)
    s.take()


@store_check
def who_waits_for_retry_after_is_served_when_it_is_over(s: Scene) -> None:
    s.throttle(retry_after_s=60)
    ask = s.park()
    expect_equal(s.look(ask).look_again_s, 60.0, "when to look again")
    s.wait(60)
    expect(s.look(ask).granted, "granted")


@store_check
def nothing_in_one_pool_touches_another(s: Scene) -> None:
    s.pool(controller="koryph")
    s.take(pool="q")
    before = s.seen("q")
    s.pool(cap=1, spacing_s=5.0)
    s.take()
    for _ in range(3):
        s.throttle(retry_after_s=600)
        s.wait(200)
    expect_equal(s.seen().phase, Phase.TRIAL, "the troubled pool")
    expect_equal(s.seen("q"), before, "the other pool")
    for _ in range(7):
        s.take(pool="q")
