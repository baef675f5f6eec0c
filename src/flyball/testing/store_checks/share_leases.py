"""Share leases: a pool divided among processes that subdivide their part by themselves.

One controller per pool is fed by what the holders report in their renewals. ``Node`` is a holder in a scene:
the shipped holder's side, with work that a check begins and ends.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from flyball.core.pool.setting_table import resolve_pool
from flyball.core.pool.settings import PoolChanges
from flyball.core.pool.verdict import Reason
from flyball.core.share_lease.holder import HolderState, leave, limit, receive, send
from flyball.core.share_lease.renewal import CallCounts, Renewal, Reply
from flyball.core.share_lease.timing import ShareTiming
from flyball.core.signals import Signal, SignalKind
from flyball.errors import UsageError
from flyball.testing.store_checks.scenario import POOL, Scene, expect, expect_equal, store_check

if TYPE_CHECKING:
    from flyball.stores.port import AfterCommit


_incarnations = count(1)


class Node:
    """One incarnation. It wants what it was told to, and runs as much of it as it may."""

    def __init__(
        self,
        scene: Scene,
        name: str,
        *,
        wants: int = 0,
        weight: float = 1.0,
        pool: str = POOL,
        estimate: float | None = None,
    ) -> None:
        self.scene, self.pool, self.estimate = scene, pool, estimate
        self.holding = HolderState(node=name, incarnation=f"i{next(_incarnations)}", weight=weight)
        self.wants, self.running = wants, 0
        self.tally = CallCounts()
        self.refused_age_s: float | None = None
        self.after: AfterCommit

    @property
    def may(self) -> int:
        """How much it may have in flight now."""
        return limit(self.holding, now=self.scene.world.clock())

    def renewal(self) -> Renewal:
        """The next one, as it goes out."""
        now = self.scene.world.clock()
        self.holding, sent = send(
            self.holding, now=now, in_flight=self.running, wants=self.wants, tally=self.tally
        )
        sent = replace(
            sent,
            peak=self.running,
            estimate=self.estimate,
            refused_age_s=self.refused_age_s,
            mailbox=f"/mail/{self.holding.node}",
        )
        self.refused_age_s = None
        return sent

    def give(self, renewal: Renewal) -> Reply:
        """The store handles a renewal."""
        reply, self.after = self.scene.store.renew(self.pool, renewal)
        return reply

    def take(self, reply: Reply) -> int:
        """A reply arrives: begin what is wanted and allowed. What runs then."""
        now = self.scene.world.clock()
        self.holding = receive(self.holding, reply, now=now, terms=self.terms)
        self.running = max(self.running, min(self.wants, self.may))
        return self.running

    def renew(self) -> int:
        """There and back, with nothing in between; what runs then."""
        return self.take(self.give(self.renewal()))

    def end(self, pieces: int) -> None:
        """Some of its work ends."""
        expect(self.running >= pieces, f"{self.holding.node} runs {self.running}, not {pieces}")
        self.running -= pieces

    def answered(self, *, ok: int = 0, throttled: int = 0, overloaded: int = 0) -> None:
        """What the provider said since the last renewal."""
        t = self.tally
        self.tally = CallCounts(t.successes + ok, t.throttles + throttled, t.overloads + overloaded)

    def leave(self) -> None:
        self.holding, self.wants = leave(self.holding), 0

    @property
    def terms(self) -> ShareTiming:
        named: PoolChanges = self.scene.snapshot(self.pool).named
        return resolve_pool(named).share_terms


def settle(*nodes: Node, rounds: int = 6) -> list[int]:
    """Let all of them renew until nothing moves any more; what each runs then."""
    for _ in range(rounds):
        for node in nodes:
            node.scene.wait(0.06)
            node.renew()
    return [node.running for node in nodes]


def take_turns(*nodes: Node, rounds: int) -> None:
    """One after the other ends what it may not run any more, and renews."""
    for _ in range(rounds):
        for node in nodes:
            node.end(max(0, node.running - node.may))
            node.scene.wait(0.1)
            node.renew()


def let_learn(scene: Scene) -> None:
    """Let a new store learn that no slot is held: a lease's length after its first renewal."""
    first = Node(scene, "first")
    first.renew()
    scene.wait(first.terms.lease_s + 0.01)
    first.leave()
    first.renew()
    scene.wait(first.terms.lease_s + 0.01)


