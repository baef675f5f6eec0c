"""A forked child owns nothing of its parent's, and can ask for itself."""

from __future__ import annotations

import os
import threading
import traceback
import warnings
from collections.abc import Callable

import pytest

from flyball import Governor
from flyball.errors import AtCapacityError
from flyball.governor.internals import internals
from flyball.stores.port import Release
from tests.governor.people import Person, in_use, nothing_left, pool, wait_for_line


def in_child(work: Callable[[], object]) -> None:
    """Fork, run it there, and fail here if it failed there."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:
            os.write(writing, traceback.format_exc().encode()[-4000:])
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        error = pipe.read().decode()
    os.waitpid(pid, 0)
    assert not error, error


def refused(gov: Governor) -> None:
    with pytest.raises(AtCapacityError):
        gov.acquire_nowait("p")


def test_a_child_releases_nothing_of_its_parents(gov: Governor) -> None:
    lease = gov.acquire("p")
    in_child(lease.release)
    assert in_use(gov) == 1
    lease.release()
    assert nothing_left(gov)


def test_a_child_that_leaves_the_block_releases_nothing(gov: Governor) -> None:
    block = gov.slot("p")
    block.__enter__()
    in_child(lambda: block.__exit__(None, None, None))
    assert in_use(gov) == 1
    block.__exit__(None, None, None)
    assert nothing_left(gov)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_child_asks_and_gives_back_for_itself(gov: Governor) -> None:
    parent = gov.acquire("p")

    def child() -> None:
        refused(gov)
        gov.set_pool("p", cap=2)
        with gov.acquire("p") as lease:
            holders = {shown.id: shown.pid for shown in pool(gov).leases}
            assert holders == {parent.id: os.getppid(), lease.id: os.getpid()}

    in_child(child)
    assert [shown.id for shown in pool(gov).leases] == [parent.id]


@pytest.mark.parametrize("url", ["memory"], indirect=True)
def test_in_memory_a_child_starts_with_the_settings_and_without_its_parents_claims(gov: Governor) -> None:
    """Nothing could tell the child that its parent gave them back."""
    lease = gov.acquire("p")
    waiting = Person(lambda: gov.acquire("p"))
    wait_for_line(gov)
    gov.demand("p", "shop")

    def child() -> None:
        assert nothing_left(gov)
        assert internals(gov).recount() == []
        with gov.acquire("p", timeout=8):
            refused(gov)

    in_child(child)
    assert (in_use(gov), pool(gov).waiting) == (1, 1)
    lease.release()
    waiting.outcome().release()
    assert nothing_left(gov)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_what_a_dead_child_held_is_taken_back(gov: Governor) -> None:
    in_child(lambda: gov.acquire("p"))
    assert gov.acquire_nowait("p").pool == "p"


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_child_that_waited_is_woken_by_its_own_mail(gov: Governor) -> None:
    """The parent waited before, so the child inherits its mailbox and must not read it."""
    gov.set_pool("p", cap=2)
    first, second = gov.acquire("p"), gov.acquire("p")
    with pytest.raises(TimeoutError):
        gov.acquire("p", timeout=0)

    def child() -> None:
        threading.Timer(0.05, lambda: gov.set_pool("p", cap=3)).start()
        gov.acquire("p", timeout=8).release()

    in_child(child)
    first.release()
    second.release()
    assert nothing_left(gov)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_release_the_parent_keeps_is_not_the_childs_to_write(gov: Governor) -> None:
    lease = gov.acquire("p")
    internals(gov).store.remember(Release(lease.id))
    in_child(lambda: gov.demand("q", "x"))
    in_child(lambda: refused(gov))
    assert in_use(gov) == 1
    gov.acquire_nowait("p").release()


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_child_that_outlives_its_parents_governor_still_counts(gov: Governor, url: str) -> None:
    """A daemon forks, the parent closes and leaves: what the child takes must be seen by every process."""
    gov.acquire("p").release()
    (told, tell), (asked, ask) = os.pipe(), os.pipe()

    def child() -> None:
        gov.acquire("p").release()
        os.write(tell, b"ready")
        os.read(asked, 1)
        gov.acquire_nowait("p")
        os.write(tell, b"holding")
        os.read(asked, 1)

    forked = threading.Thread(target=in_child, args=(child,))
    forked.start()
    try:
        assert os.read(told, 10) == b"ready"
        gov.close()
        os.write(ask, b"1")
        assert os.read(told, 10) == b"holding"
        refused(Governor(url))
    finally:
        os.write(ask, b"22")
        forked.join()
        for pipe in (told, tell, asked, ask):
            os.close(pipe)


def test_a_fork_while_another_thread_is_inside_does_not_deadlock(gov: Governor) -> None:
    gov.set_pool("q", cap=8, adaptive=False)
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            gov.acquire("q").release()

    thread = threading.Thread(target=busy, daemon=True)
    thread.start()
    try:
        for _ in range(10):
            in_child(lambda: gov.acquire("q", timeout=8).release())
    finally:
        stop.set()
        thread.join()
