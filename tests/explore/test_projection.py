"""The worlds leave out much of what is shipped: all of it makes no difference to the rule.

For any holding and any lease, at any time: what the rule makes of it, and then made small, is what the rule
makes of the small one. So a search over small worlds is a search over all of them.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from flyball.core.share_lease import holder
from flyball.core.share_lease.holder import HolderState
from flyball.core.share_lease.renewal import (
    CallCounts,
    Renewal,
    Reply,
    ShareBudget,
    ShareLease,
    is_expired,
    renew,
)
from tests.explore.model import Model
from tests.explore.steps import Steps
from tests.explore.world import Answer, Block, Books, Hold, Request, Row, Scenario

MODEL = Model(Scenario(name="small"))
STEPS: Steps = MODEL.steps
TERMS = STEPS.terms[4]
SLOTS, FLAGS = st.integers(0, 3), st.booleans()
TIMES = st.integers(0, 1000)


@st.composite
def holdings(draw: st.DrawFn) -> tuple[HolderState, int]:
    """A holding as it may be at a time, with anything in what only ``beat.due`` reads."""
    now, age, gate = draw(TIMES), draw(st.integers(0, 6)), draw(SLOTS)
    answered = draw(st.integers(0, 6) | st.none())
    sent_at, leaving = now - age, draw(FLAGS)
    holding = HolderState(
        node=draw(st.sampled_from("ab")),
        incarnation="x",
        seq=draw(st.integers(1, 99)),
        pending=draw(FLAGS),
        sent_at=sent_at,
        slots=draw(st.integers(gate, 3)),
        gate=gate,
        fence_at=float("-inf") if answered is None else sent_at - answered + TERMS.fence_s,
        leaving=leaving,
        told=leaving and draw(FLAGS),
        misses=draw(st.integers(0, 9)),
        weight=draw(st.floats(1, 9)),
        target=draw(SLOTS),
        reported=draw(SLOTS),
        trip_s=draw(st.floats(0, 9)),
        pulls=draw(SLOTS),
        noticed=draw(FLAGS),
    )
    return holding, now


@st.composite
def leases(draw: st.DrawFn) -> tuple[ShareLease, int]:
    """A lease as it may be at a time, with anything in what the rule does not read."""
    now, slots = draw(TIMES), draw(SLOTS)
    lease = ShareLease(
        node="a",
        incarnation="x",
        seq=draw(st.integers(1, 9)),
        slots=slots,
        owed=draw(st.integers(0, slots)),
        target=draw(SLOTS),
        in_flight=draw(SLOTS),
        wants=draw(SLOTS),
        weight=draw(st.floats(1, 9)),
        draining=draw(FLAGS),
        since=now - draw(st.integers(0, 9)),
        expires_at=now + draw(st.integers(-4, 4)),
        tally=CallCounts(draw(SLOTS), 0, draw(SLOTS)),
    )
    return lease, now


def small(holding: HolderState, now: float) -> Hold:
    return STEPS.hold(
        replace(holding, sent_at=holding.sent_at - now, fence_at=holding.fence_at - now, missed_at=0.0)
    )


def small_row(lease: ShareLease, now: float) -> Row:
    return STEPS.row(replace(lease, expires_at=lease.expires_at - now, since=lease.since - now))


@given(holdings(), SLOTS)
def test_a_holder_admits_and_renews_alike(one: tuple[HolderState, int], in_flight: int) -> None:
    holding, now = one
    hold = small(holding, now)
    assert STEPS.limit(hold) == holder.limit(holding, now=now)
    assert STEPS.fenced(hold) == holder.is_fenced(holding, now=now)
    sent, renewal = holder.send(holding, now=now, in_flight=in_flight, wants=in_flight)
    after, request = STEPS.send(hold, in_flight, in_flight)
    assert after == small(sent, now)
    assert request == Request(renewal.seq, renewal.holds, renewal.wants, renewal.beyond, renewal.leaving)


@given(holdings(), st.integers(-1, 1), SLOTS, SLOTS)
def test_a_holder_hears_alike(one: tuple[HolderState, int], newer: int, more: int, gate: int) -> None:
    holding, now = one
    seq, slots = holding.seq + newer, holding.slots + more
    heard = holder.receive(
        holding, Reply(seq=seq, slots=slots, gate=gate, ttl_s=TERMS.ttl_s), now=now, terms=TERMS
    )
    assert STEPS.receive(small(holding, now), Answer(seq, slots, gate, 4)) == small(heard, now)


@given(holdings(), SLOTS, SLOTS)
def test_a_holder_leaves_gives_up_and_is_told_alike(
    one: tuple[HolderState, int], target: int, in_flight: int
) -> None:
    holding, now = one
    hold = small(holding, now)
    assert STEPS.notice(hold, target) == small(holder.notice(holding, target=target), now)
    assert STEPS.missed(hold) == small(holder.on_missed(holding, seq=holding.seq, now=now), now)
    assert STEPS.gone(hold, in_flight) == holder.has_left(holding, in_flight=in_flight)
    left, renewal = holder.send(holder.leave(holding), now=now, in_flight=in_flight, wants=0)
    after, request = STEPS.send(STEPS.leave(hold), in_flight, 0)
    assert (after, request.holds) == (small(left, now), renewal.holds)


@given(holdings())
def test_time_passes_alike(one: tuple[HolderState, int]) -> None:
    holding, now = one
    (later,) = MODEL.later(Block(hold=small(holding, now)))
    assert later.hold == small(holding, now + 1)._replace(seq=later.hold.seq)


@given(leases(), st.integers(1, 9), SLOTS, SLOTS, FLAGS, st.integers(1, 4), SLOTS, st.integers(-1, 4))
def test_the_store_renews_alike(
    one: tuple[ShareLease, int],
    seq: int,
    holds: int,
    beyond: int,
    leaving: bool,
    cap: int,
    others: int,
    learning: int,
) -> None:
    lease, now = one
    renewal = Renewal(
        node="a",
        incarnation="x",
        seq=seq,
        holds=holds,
        in_flight=0,
        wants=holds,
        beyond=beyond,
        leaving=leaving,
        tally=lease.tally,
    )
    held = others + lease.slots
    pot = ShareBudget(cap=cap, held=held, nodes=2, learning_until=now + learning, terms=TERMS)
    done = renew(lease, renewal, pot, now=now)
    row, answer = STEPS.renew(
        small_row(lease, now),
        Request(seq, holds, holds, beyond, leaving),
        Books(cap=cap, held=held, nodes=2, learning=learning, ttl=4),
    )
    assert row == small_row(done.lease, now)
    assert (answer is None) == done.reply.stale
    if answer:
        assert answer == Answer(done.reply.seq, done.reply.slots, done.reply.gate, 4)
    assert STEPS.expired(row) == is_expired(done.lease, now=now)
