"""What people set stays what they set; what was learned can be forgotten."""

from __future__ import annotations

from flyball.core.pool.breaker import BreakerState
from flyball.core.pool.learned import CapState
from flyball.core.pool.model import Phase
from flyball.core.pool.plan import LearnedState
from flyball.core.pool.verdict import Reason
from flyball.errors import PoolInUseError, UsageError
from flyball.testing.store_checks.scenario import POOL, Scene, expect, expect_equal, store_check
from flyball.testing.store_checks.share_leases import Node, ready


@store_check
def a_set_changes_only_what_it_names(s: Scene) -> None:
    s.pool(cap=4, spacing_s=7.0, settle_s=30.0, reserve=1, weights={"a": 2.0}, share="strict")
    before = s.snapshot().settings
    s.pool(adaptive=True)
    expect_equal(s.snapshot().settings, before, "the settings after naming adaptive only")
    s.pool(break_s=60.0)
    expect_equal(s.snapshot().settings.spacing_s, 7.0, "spacing")
    expect_equal(s.snapshot().settings.break_s, 60.0, "the break")


@store_check
def what_was_named_is_read_without_the_rest(s: Scene) -> None:
    s.pool(cap=4, share="strict", windows={"tokens": "200k/min"})
    named = {"cap": 4, "share": "strict", "windows": {"tokens": "200k/min"}}
    expect_equal(s.store.named_settings(), {POOL: named}, "what was named")
    s.store.reset_pool(POOL, settings=True)
    expect_equal(s.store.named_settings(), {POOL: {}}, "what is named after a reset")


@store_check
def weights_and_maxima_are_set_project_by_project(s: Scene) -> None:
    s.pool(weights={"a": 2.0}, maxima={"a": 3})
    s.pool(weights={"b": 3.0}, maxima={"a": 0})
    settings = s.snapshot().settings
    expect_equal((dict(settings.weights), dict(settings.maxima)), ({"a": 2.0, "b": 3.0}, {}), "the settings")


@store_check
def a_removed_weight_is_one_again(s: Scene) -> None:
    s.pool(weights={"a": 2.0})
    s.take("a")
    s.pool(weights={"a": 0})
    expect_equal([p.weight for p in s.snapshot().projects], [1.0], "the weight")


@store_check
def impossible_settings_are_refused_and_change_nothing(s: Scene) -> None:
    s.static(4)
    before = s.snapshot().settings
    for changes in ({"cap": 0}, {"cap": 4, "cap_floor": 5}, {"reserve": 4}, {"share": "greedy"}):
        try:
            s.store.set_pool(POOL, changes)  # type: ignore[arg-type]
        except UsageError:
            continue
        raise AssertionError(f"accepted {changes}")
    expect_equal(s.snapshot().settings, before, "the settings")


@store_check
def a_named_cap_starts_the_adaptive_one_anew(s: Scene) -> None:
    s.pool(controller="koryph")
    s.throttle()
    expect_equal(s.snapshot().cap, 4, "the cap after a cut")
    s.pool(cap=6)
    expect_equal(s.snapshot().cap, 6, "the cap")


@store_check
def a_setting_beside_the_cap_keeps_what_was_learned(s: Scene) -> None:
    s.pool(controller="koryph")
    s.throttle()
    s.pool(spacing_s=1.0, adaptive=True)
    expect_equal(s.snapshot().cap, 4, "the learned cap")


@store_check
def a_raised_cap_lets_the_waiting_in_and_wakes_them(s: Scene) -> None:
    s.static(1)
    s.take()
    first, second = s.park(), s.park()
    after = s.static(3)
    expect(s.is_held(first) and s.is_held(second), "granted")
    expect_equal([wake.claim_id for wake in after.wakes], [first, second], "woken")


@store_check
def a_lowered_cap_interrupts_nobody(s: Scene) -> None:
    s.static(3)
    leases = [s.take() for _ in range(3)]
    s.static(1)
    expect(all(s.is_held(lease) for lease in leases), "running work")
    s.expect_refusal(Reason.CAP)


@store_check
def spacing_can_be_turned_off(s: Scene) -> None:
    s.pool(profile="agents")
    s.take()
    s.expect_refusal(Reason.SPACING)
    s.pool(spacing_s=0.0)
    s.take()


@store_check
def a_reset_forgets_what_was_learned_and_keeps_settings_and_leases(s: Scene) -> None:
    s.pool(cap=2, spacing_s=500.0, reserve=1, controller="koryph")
    lease = s.take()
    settings = s.snapshot().settings
    s.throttle(retry_after_s=600)
    s.wait(130)
    s.throttle()
    expect_equal(s.snapshot().phase, Phase.OPEN, "the breaker before the reset")
    s.store.reset_pool(POOL)
    seen = s.snapshot()
    expect_equal((seen.phase, seen.cap, seen.closed_until), (Phase.CLOSED, 2, None), "breaker, cap, closing")
    expect_equal(seen.memory.cap.throttle_count, 0, "throttles")
    expect_equal(seen.settings, settings, "the settings")
    expect(s.is_held(lease), "the lease")
    s.take(priority=1)


