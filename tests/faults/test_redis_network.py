"""A real server behind a network that hangs, delays, loses, cuts and reorders: no slot gets lost."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flyball.errors import StoreBusyError, StoreError, WaitTimeoutError
from flyball.governor.governor import Governor
from flyball.governor.internals import internals
from tests.faults.conftest import REPOSITORY, SOAK
from tests.faults.tcp_proxy import FaultProxy, Way
from tests.redis_server import RedisServer
from tests.waiting import until

pytestmark = pytest.mark.faults
POOL = "p"
ANSWER_S = 0.5
SECONDS = 30.0 if SOAK else 3.0


@pytest.fixture
def server(home: Path) -> Iterator[RedisServer]:
    running = RedisServer()
    yield running
    running.close()


@pytest.fixture
def proxy(server: RedisServer) -> Iterator[FaultProxy]:
    proxy = FaultProxy(str(server.folder / "s"))
    yield proxy
    proxy.close()


@pytest.fixture
def near(server: RedisServer) -> Iterator[Governor]:
    """Beside the server: nothing is ever between them."""
    gov = Governor(server.url)
    yield gov
    gov.close()


@pytest.fixture
def far(proxy: FaultProxy, near: Governor) -> Iterator[Governor]:
    """Behind the network, with a pool of two slots."""
    near.set_pool(POOL, cap=2, adaptive=False)
    gov = Governor(address(proxy))
    # The server knows the scripts from now on.
    gov.acquire_nowait(POOL).release()
    yield gov
    gov.close()


def address(proxy: FaultProxy) -> str:
    return f"redis://127.0.0.1:{proxy.port}?socket_timeout={ANSWER_S}"


def in_use(gov: Governor) -> int:
    return sum(pool.in_use for pool in gov.status().pools)


def waits(gov: Governor) -> tuple[threading.Thread, threading.Event]:
    """An ask stands in line, and gives the slot back when it was served."""
    served = threading.Event()

    def wait() -> None:
        while not served.is_set():
            # A look at a server that does not answer fails, and the ask stands in line again.
            with contextlib.suppress(StoreError), gov.slot(POOL, timeout=60):
                served.set()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread, served


def all_free(near: Governor) -> None:
    """Once the dead are buried nothing is held, no ask waits, and both slots can be had."""
    near.reap()
    until(lambda: not in_use(near) and not sum(pool.waiting for pool in near.status().pools), "it leaked")
    leases = [near.acquire_nowait(POOL), near.acquire_nowait(POOL)]
    for lease in leases:
        lease.release()
    assert internals(near).store.miscounts() == []


def test_what_hangs_is_reported_in_time_and_does_not_happen_later(
    far: Governor, near: Governor, proxy: FaultProxy
) -> None:
    proxy.hang(Way.ASKING)
    with pytest.raises(StoreBusyError, match=rf"did not answer within {ANSWER_S} s"):
        far.acquire_nowait(POOL)
    assert proxy.kept, "the ask is on its way"
    proxy.resume()
    until(lambda: not proxy.kept)
    assert in_use(near) == 0, "its caller waits no more, so it was not granted"
    far.acquire_nowait(POOL).release()
    all_free(near)


def test_a_grant_whose_answer_never_came_is_given_back_by_the_next_call(
    far: Governor, near: Governor, proxy: FaultProxy
) -> None:
    proxy.lose(Way.ANSWERING)
    with pytest.raises(StoreError):
        far.acquire_nowait(POOL)
    assert in_use(near) == 1, "no caller knows of this lease"
    proxy.mend()
    far.acquire_nowait(POOL).release()
    all_free(near)


def test_a_release_whose_answer_never_came_goes_out_again_and_counts_once(
    far: Governor, near: Governor, proxy: FaultProxy
) -> None:
    lease, other = far.acquire_nowait(POOL), far.acquire_nowait(POOL)
    proxy.lose(Way.ANSWERING)
    lease.release()
    proxy.mend()
    assert in_use(near) == 1, "it was done"
    far.acquire_nowait(POOL).release()
    other.release()
    all_free(near)


def test_a_release_that_never_arrived_goes_out_with_the_next_call(
    far: Governor, near: Governor, proxy: FaultProxy
) -> None:
    lease = far.acquire_nowait(POOL)
    proxy.refuse()
    proxy.cut()
    lease.release()
    assert in_use(near) == 1
    proxy.mend()
    far.acquire_nowait(POOL).release()
    all_free(near)


def test_a_network_that_is_down_is_named_and_its_return_needs_no_restart(
    far: Governor, near: Governor, proxy: FaultProxy
) -> None:
    proxy.refuse()
    proxy.cut()
    for _ in range(3):
        with pytest.raises(StoreError, match=rf"127\.0\.0\.1:{proxy.port} cannot be reached"):
            far.acquire_nowait(POOL)
    proxy.mend()
    far.acquire_nowait(POOL).release()
    all_free(near)


def test_connections_that_are_cut_cost_a_waiter_neither_its_place_nor_its_turn(
    far: Governor, near: Governor, proxy: FaultProxy
) -> None:
    leases = [near.acquire_nowait(POOL), near.acquire_nowait(POOL)]
    thread, served = waits(far)
    until(lambda: near.status().pools[0].waiting)
    # Let it find out how things stand and go to sleep.
    time.sleep(0.2)
    proxy.cut()
    leases[0].release()
    assert served.wait(10)
    thread.join()
    leases[1].release()
    all_free(near)


def test_a_waiter_behind_a_network_that_hangs_is_served_when_it_is_back(
    far: Governor, near: Governor, proxy: FaultProxy
) -> None:
    """Its slot is granted meanwhile, and kept for it: it must only show in time that it lives."""
    leases = [near.acquire_nowait(POOL), near.acquire_nowait(POOL)]
    until_asleep = waits(far)
    until(lambda: near.status().pools[0].waiting)
    time.sleep(0.2)
    proxy.hang()
    leases[0].release()
    time.sleep(2 * ANSWER_S)
    proxy.resume()
    thread, served = until_asleep
    assert served.wait(20)
    thread.join()
    leases[1].release()
    all_free(near)


def test_a_slow_network_is_only_slow(far: Governor, near: Governor, proxy: FaultProxy) -> None:
    proxy.delay(ANSWER_S / 10)
    leases = [far.acquire_nowait(POOL), far.acquire_nowait(POOL)]
    with pytest.raises(WaitTimeoutError):
        far.acquire(POOL, timeout=0.1)
    thread, served = waits(far)
    until(lambda: near.status().pools[0].waiting)
    leases[0].release()
    assert served.wait(10)
    thread.join()
    leases[1].release()
    all_free(near)


def test_asks_and_ends_that_overtake_each_other_leave_the_books_right(
    far: Governor, near: Governor, proxy: FaultProxy
) -> None:
    """What was sent first arrives last: a release after the ask that was to follow it, and so on."""
    for _ in range(3):
        leases = [far.acquire_nowait(POOL), far.acquire_nowait(POOL)]
        proxy.hang(Way.ASKING)
        threads = [threading.Thread(target=lease.release) for lease in leases]
        threads += [threading.Thread(target=_taken_and_given, args=(far,)) for _ in range(2)]
        for number, thread in enumerate(threads, start=1):
            thread.start()
            until(lambda number=number: proxy.kept >= number)  # type: ignore[misc]
        proxy.resume(newest_first=True)
        for thread in threads:
            thread.join()
        assert in_use(near) <= 2
    far.acquire(POOL, timeout=10).release()
    all_free(near)


def _taken_and_given(gov: Governor) -> None:
    try:
        gov.acquire(POOL, timeout=10).release()
    except StoreError:
        # Too late on its way. It leaves nothing behind.
        return


def test_whatever_the_network_does_the_cap_holds(
    far: Governor, near: Governor, proxy: FaultProxy, tmp_path: Path
) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    command = [sys.executable, "-m", "tests.faults.hammer", address(proxy), str(SECONDS), str(counter)]
    hammers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY) for _ in range(3)]
    for hammer in hammers:
        assert hammer.stdout is not None
        assert hammer.stdout.readline() == "ready\n"
    chance = random.Random(5)
    while any(hammer.poll() is None for hammer in hammers):
        chance.choice(
            (
                proxy.cut,
                lambda: proxy.hang(chance.choice(list(Way))),
                lambda: proxy.resume(newest_first=True),
                lambda: proxy.lose(chance.choice((Way.ASKING, Way.ANSWERING))),
                lambda: proxy.delay(chance.choice((0.0, 0.02, 0.1))),
            )
        )()
        time.sleep(chance.random() * 0.1)
        proxy.mend()
        time.sleep(chance.random() * 0.2)
    done = [json.loads(hammer.communicate()[0].splitlines()[-1]) for hammer in hammers]
    assert max(one["most"] for one in done) <= 2
    assert all(one["grants"] > 3 for one in done), done
    all_free(near)
