"""Between projects: lend, strict, weights, maxima, reserve, demand."""

from __future__ import annotations

from collections import Counter

from flyball.core.pool.settings import DEMAND_TTL_S
from flyball.core.pool.verdict import Reason
from flyball.testing.store_checks.scenario import Scene, expect, expect_equal, store_check


def _strict(s: Scene, cap: int) -> None:
    s.static(cap, share="strict")


def _in_use(s: Scene) -> dict[str, int]:
    return {p.name: p.in_use for p in s.snapshot().projects if p.in_use}


# -- lend -------------------------------------------------------------------------------------------


@store_check
def an_idle_share_is_lent(s: Scene) -> None:
    """A project that demands but holds nothing keeps no other from working."""
    s.static(8)
    s.demand("idle")
    for _ in range(8):
        s.take("busy")


@store_check
def the_freed_slot_goes_to_the_neediest_project(s: Scene) -> None:
    s.static(3)
    leases = [s.take("rich") for _ in range(3)]
    rich, poor = s.park("rich"), s.park("poor")
    s.release(leases[0])
    expect(s.is_held(poor) and not s.is_held(rich), "the poor project has least, though it asked last")
    s.release(leases[1])
    expect(s.is_held(rich), "then they are even, and arrival decides")


@store_check
def a_heavier_project_gets_more(s: Scene) -> None:
    s.static(6, weights={"heavy": 2.0})
    leases = [s.take("other") for _ in range(6)]
    for _ in range(6):
        s.park("heavy")
        s.park("light")
    for lease in leases:
        s.release(lease)
    expect_equal(_in_use(s), {"heavy": 4, "light": 2}, "six slots by weight 2 to 1")


@store_check
def projects_that_want_the_same_slot_share_it_by_calls_and_tokens(s: Scene) -> None:
    """A call with 9000 tokens counts as ten, one with 1000 as two."""
    s.static(1)
    tokens = {"long": 9_000.0, "short": 1_000.0}
    at = s.take("long")
    waiting = {name: s.park(name) for name in tokens}
    project, served = "long", Counter[str]()
    for _ in range(60):
        s.finish_call(at, used={"tokens": tokens[project]})
        project = next(name for name, ask in waiting.items() if s.is_held(ask))
        served[project] += 1
        at, waiting[project] = waiting[project], s.park(project)
    expect_equal(served, {"long": 10, "short": 50}, "five short ones for a long one")


@store_check
def tokens_that_were_used_while_no_call_waited_are_not_held_against_a_project(s: Scene) -> None:
    s.static(1)
    for _ in range(5):
        s.finish_call(s.take("a"), used={"tokens": 1_000_000})
    at = s.take("c")
    first, second = s.park("a"), s.park("b")
    s.finish_call(at)
    expect(s.is_held(first) and not s.is_held(second), "equals are served by arrival")


@store_check
def a_project_stays_below_its_maximum_and_others_pass_it(s: Scene) -> None:
    s.static(4, maxima={"a": 1})
    s.take("a")
    s.expect_refusal(Reason.MAXIMUM, "a")
    waiting = s.park("a")
    lease = s.take("b")
    s.release(lease)
    expect(not s.is_held(waiting), "the maximum still binds")


@store_check
def a_raised_maximum_lets_the_waiting_in(s: Scene) -> None:
    s.static(4, maxima={"a": 1})
    s.take("a")
    waiting = s.park("a")
    after = s.pool(maxima={"a": 2})
    expect(s.is_held(waiting), "granted in the step that raised the maximum")
    expect_equal([wake.claim_id for wake in after.wakes], [waiting], "woken")


# -- strict -----------------------------------------------------------------------------------------


@store_check
def strict_alone_a_project_has_the_whole_cap(s: Scene) -> None:
    _strict(s, 4)
    for _ in range(4):
        s.take("a")


@store_check
def strict_a_project_that_comes_back_is_served_at_once(s: Scene) -> None:
    _strict(s, 4)
    ask, _ = s.store.admit(s.ask("a"), park=True)
    s.wait(3700)
    s.poll(ask.claim_id)
    s.release(ask.claim_id)
    s.take("a")


@store_check
def strict_a_newcomer_has_its_share_from_the_next_freed_slot_on(s: Scene) -> None:
    _strict(s, 4)
    s.demand("a")
    leases = [s.take("a") for _ in range(4)]
    newcomer = s.park("b")
    s.release(leases[0])
    expect(s.is_held(newcomer), "the newcomer, who has nothing of its half")


@store_check
def strict_a_project_keeps_its_slots_free_for_another_that_demands(s: Scene) -> None:
    _strict(s, 8)
    s.demand("a")
    s.demand("b")
    for _ in range(4):
        s.take("a")
    s.expect_refusal(Reason.SHARE, "a")
    for _ in range(4):
        s.take("b")


@store_check
def strict_the_reserve_is_for_whoever_it_is_kept_for_whatever_its_share(s: Scene) -> None:
    s.static(3, share="strict", reserve=1)
    for project in "abc":
        s.demand(project, ttl_s=100_000.0)
    busy = [s.nowait(project) for project in "abcabc"]
    expect_equal(sum(verdict.granted for verdict in busy), 2, "all but the reserve")
    s.take("human", priority=1)
    s.expect_refusal(Reason.CAP, "human", priority=1)


