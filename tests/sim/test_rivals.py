"""What others do, by how it behaves: the constants their own code has."""

from __future__ import annotations

import pytest

from flyball.core.signals import Signal, SignalKind
from flyball.sim.simulator.jobs import Job
from flyball.sim.simulator.limits import INFINITY
from flyball.sim.simulator.rivals import (
    CALLERS,
    Article,
    Botocore,
    Fixed,
    Inspect,
    Koryph,
    NetflixAimd,
    NetflixGradient2,
    Peer,
)

OK = Signal(SignalKind.OK)
THROTTLED = Signal(SignalKind.THROTTLED)
OVERLOADED = Signal(SignalKind.OVERLOADED)


class Driver:
    """Starts and ends calls of a peer by hand."""

    def __init__(self, peer: Peer) -> None:
        self.peer, self.number = peer, 0

    def start(self, t_s: float) -> tuple[Job, object]:
        self.number += 1
        job = Job(self.number, 6.0, 2000.0)
        started = self.peer.start(t_s, job)
        job.attempts += 1
        return job, started

    def fill(self, t_s: float) -> list[tuple[Job, object]]:
        """As many as it lets start at once."""
        calls = []
        while self.peer.earliest_start(t_s, Job(0, 6.0, 2000.0)) <= t_s:
            calls.append(self.start(t_s))
        return calls

    def call(self, t_s: float, signal: Signal, took_s: float = 6.0) -> float | None:
        """One call from start to end."""
        job, started = self.start(t_s)
        return self.peer.end(started, job, signal, t_s + took_s)


def test_fixed_keeps_to_its_number_and_sleeps_inside_it() -> None:
    drive = Driver(Fixed(8))
    calls = drive.fill(0.0)
    assert len(calls) == 8
    job, started = calls[0]
    wait_s = drive.peer.end(started, job, THROTTLED, 0.15)
    assert wait_s is not None
    assert 0.375 <= wait_s <= 0.5
    assert drive.peer.earliest_start(0.2, Job(99, 6.0, 1.0)) == INFINITY
    assert drive.peer.earliest_start(0.2, job) == 0.2


def test_every_rival_waits_as_long_as_retry_after_asks_but_inspect_and_koryph() -> None:
    asked = Signal(SignalKind.THROTTLED, 5.0)
    for peer in (Fixed(8), Article(), NetflixAimd(), NetflixGradient2()):
        assert Driver(peer).call(0.0, asked, 0.15) == 5.0
    assert Driver(Koryph()).call(0.0, asked, 0.15) == 15.0
    inspect_s = Driver(Inspect()).call(0.0, asked, 0.15)
    assert inspect_s is not None
    assert 3.0 <= inspect_s <= 6.0
    botocore_s = Driver(Botocore()).call(0.0, asked, 0.15)
    assert botocore_s is not None
    assert 5.0 <= botocore_s <= 6.0


def test_no_peer_has_more_callers_than_there_are() -> None:
    assert len(Driver(Fixed(1000)).fill(0.0)) == CALLERS
    assert len(Driver(Botocore()).fill(0.0)) == CALLERS


class TestArticle:
    def test_it_starts_at_two_and_grows_by_half_per_success_up_to_twelve(self) -> None:
        drive = Driver(Article())
        assert len(drive.fill(0.0)) == 2
        for _ in range(3):
            drive.call(10.0, OK)
        assert drive.peer.limit == 3.5
        for _ in range(40):
            drive.call(20.0, OK)
        assert drive.peer.limit == 12

    def test_every_throttle_halves_it_and_nothing_grows_for_eight_seconds(self) -> None:
        drive = Driver(Article())
        drive.peer.limit = 12.0
        drive.call(0.0, THROTTLED, 0.0)
        drive.call(0.0, OVERLOADED, 0.0)
        assert drive.peer.limit == 3.0
        drive.call(1.0, OK)
        assert drive.peer.limit == 3.0
        drive.call(2.0, OK)
        assert drive.peer.limit == 3.5
        for _ in range(5):
            drive.call(10.0, THROTTLED)
        assert drive.peer.limit == 1.0

    def test_its_ceiling_can_be_raised(self) -> None:
        drive = Driver(Article(ceiling=64.0))
        for _ in range(200):
            drive.call(10.0, OK)
        assert drive.peer.limit == 64


