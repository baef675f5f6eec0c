"""The store's side of share leases, clause by clause. All interleavings are searched in tests/explore."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flyball.core.share_lease.renewal import (
    CallCounts,
    Renewal,
    RenewedShare,
    ShareBudget,
    ShareLease,
    enter_epoch,
    evict,
    is_expired,
    lease_name,
    renew,
)
from flyball.core.share_lease.timing import ShareTiming

NOW = 100.0


def lease(
    slots: int = 0, *, target: int = 0, seq: int = 1, owed: int = 0, draining: bool = False
) -> ShareLease:
    return ShareLease(
        node="a",
        incarnation="1",
        seq=seq,
        slots=slots,
        target=target,
        owed=owed,
        draining=draining,
        expires_at=NOW + 3,
    )


def renewal(
    holds: int = 0, *, seq: int = 2, wants: int = 9, leaving: bool = False, beyond: int = 0
) -> Renewal:
    return Renewal(
        node="a",
        incarnation="1",
        seq=seq,
        holds=holds,
        in_flight=holds,
        wants=wants,
        leaving=leaving,
        beyond=beyond,
    )


def pot(cap: int = 8, *, held: int = 0, nodes: int = 1, learning_s: float = 0.0) -> ShareBudget:
    return ShareBudget(cap=cap, held=held, nodes=nodes, learning_until=NOW + learning_s)


def renewed(row: ShareLease | None, said: Renewal, of: ShareBudget) -> RenewedShare:
    return renew(row, said, of, now=NOW)


# --- growing ---


def test_a_founder_gets_the_whole_cap() -> None:
    done = renewed(None, renewal(seq=1), pot(8, nodes=0))
    assert (done.lease.slots, done.reply.slots, done.reply.gate) == (8, 8, 8)
    assert done.joined
    assert done.change == 8


def test_a_joiner_gets_nothing_while_others_hold_the_cap() -> None:
    done = renewed(None, renewal(seq=1), pot(8, held=8, nodes=1))
    assert done.reply.gate == 0
    assert done.reply.target == 4, "what it may hope for"


def test_a_joiner_of_a_pool_with_more_nodes_than_slots_may_hope_for_one() -> None:
    assert renewed(None, renewal(seq=1), pot(2, held=2, nodes=5)).reply.target == 1


def test_a_cap_of_zero_gives_a_new_node_no_slot() -> None:
    done = renewed(None, renewal(seq=1), pot(0, nodes=0))
    assert (done.reply.slots, done.reply.target) == (0, 0)


def test_growth_stops_at_the_target() -> None:
    assert renewed(lease(2, target=5), renewal(2), pot(8, held=2)).lease.slots == 5


def test_growth_stops_where_others_hold_the_rest() -> None:
    assert renewed(lease(2, target=5), renewal(2), pot(8, held=7)).lease.slots == 3


def test_nothing_is_granted_while_more_is_held_than_a_lowered_cap() -> None:
    done = renewed(lease(2, target=3), renewal(2), pot(4, held=6))
    assert done.lease.slots == 2


# --- shrinking ---


def test_the_store_takes_nothing_that_the_holder_still_declares() -> None:
    done = renewed(lease(5, target=2), renewal(5), pot(8, held=8))
    assert (done.reply.slots, done.reply.gate, done.reply.target) == (5, 2, 2)
    assert done.change == 0


def test_what_is_declared_no_more_is_free_at_once() -> None:
    done = renewed(lease(5, target=2), renewal(2), pot(8, held=8))
    assert done.lease.slots == 2
    assert done.change == -3


def test_a_smaller_renewal_may_grow_again_in_the_same_step_if_the_target_rose_meanwhile() -> None:
    assert renewed(lease(5, target=4), renewal(2), pot(8, held=8)).lease.slots == 4


# --- old messages ---


@pytest.mark.parametrize("seq", [1, 7])
def test_a_renewal_not_newer_than_the_last_changes_nothing(seq: int) -> None:
    row = lease(5, target=8, seq=7)
    done = renewed(row, renewal(0, seq=seq), pot(8, held=5))
    assert done.lease is row
    assert done.reply.stale
    assert (done.change, done.replan, done.joined, done.left) == (0, False, False, False)


def test_a_stale_renewal_does_not_keep_a_lease_alive() -> None:
    row = lease(5, seq=7)
    assert renewed(row, renewal(5, seq=7), pot(8, held=5)).lease.expires_at == row.expires_at


def test_another_incarnation_is_another_lease_whatever_its_number() -> None:
    assert lease_name("a", "1") != lease_name("a", "2")
    done = renewed(None, replace(renewal(seq=1), incarnation="2"), pot(8, held=5))
    assert done.lease.slots == 3, "what the first one left, and not its five"


# --- time ---


def test_a_lease_lives_for_its_ttl_and_the_grace() -> None:
    terms = ShareTiming(grace_s=10)
    done = renew(None, renewal(seq=1), ShareBudget(cap=1, terms=terms), now=NOW)
    assert done.lease.expires_at == NOW + 14
    assert done.reply.ttl_s == 4, "the holder fences itself by the TTL alone"


def test_a_shorter_ttl_does_not_overtake_one_that_a_holder_still_counts_on() -> None:
    row = replace(lease(2, target=2), expires_at=NOW + 60)
    assert renewed(row, renewal(2), pot(8, held=2)).lease.expires_at == NOW + 60


def test_an_expired_lease_that_was_not_evicted_is_renewed_as_if_nothing_had_happened() -> None:
    row = replace(lease(3, target=3), expires_at=NOW - 1)
    done = renewed(row, renewal(3), pot(8, held=8))
    assert done.lease.slots == 3
    assert not is_expired(done.lease, now=NOW)


def test_eviction_takes_what_is_over_and_nothing_else() -> None:
    early, late = replace(lease(3), expires_at=NOW), replace(lease(2), expires_at=NOW + 0.001)
    assert evict([early, late], now=NOW) == ([late], [early])


# --- leaving ---


def test_a_lease_that_drains_only_shrinks() -> None:
    done = renewed(lease(5, target=8), renewal(3, leaving=True), pot(8, held=5))
    assert (done.lease.slots, done.lease.draining, done.reply.gate) == (3, True, 0)
    assert done.left
    after = renewed(done.lease, renewal(2, seq=3), pot(8, held=3))
    assert (after.lease.slots, after.lease.draining) == (2, True), "leaving is for good"
    assert not after.left, "said once"


def test_a_lease_that_was_left_stays_as_an_empty_row_so_that_nothing_late_revives_it() -> None:
    done = renewed(lease(2, target=8), renewal(0, seq=5, leaving=True), pot(8, held=2))
    assert done.lease.slots == 0
    assert renewed(done.lease, renewal(2, seq=4), pot(8, held=0)).reply.stale


# --- a store that forgot ---


def test_while_the_store_learns_what_is_held_is_counted_and_nothing_granted() -> None:
    learning = pot(8, held=4, nodes=1, learning_s=2)
    done = renewed(None, renewal(3, seq=9), learning)
    assert (done.lease.slots, done.reply.gate, done.lease.owed) == (3, 3, 0)
    assert done.reply.learning
    assert renewed(None, renewal(0, seq=1), learning).lease.slots == 0


def test_while_the_store_learns_holders_are_counted_even_above_the_cap() -> None:
    assert renewed(None, renewal(6, seq=9), pot(8, held=6, learning_s=2)).lease.slots == 6


def test_while_the_store_learns_no_holder_is_asked_for_slots_that_no_other_could_get() -> None:
    row = lease(6, target=2)
    assert renewed(row, renewal(6), pot(8, held=6, learning_s=2)).reply.gate == 6
    assert renewed(row, renewal(6), pot(4, held=6, learning_s=2)).reply.gate == 2, "unless the cap is passed"


def test_while_the_store_learns_what_runs_beyond_the_gate_may_finish_and_not_be_refilled() -> None:
    # It was owed before the store forgot, and the rightful holder may not have renewed yet.
    done = renewed(None, renewal(3, seq=9, beyond=2), pot(8, learning_s=2))
    assert (done.reply.slots, done.lease.owed, done.reply.gate) == (3, 2, 1)
    again = renewed(done.lease, renewal(3, seq=10, beyond=2), pot(8, held=3, learning_s=2))
    assert (again.reply.slots, again.lease.owed, again.reply.gate) == (3, 2, 1)


def test_while_the_store_learns_a_fenced_holder_may_finish_and_not_refill() -> None:
    done = renewed(None, renewal(2, seq=9, beyond=2), pot(8, learning_s=2))
    assert (done.lease.slots, done.reply.gate) == (2, 0)
    again = renewed(done.lease, renewal(1, seq=10), pot(8, held=2, learning_s=1))
    assert (again.lease.slots, again.reply.gate) == (1, 0)
    known = renewed(again.lease, renewal(1, seq=11), pot(8, held=1))
    assert known.reply.gate == known.lease.slots == 4, "there is room for it after all"


def test_another_life_of_the_store_starts_by_learning_for_the_length_of_a_lease() -> None:
    terms = ShareTiming(grace_s=3)
    before = ShareBudget(cap=8, epoch="run 1", terms=terms)
    assert enter_epoch(before, "run 1", now=NOW) is before
    after = enter_epoch(before, "run 2", now=NOW)
    assert (after.epoch, after.learning_until) == ("run 2", NOW + 7)


# --- what was never granted ---


def test_work_that_outlived_its_lease_is_counted_and_may_not_be_refilled() -> None:
    back = renewed(None, renewal(2, seq=9, beyond=2), pot(4, held=4))
    assert (back.lease.slots, back.lease.owed, back.reply.gate) == (2, 2, 0)
    one_left = renewed(back.lease, renewal(1, seq=10), pot(4, held=6))
    assert (one_left.lease.slots, one_left.lease.owed, one_left.reply.gate) == (1, 1, 0)


def test_what_is_owed_is_forgiven_as_the_others_give_back() -> None:
    row = lease(2, target=2, owed=2)
    assert renewed(row, renewal(2), pot(4, held=5)).reply.gate == 1
    assert renewed(row, renewal(2), pot(4, held=4)).reply.gate == 2


def test_work_started_without_the_store_is_counted_when_the_store_is_back() -> None:
    done = renewed(lease(2, target=2), renewal(7, beyond=7), pot(4, held=4))
    assert (done.lease.slots, done.reply.slots) == (7, 7)
    assert done.reply.gate == 2, "its own two"


# --- what the plan should know ---


def test_the_plan_is_made_again_when_a_node_joins_leaves_or_gets_hungry() -> None:
    steady = renewed(lease(4, target=4), renewal(4, wants=0), pot(8, held=4))
    fed = replace(lease(4, target=4), wants=9)
    assert not steady.replan
    assert renewed(None, renewal(seq=1), pot(8)).replan
    assert renewed(lease(4, target=4), renewal(2, leaving=True), pot(8, held=4)).replan
    assert renewed(lease(4, target=4), renewal(4, wants=9), pot(8, held=4)).replan
    assert renewed(fed, renewal(4, wants=1), pot(8, held=4)).replan


def test_the_plan_looks_again_when_a_drain_goes_on_and_when_a_turn_ends() -> None:
    draining = replace(lease(4, draining=True), wants=9)
    assert renewed(draining, renewal(3), pot(8, held=4)).replan
    holder = replace(lease(1), wants=9)
    assert renewed(holder, renewal(0), pot(1, held=1)).replan
    assert renewed(holder, renewal(0), pot(1, held=1)).lease.since == NOW


def test_counts_are_told_once_however_often_a_renewal_is_sent() -> None:
    first = renewed(None, replace(renewal(seq=1), tally=CallCounts()), pot(8)).lease
    second = replace(renewal(seq=2), tally=CallCounts(successes=10, throttles=2))
    done = renewed(first, second, pot(8, held=8))
    assert done.news == CallCounts(10, 2, 0)
    assert renewed(done.lease, second, pot(8, held=8)).news == CallCounts()
    third = replace(renewal(seq=4), tally=CallCounts(successes=15, throttles=2, overloads=1))
    assert renewed(done.lease, third, pot(8, held=8)).news == CallCounts(5, 0, 1), "a lost one is in the next"


def test_what_was_answered_before_the_store_forgot_is_not_counted_again() -> None:
    said = replace(renewal(2, seq=50), tally=CallCounts(successes=1000))
    assert renewed(None, said, pot(8, learning_s=2)).news == CallCounts()