def ready(scene: Scene, cap: int, **changes: object) -> None:
    """A pool of a fixed cap whose store knows that no slot is held."""
    scene.static(cap, **changes)  # type: ignore[arg-type]
    let_learn(scene)


@store_check
def a_founder_gets_the_whole_cap(s: Scene) -> None:
    ready(s, 6)
    expect_equal(Node(s, "a", wants=9).renew(), 6, "what it runs")
    expect_equal(s.snapshot().in_use, 6, "slots in use")


@store_check
def a_new_store_learns_before_it_gives_anything(s: Scene) -> None:
    s.static(6)
    a = Node(s, "a", wants=9)
    expect_equal(a.renew(), 0, "while it learns")
    s.wait(a.terms.lease_s - 0.5)
    expect_equal(a.renew(), 0, "while it still learns")
    s.wait(0.6)
    expect_equal(a.renew(), 6, "once a lease's length has passed")


@store_check
def another_life_of_the_store_learns_again(s: Scene) -> None:
    ready(s, 6)
    a = Node(s, "a", wants=3)
    a.renew()
    s.world.epoch = "second"
    b = Node(s, "b", wants=3)
    expect_equal(b.renew(), 0, "a joiner of a store that may have forgotten a holder")
    expect_equal(a.renew(), 3, "what it had before, a holder keeps")
    s.wait(a.terms.lease_s - 1)
    a.renew()
    s.wait(1.1)
    expect_equal(settle(a, b), [3, 3], "a holder that has not renewed by now has fenced itself")


@store_check
def what_ran_beyond_its_gate_is_no_right_to_a_store_that_forgot(s: Scene) -> None:
    ready(s, 6)
    s.world.epoch = "second"
    a = Node(s, "a", wants=3)
    # As the life before left it: three pieces of work run, and two of them had outlived a lease.
    a.holding = replace(a.holding, seq=4, slots=3, gate=1, fence_at=s.world.clock() + a.terms.fence_s)
    a.running = 3
    a.renew()
    expect_equal(s.snapshot().in_use, 3, "slots in use: all that runs is counted")
    expect_equal(a.may, 1, "what it may use: the others may belong to a holder that has not renewed yet")


@store_check
def a_joiner_gets_nothing_before_an_incumbent_gave_it_up(s: Scene) -> None:
    ready(s, 6)
    a, b = Node(s, "a", wants=9), Node(s, "b", wants=9)
    a.renew()
    expect_equal(b.renew(), 0, "the incumbent has it all")
    s.wait(0.1)
    a.renew()
    expect_equal(a.may, 3, "asked for half, the incumbent closes its gate")
    expect_equal(b.renew(), 0, "and still runs six")
    a.end(3)
    s.wait(0.1)
    a.renew()
    expect_equal(b.renew(), 3, "now three are free")


@store_check
def who_should_renew_is_told(s: Scene) -> None:
    ready(s, 6)
    a, b = Node(s, "a", wants=9), Node(s, "b", wants=9)
    a.renew()
    s.wait(0.1)
    b.renew()
    expect("/mail/a" in b.after.notices, "a holder that is asked for less is told")
    s.wait(0.1)
    a.renew()
    a.end(3)
    s.wait(0.1)
    a.renew()
    expect("/mail/b" in a.after.notices, "a holder that waits for what was given up is told")


@store_check
def everybody_settles_at_an_even_part(s: Scene) -> None:
    ready(s, 7, allotment="even")
    nodes = [Node(s, name, wants=9) for name in "abc"]
    for node in nodes:
        node.renew()
    take_turns(*nodes, rounds=8)
    expect_equal(sorted(node.running for node in nodes), [2, 2, 3], "the parts")


@store_check
def what_an_idle_node_does_not_use_goes_to_a_busy_one(s: Scene) -> None:
    ready(s, 10, allotment="demand")
    hot, idle = Node(s, "hot", wants=20), Node(s, "idle")
    idle.renew()
    s.wait(0.1)
    found = settle(hot, idle)
    expect(found[0] >= 9, f"the busy one runs {found[0]} of 10")