class TestNetflixAimd:
    def test_plus_one_where_half_is_in_use_times_nine_tenths_on_a_drop(self) -> None:
        drive = Driver(NetflixAimd())
        assert drive.peer.limit == 20
        drive.call(0.0, OK)
        assert drive.peer.limit == 20, "one of twenty in use"
        job, started = drive.fill(0.0)[-1]
        drive.peer.end(started, job, OK, 6.0)
        assert drive.peer.limit == 21
        drive.peer.limit = 100
        drive.call(7.0, THROTTLED, 0.15)
        assert drive.peer.limit == 90

    def test_it_stays_between_20_and_200(self) -> None:
        drive = Driver(NetflixAimd())
        drive.call(0.0, THROTTLED)
        assert drive.peer.limit == 20
        drive.peer.limit = 200
        job, started = drive.fill(0.0)[-1]
        drive.peer.end(started, job, OK, 6.0)
        assert drive.peer.limit == 200


class TestNetflixGradient2:
    def test_steady_answers_let_it_grow_and_slow_ones_shrink_it(self) -> None:
        peer = NetflixGradient2()
        drive = Driver(peer)
        drive.fill(0.0)
        for _ in range(10):
            drive.call(0.0, OK, 6.0)
        grown = peer.limit
        assert grown == pytest.approx(20 + 10 * 0.2 * 4)
        for _ in range(10):
            drive.call(0.0, OK, 60.0)
        assert peer.limit < grown

    def test_a_refusal_is_just_a_quick_answer_to_it(self) -> None:
        peer = NetflixGradient2()
        drive = Driver(peer)
        drive.fill(0.0)
        drive.call(0.0, THROTTLED, 0.15)
        assert peer.limit > 20


class TestInspect:
    def test_it_doubles_per_clean_round_until_the_first_throttle(self) -> None:
        drive = Driver(Inspect())
        assert len(drive.fill(0.0)) == 20
        for _ in range(20):
            drive.call(0.0, OK)
        assert drive.peer.limit == 40

    def test_a_throttle_takes_a_fifth_at_most_once_in_fifteen_seconds(self) -> None:
        drive = Driver(Inspect())
        drive.peer.limit = 100
        drive.call(0.0, THROTTLED, 0.0)
        drive.call(1.0, THROTTLED, 0.0)
        assert drive.peer.limit == 80
        drive.call(16.0, THROTTLED, 0.0)
        assert drive.peer.limit == 60, "64, rounded down to fives"
        drive.peer.limit = 11
        drive.call(40.0, THROTTLED, 0.0)
        assert drive.peer.limit == 10, "its least"

    def test_then_it_grows_by_a_twentieth_per_clean_round(self) -> None:
        drive = Driver(Inspect())
        drive.call(0.0, THROTTLED, 0.0)
        assert drive.peer.limit == 15
        drive.fill(20.0)
        for _ in range(15):
            drive.call(20.0, OK)
        assert drive.peer.limit == 20, "16, rounded up to fives"

    def test_overloads_and_a_success_after_a_retry_count_for_nothing(self) -> None:
        drive = Driver(Inspect())
        drive.call(0.0, OVERLOADED, 0.0)
        assert drive.peer.limit == 20
        drive.fill(0.0)
        for _ in range(40):
            job, started = drive.start(0.0)
            job.attempts = 2
            drive.peer.end(started, job, OK, 6.0)
        assert drive.peer.limit == 20