@store_check
def a_reset_lets_the_waiting_in(s: Scene) -> None:
    s.pool(cap=1)
    s.throttle()
    ask = s.park()
    after = s.store.reset_pool(POOL)
    expect(s.is_held(ask), "granted")
    expect_equal([wake.claim_id for wake in after.wakes], [ask], "woken")


@store_check
def a_pool_that_is_not_there_cannot_be_reset(s: Scene) -> None:
    try:
        s.store.reset_pool("typo")
    except UsageError as error:
        expect("typo" in str(error), "the message names the pool")
    else:
        raise AssertionError("reset a pool that does not exist")
    expect_equal(s.store.snapshot().pools, (), "pools")


@store_check
def a_reset_of_the_settings_goes_back_to_the_defaults_and_keeps_leases(s: Scene) -> None:
    s.take()
    defaults = s.snapshot().settings
    s.pool(cap=2, adaptive=False, spacing_s=7.0, weights={"a": 2.0}, windows={"requests": "9/min"})
    s.store.reset_pool(POOL, settings=True)
    seen = s.snapshot()
    expect_equal((dict(seen.named), seen.settings), ({}, defaults), "the settings")
    expect_equal((seen.cap, seen.windows, seen.in_use), (defaults.cap, (), 1), "cap, windows, in use")
    expect_equal([project.weight for project in seen.projects], [1.0], "the weight")


@store_check
def a_removed_pool_is_forgotten_with_its_settings_and_history(s: Scene) -> None:
    s.pool(cap=2, adaptive=False, weights={"a": 2.0})
    s.demand("a")
    s.release(s.take("a"))
    s.throttle(retry_after_s=60)
    s.release(s.take(pool="q"))
    s.throttle(pool="q")
    others = [fact for fact in s.store.facts(limit=100) if fact.pool == "q"]
    expect(len(others) < len(s.store.facts(limit=100)), "the pool has a history")
    s.store.remove_pool(POOL)
    expect_equal([pool.name for pool in s.store.snapshot().pools], ["q"], "pools")
    expect_equal(s.store.facts(limit=100), others, "facts")
    expect_equal([demand.pool for demand in s.store.census().demands], [], "demands")
    expect_equal(s.store.miscounts(), [], "miscounts")


@store_check
def a_pool_that_was_removed_starts_anew_when_it_is_used_again(s: Scene) -> None:
    s.static(1)
    before = s.take()
    s.release(before)
    s.store.remove_pool(POOL)
    after = s.take()
    expect(after != before, "ids are not used twice")
    expect_equal(dict(s.snapshot().named), {}, "what was set")
    s.release(before)
    expect(s.is_held(after), "an end that is said late changes nothing")


@store_check
def a_pool_in_use_is_not_removed(s: Scene) -> None:
    s.static(1)
    lease = s.take()
    ask = s.park()
    _expect_in_use(s, leases=1, waiting=1, shares=0)
    s.release(lease)
    _expect_in_use(s, leases=1, waiting=0, shares=0)
    s.release(ask)
    s.store.remove_pool(POOL)


@store_check
def a_pool_with_share_leases_is_removed_once_they_are_over(s: Scene) -> None:
    ready(s, 4)
    node = Node(s, "a", wants=2)
    node.renew()
    _expect_in_use(s, leases=0, waiting=0, shares=1)
    s.wait(node.terms.lease_s + 1)
    s.store.remove_pool(POOL)
    expect_equal(s.store.snapshot().pools, (), "pools")


@store_check
def a_pool_that_is_not_there_cannot_be_removed(s: Scene) -> None:
    try:
        s.store.remove_pool("typo")
    except UsageError as error:
        expect("typo" in str(error), "the message names the pool")
    else:
        raise AssertionError("removed a pool that does not exist")
    expect_equal(s.store.snapshot().pools, (), "pools")


def _expect_in_use(s: Scene, *, leases: int, waiting: int, shares: int) -> None:
    try:
        s.store.remove_pool(POOL)
    except PoolInUseError as error:
        found = (error.leases, error.waiting, error.shares)
        expect_equal(found, (leases, waiting, shares), "leases, waiting, share leases")
    else:
        raise AssertionError("removed a pool that is in use")
    expect_equal([pool.name for pool in s.store.snapshot().pools], [POOL], "pools")


@store_check
def what_was_learned_elsewhere_is_taken_over(s: Scene) -> None:
    learned = LearnedState(
        CapState(level=3.0, settle_until=1_100.0, throttle_count=7),
        BreakerState(Phase.OPEN, open_until=1_200.0, reopens=1, since=900.0, why="before"),
    )
    s.store.import_pool(POOL, {"cap": 6, "adaptive": True}, learned)
    seen = s.snapshot()
    expect_equal((seen.settings.cap, seen.cap, seen.phase), (6, 3, Phase.OPEN), "operator cap, cap, breaker")
    expect_equal(seen.memory.cap.throttle_count, 7, "throttles")
    expect_equal(s.expect_refusal(Reason.BREAKER).look_again_s, 200.0, "the rest of the break")
