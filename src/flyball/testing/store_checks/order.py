"""Which ask in line is next, and that no ask arrives late and goes first."""

from __future__ import annotations

from flyball.core.pool.verdict import Reason
from flyball.testing.store_checks.scenario import Scene, expect, expect_equal, store_check


@store_check
def a_project_is_served_first_come_first_served(s: Scene) -> None:
    s.static(1)
    lease = s.take()
    asks = [s.park() for _ in range(4)]
    served = []
    for _ in asks:
        s.release(lease)
        (lease,) = [ask for ask in asks if s.is_held(ask)]
        served.append(lease)
    expect_equal(served, asks, "the order of service")


@store_check
def a_freed_slot_is_handed_on_in_the_step_that_frees_it(s: Scene) -> None:
    s.static(1)
    lease = s.take()
    first = s.park()
    s.park()
    s.park()
    after = s.release(lease)
    expect(s.is_held(first), "the next in line already holds the slot")
    expect_equal([wake.claim_id for wake in after.wakes], [first], "woken")


@store_check
def a_wake_says_where_the_waiter_listens_and_who_it_is(s: Scene) -> None:
    s.static(1)
    lease = s.take()
    holder = s.holder()
    ask = s.park(holder=holder)
    (wake,) = [wake for wake in s.release(lease).wakes if wake.claim_id == ask]
    expect_equal((wake.mailbox, wake.holder), (f"/mail/{holder.pid}", holder), "the wake")


@store_check
def an_ask_that_is_granted_as_it_arrives_is_not_woken(s: Scene) -> None:
    s.pool(spacing_s=5.0)
    s.take()
    s.park()
    s.wait(60)
    verdict, after = s.store.admit(s.ask("b"), park=True)
    expect(verdict.claim_id not in [wake.claim_id for wake in after.wakes], "woken although it is awake")


@store_check
def nobody_barges_in_without_waiting(s: Scene) -> None:
    """A slot that time has freed belongs to who waits for it, not to who asks first now."""
    s.pool(spacing_s=5.0)
    s.take()
    waiting = s.park()
    s.wait(60)
    verdict, after = s.store.admit(s.ask(), park=False)
    expect(s.is_held(waiting), "the waiting ask was passed over")
    expect(not verdict.granted, "an ask that did not wait was granted before the spacing was over again")
    expect(waiting in [wake.claim_id for wake in after.wakes], "the waiter is told")


@store_check
def nobody_barges_in_by_arriving_late(s: Scene) -> None:
    s.pool(spacing_s=5.0)
    s.take()
    waiting = s.park()
    s.wait(60)
    late = s.park()
    expect(s.is_held(waiting) and not s.is_held(late), "the late ask was served first")


@store_check
def the_higher_priority_is_served_first(s: Scene) -> None:
    s.static(1)
    lease = s.take()
    low, high = s.park(), s.park(priority=5)
    s.release(lease)
    expect(s.is_held(high) and not s.is_held(low), "priority 5 goes before priority 0")


@store_check
def a_low_priority_catches_up_by_waiting(s: Scene) -> None:
    s.static(1, ageing_s=60.0)
    lease = s.take()
    low = s.park(priority=0)
    s.wait(5 * 60)
    high = s.park(priority=5)
    s.release(lease)
    expect(s.is_held(low) and not s.is_held(high), "five ageing periods make up for five steps of priority")


@store_check
def a_low_priority_never_overtakes_by_waiting(s: Scene) -> None:
    s.static(2, ageing_s=60.0)
    s.take("greedy")
    lease = s.take("other")
    low = s.park("greedy", priority=0)
    s.wait(100 * 60)
    high = s.park("needy", priority=5)
    s.release(lease)
    expect(s.is_held(high) and not s.is_held(low), "an old low ask is an equal of the highest, not more")


@store_check
def a_large_ask_is_overtaken_for_one_ageing_period_only(s: Scene) -> None:
    s.static(3, ageing_s=60.0)
    first, second = s.take("b", slots=2), s.take("c")
    large = s.park("a", slots=3)
    small = s.park("b")
    s.release(second)
    expect(s.is_held(small), "a free slot is used while the large ask is young")
    s.wait(61)
    s.release(small)
    other = s.park("c")
    expect(not s.is_held(other), "the slots now collect for the large ask")
    s.release(first)
    expect(s.is_held(large), "the large ask has them")


@store_check
def a_young_large_ask_does_not_keep_slots_idle(s: Scene) -> None:
    s.static(2)
    s.take("b")
    s.park("a", slots=2)
    verdict, _ = s.store.admit(s.ask("b"), park=True)
    expect(verdict.granted, "one slot is free and no ask old enough waits for it")


@store_check
def exactly_one_of_the_waiting_watches(s: Scene) -> None:
    s.static(1)
    lease = s.take("z")
    asks = [s.park(project) for project in "abc"]
    expect_equal(len(_watchers(s)), 1, "watchers of three")
    s.store.withdraw(_watchers(s)[0])
    expect_equal(len(_watchers(s)), 1, "watchers after the watcher gave up")
    s.release(lease)
    expect_equal(len(_watchers(s)), 1, "watchers after one was served")
    s.release(next(ask for ask in asks if s.is_held(ask)))
    expect_equal(_watchers(s), [], "watchers after all were served")


@store_check
def somebody_watches_after_a_refusal_too(s: Scene) -> None:
    """An ask that does not stay must not take the watch with it."""
    s.pool(spacing_s=5.0)
    s.take("a")
    first, behind = s.park("b"), s.park("a")
    s.wait(60)
    # Less needy than the first, needier than who is left in line: it would be next, if it waited.
    s.expect_refusal(Reason.SPACING, "c")
    expect(s.is_held(first), "the first in line has the slot")
    expect_equal(_watchers(s), [behind], "watchers")


@store_check
def a_new_watcher_is_told(s: Scene) -> None:
    s.static(1)
    s.take()
    asks = {s.park(), s.park()}
    (watcher,) = _watchers(s)
    woken = [(wake.claim_id, wake.granted) for wake in s.store.withdraw(watcher).wakes]
    expect_equal(woken, [(ask, False) for ask in asks - {watcher}], "woken")


@store_check
def a_watcher_that_is_buried_is_replaced(s: Scene) -> None:
    s.static(1)
    s.take()
    s.park()
    s.park()
    (watcher,) = _watchers(s)
    s.reclaim(watcher)
    expect_equal(len(_watchers(s)), 1, "watchers")


@store_check
def the_place_in_line_is_the_place_in_the_order_of_service(s: Scene) -> None:
    """``Verdict.position``: 1 is next in line."""
    s.static(1)
    s.take()
    low = s.park()
    high = s.park(priority=5)
    expect_equal([s.poll(high).position, s.poll(low).position], [1, 2], "the places in line")


@store_check
def pools_have_lines_of_their_own(s: Scene) -> None:
    s.static(1)
    s.static(1, "q")
    s.take()
    s.park()
    s.take(pool="q")
    s.expect_refusal(Reason.CAP, pool="q")


def _watchers(s: Scene) -> list[int]:
    return [ask.claim.id for ask in s.snapshot().asks if ask.verdict.watch]