@store_check
def even_parts_are_kept_for_who_does_not_use_them(s: Scene) -> None:
    ready(s, 10, allotment="even")
    hot, idle = Node(s, "hot", wants=20), Node(s, "idle")
    idle.renew()
    s.wait(0.1)
    expect_equal(settle(hot, idle), [5, 0], "the busy one runs half")


@store_check
def weights_divide(s: Scene) -> None:
    ready(s, 9)
    a, b = Node(s, "a", wants=9, weight=2.0), Node(s, "b", wants=9)
    a.renew()
    take_turns(a, b, rounds=6)
    expect_equal([a.running, b.running], [6, 3], "two to one")


@store_check
def fewer_slots_than_nodes_take_turns(s: Scene) -> None:
    ready(s, 2)
    nodes = [Node(s, f"n{number}", wants=1) for number in range(5)]
    served: set[str] = set()
    for _ in range(120):
        for node in nodes:
            s.wait(0.05)
            node.renew()
            if node.running:
                served.add(node.holding.node)
                node.end(1)
    expect_equal(len(served), 5, "nodes that were ever served")
    s.wait(0.05)
    expect_equal(s.store.miscounts(), [], "miscounts")


@store_check
def single_leases_and_shares_have_one_cap(s: Scene) -> None:
    ready(s, 6)
    first = s.take()
    a = Node(s, "a", wants=9)
    expect_equal(a.renew(), 5, "what a single lease leaves")
    s.expect_refusal(Reason.CAP)
    s.release(first)
    s.wait(1.0)
    expect_equal(a.renew(), 6, "what it gave back")


@store_check
def who_waits_in_line_is_assured_of_half(s: Scene) -> None:
    ready(s, 6)
    a = Node(s, "a", wants=9)
    a.renew()
    asks = [s.park(name=f"t{number}") for number in range(5)]
    for _ in range(6):
        s.wait(1.0)
        a.end(max(0, a.running - a.may))
        a.renew()
    expect_equal(sum(s.is_held(ask) for ask in asks), 3, "asks that were granted")
    expect_equal(a.running, 3, "what the share keeps")


@store_check
def a_reserve_is_kept_from_shares(s: Scene) -> None:
    ready(s, 6, reserve=2)
    expect_equal(Node(s, "a", wants=9).renew(), 4, "all but the reserve")
    s.take(priority=5)


@store_check
def a_share_that_is_not_renewed_is_taken_back(s: Scene) -> None:
    ready(s, 6)
    dead, b = Node(s, "dead", wants=9), Node(s, "b", wants=9)
    dead.renew()
    s.wait(0.1)
    expect_equal(b.renew(), 0, "all is held")
    s.wait(dead.terms.lease_s - 0.2)
    expect_equal(b.renew(), 0, "and kept until its time is up")
    s.wait(0.2)
    b.renew()
    s.wait(0.1)
    expect_equal(b.renew(), 6, "then it is free")
    expect("share" in s.fact_kinds(), "and that is told")


@store_check
def a_single_ask_finds_what_a_dead_node_left(s: Scene) -> None:
    ready(s, 6)
    dead = Node(s, "dead", wants=9)
    dead.renew()
    s.expect_refusal(Reason.CAP)
    s.wait(dead.terms.lease_s + 0.1)
    s.take()


@store_check
def grace_keeps_slots_longer_than_their_holder_may_use_them(s: Scene) -> None:
    ready(s, 6, grace_s=30.0)
    dead = Node(s, "dead", wants=9)
    dead.renew()
    s.wait(dead.terms.ttl_s + 20)
    expect_equal(dead.may, 0, "it has fenced itself")
    s.expect_refusal(Reason.CAP)
    s.wait(11.0)
    s.take()


@store_check
def a_renewal_that_comes_twice_or_late_changes_nothing(s: Scene) -> None:
    ready(s, 6)
    a = Node(s, "a", wants=9)
    old = a.renewal()
    newer = a.renewal()
    reply = a.give(newer)
    expect(a.give(newer).stale, "the second time it is old")
    expect(a.give(old).stale, "and so is one that was overtaken")
    expect_equal(a.take(reply), 6, "what it runs")
    expect_equal(s.snapshot().in_use, 6, "slots in use")


