"""``slot()`` and ``acquire``, from a thread that may block."""

from __future__ import annotations

import math

import pytest

import flyball
from flyball import Governor, Outcome, Reason, SignalKind
from flyball.core.pool.model import Fact
from flyball.errors import AtCapacityError, PoolClosedError, TooLargeError, UsageError, WaitTimeoutError
from flyball.governor.lease import outcome_of
from tests.governor.people import Person, in_use, nothing_left, pool, wait_for_line


def test_a_slot_is_held_for_the_length_of_the_block(gov: Governor) -> None:
    with gov.slot("p", project="blog", name="t-14") as lease:
        (shown,) = pool(gov).leases
        assert (shown.id, shown.project, shown.name, shown.alive) == (lease.id, "blog", "t-14", True)
    assert nothing_left(gov)


def test_answers_that_come_much_later_than_before_are_told_as_slow(gov: Governor) -> None:
    def told(took_s: float) -> SignalKind:
        with gov.slot("p") as lease:
            # So long that what a busy machine adds to it means nothing.
            lease._granted_at -= took_s
            return lease.report(200).kind

    assert {told(100.0) for _ in range(60)} == {SignalKind.OK}
    assert SignalKind.SLOW in [told(500.0) for _ in range(30)]
    with gov.slot("another") as lease:
        assert lease.report(200).kind is SignalKind.OK


def test_the_modules_own_slot_uses_the_home(gov: Governor, home: object) -> None:
    with flyball.slot("q", project="blog") as lease:
        assert (lease.pool, lease.project) == ("q", "blog")


def test_an_error_in_the_block_comes_out_and_the_slot_goes_back(gov: Governor) -> None:
    with pytest.raises(ZeroDivisionError), gov.slot("p"):
        raise ZeroDivisionError
    assert nothing_left(gov)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (None, Outcome.FINISHED),
        (ValueError, Outcome.FAILED),
        (KeyboardInterrupt, Outcome.ABANDONED),
        (SystemExit, Outcome.ABANDONED),
    ],
)
def test_how_a_block_ended_is_what_the_pool_is_told(
    error: type[BaseException] | None, outcome: Outcome
) -> None:
    assert outcome_of(error) is outcome


def test_a_lease_is_a_context_too(gov: Governor) -> None:
    with gov.acquire("p"):
        assert in_use(gov) == 1
    assert nothing_left(gov)


def test_many_slots_at_once(gov: Governor) -> None:
    gov.set_pool("p", cap=4)
    with gov.slot("p", slots=3):
        assert in_use(gov) == 3


def test_the_next_in_line_is_woken_by_a_release(gov: Governor) -> None:
    lease = gov.acquire("p")
    waiting = Person(lambda: gov.acquire("p"))
    wait_for_line(gov)
    lease.release()
    waiting.outcome().release()
    assert nothing_left(gov)


def test_a_raised_cap_wakes_the_waiting(gov: Governor) -> None:
    gov.acquire("p")
    waiting = Person(lambda: gov.acquire("p"))
    wait_for_line(gov)
    gov.set_pool("p", cap=2)
    assert waiting.outcome().pool == "p"


# -- no ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [0, 0.01])
def test_a_timeout_says_why_and_leaves_nothing_in_line(gov: Governor, timeout: float) -> None:
    lease = gov.acquire("p", project="blog", name="t-14")
    with pytest.raises(WaitTimeoutError) as raised, gov.slot("p", timeout=timeout):
        pass
    error = raised.value
    assert (error.pool, error.reason, error.waited_s) == ("p", "cap", timeout)
    assert isinstance(error, TimeoutError)
    assert "blog/t-14" in str(error)
    assert pool(gov).waiting == 0
    lease.release()
    assert nothing_left(gov)


@pytest.mark.parametrize("timeout", [-1, math.nan])
def test_a_timeout_that_makes_no_sense_is_refused(gov: Governor, timeout: float) -> None:
    with pytest.raises(UsageError), gov.slot("p", timeout=timeout):
        pass


def test_without_waiting_a_full_pool_says_no_at_once(gov: Governor) -> None:
    gov.acquire("p")
    with pytest.raises(AtCapacityError) as raised:
        gov.acquire_nowait("p")
    assert (raised.value.pool, raised.value.verdict.reason) == ("p", Reason.CAP)
    assert pool(gov).waiting == 0


def test_a_closed_pool_says_when_to_come_back(gov: Governor) -> None:
    lease = gov.acquire("p")
    lease.report(429, {"retry-after": "7"})
    lease.release()
    with pytest.raises(PoolClosedError) as raised:
        gov.acquire_nowait("p")
    assert raised.value.reason == "retry-after"
    assert raised.value.retry_after_s == pytest.approx(7.0, abs=1.0)


