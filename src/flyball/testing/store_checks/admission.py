"""Which asks are granted, which wait, which are refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from flyball.core.pool.settings import NAME_LIMIT
from flyball.core.pool.verdict import Reason, VerdictKind
from flyball.errors import UsageError
from flyball.testing.store_checks.scenario import Scene, expect, expect_equal, store_check


@store_check
def the_cap_is_never_exceeded(s: Scene) -> None:
    s.static(3)
    granted = [s.nowait(project).granted for project in "abababab"]
    expect_equal(granted.count(True), 3, "grants")
    expect_equal(s.snapshot().in_use, 3, "slots in use")


@store_check
def a_lease_of_many_slots_counts_each_of_them(s: Scene) -> None:
    s.static(4)
    s.take(slots=3)
    s.expect_refusal(Reason.CAP, slots=2)
    s.take(slots=1)


@store_check
def an_ask_for_several_slots_says_how_many_it_lacks(s: Scene) -> None:
    s.static(4)
    s.take(slots=3)
    expect_equal(
        s.expect_refusal(Reason.CAP, slots=2).detail, "asks for 2, 1 free", "what a refused ask lacks"
    )
    waits = s.poll(s.park(slots=3))
    expect_equal(waits.detail, "asks for 3, 1 free", "what a waiting ask lacks")
    s.take(slots=1, priority=1)
    expect_equal(s.expect_refusal(Reason.CAP).detail, "", "what an ask for one slot lacks needs no words")


@store_check
def an_ask_for_several_slots_says_how_many_the_reserve_leaves(s: Scene) -> None:
    s.static(6, reserve=2)
    s.take(slots=3)
    lacks = s.expect_refusal(Reason.RESERVE, slots=2).detail
    expect_equal(lacks, "asks for 2, 1 free beside the reserve", "what it lacks")


@store_check
def a_pool_nobody_configured_admits_eight(s: Scene) -> None:
    for _ in range(8):
        s.take(pool="new")
    s.expect_refusal(Reason.CAP, pool="new")


@store_check
def a_refused_ask_leaves_nothing_behind(s: Scene) -> None:
    s.static(1)
    lease = s.take()
    s.expect_refusal(Reason.CAP)
    expect_equal(s.snapshot().waiting, 0, "asks in line")
    s.release(lease)
    expect_equal(s.snapshot().in_use, 0, "slots in use")


@store_check
def a_refusal_names_the_reason_and_who_holds_the_slot(s: Scene) -> None:
    s.static(1)
    s.take("blog", name="t-14", holder=s.holder(4121))
    s.wait(60)
    verdict = s.expect_refusal(Reason.CAP, "shop")
    blocker = verdict.blocker
    expect(blocker is not None, "a full pool names a blocker")
    if blocker is not None:
        expect_equal((blocker.project, blocker.name, blocker.pid), ("blog", "t-14", 4121), "the blocker")
        expect_equal(blocker.age_s, 60.0, "how long it has held the slot")


@store_check
def at_its_maximum_a_project_is_told_of_its_own_leases_and_its_own_line(s: Scene) -> None:
    s.static(100, maxima={"a": 1})
    slow = s.take("a")
    for _ in range(10):
        brisk = [s.take("b") for _ in range(10)]
        s.wait(60.0)
        for lease in brisk:
            s.release(lease)
    verdict = s.expect_refusal(Reason.MAXIMUM, "a")
    expect_equal((verdict.project_in_use, verdict.project_maximum), (1, 1), "what it has and may have")
    expect_equal((verdict.position, verdict.estimate_s), (1, 600.0), "first in line behind what lasts long")
    first = s.park("a")
    expect_equal(s.poll(first).estimate_s, 600.0, "the same in line")
    second = s.expect_refusal(Reason.MAXIMUM, "a")
    expect_equal((second.position, second.estimate_s), (2, 1200.0), "and the next waits for both")
    s.release(slow)


@store_check
def the_estimate_follows_how_long_leases_were_held(s: Scene) -> None:
    s.static(1)
    lease = s.take()
    expect_equal(s.expect_refusal(Reason.CAP).estimate_s, None, "the estimate before anything ended")
    s.wait(200)
    s.release(lease)
    s.take()
    expect_equal(s.expect_refusal(Reason.CAP).estimate_s, 200.0, "the estimate after one lease of 200 s")
    s.wait(201)
    late = s.expect_refusal(Reason.CAP)
    expect_equal((late.estimate_s, late.usual_s), (None, 200.0), "none once this one lasts longer")


@store_check
def an_ask_above_the_ceiling_is_refused_at_once_even_if_it_would_wait(s: Scene) -> None:
    s.pool(cap=2, cap_ceiling=4)
    verdict, _ = s.store.admit(s.ask(slots=5), park=True)
    expect_equal((verdict.kind, verdict.reason), (VerdictKind.REFUSED, Reason.TOO_LARGE), "the verdict")
    expect_equal(s.snapshot().waiting, 0, "asks in line")


@store_check
def an_ask_above_its_projects_maximum_is_refused_at_once(s: Scene) -> None:
    s.static(8, maxima={"a": 2})
    verdict, _ = s.store.admit(s.ask("a", slots=3), park=True)
    expect_equal(verdict.reason, Reason.TOO_LARGE, "the reason")


@store_check
def an_ask_above_the_cap_but_within_the_ceiling_is_granted_in_the_end(s: Scene) -> None:
    """An idle pool whose head needs more than the cap: the cap is what limits work, so it must grow."""
    s.pool(controller="koryph")
    s.pool(cap=4, cap_ceiling=8)
    ask = s.park(slots=6)
    for _ in range(100):
        s.wait(60)
        if s.poll(ask).granted:
            return
    raise AssertionError(f"still waiting after 100 min: {s.poll(ask).words()}")


@store_check
def an_ask_that_has_become_too_large_does_not_block_the_line(s: Scene) -> None:
    s.static(4)
    lease = s.take(slots=4)
    s.park("big", slots=4)
    small = s.park("small")
    s.static(2)
    s.wait(600)
    s.release(lease)
    expect(s.poll(small).granted, "an ask that can never be granted keeps all others waiting")


@store_check
def an_ask_that_has_become_too_large_does_not_block_its_own_project_either(s: Scene) -> None:
    s.static(4)
    lease = s.take(slots=4)
    s.park(slots=4)
    behind = s.park()
    s.static(2)
    s.wait(600)
    s.release(lease)
    expect(s.poll(behind).granted, "an ask that can never be granted keeps those behind it waiting")


@store_check
def a_parked_ask_knows_its_place_and_when_to_look_again(s: Scene) -> None:
    s.static(1)
    s.take()
    first, second = s.park(), s.park()
    expect_equal([s.poll(first).position, s.poll(second).position], [1, 2], "the places in line")
    expect((s.poll(first).look_again_s or 0) > 0, "a parked ask has a time to look again")


@store_check
def looking_at_an_ask_that_is_gone_says_so(s: Scene) -> None:
    verdict, after = s.store.poll(12345, advance=True)
    expect_equal((verdict, after.wakes), (None, []), "the answer")


@store_check
def a_look_without_advance_hands_out_nothing(s: Scene) -> None:
    s.pool(spacing_s=10.0)
    s.take()
    ask = s.park()
    s.wait(60)
    s.store.poll(ask, advance=False)
    expect(not s.is_held(ask), "a mere look granted a slot")
    expect(s.poll(ask).granted, "a look that advances grants what time has freed")


@store_check
def names_that_look_alike_are_different(s: Scene) -> None:
    s.static(8, maxima={"my_app": 1})
    s.take("my_app")
    s.expect_refusal(Reason.MAXIMUM, "my_app")
    s.take("my-app")
    expect_equal(
        {p.name: p.in_use for p in s.snapshot().projects if p.in_use}, {"my_app": 1, "my-app": 1}, "use"
    )


@store_check
def names_may_hold_spaces_slashes_quotes_and_emoji(s: Scene) -> None:
    odd = "a b/c\\d 'e\" 🚀 ; -- %s ü"
    s.store.set_pool(odd, {"cap": 1, "adaptive": False, "weights": {odd: 2.0}})
    lease = s.take(odd, name=odd, pool=odd)
    expect_equal((s.claim(lease).project, s.claim(lease).name), (odd, odd), "the stored names")
    s.expect_refusal(Reason.CAP, odd, pool=odd)
    s.release(lease)
    s.take(odd, pool=odd)


@store_check
def nonsense_is_refused_and_changes_nothing(s: Scene) -> None:
    good = s.ask()
    nonsense = [
        replace(good, slots=0),
        replace(good, slots=-1),
        replace(good, slots=True),
        replace(good, slots=1.5),  # type: ignore[arg-type]
        replace(good, slots=2**63),
        replace(good, slots=10**30),
        replace(good, model=None),  # type: ignore[arg-type]
        replace(good, model=["m"]),  # type: ignore[arg-type]
        replace(good, model="a\nb"),
        replace(good, model="\ud800"),
        replace(good, cost={"tokens": float("nan")}),
        replace(good, priority=1001),
        replace(good, priority="1"),  # type: ignore[arg-type]
        replace(good, pool=""),
        replace(good, project=""),
        replace(good, name=""),
        replace(good, name="a\nb"),
        replace(good, project="\ud800"),
        replace(good, project="x" * (NAME_LIMIT + 1)),
        replace(good, resources={"undeclared": 1}),
        replace(good, resources={"undeclared": "1"}),  # type: ignore[dict-item]
        replace(good, resources={"": 1}),
    ]
    for ask in nonsense:
        _check_refused(partial(s.store.admit, ask, park=True), ask)
        if not ask.resources:
            _check_refused(partial(s.store.record_running, ask), ask)
    expect_equal(s.store.census().claims, (), "claims")
    expect_equal(s.store.facts(limit=10), [], "facts of steps that never happened")


@store_check
def a_demand_without_a_time_is_refused_and_changes_nothing(s: Scene) -> None:
    senseless: list[Any] = [float("nan"), float("inf"), 1e9, "600", None]
    for ttl_s in senseless:
        _check_refused(partial(s.demand, "a", ttl_s=ttl_s), ttl_s)
    expect_equal(s.store.census().demands, (), "demands")


def _check_refused(say: Callable[[], object], what: object) -> None:
    try:
        say()
    except UsageError:
        return
    raise AssertionError(f"accepted {what!r}")