@store_check
def a_restarted_node_neither_overshoots_nor_freezes_its_share(s: Scene) -> None:
    ready(s, 6)
    before = Node(s, "a", wants=9)
    before.renew()
    after = Node(s, "a", wants=9)
    expect_equal(after.renew(), 0, "what the dead one left is still held")
    s.wait(before.terms.lease_s + 0.1)
    after.renew()
    s.wait(0.1)
    expect_equal(after.renew(), 6, "and free when its time is up")


@store_check
def two_nodes_of_one_name_share_like_any_two(s: Scene) -> None:
    ready(s, 6)
    a, twin = Node(s, "a", wants=9), Node(s, "a", wants=9)
    a.renew()
    take_turns(a, twin, rounds=6)
    expect_equal([a.running, twin.running], [3, 3], "each runs half")


@store_check
def what_a_forgotten_node_still_runs_comes_back_though_it_is_leaving(s: Scene) -> None:
    """Paused until it was evicted, it comes back only to leave with its work, and dies over it."""
    ready(s, 3)
    a = Node(s, "a", wants=3)
    a.renew()
    s.wait(3600.0)
    a.leave()
    a.renew()
    line = s.park(slots=3)
    _dies_over_its_work(s, a, line)


def _dies_over_its_work(s: Scene, a: Node, line: int) -> None:
    expect_equal(s.snapshot().in_use, 3, "what it still runs counts")
    s.wait(a.terms.lease_s + 0.1)
    s.poll(line)
    expect(s.is_held(line), "it was not renewed in time, so its slots are free")


@store_check
def one_that_was_evicted_and_comes_back_to_die_keeps_nothing(s: Scene) -> None:
    """It comes right after the plan that evicted it, too soon for another."""
    ready(s, 3)
    a = Node(s, "a", wants=3)
    a.renew()
    s.wait(3600.0)
    only = s.take()
    s.wait(0.01)
    a.renew()
    line = s.park(slots=3)
    s.release(only)
    _dies_over_its_work(s, a, line)


@store_check
def a_change_that_is_refused_holds_no_renewal_up(s: Scene) -> None:
    ready(s, 1)
    a = Node(s, "a")
    a.renew()
    s.wait(60.0)
    with suppress(UsageError):
        s.pool(cap=0)
    a.wants = 9
    a.renew()
    expect_equal(a.after.notices, [], "it was planned for at once, and need not come again")


@store_check
def a_node_that_leaves_gives_back_what_ends(s: Scene) -> None:
    ready(s, 6)
    a, b = Node(s, "a", wants=6), Node(s, "b", wants=9)
    a.renew()
    a.leave()
    a.end(2)
    a.renew()
    s.wait(0.1)
    b.renew()
    s.wait(0.1)
    expect_equal(b.renew(), 2, "what has ended so far")
    a.end(4)
    a.renew()
    s.wait(0.1)
    expect_equal(b.renew(), 6, "all")


@store_check
def a_lowered_cap_is_asked_back_and_never_taken(s: Scene) -> None:
    ready(s, 8)
    a, b = Node(s, "a", wants=9), Node(s, "b", wants=9)
    a.renew()
    take_turns(a, b, rounds=6)
    s.static(4)
    s.wait(0.1)
    a.renew()
    b.renew()
    expect_equal([a.may, b.may], [2, 2], "the gates")
    expect_equal(s.snapshot().in_use, 8, "what runs is still counted")
    s.expect_refusal(Reason.CAP)
    a.end(2)
    b.end(2)
    s.wait(0.1)
    expect_equal(settle(a, b), [2, 2], "what they run then")


@store_check
def a_closed_pool_asks_everything_back(s: Scene) -> None:
    ready(s, 6)
    a = Node(s, "a", wants=9)
    a.renew()
    s.store.report(POOL, Signal(SignalKind.THROTTLED, 30.0), project="", name="a", claim_id=None)
    s.wait(0.1)
    a.renew()
    s.wait(0.1)
    a.renew()
    expect_equal(a.may, 0, "nothing may start")
    expect_equal(a.running, 6, "what runs goes on")
    a.end(6)
    for _ in range(40):
        s.wait(1.0)
        a.renew()
    expect_equal(a.running, 6, "all may start again")