def test_an_ask_that_can_never_fit_is_refused_even_where_it_would_wait(gov: Governor) -> None:
    with pytest.raises(TooLargeError) as raised:
        gov.acquire("p", slots=2)
    assert raised.value.retry_after_s is None


def test_a_waiter_is_told_why_at_once(gov: Governor) -> None:
    gov.acquire("p", project="blog", name="t-14")
    told: list[str] = []
    with pytest.raises(WaitTimeoutError):
        gov.acquire("p", timeout=0, on_wait=lambda verdict: told.append(verdict.words()))
    (words,) = told
    assert words.startswith("waiting: p 1 of 1 in use")
    assert "blog/t-14" in words


# -- giving back ------------------------------------------------------------------------------------


def test_a_second_release_does_nothing(gov: Governor) -> None:
    lease = gov.acquire("p")
    lease.release()
    other = gov.acquire("p")
    lease.release()
    assert [shown.id for shown in pool(gov).leases] == [other.id]


def test_a_release_inside_the_block_is_enough(gov: Governor) -> None:
    with gov.slot("p") as lease:
        lease.release(Outcome.FAILED)
        assert nothing_left(gov)


def test_an_unknown_outcome_is_refused_and_the_lease_stays(gov: Governor) -> None:
    lease = gov.acquire("p")
    with pytest.raises(UsageError, match="finished"):
        gov.release(lease, "done")
    assert in_use(gov) == 1
    gov.release(lease, "finished")
    assert nothing_left(gov)


# -- signals ----------------------------------------------------------------------------------------


def test_a_reported_throttle_takes_effect_at_once(gov: Governor) -> None:
    gov.set_pool("q", cap=8)
    with gov.slot("q") as lease:
        assert lease.report(429).kind.value == "throttled"
        assert (pool(gov, "q").cap, pool(gov, "q").throttle_count) == (4, 1)


def test_reported_successes_travel_with_the_release(gov: Governor) -> None:
    gov.set_pool("q", profile="calls", controller="article")
    with gov.slot("q", slots=2) as lease:
        for _ in range(4):
            lease.report(200)
        assert pool(gov, "q").cap == 2
    gov.demand("q", "blog")
    assert pool(gov, "q").cap == 4


def test_a_report_needs_no_lease(gov: Governor) -> None:
    gov.report("q", flyball.Signal(flyball.SignalKind.THROTTLED), project="blog")
    assert pool(gov, "q").throttle_count == 1


# -- observers --------------------------------------------------------------------------------------


def test_observers_hear_what_happened_after_it_is_written(url: str) -> None:
    heard: list[tuple[str, int]] = []

    def listen(fact: Fact) -> None:
        # Asking back would deadlock if this ran inside the step.
        heard.append((fact.kind, len(gov.status().pools)))

    gov = Governor(url, observers=[listen])
    gov.set_pool("p", cap=1, adaptive=False)
    gov.acquire("p")
    with pytest.raises(AtCapacityError):
        gov.acquire_nowait("p")
    assert ("refused", 1) in heard
    gov.close()


def test_an_observer_that_fails_does_not_hide_the_callers_error(url: str) -> None:
    def fail(fact: Fact) -> None:
        raise RuntimeError(f"cannot handle {fact.kind}")

    gov = Governor(url, observers=[fail])
    gov.set_pool("p", cap=1, break_s=600.0)
    lease = gov.acquire("p")
    with pytest.raises(ZeroDivisionError), lease:
        raise ZeroDivisionError(lease.report(503).kind)
    assert nothing_left(gov)
    gov.close()


def test_facts_can_be_read_later(gov: Governor) -> None:
    gov.acquire("p")
    with pytest.raises(AtCapacityError):
        gov.acquire_nowait("p", project="shop", name="t-15")
    newest = gov.facts(1)[0]
    assert (newest.kind, newest.project, newest.name) == ("refused", "shop", "t-15")


def test_a_throttled_that_ends_the_block_is_told_to_the_pool_once(gov: Governor) -> None:
    with pytest.raises(flyball.Throttled), gov.slot("q") as lease:
        raise flyball.Throttled("slow down", retry_after_s=30)
    assert lease.rejected
    assert (pool(gov, "q").throttle_count, (pool(gov, "q").closed_for_s or 0) > 20) == (1, True)


def test_a_throttled_after_a_reported_throttle_is_not_told_again(gov: Governor) -> None:
    def call() -> None:
        with gov.slot("r") as lease:
            lease.report(429)
            raise flyball.Throttled("the same once more")

    with pytest.raises(flyball.Throttled):
        call()
    assert pool(gov, "r").throttle_count == 1


def test_a_status_that_is_not_a_number_is_refused(gov: Governor) -> None:
    with gov.slot("q") as lease, pytest.raises(flyball.UsageError, match="as a number"):
        lease.report("429")  # type: ignore[arg-type]
