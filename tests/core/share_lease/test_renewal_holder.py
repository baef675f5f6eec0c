"""The holder's side of share leases: gate, fence, and which replies count."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flyball.core.share_lease.holder import (
    HolderState,
    OnOutage,
    has_left,
    is_fenced,
    leave,
    limit,
    notice,
    on_missed,
    receive,
    send,
)
from flyball.core.share_lease.renewal import Renewal, Reply
from flyball.core.share_lease.timing import ShareTiming
from flyball.errors import InvariantError

TERMS = ShareTiming()
FENCE_S = TERMS.fence_s


def fresh() -> HolderState:
    return HolderState(node="a", incarnation="1")


def sent(
    holding: HolderState, *, now: float = 0.0, in_flight: int = 0, wants: int = 0
) -> tuple[HolderState, Renewal]:
    return send(holding, now=now, in_flight=in_flight, wants=wants)


def told(seq: int, slots: int, gate: int | None = None, *, ttl_s: float = 4.0) -> Reply:
    gate = slots if gate is None else gate
    return Reply(seq=seq, slots=slots, gate=gate, target=gate, ttl_s=ttl_s)


def holding(slots: int, *, now: float = 0.0) -> HolderState:
    """One that was granted so many by a renewal sent at ``now``."""
    after, renewal = sent(fresh(), now=now)
    return receive(after, told(renewal.seq, slots), now=now, terms=TERMS)


# --- before and after the first grant ---


def test_before_the_first_grant_nothing_is_admitted() -> None:
    assert is_fenced(fresh(), now=0.0)
    assert limit(fresh(), now=0.0) == 0


def test_before_the_first_grant_a_local_share_has_its_own_estimate() -> None:
    assert limit(fresh(), now=0.0, on_outage=OnOutage.LOCAL, local=5) == 5


def test_the_first_renewal_holds_nothing_and_a_grant_opens_the_gate() -> None:
    _, renewal = sent(fresh())
    assert (renewal.seq, renewal.holds, renewal.beyond) == (1, 0, 0)
    assert limit(holding(4), now=0.0) == 4


# --- declaring less ---


def test_a_lowered_gate_closes_at_once_and_nothing_less_is_declared_than_runs() -> None:
    after, renewal = sent(holding(5), now=1.0, in_flight=5)
    lowered = receive(after, told(renewal.seq, 5, 2), now=1.0, terms=TERMS)
    assert limit(lowered, now=1.0) == 2
    assert sent(lowered, now=1.1, in_flight=5)[1].holds == 5
    assert sent(lowered, now=1.2, in_flight=3)[1].holds == 3, "part of it is given back at once"
    assert sent(lowered, now=1.3, in_flight=0)[1].holds == 2


def test_unused_slots_below_the_gate_stay_declared() -> None:
    assert sent(holding(5), now=1.0, in_flight=1)[1].holds == 5


# --- which replies count ---


def test_a_late_grant_does_not_undo_a_smaller_renewal() -> None:
    at_five, grow = sent(holding(5), now=1.0, in_flight=5)
    asked = notice(at_five, target=2)
    smaller, shrink = sent(asked, now=1.1, in_flight=2)
    assert shrink.holds == 2
    assert receive(smaller, told(grow.seq, 8), now=1.2, terms=TERMS) is smaller


def test_a_reply_counts_once() -> None:
    once = holding(5)
    assert receive(once, told(1, 9), now=0.1, terms=TERMS) is once


def test_a_reply_to_a_renewal_that_was_given_up_does_not_count() -> None:
    after, renewal = sent(holding(5), now=1.0)
    given_up = on_missed(after, seq=renewal.seq, now=1.5)
    assert receive(given_up, told(renewal.seq, 9), now=1.6, terms=TERMS) is given_up


def test_a_stale_answer_says_nothing() -> None:
    after, renewal = sent(holding(5), now=1.0)
    assert receive(after, Reply(seq=renewal.seq, stale=True), now=1.1, terms=TERMS) is after


def test_a_failure_of_an_older_renewal_is_not_news() -> None:
    after, renewal = sent(holding(5), now=1.0)
    newer, _ = sent(after, now=1.2)
    assert on_missed(newer, seq=renewal.seq, now=1.3) is newer


def test_a_reply_that_takes_what_was_declared_is_a_bug_of_the_store() -> None:
    after, renewal = sent(holding(5), now=1.0)
    with pytest.raises(InvariantError):
        receive(after, told(renewal.seq, 3), now=1.1, terms=TERMS)


# --- the fence ---


def test_the_fence_counts_from_the_send_however_late_the_reply() -> None:
    after, renewal = sent(fresh(), now=10.0)
    granted = receive(after, told(renewal.seq, 5), now=13.0, terms=TERMS)
    assert granted.fence_at == 10.0 + FENCE_S
    assert limit(granted, now=13.0) == 5
    assert limit(granted, now=10.0 + FENCE_S) == 0


def test_a_reply_that_comes_after_its_own_time_opens_nothing() -> None:
    after, renewal = sent(fresh(), now=10.0)
    assert limit(receive(after, told(renewal.seq, 5), now=14.0, terms=TERMS), now=14.0) == 0


def test_one_missed_renewal_is_harmless_and_four_beats_of_silence_are_not() -> None:
    quiet = holding(5, now=0.0)
    assert limit(quiet, now=3.0) == 5
    assert limit(quiet, now=4.0) == 0


def test_a_renewal_from_before_the_fence_does_not_lift_it() -> None:
    after, renewal = sent(holding(5, now=0.0), now=3.5)
    assert limit(receive(after, told(renewal.seq, 5), now=3.6, terms=TERMS), now=3.6) == 5
    late = receive(after, told(renewal.seq, 5), now=3.9, terms=TERMS)
    assert limit(late, now=3.9) == 0
    assert not late.pending, "so the next one goes out soon"


def test_a_fenced_holder_declares_what_runs_and_a_newer_answer_lifts_the_fence() -> None:
    after, renewal = sent(holding(5, now=0.0), now=5.0, in_flight=2)
    assert (renewal.holds, renewal.beyond) == (2, 2)
    back = receive(after, told(renewal.seq, 4, 3), now=5.1, terms=TERMS)
    assert limit(back, now=5.1) == 3


def test_the_ttl_of_the_reply_is_what_counts() -> None:
    after, renewal = sent(fresh(), now=0.0)
    short = receive(after, told(renewal.seq, 5, ttl_s=3.0), now=0.0, terms=TERMS)
    assert short.fence_at == pytest.approx(3.0 - 0.25 - 0.03)


def test_local_never_fences_and_tells_the_store_all_it_runs_when_it_is_back() -> None:
    lone = holding(5, now=0.0)
    assert limit(lone, now=9.0, on_outage=OnOutage.LOCAL, local=12) == 12
    assert limit(lone, now=1.0, on_outage=OnOutage.LOCAL, local=12) == 5
    assert sent(lone, now=9.5, in_flight=12)[1].holds == 12


# --- notices and leaving ---


def test_a_notice_closes_the_gate_and_opens_nothing() -> None:
    assert limit(notice(holding(5), target=2), now=0.1) == 2
    assert limit(notice(holding(5), target=9), now=0.1) == 5


def test_leaving_admits_nothing_and_gives_back_bit_by_bit() -> None:
    going = leave(holding(5))
    assert limit(going, now=0.1) == 0
    assert limit(going, now=9.0, on_outage=OnOutage.LOCAL, local=3) == 0
    after, renewal = sent(going, now=0.1, in_flight=2)
    assert (renewal.holds, renewal.leaving) == (2, True)
    assert not has_left(receive(after, told(renewal.seq, 2, 0), now=0.2, terms=TERMS), in_flight=0)


def test_one_is_gone_when_the_store_knows_that_it_holds_nothing() -> None:
    going = leave(holding(0))
    assert not has_left(going, in_flight=0), "the store was not told yet"
    after, renewal = sent(going, now=0.1)
    assert not has_left(after, in_flight=0), "the store has not answered yet"
    assert not has_left(on_missed(after, seq=renewal.seq, now=0.2), in_flight=0)
    heard = receive(after, told(renewal.seq, 0), now=0.2, terms=TERMS)
    assert has_left(heard, in_flight=0)
    assert not has_left(replace(heard, leaving=True), in_flight=1)
