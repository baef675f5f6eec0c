"""Budgets over time, as seen through a store: shared by all processes that use the pool."""

from __future__ import annotations

from flyball.core.pool.model import Outcome
from flyball.core.pool.rate_window import LEVEL_RESERVE, Source
from flyball.core.pool.verdict import Reason
from flyball.core.signals import Bucket, Signal, SignalKind
from flyball.errors import UsageError
from flyball.stores.port import Release
from flyball.testing.store_checks.scenario import POOL, Scene, expect, expect_equal, store_check

LIMIT = 6_000.0
"""Tokens per minute of a provider that reports them: 100 each second."""


def _reported_bucket(remaining: float) -> tuple[Bucket, ...]:
    return (Bucket("tokens", LIMIT, remaining, (LIMIT - remaining) / 100),)


def _levels(s: Scene) -> dict[str, float]:
    now = s.world.clock()
    return {window.name: window.level_at(now) for window in s.snapshot().windows}


@store_check
def a_call_waits_for_a_slot_and_for_every_window(s: Scene) -> None:
    s.pool(cap=2, windows={"requests": "60/min", "tokens": "6k/min"})
    first = s.take(cost={"tokens": 6_000})
    s.expect_refusal(Reason.WINDOW, cost={"tokens": 1})
    second = s.take(cost={"tokens": 0})
    s.expect_refusal(Reason.CAP, cost={"tokens": 0})
    s.release(first)
    s.expect_refusal(Reason.WINDOW, cost={"tokens": 1})
    s.release(second)
    s.take()


@store_check
def a_refused_ask_spends_nothing_of_any_window(s: Scene) -> None:
    s.pool(windows={"requests": "60/min", "tokens": "6k/min"})
    s.take(cost={"tokens": 6_000})
    for _ in range(10):
        s.expect_refusal(Reason.WINDOW, cost={"tokens": 100})
    expect_equal(_levels(s), {"requests": 59.0, "tokens": 0.0}, "what is left")


@store_check
def an_ask_that_waits_spends_nothing_until_it_is_granted(s: Scene) -> None:
    s.static(1, windows={"requests": "60/min"})
    lease = s.take()
    s.park()
    expect_equal(_levels(s), {"requests": 59.0}, "what is left while one waits")
    s.release(lease)
    expect_equal(_levels(s), {"requests": 58.0}, "what is left once it was granted")


@store_check
def a_refusal_for_a_window_names_it_and_says_when_there_is_room(s: Scene) -> None:
    s.pool(windows={"tokens": "6k/min"})
    s.take(cost={"tokens": 5_500})
    verdict = s.expect_refusal(Reason.WINDOW, cost={"tokens": 3_000})
    expect_equal((verdict.look_again_s, verdict.retry_after_s), (25.0, 25.0), "when to come back")
    expect_equal(verdict.detail, "declared window tokens: 500 of 6000 left, 3000 needed", "the detail")


@store_check
def who_waits_for_a_window_is_granted_when_time_has_refilled_it(s: Scene) -> None:
    s.pool(windows={"tokens": "6k/min"})
    s.take(cost={"tokens": 6_000})
    ask = s.park(cost={"tokens": 3_000})
    s.wait(29)
    expect_equal(s.poll(ask).look_again_s, 1.0, "when to look again")
    s.wait(1)
    expect(s.poll(ask).granted, "granted")


@store_check
def a_small_ask_does_not_overtake_a_large_one_that_waits_for_the_window(s: Scene) -> None:
    s.pool(windows={"tokens": "6k/min"})
    s.release(s.take(cost={"tokens": 6_000}))
    large = s.park("a", cost={"tokens": 3_000})
    small = s.park("b", cost={"tokens": 100})
    s.wait(10)
    s.expect_refusal(Reason.QUEUE, "c", cost={"tokens": 100})
    expect(not s.poll(small).granted, "the small one waits behind the large one")
    s.wait(20)
    s.poll(small)
    expect(s.is_held(large), "the large one is served first")
    s.wait(1)
    expect(s.poll(small).granted, "then the small one")


@store_check
def who_needs_nothing_of_a_window_passes_those_who_wait_for_it(s: Scene) -> None:
    s.pool(windows={"tokens": "6k/d"})
    s.release(s.take(cost={"tokens": 6_000}))
    s.park("a", cost={"tokens": 3_000})
    s.take("b")


@store_check
def a_refused_ask_of_several_slots_measures_what_was_served_without_it(s: Scene) -> None:
    s.pool(cap=8)
    for _ in range(4):
        s.take()
    lease = s.take(slots=3)
    s.store.report(POOL, Signal(SignalKind.THROTTLED), project="a", name="", claim_id=lease, first=True)
    expect_equal(s.snapshot().cap, 4, "the cap")


