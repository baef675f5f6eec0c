"""When a holder renews: by the beat, after a failure, and eagerly where another node waits for it."""

from __future__ import annotations

from dataclasses import replace

from flyball.core.share_lease.holder import (
    Due,
    HolderState,
    RenewalReason,
    leave,
    next_renewal,
    note_reason,
    notice,
    on_missed,
    receive,
    send,
)
from flyball.core.share_lease.renewal import Reply
from flyball.core.share_lease.timing import ShareTiming
from tests.cases import every

TERMS = ShareTiming()


def answered(
    slots: int, *, gate: int | None = None, target: int | None = None, at: float = 0.0, wants: int = 0
) -> HolderState:
    """One whose renewal at ``at`` was answered at once."""
    after, renewal = send(HolderState(node="a", incarnation="1"), now=at, in_flight=0, wants=wants)
    gate = slots if gate is None else gate
    reply = Reply(
        seq=renewal.seq, slots=slots, gate=gate, target=gate if target is None else target, ttl_s=4.0
    )
    return receive(after, reply, now=at, terms=TERMS)


def next_due(holding: HolderState, *, in_flight: int = 0, wants: int = 0, now: float = 0.0) -> Due:
    return next_renewal(holding, in_flight=in_flight, wants=wants, terms=TERMS, now=now)


def test_the_first_renewal_goes_out_at_once() -> None:
    assert next_due(HolderState(node="a", incarnation="1"), now=7.0) == Due(7.0, RenewalReason.FIRST)


def test_in_a_steady_state_there_is_only_the_beat() -> None:
    steady = answered(4, wants=9)
    for in_flight, wants in [(0, 0), (4, 4), (4, 9)]:
        assert next_due(steady, in_flight=in_flight, wants=wants) == Due(1.0, RenewalReason.BEAT)


def test_a_failed_renewal_is_tried_again_after_a_quarter_beat() -> None:
    after, renewal = send(answered(4), now=1.0, in_flight=0, wants=0)
    assert next_due(on_missed(after, seq=renewal.seq, now=1.1)) == Due(1.35, RenewalReason.RETRY)


def test_one_that_hangs_is_waited_for_longer_each_time() -> None:
    first, _ = send(answered(4), now=1.0, in_flight=0, wants=0)
    assert next_due(first) == Due(2.0, RenewalReason.RETRY)
    second, _ = send(first, now=2.0, in_flight=0, wants=0)
    assert next_due(second) == Due(4.0, RenewalReason.RETRY)


def test_a_slow_store_is_given_twice_the_time_it_took_last() -> None:
    slow = replace(answered(4), trip_s=1.5)
    after, _ = send(slow, now=1.0, in_flight=0, wants=0)
    assert next_due(after) == Due(4.0, RenewalReason.RETRY)


def test_an_answer_that_came_after_its_time_is_asked_for_again() -> None:
    assert next_due(answered(4, at=0.0), now=3.9) == Due(0.25, RenewalReason.RETRY)


def test_a_lowered_size_is_confirmed_at_once() -> None:
    assert next_due(answered(5, gate=2), in_flight=2) == Due(float("-inf"), RenewalReason.CONFIRM)


def test_work_that_ends_above_a_lowered_gate_is_pushed() -> None:
    lowered = answered(5, gate=2)
    assert next_due(lowered, in_flight=5).why is RenewalReason.BEAT, "nothing to give back yet"
    assert next_due(lowered, in_flight=4).why is RenewalReason.PUSH


def test_eager_renewals_are_a_twentieth_of_a_beat_apart() -> None:
    lowered = note_reason(answered(5, gate=2), Due(float("-inf"), RenewalReason.PUSH), now=0.5)
    assert next_due(lowered, in_flight=3) == Due(0.55, RenewalReason.PUSH)
    assert note_reason(lowered, Due(1.0, RenewalReason.BEAT), now=1.0) is lowered


def test_a_starved_holder_pulls_what_is_promised_and_doubles_the_wait_until_the_beat_is_sooner() -> None:
    starved = answered(1, target=4, wants=9)
    waits = []
    for _ in range(8):
        pull = next_due(starved, in_flight=1, wants=9)
        waits.append(round(pull.at, 3))
        starved = note_reason(starved, pull, now=pull.at)
    assert waits == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]
    assert next_due(starved, in_flight=1, wants=9).why is RenewalReason.BEAT


def test_a_node_that_needs_no_more_does_not_pull() -> None:
    assert next_due(answered(1, target=4), in_flight=1, wants=1).why is RenewalReason.BEAT


def test_new_hunger_is_told_once_and_a_flutter_not_at_every_turn() -> None:
    content = answered(2, wants=1)
    assert next_due(content, in_flight=2, wants=5) == Due(float("-inf"), RenewalReason.PULL)
    told = note_reason(content, Due(float("-inf"), RenewalReason.PULL), now=0.5)
    assert next_due(told, in_flight=2, wants=5) == Due(0.75, RenewalReason.PULL)


def test_a_notice_makes_a_holder_look_now() -> None:
    assert next_due(notice(answered(5), target=2)).why is RenewalReason.NOTICED
    assert next_due(notice(answered(0), target=2)).why is RenewalReason.NOTICED


def test_a_reply_that_moves_something_starts_the_pulls_afresh() -> None:
    tired = replace(answered(1, target=4), pulls=5)
    after, renewal = send(tired, now=1.0, in_flight=1, wants=9)
    reply = Reply(seq=renewal.seq, slots=2, gate=2, target=4, ttl_s=4.0)
    assert receive(after, reply, now=1.0, terms=TERMS).pulls == 0
    same = replace(reply, slots=1, gate=1)
    assert receive(after, same, now=1.0, terms=TERMS).pulls == 5


def test_leaving_is_told_at_once_and_then_as_work_ends() -> None:
    going = leave(answered(5))
    assert next_due(going, in_flight=5).why is RenewalReason.CONFIRM
    after, renewal = send(going, now=0.5, in_flight=5, wants=5)
    heard = receive(after, Reply(seq=renewal.seq, slots=5, ttl_s=4.0), now=0.5, terms=TERMS)
    assert next_due(heard, in_flight=5) == Due(1.5, RenewalReason.BEAT)
    assert next_due(heard, in_flight=4).why is RenewalReason.PUSH


@every("why", list(RenewalReason))
def test_only_renewals_ahead_of_the_beat_are_eager(why: RenewalReason) -> None:
    assert why.eager == (
        why in {RenewalReason.CONFIRM, RenewalReason.PUSH, RenewalReason.PULL, RenewalReason.NOTICED}
    )
