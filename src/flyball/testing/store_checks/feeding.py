"""One controller per pool, fed by what the holders of shares tell in their renewals."""

from __future__ import annotations

from flyball.testing.store_checks.nodes import Node, learned, ready, take_turns
from flyball.testing.store_checks.scene import Scene, expect, expect_equal, store_check


@store_check
def throttles_are_told_by_renewals_and_each_counts_once(s: Scene) -> None:
    s.pool(cap=8, controller="koryph", settle_s=60.0)
    learned(s)
    a = Node(s, "a", wants=20)
    expect_equal(a.renew(), 8, "all")
    a.answered(throttled=1)
    a.refused_age_s = 0.5
    s.wait(1.0)
    sent = a.renewal()
    a.give(sent)
    expect_equal(s.seen().cap, 4, "halved")
    expect(a.give(sent).stale, "the same once more is old")
    s.wait(5.0)
    a.renew()
    expect_equal(s.seen().cap, 4, "and no second cut came of it")


@store_check
def the_cap_grows_by_what_all_nodes_use_together(s: Scene) -> None:
    s.pool(cap=4, cap_ceiling=40, controller="article", profile="calls")
    learned(s)
    nodes = [Node(s, f"n{number}", wants=10) for number in range(4)]
    for _ in range(60):
        for node in nodes:
            node.end(max(0, node.running - node.may))
            node.answered(ok=node.running)
            s.wait(0.25)
            node.renew()
    expect(s.seen().cap > 8, f"no node fills the cap alone, all do: it is {s.seen().cap}")


@store_check
def the_cap_does_not_grow_where_nobody_needs_it(s: Scene) -> None:
    s.pool(cap=4, cap_ceiling=40, controller="article", profile="calls")
    learned(s)
    nodes = [Node(s, f"n{number}", wants=1) for number in range(2)]
    for _ in range(60):
        for node in nodes:
            node.answered(ok=node.running)
            s.wait(0.25)
            node.renew()
    expect_equal(s.seen().cap, 4, "the cap")


@store_check
def idle_nodes_do_not_hold_the_cap_down(s: Scene) -> None:
    s.pool(cap=4, cap_ceiling=40, controller="article", profile="calls")
    learned(s)
    hot, idle = Node(s, "hot", wants=30), [Node(s, f"idle{number}") for number in range(2)]
    for _ in range(60):
        for node in (hot, *idle):
            node.end(max(0, node.running - node.may))
            node.answered(ok=node.running)
            s.wait(0.25)
            node.renew()
    expect(s.seen().cap > 8, f"one busy node and two idle ones: the cap is {s.seen().cap}")


@store_check
def what_nodes_believe_is_folded_and_never_added_up(s: Scene) -> None:
    ready(s, 12)
    nodes = [
        Node(s, name, wants=20, estimate=estimate) for name, estimate in (("a", 4.0), ("b", 6.0), ("c", 9.0))
    ]
    for node in nodes:
        node.renew()
    take_turns(*nodes, rounds=8)
    expect_equal(sum(node.running for node in nodes), 6, "the median")
    s.pool(estimates="min")
    take_turns(*nodes, rounds=30)
    expect_equal(sum(node.running for node in nodes), 4, "the least")


@store_check
def a_slot_of_a_share_can_be_the_trial(s: Scene) -> None:
    s.pool(cap=2, controller="koryph", cap_floor=1, settle_s=1.0, break_s=5.0, trial_clean_s=3.0)
    learned(s)
    a = Node(s, "a", wants=9)
    a.renew()
    for _ in range(4):
        a.answered(throttled=1)
        s.wait(2.0)
        a.renew()
    expect_equal(s.seen().phase.value, "open", "the breaker")
    a.end(a.running)
    for _ in range(8):
        s.wait(1.0)
        a.renew()
        if a.running:
            break
    expect_equal((a.running, s.seen().phase.value), (1, "trial"), "one slot is the trial")
    a.answered(ok=1)
    s.wait(0.5)
    a.renew()
    expect_equal(s.seen().phase.value, "closed", "it went well")