@store_check
def who_waits_for_a_window_is_served_once_however_often_somebody_looks(s: Scene) -> None:
    s.pool(windows={"requests": "60/min"})
    for lease in [s.take() for _ in range(8)]:
        s.release(lease)
    s.release(s.take(cost={"requests": 52}))
    asks = [s.park() for _ in range(3)]
    s.wait(1)
    for ask in asks:
        s.poll(ask)
    expect_equal([s.is_held(ask) for ask in asks], [True, False, False], "who was granted")
    expect_equal(_levels(s), {"requests": 0.0}, "what is left")


@store_check
def an_ask_larger_than_a_window_waits_for_a_full_one_and_is_then_served(s: Scene) -> None:
    s.pool(windows={"tokens": "6k/min"})
    s.release(s.take(cost={"tokens": 6_000}))
    ask = s.park(cost={"tokens": 60_000})
    s.wait(59)
    expect(not s.poll(ask).granted, "not before it is full")
    s.wait(1)
    expect(s.poll(ask).granted, "granted")


@store_check
def a_release_settles_what_was_used(s: Scene) -> None:
    s.pool(windows={"tokens": "6k/min"})
    s.finish_call(s.take(cost={"tokens": 6_000}), used={"tokens": 1_000})
    expect_equal(_levels(s), {"tokens": 5_000.0}, "what is left")


@store_check
def a_release_that_says_nothing_of_its_use_leaves_the_estimate(s: Scene) -> None:
    s.pool(windows={"tokens": "6k/min"})
    s.finish_call(s.take(cost={"tokens": 2_000}))
    expect_equal(_levels(s), {"tokens": 4_000.0}, "what is left")


@store_check
def a_rejected_call_gets_everything_back(s: Scene) -> None:
    s.pool(windows={"requests": "60/min", "tokens": "6k/min"})
    s.finish_call(s.take(cost={"tokens": 6_000}), SignalKind.THROTTLED)
    expect_equal(_levels(s), {"requests": 60.0, "tokens": LIMIT}, "what is left")


@store_check
def what_a_release_gives_back_goes_to_the_next_in_line_in_the_same_step(s: Scene) -> None:
    s.pool(windows={"tokens": "6k/min"})
    lease = s.take(cost={"tokens": 6_000})
    ask = s.park(cost={"tokens": 4_000})
    after = s.finish_call(lease, used={"tokens": 1_000})
    expect_equal([wake.claim_id for wake in after.wakes], [ask], "who is woken")
    expect(s.is_held(ask), "granted")


@store_check
def what_a_dead_holder_had_reserved_stays_spent(s: Scene) -> None:
    """How far it got is not known."""
    s.pool(windows={"tokens": "6k/min"})
    s.reclaim(s.take(cost={"tokens": 6_000}))
    s.expect_refusal(Reason.WINDOW, cost={"tokens": 1})


@store_check
def a_release_kept_for_later_settles_once(s: Scene) -> None:
    s.pool(windows={"tokens": "6k/min"})
    lease = s.take(cost={"tokens": 6_000})
    release = Release(lease, Outcome.FINISHED, 1, used={"tokens": 1_000})
    s.store.remember(release)
    s.release(s.take(cost={"tokens": 0}))
    s.store.release(release)
    expect_equal(_levels(s), {"tokens": 5_000.0}, "what is left")


@store_check
def a_declared_window_is_shared_by_all_projects(s: Scene) -> None:
    s.pool(windows={"requests": "4/min"})
    for project in "aabb":
        s.release(s.take(project))
    s.expect_refusal(Reason.WINDOW, "a")
    s.expect_refusal(Reason.WINDOW, "c")
    s.wait(15)
    s.take("c")


@store_check
def a_window_of_one_pool_is_none_of_another(s: Scene) -> None:
    s.pool(windows={"requests": "1/min"})
    s.take()
    s.expect_refusal(Reason.WINDOW)
    s.take(pool="q")


@store_check
def a_window_also_bounds_a_static_pool(s: Scene) -> None:
    s.static(8, windows={"requests": "2/min"})
    s.take()
    s.take()
    s.expect_refusal(Reason.WINDOW)


@store_check
def setting_a_window_to_zero_removes_it(s: Scene) -> None:
    s.pool(windows={"requests": "1/min", "tokens": "6k/min"})
    s.take()
    ask = s.park()
    s.pool(windows={"requests": "0"})
    expect(s.is_held(ask), "the ask that waited for it is served")
    expect_equal(sorted(_levels(s)), ["tokens"], "the windows that are left")


@store_check
def setting_a_window_names_only_that_one(s: Scene) -> None:
    s.pool(windows={"requests": "60/min"})
    s.pool(windows={"tokens": "6k/min"})
    expect_equal(sorted(_levels(s)), ["requests", "tokens"], "the windows")


@store_check
def setting_another_size_keeps_what_was_spent(s: Scene) -> None:
    s.pool(windows={"requests": "60/min"})
    for _ in range(10):
        s.release(s.take())
    s.pool(windows={"requests": "20/min"})
    expect_equal(_levels(s), {"requests": 10.0}, "what is left")