class TestKoryph:
    def test_three_seconds_between_starts_give_or_take_half(self) -> None:
        drive = Driver(Koryph())
        gaps = []
        t_s = 0.0
        for _ in range(7):
            drive.start(t_s)
            at_s = drive.peer.earliest_start(t_s, Job(0, 1.0, 1.0))
            gaps.append(at_s - t_s)
            t_s = at_s
        assert all(1.5 <= gap <= 4.5 for gap in gaps)
        assert len(set(gaps)) > 1

    def test_a_throttle_halves_and_settles_two_minutes(self) -> None:
        drive = Driver(Koryph())
        drive.call(0.0, THROTTLED, 1.0)
        assert drive.peer.limit == 4
        drive.call(60.0, THROTTLED, 1.0)
        assert drive.peer.limit == 4
        drive.call(130.0, THROTTLED, 1.0)
        assert drive.peer.limit == 2

    def test_a_burst_of_three_tasks_quarters(self) -> None:
        drive = Driver(Koryph())
        drive.peer.limit = 16
        drive.call(0.0, THROTTLED, 1.0)
        drive.peer.limit = 16
        drive.call(119.0, THROTTLED, 0.0)
        drive.call(119.5, THROTTLED, 0.0)
        drive.call(125.0, THROTTLED, 0.0)
        assert drive.peer.limit == 4

    def test_one_more_per_five_quiet_minutes_up_to_sixteen(self) -> None:
        drive = Driver(Koryph())
        assert drive.peer.earliest_start(299.0, Job(0, 1.0, 1.0)) == 299.0
        assert drive.peer.limit == 8
        drive.peer.earliest_start(300.0, Job(0, 1.0, 1.0))
        assert drive.peer.limit == 9
        drive.peer.earliest_start(719.0, Job(0, 1.0, 1.0))
        assert drive.peer.limit == 9, "120 s to settle, then 300 s of quiet"
        drive.peer.earliest_start(720.0, Job(0, 1.0, 1.0))
        assert drive.peer.limit == 10

    def test_a_throttle_at_the_floor_opens_the_breaker_for_300_s_then_600(self) -> None:
        drive = Driver(Koryph())
        drive.peer.limit = 1
        drive.call(0.0, THROTTLED, 0.0)
        assert drive.peer.earliest_start(1.0, Job(0, 1.0, 1.0)) == 300.0
        drive.call(300.0, THROTTLED, 0.0)
        assert drive.peer.earliest_start(301.0, Job(0, 1.0, 1.0)) == 900.0
        drive.call(900.0, OK)
        assert drive.peer.limit == 1
        assert drive.peer.earliest_start(910.0, Job(0, 1.0, 1.0)) == 910.0

    def test_only_one_trial_at_a_time(self) -> None:
        drive = Driver(Koryph())
        drive.peer.limit = 1
        drive.call(0.0, THROTTLED, 0.0)
        drive.peer.limit = 8
        drive.start(300.0)
        assert drive.peer.earliest_start(310.0, Job(0, 1.0, 1.0)) == INFINITY


class TestBotocore:
    def test_nothing_is_limited_before_the_first_throttle(self) -> None:
        drive = Driver(Botocore())
        for n in range(50):
            drive.call(float(n), OK)
        assert drive.peer.earliest_start(60.0, Job(0, 1.0, 1.0)) == 60.0

    def test_a_throttle_sets_seven_tenths_of_the_measured_rate(self) -> None:
        peer = Botocore()
        drive = Driver(peer)
        for n in range(400):
            drive.call(n * 0.25, OK, 0.0)
        drive.call(100.0, THROTTLED, 0.0)
        # Four answers a second; the ninth part of a half second is still open when it is measured.
        rate = 1 / self._gap_s(peer, 100.0)
        assert rate == pytest.approx(0.7 * 4.0, rel=0.1)

    def test_it_comes_back_to_that_rate_along_a_cube(self) -> None:
        peer = Botocore()
        drive = Driver(peer)
        for n in range(400):
            drive.call(n * 0.25, OK, 0.0)
        drive.call(100.0, THROTTLED, 0.0)
        zero_s = (4.0 * 0.3 / 0.4) ** (1 / 3)
        for n in range(8):
            drive.call(100.0 + zero_s * (n + 1) / 8, OK, 0.0)
        assert 1 / self._gap_s(peer, 100.0 + zero_s) == pytest.approx(4.0, rel=0.15)

    @staticmethod
    def _gap_s(peer: Botocore, t_s: float) -> float:
        """Between two sends once the bucket is empty."""
        job = Job(0, 1.0, 1.0)
        while peer.earliest_start(t_s, job) <= t_s:
            peer.start(t_s, Job(0, 1.0, 1.0, attempts=1))
        first_s = peer.earliest_start(t_s, job)
        peer.start(first_s, Job(0, 1.0, 1.0, attempts=1))
        return peer.earliest_start(first_s, job) - first_s