@store_check
def strict_beyond_the_reserve_high_priority_has_its_share_like_all(s: Scene) -> None:
    s.static(4, share="strict", reserve=1)
    for project in "abcd":
        s.demand(project, ttl_s=100_000.0)
    s.take("a", priority=1)
    s.take("b")
    s.expect_refusal(Reason.SHARE, "a", priority=1)


@store_check
def strict_shares_sum_to_the_cap(s: Scene) -> None:
    _strict(s, 8)
    for project in "abc":
        s.demand(project)
    shares = {p.name: p.fair_share for p in s.snapshot().projects}
    expect_equal(sorted(shares.values()), [2, 3, 3], "the shares")
    granted = Counter({p: sum(s.nowait(p).granted for _ in range(8)) for p in "abc"})
    expect_equal(dict(granted), shares, "every project got exactly its share")


@store_check
def strict_with_more_projects_than_slots_each_gets_a_turn(s: Scene) -> None:
    _strict(s, 1)
    for project in "abc":
        s.demand(project, ttl_s=100_000.0)
    served = set()
    for _ in range(3):
        winners = []
        for project in "abc":
            verdict = s.nowait(project)
            if verdict.granted:
                winners.append(project)
                s.release(verdict.claim_id)
        expect_equal(len(winners), 1, "projects with a share in one rotation window")
        served.update(winners)
        s.wait(60)
    expect_equal(served, {"a", "b", "c"}, "projects that had a turn in three windows")


@store_check
def strict_a_project_that_leaves_raises_the_others_share_in_that_step(s: Scene) -> None:
    _strict(s, 2)
    s.demand("a")
    s.demand("b")
    s.take("a")
    waiting = s.park("a")
    s.demand("b", ttl_s=0.0)
    expect(s.is_held(waiting), "the slot b gave up is a's")


@store_check
def strict_the_last_lease_of_a_project_frees_its_share(s: Scene) -> None:
    _strict(s, 2)
    s.demand("a")
    s.demand("b")
    s.take("a")
    lease = s.take("b")
    s.demand("b", ttl_s=0.0)
    waiting = s.park("a")
    s.release(lease)
    expect(s.is_held(waiting), "b holds nothing and wants nothing: a has the whole cap")


@store_check
def strict_a_projects_demand_in_one_pool_means_nothing_in_another(s: Scene) -> None:
    _strict(s, 4)
    s.static(4, "q", share="strict")
    s.demand("a")
    s.demand("b", pool="q")
    for _ in range(4):
        s.take("a")


# -- demand -----------------------------------------------------------------------------------------


@store_check
def a_demand_lasts_for_its_time_and_no_longer(s: Scene) -> None:
    _strict(s, 4)
    s.demand("a", ttl_s=100_000.0)
    s.demand("b")
    s.take("a")
    s.take("a")
    s.wait(DEMAND_TTL_S - 1)
    s.expect_refusal(Reason.SHARE, "a")
    s.wait(1)
    s.take("a")


@store_check
def a_demand_that_is_repeated_lasts_longer(s: Scene) -> None:
    s.demand("b")
    s.wait(DEMAND_TTL_S - 1)
    s.demand("b")
    s.wait(2)
    expect_equal([d.project for d in s.snapshot().demands], ["b"], "live demand")


@store_check
def the_demand_of_a_dead_process_is_dropped(s: Scene) -> None:
    _strict(s, 2)
    s.demand("a")
    s.demand("b")
    s.take("a")
    waiting = s.park("a")
    (dead,) = [d for d in s.store.census().demands if d.project == "b"]
    s.store.reclaim([], [dead])
    expect(s.is_held(waiting), "no other project demands any more")


@store_check
def a_live_demand_counts_as_demanding(s: Scene) -> None:
    s.static(8)
    s.demand("b")
    (standing,) = s.snapshot().projects
    expect_equal((standing.name, standing.demanding, standing.fair_share), ("b", True, 8), "the standing")


# -- reserve ----------------------------------------------------------------------------------------


@store_check
def the_reserve_is_kept_for_priority_above_zero(s: Scene) -> None:
    s.static(3, reserve=1)
    s.take()
    s.take()
    s.expect_refusal(Reason.RESERVE)
    s.expect_refusal(Reason.RESERVE, priority=-1)
    s.take(priority=1)
    s.expect_refusal(Reason.CAP, priority=1)


@store_check
def high_priority_work_does_not_use_up_what_is_open_to_all(s: Scene) -> None:
    s.static(3, reserve=1)
    s.take(priority=1)
    s.take()
    s.take()


@store_check
def a_reserve_never_takes_the_last_slot(s: Scene) -> None:
    s.pool(controller="koryph")
    s.pool(cap=4, reserve=3)
    s.throttle()
    s.wait(130)
    s.throttle()
    expect_equal(s.snapshot().cap, 1, "the cap after two cuts")
    s.take()
