"""The rules a simulated provider answers by."""

from __future__ import annotations

import pytest

from flyball.core.signals import SignalKind
from flyball.sim.simulator.jobs import Job
from flyball.sim.simulator.limits import INFINITY, Acceleration, Draw, Flaky, Outages, Refilling, Rule, Seats

JOB = Job(1, 6.0, 2000.0)


def takes(rule: Rule, t_s: float, job: Job = JOB) -> bool:
    """Knock, and take the seat if it is given."""
    if rule.refusal(t_s, job) is not None:
        return False
    rule.enter(t_s, job)
    return True


class TestSeats:
    def test_one_too_many_is_refused_until_one_leaves(self) -> None:
        seats = Seats([(0.0, 2)])
        assert [takes(seats, 0.0) for _ in range(3)] == [True, True, False]
        seats.leave(1.0, JOB)
        assert takes(seats, 1.0)

    def test_no_call_inside_is_ended_when_the_capacity_falls(self) -> None:
        seats = Seats([(0.0, 3), (10.0, 1)])
        assert all(takes(seats, 0.0) for _ in range(3))
        seats.leave(11.0, JOB)
        seats.leave(12.0, JOB)
        assert not takes(seats, 12.0)
        seats.leave(13.0, JOB)
        assert takes(seats, 13.0)

    def test_room_comes_with_the_next_step_that_is_high_enough(self) -> None:
        seats = Seats([(0.0, 1), (10.0, 1), (20.0, 2)])
        assert takes(seats, 0.0)
        assert seats.room_at(1.0, JOB) == 20.0
        assert takes(seats, 20.0)
        assert seats.room_at(21.0, JOB) == INFINITY

    def test_a_stale_seat_stays_taken_after_its_client_is_gone(self) -> None:
        seats = Seats([(0.0, 1)])
        ghost = Job(1, 6.0, 1.0, lingers_s=120.0)
        assert takes(seats, 0.0, ghost)
        seats.leave(6.0, ghost)
        assert not takes(seats, 7.0)
        assert seats.room_at(7.0, JOB) == 126.0
        assert takes(seats, 126.0)


class TestRefilling:
    def test_it_serves_what_it_holds_and_refills_steadily(self) -> None:
        bucket = Refilling("tokens", 5000, 100)
        assert takes(bucket, 0.0)
        assert takes(bucket, 0.0)
        assert not takes(bucket, 9.0)
        assert takes(bucket, 10.0)

    def test_requests_cost_one_each_whatever_their_size(self) -> None:
        bucket = Refilling("requests", 2, 1)
        assert [takes(bucket, 0.0) for _ in range(3)] == [True, True, False]

    def test_retry_after_is_in_whole_seconds_and_long_enough(self) -> None:
        bucket = Refilling("tokens", 2000, 300, retry_after=True)
        assert takes(bucket, 0.0)
        refusal = bucket.refusal(0.0, JOB)
        assert refusal is not None
        assert refusal.retry_after_s == 7.0
        assert takes(bucket, 7.0)

    def test_headers_say_what_is_left_and_when_it_is_full(self) -> None:
        bucket = Refilling("tokens", 5000, 100, headers=True)
        assert takes(bucket, 0.0)
        (said,) = bucket.buckets(0.0)
        assert (said.name, said.limit, said.remaining, said.reset_s) == ("tokens", 5000, 3000.0, 21.0)
        assert Refilling("tokens", 5000, 100).buckets(0.0) == ()

    def test_a_neighbour_gets_its_share_however_greedy_we_are(self) -> None:
        """The level goes into debt, so that keeping it at zero gains nothing."""
        draws = [Draw(10.0, 1500.0)]
        greedy = Refilling("tokens", 2000, 100, neighbour=draws, headers=True)
        assert takes(greedy, 0.0)
        assert greedy.room_at(10.0, JOB) == pytest.approx(10.0 + 25.0)
        assert greedy.level == pytest.approx(-500.0)
        assert greedy.buckets(10.0)[0].remaining == 0.0


class TestOutages:
    def test_no_call_is_served_while_one_lasts(self) -> None:
        outages = Outages([(10.0, 20.0)])
        assert outages.refusal(9.9, JOB) is None
        refusal = outages.refusal(10.0, JOB)
        assert refusal is not None
        assert refusal.kind is SignalKind.OVERLOADED
        assert outages.room_at(12.0, JOB) == 20.0
        assert outages.refusal(20.0, JOB) is None

    def test_spans_that_overlap_are_one(self) -> None:
        outages = Outages([(15.0, 18.0), (10.0, 20.0), (20.0, 30.0)])
        assert outages.over_at(19.0) == 30.0
        assert outages.over_at(30.0) is None


class TestFlaky:
    def test_an_unlucky_job_fails_once(self) -> None:
        job = Job(1, 6.0, 1.0, unlucky=True, attempts=1)
        assert Flaky().refusal(0.0, job) is not None
        job.attempts = 2
        assert Flaky().refusal(0.0, job) is None


class TestAcceleration:
    def test_use_grows_by_half_every_quarter_of_a_minute(self) -> None:
        rule = Acceleration()
        counts = []
        for t_s in (0.0, 14.0, 15.0, 30.0, 45.0):
            while takes(rule, t_s):
                pass
            counts.append(rule.inside)
        assert counts == [4, 4, 6, 9, 13]

    def test_what_was_used_long_ago_no_longer_counts(self) -> None:
        rule = Acceleration()
        for t_s in (0.0, 15.0, 30.0):
            while takes(rule, t_s):
                pass
        for _ in range(9):
            rule.leave(31.0, JOB)
        assert rule.refusal(31.0, JOB) is None
        while takes(rule, 200.0):
            pass
        assert rule.inside == 4

    def test_room_is_foretold_exactly(self) -> None:
        rule = Acceleration()
        while takes(rule, 0.0):
            pass
        at_s = rule.room_at(1.0, JOB)
        assert at_s == pytest.approx(15.0, abs=1e-3)
        assert takes(rule, at_s)
