"""Many threads, one or two governors, and a counter that knows nothing of flyball."""

from __future__ import annotations

import threading

import pytest

from flyball import Governor
from flyball.errors import RefusedError
from tests.governor.people import Person, in_use, nothing_left


class Turnstile:
    """Counts the threads that are inside, and the most there ever were."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.inside = self.most = self.entered = 0

    def __enter__(self) -> None:
        with self._lock:
            self.inside += 1
            self.entered += 1
            self.most = max(self.most, self.inside)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.inside -= 1


def _work(gov: Governor, turnstile: Turnstile, times: int, *, nap_s: float = 0.0005) -> None:
    nap = threading.Event()
    for _ in range(times):
        with gov.slot("p"), turnstile:
            nap.wait(nap_s)


def test_thirty_two_threads_never_hold_more_than_the_cap(gov: Governor) -> None:
    gov.set_pool("p", cap=4)
    turnstile = Turnstile()
    people = [Person(lambda: _work(gov, turnstile, 5)) for _ in range(32)]
    for person in people:
        person.outcome()
    assert turnstile.entered == 160
    assert turnstile.most <= 4
    assert nothing_left(gov)


def test_threads_that_do_not_wait_never_hold_more_than_the_cap_either(gov: Governor) -> None:
    gov.set_pool("p", cap=4)
    turnstile = Turnstile()

    def dash() -> None:
        for _ in range(20):
            try:
                lease = gov.acquire_nowait("p")
            except RefusedError:
                continue
            with turnstile:
                pass
            lease.release()

    for person in [Person(dash) for _ in range(16)]:
        person.outcome()
    assert 1 <= turnstile.most <= 4
    assert nothing_left(gov)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_two_governors_on_one_file_share_one_cap(gov: Governor, url: str) -> None:
    other, turnstile = Governor(url), Turnstile()
    people = [Person(lambda g=g: _work(g, turnstile, 10)) for g in (gov, other) * 4]  # type: ignore[misc]
    for person in people:
        person.outcome()
    assert (turnstile.most, turnstile.entered) == (1, 80)
    other.close()


def test_a_lease_may_be_released_by_another_thread(gov: Governor) -> None:
    lease = gov.acquire("p")
    Person(lease.release).outcome()
    assert in_use(gov) == 0


def test_one_lease_released_by_many_threads_frees_one_slot(gov: Governor) -> None:
    gov.set_pool("p", cap=2)
    lease, other = gov.acquire("p"), gov.acquire("p")
    for person in [Person(lease.release) for _ in range(8)]:
        person.outcome()
    assert in_use(gov) == 1
    other.release()