@store_check
def the_snapshot_shows_shares(s: Scene) -> None:
    ready(s, 6)
    a = Node(s, "node ä", wants=4)
    a.renew()
    (share,) = [share for share in s.snapshot().shares if share.slots]
    expect_equal((share.node, share.slots, share.wants), ("node ä", 6, 4), "node, slots and wants")


@store_check
def counts_stay_right_whatever_shares_do(s: Scene) -> None:
    ready(s, 5)
    nodes = [Node(s, f"n{number}", wants=number) for number in range(5)]
    for step in range(60):
        node = nodes[step * 7 % 5]
        node.end(max(0, node.running - step % 3))
        node.wants = step * 5 % 7
        s.wait(0.21 if step % 4 else 1.7)
        node.renew()
        if step % 11 == 0:
            s.nowait()
        expect_equal(s.store.miscounts(), [], f"miscounts after step {step}")
        expect(s.snapshot().in_use <= 5, f"{s.snapshot().in_use} in use of 5 after step {step}")


@store_check
def throttles_are_told_by_renewals_and_each_counts_once(s: Scene) -> None:
    s.pool(cap=8, controller="koryph", settle_s=60.0)
    let_learn(s)
    a = Node(s, "a", wants=20)
    expect_equal(a.renew(), 8, "all")
    a.answered(throttled=1)
    a.refused_age_s = 0.5
    s.wait(1.0)
    sent = a.renewal()
    a.give(sent)
    expect_equal(s.snapshot().cap, 4, "halved")
    expect(a.give(sent).stale, "the same once more is old")
    s.wait(5.0)
    a.renew()
    expect_equal(s.snapshot().cap, 4, "and no second cut came of it")


@store_check
def the_cap_grows_by_what_all_nodes_use_together(s: Scene) -> None:
    s.pool(cap=4, cap_ceiling=40, controller="article", profile="calls")
    let_learn(s)
    nodes = [Node(s, f"n{number}", wants=10) for number in range(4)]
    for _ in range(60):
        for node in nodes:
            node.end(max(0, node.running - node.may))
            node.answered(ok=node.running)
            s.wait(0.25)
            node.renew()
    expect(s.snapshot().cap > 8, f"no node fills the cap alone, all do: it is {s.snapshot().cap}")


@store_check
def the_cap_does_not_grow_where_nobody_needs_it(s: Scene) -> None:
    s.pool(cap=4, cap_ceiling=40, controller="article", profile="calls")
    let_learn(s)
    nodes = [Node(s, f"n{number}", wants=1) for number in range(2)]
    for _ in range(60):
        for node in nodes:
            node.answered(ok=node.running)
            s.wait(0.25)
            node.renew()
    expect_equal(s.snapshot().cap, 4, "the cap")


@store_check
def idle_nodes_do_not_hold_the_cap_down(s: Scene) -> None:
    s.pool(cap=4, cap_ceiling=40, controller="article", profile="calls")
    let_learn(s)
    hot, idle = Node(s, "hot", wants=30), [Node(s, f"idle{number}") for number in range(2)]
    for _ in range(60):
        for node in (hot, *idle):
            node.end(max(0, node.running - node.may))
            node.answered(ok=node.running)
            s.wait(0.25)
            node.renew()
    expect(s.snapshot().cap > 8, f"one busy node and two idle ones: the cap is {s.snapshot().cap}")


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
    let_learn(s)
    a = Node(s, "a", wants=9)
    a.renew()
    for _ in range(4):
        a.answered(throttled=1)
        s.wait(2.0)
        a.renew()
    expect_equal(s.snapshot().phase.value, "open", "the breaker")
    a.end(a.running)
    for _ in range(8):
        s.wait(1.0)
        a.renew()
        if a.running:
            break
    expect_equal((a.running, s.snapshot().phase.value), (1, "trial"), "one slot is the trial")
    a.answered(ok=1)
    s.wait(0.5)
    a.renew()
    expect_equal(s.snapshot().phase.value, "closed", "it went well")
