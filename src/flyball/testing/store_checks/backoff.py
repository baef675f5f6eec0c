"""Runs that wait out a limit: they are shown, and hold up no other."""

from __future__ import annotations

from flyball.core.pool.holder import Holder
from flyball.core.pool.model import Outcome
from flyball.core.pool.settings import ShareRule
from flyball.core.pool.verdict import Reason
from flyball.errors import UsageError
from flyball.testing.store_checks.scenario import Scene, expect, expect_equal, store_check


def _rest(s: Scene, project: str = "a", *, for_s: float = 60.0, holder: Holder | None = None) -> int:
    ask = s.ask(project, name="t-1", holder=holder)
    claim_id, _ = s.store.pause(ask, for_s=for_s, why="limited: throttled; trying again in 60 s")
    return claim_id


@store_check
def who_rests_takes_no_slot_and_no_place_in_line(s: Scene) -> None:
    s.static(1)
    _rest(s)
    expect_equal((s.snapshot().in_use, s.snapshot().waiting, s.snapshot().leases), (0, 0, ()), "the pool")
    lease = s.take()
    parked = s.park()
    _rest(s)
    s.release(lease)
    expect(s.is_held(parked), "the next in line got the slot")


@store_check
def who_rests_is_never_the_blocker(s: Scene) -> None:
    s.static(1)
    _rest(s)
    s.take(name="t-2", holder=s.holder(4121))
    blocker = s.expect_refusal(Reason.CAP).blocker
    expect(blocker is not None and blocker.pid == 4121, f"the holder is in the way, not {blocker}")


@store_check
def who_rests_does_not_compete_for_shares(s: Scene) -> None:
    s.static(4, share=ShareRule.STRICT.value)
    _rest(s, "b")
    for _ in range(4):
        s.take("a")


@store_check
def a_rest_shows_who_until_when_and_why(s: Scene) -> None:
    holder = s.holder()
    claim_id = _rest(s, "blog", for_s=60.0, holder=holder)
    (shown,) = s.snapshot().resting
    expect_equal(
        (shown.id, shown.project, shown.name, shown.holder), (claim_id, "blog", "t-1", holder), "who"
    )
    expect_equal((shown.expires_at, shown.why), (1_060.0, "limited: throttled; trying again in 60 s"), "what")
    expect_equal(s.fact_kinds(), ["rests"], "what is remembered")


@store_check
def a_rest_ends_when_it_is_released_and_says_nothing_about_the_pool(s: Scene) -> None:
    s.wait(100)
    claim_id = _rest(s)
    s.wait(30)
    s.release(claim_id, Outcome.FAILED)
    s.release(claim_id)
    expect_equal((s.snapshot().resting, s.snapshot().hold_mean_s), ((), 0.0), "after it")
    expect_equal(s.fact_kinds(), ["rests"], "what is remembered")


@store_check
def a_rest_that_is_given_up_is_remembered_as_that(s: Scene) -> None:
    claim_id = _rest(s)
    s.wait(30)
    s.release(claim_id, Outcome.ABANDONED)
    told = [(fact.kind, fact.words) for fact in s.store.facts(limit=1)]
    expect_equal(told, [("gave up", "gave up after resting 30 s")], "what is remembered last")
    expect_equal(s.snapshot().resting, (), "after it")


@store_check
def a_rest_is_over_when_its_time_or_its_process_is(s: Scene) -> None:
    dead = _rest(s)
    s.reclaim(dead)
    expect_equal(s.snapshot().resting, (), "of the dead")
    late = _rest(s, for_s=60.0)
    s.wait(61)
    expect_equal(s.snapshot().resting, (), "of those whose time is over")
    s.store.reclaim([])
    expect_equal(s.store.claim(late), None, "and then it is forgotten")
    expect_equal(s.store.miscounts(), [], "the counts")


@store_check
def who_rests_may_be_recorded_as_running_again(s: Scene) -> None:
    holder = s.holder()
    resting = _rest(s, holder=holder)
    running, _ = s.store.record_running(s.ask("a", name="t-1", holder=holder))
    expect(running != resting, "a lease of its own")
    expect_equal(s.snapshot().in_use, 1, "slots in use")


@store_check
def nonsense_does_not_rest(s: Scene) -> None:
    try:
        s.store.pause(s.ask("", name="t-1"), for_s=1.0, why="x")
    except UsageError:
        return
    raise AssertionError("an ask without a project rests")