@store_check
def a_window_that_cannot_be_read_is_refused_and_changes_nothing(s: Scene) -> None:
    s.pool(windows={"requests": "60/min"})
    for nonsense in ("60", "often", "0/min", "1/0s", "-1/min"):
        try:
            s.pool(windows={"requests": nonsense})
        except UsageError:
            continue
        raise AssertionError(f"{nonsense!r} was taken for a rate")
    expect_equal(_levels(s), {"requests": 60.0}, "the window")


@store_check
def a_cost_that_is_no_amount_is_refused(s: Scene) -> None:
    for nonsense in (-1.0, float("nan"), float("inf"), True, "much"):
        try:
            s.nowait(cost={"tokens": nonsense})  # type: ignore[dict-item]
        except UsageError:
            continue
        raise AssertionError(f"{nonsense!r} was taken for an amount")


# -- what headers say -------------------------------------------------------------------------------


@store_check
def headers_teach_the_pool_a_window_that_everybody_waits_for(s: Scene) -> None:
    s.finish_call(s.take("a", cost={"tokens": 500}), buckets=_reported_bucket(1_600))
    s.expect_refusal(Reason.WINDOW, "b", cost={"tokens": 1_001})
    s.take("b", cost={"tokens": 1_000})
    s.expect_refusal(Reason.WINDOW, "c", cost={"tokens": 1})


@store_check
def a_tenth_of_a_reported_window_is_left_alone(s: Scene) -> None:
    s.finish_call(s.take(), buckets=_reported_bucket(LIMIT * LEVEL_RESERVE + 99))
    s.expect_refusal(Reason.WINDOW, cost={"tokens": 100})
    s.take(cost={"tokens": 99})


@store_check
def what_was_sent_since_the_reported_call_is_taken_off(s: Scene) -> None:
    s.finish_call(s.take(), buckets=_reported_bucket(5_000))
    s.wait(1)
    first = s.take(cost={"tokens": 1_000})
    s.wait(1)
    s.take(cost={"tokens": 2_000})
    s.finish_call(first, buckets=_reported_bucket(4_100))
    expect_equal(_levels(s), {"tokens": 2_200.0}, "4100, less 2000 sent since, and a second's refill")


@store_check
def an_answer_to_an_older_call_changes_nothing(s: Scene) -> None:
    older = s.take()
    s.wait(1)
    s.finish_call(s.take(), buckets=_reported_bucket(3_000))
    s.finish_call(older, buckets=_reported_bucket(6_000))
    expect_equal(_levels(s), {"tokens": 3_000.0}, "what the newest said")


@store_check
def a_refusal_that_says_what_is_left_gives_nothing_back_on_top(s: Scene) -> None:
    s.finish_call(s.take(), buckets=_reported_bucket(4_000))
    s.wait(1)
    s.finish_call(s.take(cost={"tokens": 3_000}), SignalKind.THROTTLED, buckets=_reported_bucket(700))
    expect_equal(_levels(s), {"tokens": 700.0}, "what the refusal said")


@store_check
def a_refusal_that_the_headers_explain_leaves_the_cap_alone(s: Scene) -> None:
    lease = s.take(cost={"tokens": 3_000})
    s.finish_call(lease, SignalKind.THROTTLED, buckets=_reported_bucket(700))
    expect_equal((s.snapshot().cap, s.snapshot().memory.cap.throttle_count), (8, 1), "cap and count")
    s.expect_refusal(Reason.WINDOW, cost={"tokens": 3_000})


@store_check
def a_refusal_in_spite_of_the_room_that_headers_show_lowers_the_cap(s: Scene) -> None:
    leases = [s.take(cost={"tokens": 10}) for _ in range(6)]
    s.wait(0.2)
    s.finish_call(leases[-1], SignalKind.THROTTLED, buckets=_reported_bucket(5_000))
    expect_equal(s.snapshot().cap, 5, "the cap")


@store_check
def headers_do_not_change_what_a_person_declared(s: Scene) -> None:
    s.pool(windows={"tokens": "12k/min"})
    s.finish_call(s.take(), buckets=_reported_bucket(0))
    expect_equal(_levels(s), {"tokens": 12_000.0}, "the declared window")


@store_check
def what_a_person_declares_replaces_what_headers_said(s: Scene) -> None:
    s.finish_call(s.take(), buckets=_reported_bucket(0))
    s.pool(windows={"tokens": "12k/min"})
    expect_equal([w.source for w in s.snapshot().windows], [Source.DECLARED], "where the window comes from")
    s.take(cost={"tokens": 12_000})


@store_check
def a_reset_forgets_windows_that_were_learned_and_keeps_what_was_spent_of_declared_ones(s: Scene) -> None:
    s.pool(windows={"requests": "60/min"})
    s.finish_call(s.take(), buckets=_reported_bucket(0))
    s.store.reset_pool(POOL)
    expect_equal(_levels(s), {"requests": 59.0}, "the windows")
